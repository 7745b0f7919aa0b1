"""Users and groups by name and number, cached until something may have changed them."""

from __future__ import annotations

import grp
import pwd

from mainstay.converge.contract import Missing

LARGEST_ID = 2**32 - 2


class Accounts:
    def __init__(self) -> None:
        self._uids: dict[str, int] = {}
        self._gids: dict[str, int] = {}
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def forget(self) -> None:
        """Clears the cache, because a command or package may have changed accounts."""
        for known in (self._uids, self._gids):
            known.clear()
        for names in (self._users, self._groups):
            names.clear()

    def uid(self, name: str) -> int:
        known = self._uids.get(name)
        if known is None:
            known = self._uids[name] = self._number(name, "user")
        return known

    def gid(self, name: str) -> int:
        known = self._gids.get(name)
        if known is None:
            known = self._gids[name] = self._number(name, "group")
        return known

    def user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]

    def group(self, gid: int) -> str:
        if gid not in self._groups:
            try:
                self._groups[gid] = grp.getgrgid(gid).gr_name
            except KeyError:
                self._groups[gid] = str(gid)
        return self._groups[gid]

    def _number(self, name: str, what: str) -> int:
        from mainstay.foundation.numbers import parse_count

        number = parse_count(name, 0, LARGEST_ID)
        if number is not None:
            return number
        try:
            return pwd.getpwnam(name).pw_uid if what == "user" else grp.getgrnam(name).gr_gid
        except (KeyError, ValueError, UnicodeEncodeError):
            raise Missing(f"{what} {name!r} does not exist") from None

"""Users and groups by name and number, cached until something may have changed them."""

from __future__ import annotations

import grp
import pwd

from mainstay.converge.failures import Missing
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.converge.host.account_databases import AccountDatabases
    from mainstay.converge.host.files import Files


class Accounts(Struct):
    _uids: dict[str, int] = {}
    _gids: dict[str, int] = {}
    _users: dict[int, str] = {}
    _groups: dict[int, str] = {}
    # Read for resources that are accounts; other resources ask the system, which knows more sources of names.
    _databases: AccountDatabases | None = None

    def databases(self, files: Files, activity: int) -> AccountDatabases:
        """Returns the local account databases; in a dry run, as earlier resources would leave them."""
        if self._databases is None:
            from mainstay.converge.host.account_databases import AccountDatabases

            self._databases = AccountDatabases(files)
        self._databases.refresh(activity)
        return self._databases

    def _forecast(self) -> AccountDatabases | None:
        databases = self._databases
        return databases if databases is not None and databases.is_forecast else None

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
            databases = self._forecast()
            try:
                name = pwd.getpwuid(uid).pw_name if databases is None else databases.uid_owner(uid)
            except KeyError:
                name = None
            self._users[uid] = name or str(uid)
        return self._users[uid]

    def group(self, gid: int) -> str:
        if gid not in self._groups:
            databases = self._forecast()
            try:
                name = grp.getgrgid(gid).gr_name if databases is None else databases.gid_owner(gid)
            except KeyError:
                name = None
            self._groups[gid] = name or str(gid)
        return self._groups[gid]

    def _number(self, name: str, what: str) -> int:
        if name.isdigit():
            from mainstay.foundation.numbers import LARGEST_ID, parse_count

            number = parse_count(name, 0, LARGEST_ID)
            if number is not None:
                return number
        databases = self._forecast()
        if databases is not None:
            number = databases.local_number(name, what)
            if number is not None:
                return number
            if databases.is_removed(name, what):
                raise Missing(f"{what} {name!r} does not exist")
        try:
            return pwd.getpwnam(name).pw_uid if what == "user" else grp.getgrnam(name).gr_gid
        except (KeyError, ValueError, UnicodeEncodeError):
            raise Missing(f"{what} {name!r} does not exist") from None

"""The local account databases: /etc/passwd, shadow, group and gshadow, read by this program itself.

In a dry run the entries also hold what earlier resources would have changed. Only `account_tools.py` changes the files.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable, Iterator
from itertools import chain

from mainstay.converge.failures import Failure
from mainstay.converge.host.files import Files
from mainstay.foundation import Any, Struct
from mainstay.foundation.numbers import LARGEST_ID, parse_count

PASSWD, SHADOW, GROUP, GSHADOW = "/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"
LOGIN_DEFS, USERADD_DEFAULTS = "/etc/login.defs", "/etc/default/useradd"
LARGEST_DATABASE_BYTES = 256 * 1024 * 1024
LARGEST_SETTINGS_BYTES = 1024 * 1024
# The defaults of the shadow tools for what login.defs does not set.
RANGES = {
    "UID_MIN": 1000,
    "UID_MAX": 60000,
    "GID_MIN": 1000,
    "GID_MAX": 60000,
    "SYS_UID_MIN": 101,
    "SYS_UID_MAX": 999,
    "SYS_GID_MIN": 101,
    "SYS_GID_MAX": 999,
}
# Instead of a password in /etc/passwd.
IN_SHADOW = "x"
DEFAULT_UMASK = 0o022
DEFAULT_GROUP = "100"


class UserEntry(Struct):
    """A line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    comment: str
    home: str
    shell: str
    password: str = IN_SHADOW


class GroupEntry(Struct):
    """A line of /etc/group. A member counts only if gshadow, where it has the group, lists it too."""

    name: str
    gid: int
    members: list[str]


class AccountDatabases(Struct):
    """Reads each database on first use, and again only if its file has changed."""

    _files: Files
    # Whether a dry run has changed the entries, so that the files do not replace them.
    is_forecast: bool = False
    _activity: int = -1
    # Path → what identifies the file that was read.
    _read: dict[str, Any] = {}
    _users: dict[str, UserEntry] = {}
    _uids: dict[int, UserEntry] = {}
    _groups: dict[str, GroupEntry] = {}
    _gids: dict[int, GroupEntry] = {}
    _groups_of: dict[str, list[str]] | None = None
    _passwords: dict[str, str] = {}
    _settings: dict[str, dict[str, str]] = {}
    # Names and numbers that a dry run has removed: the system's own look-up still finds them.
    removed_users: set[str] = set()
    removed_groups: set[str] = set()

    # ---- reading ----
    def refresh(self, activity: int) -> None:
        """Drops what has changed on disk. `activity` is that of the host: while it is the same, no file is looked at."""
        if self.is_forecast or activity == self._activity:
            return
        self._activity = activity
        changed = {path for path, identity in self._read.items() if identity != self._identity(path)}
        if changed & {GROUP, GSHADOW}:
            changed |= {GROUP, GSHADOW}
        for path in changed:
            self._read.pop(path, None)
        self._settings.clear()

    def look_again(self) -> None:
        """Looks at the files at the next use: another process may have changed them."""
        self._activity = -1

    def _identity(self, path: str) -> Any:
        try:
            found = self._files.stat(path)
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_size, getattr(found, "st_mtime_ns", 0), getattr(found, "st_ctime_ns", 0))

    def _lines(self, path: str) -> Iterator[list[str]]:
        """Yields the fields of each line; a missing database has none."""
        self._read[path] = self._identity(path)
        try:
            content = self._files.read(path, LARGEST_DATABASE_BYTES)
        except FileNotFoundError:
            return
        except PermissionError:
            del self._read[path]
            raise Failure(f"no permission to read {path}; run as root") from None
        if content is None:
            raise Failure(f"{path} is larger than {LARGEST_DATABASE_BYTES} bytes")
        for line in content.decode("utf-8", "surrogateescape").split("\n"):
            # Lines with a sign in front include names of another source.
            if line and line[0] not in "#+-":
                yield line.split(":")

    def _load_users(self) -> None:
        if PASSWD in self._read:
            return
        self._users, self._uids = {}, {}
        for fields in self._lines(PASSWD):
            uid, gid = _number(fields, 2), _number(fields, 3)
            if len(fields) >= 7 and uid is not None and gid is not None:
                self._put_user(UserEntry(fields[0], uid, gid, fields[4], fields[5], fields[6], fields[1]))

    def _load_groups(self) -> None:
        if GROUP in self._read:
            return
        self._groups, self._gids, self._groups_of = {}, {}, None
        for fields in self._lines(GROUP):
            gid = _number(fields, 2)
            if len(fields) >= 4 and gid is not None:
                self._put_group(GroupEntry(fields[0], gid, [name for name in fields[3].split(",") if name]))

    def _put_user(self, entry: UserEntry) -> None:
        self._users.setdefault(entry.name, entry)
        self._uids.setdefault(entry.uid, entry)

    def _put_group(self, entry: GroupEntry) -> None:
        self._groups.setdefault(entry.name, entry)
        self._gids.setdefault(entry.gid, entry)

    def user(self, name: str) -> UserEntry | None:
        self._load_users()
        return self._users.get(name)

    def users(self) -> list[UserEntry]:
        self._load_users()
        return list(self._users.values())

    def group(self, name: str) -> GroupEntry | None:
        self._load_groups()
        return self._groups.get(name)

    def groups_of(self, user: str) -> list[str]:
        """The groups that list the user, in both databases of groups."""
        self._load_groups()
        if self._groups_of is None:
            # A tool that was killed may have written only one of the two.
            shadowed = {fields[0]: set(fields[3].split(",")) for fields in self._shadowed_groups()}
            self._groups_of = {}
            for entry in self._groups.values():
                listed = shadowed.get(entry.name)
                for name in entry.members:
                    if listed is None or name in listed:
                        self._groups_of.setdefault(name, []).append(entry.name)
        return self._groups_of.get(user, [])

    def _shadowed_groups(self) -> Iterator[list[str]]:
        try:
            yield from (fields for fields in self._lines(GSHADOW) if len(fields) >= 4)
        except Failure:
            # Only root reads it. For others the group database alone counts.
            return

    def password_field(self, user: str) -> str | None:
        """The password with its locks; None if the user must have an entry in /etc/shadow and has none.

        Raises `Failure` without permission."""
        if SHADOW not in self._read:
            self._passwords = {fields[0]: fields[1] for fields in self._lines(SHADOW) if len(fields) >= 2}
        field = self._passwords.get(user)
        entry = self._users.get(user)
        # Without a shadow database, or from a time before it.
        return entry.password if field is None and entry is not None and entry.password != IN_SHADOW else field

    # ---- what other sources know ----
    def uid_owner(self, uid: int) -> str | None:
        """The user who has the number, in any source of names."""
        self._load_users()
        return self._owner("user", self._uids.get(uid), lambda: pwd.getpwuid(uid).pw_name)

    def gid_owner(self, gid: int) -> str | None:
        self._load_groups()
        return self._owner("group", self._gids.get(gid), lambda: grp.getgrgid(gid).gr_name)

    def _owner(self, what: str, entry: UserEntry | GroupEntry | None, ask_system: Callable[[], str]) -> str | None:
        if entry is not None:
            return entry.name
        try:
            name = ask_system()
        except KeyError:
            return None
        # The system may find the number under a local name for which a dry run has freed it.
        is_freed = self.is_forecast and (self.local_number(name, what) is not None or self.is_removed(name, what))
        return None if is_freed else name

    def is_known_elsewhere(self, name: str, what: str) -> bool:
        """Whether another source of names than the local files knows the user or group."""
        if self.is_removed(name, what) or self.local_number(name, what) is not None:
            return False
        try:
            (pwd.getpwnam if what == "user" else grp.getgrnam)(name)
        except KeyError:
            return False
        return True

    def local_number(self, name: str, what: str) -> int | None:
        """The number of a local user or group."""
        if what == "user":
            user = self.user(name)
            return None if user is None else user.uid
        group = self.group(name)
        return None if group is None else group.gid

    def is_removed(self, name: str, what: str) -> bool:
        """Whether a dry run would have removed it; the system still finds it."""
        return name in (self.removed_users if what == "user" else self.removed_groups)

    # ---- settings of the shadow tools ----
    def setting(self, key: str, path: str = LOGIN_DEFS) -> str | None:
        if path not in self._settings:
            try:
                content = self._files.read(path, LARGEST_SETTINGS_BYTES) or b""
            except (FileNotFoundError, PermissionError):
                content = b""
            self._settings[path] = dict(_setting_lines(content.decode("utf-8", "replace"), path))
        return self._settings[path].get(key)

    def has_user_groups(self) -> bool:
        return (self.setting("USERGROUPS_ENAB") or "").lower() == "yes"

    def home_mode(self) -> int:
        mode = _octal(self.setting("HOME_MODE"))
        if mode is not None:
            return mode & 0o777
        umask = _octal(self.setting("UMASK"))
        return 0o777 & ~(DEFAULT_UMASK if umask is None else umask)

    def default_home(self, name: str) -> str:
        return f"{(self.setting('HOME', USERADD_DEFAULTS) or '/home').rstrip('/')}/{name}"

    def default_shell(self) -> str:
        return self.setting("SHELL", USERADD_DEFAULTS) or ""

    def default_group(self) -> str:
        return self.setting("GROUP", USERADD_DEFAULTS) or DEFAULT_GROUP

    def free_uid(self, *, system: bool) -> int:
        self._load_users()
        self._load_groups()
        return self._free("UID", self._uids, system=system, is_taken=lambda n: bool(self.uid_owner(n)))

    def free_gid(self, *, system: bool, preferred: int | None = None) -> int:
        self._load_groups()
        if preferred is not None and self.gid_owner(preferred) is None:
            return preferred
        return self._free("GID", self._gids, system=system, is_taken=lambda n: bool(self.gid_owner(n)))

    def _free(self, kind: str, used: dict[int, Any], *, system: bool, is_taken: Callable[[int], bool]) -> int:
        """The number after the highest one in use; for a system account, below the lowest. Else any free one.

        A number that was used before is taken last: files of its former owner may still exist."""
        prefix = "SYS_" if system else ""
        least, most = (self._bound(f"{prefix}{kind}_{end}") for end in ("MIN", "MAX"))
        within = [number for number in used if least <= number <= most]
        if system:
            ranges = (range(min(within, default=most + 1) - 1, least - 1, -1), range(most, least - 1, -1))
        else:
            ranges = (range(max(within, default=least - 1) + 1, most + 1), range(least, most + 1))
        for number in chain(*ranges):
            if number not in used and not is_taken(number):
                return number
        raise Failure(f"no free number from {least} to {most} is left; {LOGIN_DEFS} sets {prefix}{kind}_MAX")

    def _bound(self, key: str) -> int:
        given = parse_count(self.setting(key) or "", 0, LARGEST_ID)
        if given is not None:
            return given
        for kind in ("UID", "GID"):
            # The shadow tools end the range of system accounts before that of others.
            if key == f"SYS_{kind}_MAX":
                return self._bound(f"{kind}_MIN") - 1
        return RANGES[key]

    # ---- what a dry run would change ----
    def put_user(self, entry: UserEntry, *, password: str | None, groups: list[str]) -> None:
        """Adds a user, or replaces its entry. `password` None: as it is."""
        field = self.password_field(entry.name)
        old = self.groups_of(entry.name)
        self._forecast()
        self.removed_users.discard(entry.name)
        replaced = self._users.pop(entry.name, None)
        if replaced is not None and self._uids.get(replaced.uid) is replaced:
            del self._uids[replaced.uid]
        self._put_user(entry)
        self._passwords[entry.name] = (field or "!") if password is None else password
        if self._groups_of is not None:
            self._groups_of[entry.name] = list(groups)
        for name in set(old) | set(groups):
            members = self._groups[name].members if name in self._groups else []
            if name in groups and entry.name not in members:
                members.append(entry.name)
            elif name not in groups and entry.name in members:
                members.remove(entry.name)

    def remove_user(self, name: str) -> None:
        entry = self.user(name)
        if entry is None:
            return
        self.put_user(entry, password=None, groups=[])
        del self._users[name]
        if self._uids.get(entry.uid) is entry:
            del self._uids[entry.uid]
        self._passwords.pop(name, None)
        self.removed_users.add(name)
        own = self.group(name)
        # As userdel does with the group of the user's name.
        is_shared = any(user.gid == entry.gid for user in self._users.values())
        if self.has_user_groups() and own and own.gid == entry.gid and not own.members and not is_shared:
            self.remove_group(name)

    def put_group(self, name: str, gid: int) -> None:
        """Adds a group, or changes its number; the users whose primary group it is follow, as groupmod does."""
        self._load_users()
        entry = self.group(name)
        self._forecast()
        self.removed_groups.discard(name)
        if entry is None:
            self._put_group(GroupEntry(name, gid, []))
            return
        if self._gids.get(entry.gid) is entry:
            del self._gids[entry.gid]
        for user in self._users.values():
            if user.gid == entry.gid:
                user.gid = gid
        entry.gid = gid
        self._gids.setdefault(gid, entry)

    def remove_group(self, name: str) -> None:
        entry = self.group(name)
        if entry is None:
            return
        self.groups_of(name)
        self._forecast()
        del self._groups[name]
        if self._gids.get(entry.gid) is entry:
            del self._gids[entry.gid]
        for listed in (self._groups_of or {}).values():
            if name in listed:
                listed.remove(name)
        self.removed_groups.add(name)

    def _forecast(self) -> None:
        self._load_users()
        self._load_groups()
        self.is_forecast = True


def _number(fields: list[str], index: int) -> int | None:
    return parse_count(fields[index], 0, 2**32 - 1) if len(fields) > index else None


def _octal(text: str | None) -> int | None:
    try:
        return int(text or "", 8)
    except ValueError:
        return None


def _setting_lines(text: str, path: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if path == LOGIN_DEFS:
            key, *value = stripped.split(None, 1)
            yield key, value[0].strip().strip('"') if value else ""
        else:
            key, _, rest = stripped.partition("=")
            yield key.strip(), rest.strip()

"""The `user` type: a local user, its groups, home and password. Only decides; providers act."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mainstay.converge.contract import Change, NamedState, Property, Resource, ResourceType
from mainstay.converge.failures import Failure, Missing
from mainstay.converge.resources.group import (
    ABSENT,
    CREATE,
    ID_NUMBER,
    PRESENT,
    REMOVE,
    UPDATE,
    name_problem,
    shown_names,
)
from mainstay.converge.value_kinds import BOOLEAN, SCALAR_SCHEMA, TEXT, TEXTS, Unfit, parsed_kind
from mainstay.foundation import Any
from mainstay.foundation.numbers import LARGEST_ID, parse_count
from mainstay.foundation.text import line_problem

MINIMUM, EXACT = "minimum", "exact"
PASSWORD, MAKE_HOME = "set password", "make home"  # a verb
# As crypt(3) writes them: `$`, a method, and printable characters without those that mean something in /etc/shadow.
# Hashes of DES have 13 characters. A lone `*` matches no password.
HASH = re.compile(r"\$[\"-)+-9<-\[\]-~]+|[./0-9A-Za-z]{13}|\*")
HASH_NAME = "a crypt(3) hash, as `openssl passwd -6` prints it"
LONGEST_HASH = 2000
LONGEST_COMMENT = 500
LONGEST_PATH_BYTES = 1000
MOST_GROUPS = 1000
ROOT = 0


def _parse_hash(text: str) -> str:
    if not HASH.fullmatch(text) or len(text) > LONGEST_HASH:
        raise Unfit(f"expected {HASH_NAME}")
    return text


PASSWORD_HASH = parsed_kind(HASH_NAME, _parse_hash, SCALAR_SCHEMA)


def _field_problem(text: str, longest: int) -> str | None:
    """Returns why a text cannot be a field of /etc/passwd, or an argument."""
    problem = line_problem(text)
    if problem is not None:
        return problem
    if ":" in text:
        return "contains `:`, which separates the fields of /etc/passwd"
    if text.startswith("-"):
        return "begins with `-`"
    try:
        written = text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    return f"is longer than {longest} bytes" if len(written) > longest else None


def _path_problem(path: str) -> str | None:
    problem = _field_problem(path, LONGEST_PATH_BYTES)
    if problem is not None:
        return problem
    if not path.startswith("/"):
        return "must be an absolute path"
    parts = path[1:].split("/")
    is_canonical = path == "/" or not any(part in ("", ".", "..") for part in parts)
    return None if is_canonical else "must be a canonical path"


class User(Resource):
    uid: int | None = None
    group: str | None = None
    groups: tuple[str, ...] | None = None
    membership: str = MINIMUM
    home: str | None = None
    manage_home: bool = False
    shell: str | None = None
    comment: str | None = None
    system: bool = False
    password_hash: str | None = None
    locked: bool | None = None


class UserState(NamedState):
    """The entry of the user, and what prevents a change."""

    uid: int | None = None
    gid: int | None = None
    # The names of the primary group and of the other groups.
    group: str | None = None
    groups: tuple[str, ...] = ()
    home: str | None = None
    shell: str | None = None
    comment: str | None = None
    # Without the `!` of a locked password; None: not read, or no entry in the shadow database.
    password_hash: str | None = None
    locked: bool | None = None
    # Whether /etc/shadow lacks the user, as after a tool that was killed.
    lacks_password_entry: bool = False
    # Whether a home is to be managed and does not exist.
    home_is_missing: bool = False
    # The number of the wanted primary group; None: not given, or it does not exist.
    wanted_gid: int | None = None
    # The name of the primary group after the change.
    wanted_group: str | None = None
    # Wanted groups that do not exist, or are not local (with their source).
    missing_groups: tuple[str, ...] = ()
    foreign_groups: tuple[str, ...] = ()
    # The user who has the wanted number.
    uid_taken_by: str | None = None
    # Processes of the user, read only before a change that they would prevent.
    processes: tuple[str, ...] = ()
    # Why the home must not be removed.
    kept_home: str | None = None
    # Whether this process runs as the user.
    is_own: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            **super().as_json(),
            "uid": self.uid,
            "gid": self.gid,
            "group": self.group,
            "groups": list(self.groups),
            "home": self.home,
            "shell": self.shell,
            "comment": self.comment,
            "locked": self.locked,
        }


class UserType(ResourceType):
    """Only users of `/etc/passwd`. Properties that you leave out stay as they are.

    A new user gets the next free number, a home that is not created, and a locked password. Without `group` its primary
    group is the one of its name, which is created if `USERGROUPS_ENAB` of `/etc/login.defs` is set."""

    name = "user"
    resource = User
    ensures = (PRESENT, ABSENT)
    altered_by = ("uid", "gid", "groups", "home", "shell", "comment", "password_hash", "locked", "home_is_missing")
    example = """- user:
    - shop:
        system: true
        home: /srv/shop
        manage_home: true
        shell: /usr/sbin/nologin
        comment: Shop application
    - deploy:
        uid: 1800
        group: users
        groups: [shop, adm]
        membership: exact
        password_hash: $6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.
        locked: false
    - former:
        ensure: absent
        manage_home: true
"""
    properties = {
        "uid": Property(
            ID_NUMBER, "its number, such as `1500`; after a change, files outside its home keep the old one"
        ),
        "group": Property(TEXT, "its primary group, by name or number, such as `staff`"),
        "groups": Property(TEXTS, "other groups it is in, such as `[sudo, docker]`"),
        "membership": Property(
            TEXT,
            "whether it may be in groups that `groups` does not list: `minimum` (default) or `exact`",
            choices=(MINIMUM, EXACT),
        ),
        "home": Property(TEXT, "path of its home, such as `/srv/app`; the directory is not moved"),
        "manage_home": Property(
            BOOLEAN,
            "`true`: create a missing home from `/etc/skel`; with absent: remove the home. Default `false`",
        ),
        "shell": Property(TEXT, "its login shell, such as `/usr/sbin/nologin`"),
        "comment": Property(TEXT, "its full name or purpose, such as `Shop application`"),
        "system": Property(BOOLEAN, "`true`: take the number of a new user from the range of system users"),
        "password_hash": Property(
            PASSWORD_HASH, "hash of its password, such as `$6$…`, which `openssl passwd -6` prints", secret=True
        ),
        "locked": Property(BOOLEAN, "whether `!` before the hash keeps its password from working, such as `true`"),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        problem = name_problem(name)
        if problem is not None:
            yield f"user name {problem}"

    def check(self, wanted: User) -> Iterator[tuple[str | None, str]]:
        if wanted.ensure == ABSENT:
            if wanted.name == "root":
                yield "ensure", "ensure: root cannot be removed"
            fitting = ("name", "ensure", "manage_home")
            for key in self.properties:
                if key not in fitting and key in wanted.__dict__:
                    yield key, f"{key} is only valid with ensure: present"
            return
        for key, problem in (
            ("group", None if wanted.group is None else _group_problem(wanted.group)),
            ("home", None if wanted.home is None else _path_problem(wanted.home)),
            ("shell", None if wanted.shell is None else _path_problem(wanted.shell)),
            ("comment", None if wanted.comment is None else _field_problem(wanted.comment, LONGEST_COMMENT)),
        ):
            if problem is not None:
                yield key, f"{key} {problem}"
        yield from self._check_groups(wanted)

    def _check_groups(self, wanted: User) -> Iterator[tuple[str | None, str]]:
        for name in wanted.groups or ():
            problem = name_problem(name)
            if problem is not None:
                yield "groups", f"groups: the name {problem}"
        if len(wanted.groups or ()) > MOST_GROUPS:
            yield "groups", f"groups: more than {MOST_GROUPS} groups"
        if wanted.membership == EXACT and wanted.groups is None:
            yield "membership", "membership: exact needs `groups`; write `groups: []` for a user without other groups"

    # ---- in a run ----
    def manifest_entry(self, actual: UserState) -> dict[str, Any]:
        if actual.ensure == ABSENT:
            return {"ensure": ABSENT}
        found = {"ensure": PRESENT, "uid": actual.uid, "group": actual.group, "groups": list(actual.groups)}
        found |= {"home": actual.home, "shell": actual.shell, "comment": actual.comment}
        if actual.password_hash or actual.locked:
            # `locked: false` for a user without a password is refused.
            found["locked"] = actual.locked
        return found

    def desired(self, wanted: User, actual: UserState) -> tuple[bool, str]:
        if actual.ensure != wanted.ensure:
            return False, f"user is {actual.ensure}, expected {wanted.ensure}"
        if wanted.ensure == ABSENT:
            return True, ""
        problem = next(self._problems(wanted, actual), ("", ""))[1]
        return not problem, problem

    def _problems(self, wanted: User, actual: UserState) -> Iterator[tuple[str, str]]:
        """Yields what differs from the desired state: the verb that changes it, and the reason."""
        if wanted.uid is not None and actual.uid != wanted.uid:
            yield UPDATE, f"uid is {actual.uid}, expected {wanted.uid}"
        if wanted.group is not None and actual.gid != actual.wanted_gid:
            yield UPDATE, f"group is {actual.group}, expected {wanted.group}"
        missing, surplus = groups_to_change(wanted, actual)
        if missing:
            yield UPDATE, f"user is not in group {shown_names(missing)}"
        if surplus:
            yield UPDATE, f"user is in group {shown_names(surplus)}, which is not listed"
        for key in ("home", "shell", "comment"):
            expected, found = getattr(wanted, key), getattr(actual, key)
            if expected is not None and expected != found:
                yield UPDATE, f"{key} is {found or 'empty'}, expected {expected or 'empty'}"
        if wanted.password_hash is not None and actual.password_hash != wanted.password_hash:
            yield PASSWORD, "password hash differs"
        elif actual.lacks_password_entry:
            yield PASSWORD, "user has no entry in /etc/shadow"
        elif wanted.locked is not None and wanted.locked != actual.locked:
            state = ("unlocked", "locked")
            yield UPDATE, f"password is {state[bool(actual.locked)]}, expected {state[wanted.locked]}"
        if wanted.manage_home and actual.home_is_missing:
            yield MAKE_HOME, f"home {wanted.home or actual.home} does not exist"

    def decide(self, wanted: User, actual: UserState, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        # An empty hash lets everyone in, also where the user is not locked already.
        self._refuse_empty_password(wanted, actual)
        if reached:
            return ()
        if wanted.ensure == ABSENT:
            self._refuse_removal(wanted, actual)
            return (Change(REMOVE, reason),)
        self._refuse(wanted, actual)
        if actual.ensure == ABSENT:
            return (Change(CREATE, reason),)
        reasons: dict[str, str] = {}
        for verb, problem in self._problems(wanted, actual):
            reasons[verb] = f"{reasons[verb]}; {problem}" if verb in reasons else problem
        return tuple(Change(verb, text) for verb, text in reasons.items())

    def _refuse_empty_password(self, wanted: User, actual: UserState) -> None:
        if wanted.ensure == ABSENT or wanted.locked is not False or wanted.password_hash is not None:
            return
        if actual.ensure == ABSENT or not actual.password_hash:
            raise Failure(
                f"user {wanted.name} has no password, and without a lock everyone could log in; "
                "give `password_hash`, or remove `locked: false`"
            )

    def _refuse(self, wanted: User, actual: UserState) -> None:
        """Raises `Failure` for a change that the tools would refuse, or that would harm other users."""
        if wanted.uid is not None and actual.uid != wanted.uid:
            if actual.uid == ROOT:
                raise Failure(f"user {wanted.name} has uid 0 and keeps it")
            if actual.uid_taken_by is not None:
                raise Failure(f"uid {wanted.uid} belongs to user {actual.uid_taken_by}; choose another number")
        if wanted.group is not None and actual.wanted_gid is None:
            raise Missing(f"group {wanted.group} does not exist; add a `group` resource before")
        if actual.missing_groups:
            raise Missing(f"group {shown_names(actual.missing_groups)} does not exist; add a `group` resource before")
        if actual.foreign_groups:
            raise Failure(
                f"group {shown_names(actual.foreign_groups)} is not local, so users are added to it where it is managed"
            )
        if actual.processes:
            raise Failure(
                f"uid and home of a user with running processes cannot change; stop them before: "
                f"{shown_names(actual.processes)}"
            )

    def _refuse_removal(self, wanted: User, actual: UserState) -> None:
        if actual.uid == ROOT:
            raise Failure(f"user {wanted.name} has uid 0; it is never removed")
        if actual.is_own:
            raise Failure(f"user {wanted.name} is the user of this run; it is not removed")
        if actual.processes:
            raise Failure(
                f"user {wanted.name} has running processes; stop them before: {shown_names(actual.processes)}"
            )
        if wanted.manage_home and actual.kept_home is not None:
            raise Failure(f"home {actual.home} is not removed: {actual.kept_home}; remove `manage_home` to keep it")

    def describe(self, wanted: User, actual: UserState, changes: tuple[Change, ...]) -> str:
        words = {
            CREATE: "created the user and its home" if actual.home_is_missing else "created the user",
            UPDATE: "changed the user",
            PASSWORD: "set the password",
            MAKE_HOME: "created the home",
            REMOVE: "removed the user and its home" if wanted.manage_home else "removed the user",
        }
        return "Would have " + ", would have ".join(words[change.verb] for change in changes)


def _group_problem(name: str) -> str | None:
    return None if parse_count(name, 0, LARGEST_ID) is not None else name_problem(name)


def groups_to_change(wanted: User, actual: UserState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the groups that the user must join, and those that it must leave. The primary group is neither."""
    if wanted.groups is None:
        return (), ()
    known = (*actual.groups, actual.wanted_group)
    missing = tuple(name for name in dict.fromkeys(wanted.groups) if name not in known)
    if wanted.membership != EXACT:
        return missing, ()
    kept = (*wanted.groups, actual.wanted_group)
    surplus = tuple(name for name in actual.groups if name not in kept)
    return missing, surplus


def password_field(wanted: User, actual: UserState) -> str:
    """Returns the second field of /etc/shadow as it must be. A password that was locked stays locked."""
    found = wanted.password_hash if wanted.password_hash is not None else actual.password_hash or ""
    locked = wanted.locked
    if locked is None:
        # An account without a password is locked only for want of one.
        locked = bool(actual.locked and actual.password_hash not in (None, "", "*"))
    return f"!{found}" if locked or not found else found


TYPE = UserType()

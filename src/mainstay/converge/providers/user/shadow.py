"""Local users, changed with useradd, usermod, userdel and chpasswd; their homes are created and removed here."""

from __future__ import annotations

from mainstay.converge.contract import Change, Provider
from mainstay.converge.failures import Failure
from mainstay.converge.host.account_databases import AccountDatabases, UserEntry
from mainstay.converge.host.account_tools import (
    missing_tools,
    one_run_at_a_time,
    refuse_plain_users,
    run_tool,
    source_of,
)
from mainstay.converge.host.homes import home_is_missing, make_home, processes_of, remove_home, why_home_is_kept
from mainstay.converge.host.host import Host
from mainstay.converge.resources.group import ABSENT, CREATE, PRESENT, REMOVE
from mainstay.converge.resources.user import MAKE_HOME, PASSWORD, User, UserState, groups_to_change, password_field

TOOLS = ("useradd", "usermod", "userdel", "groupadd", "chpasswd")
# What `!` in front of a hash may be repeated; more is not a lock that a tool has set.
MOST_LOCK_MARKS = 5


class ShadowState(UserState):
    # The number of `!` before the hash; some tools add more than one.
    lock_marks: int = 0


class ShadowUsers(Provider):
    name = "shadow"

    def unavailable(self, host: Host) -> str | None:
        return missing_tools(host, *TOOLS)

    # ---- reading ----
    def read(self, wanted: User, host: Host, *, refresh: bool) -> ShadowState:
        databases = host.account_databases()
        state = ShadowState(wanted.name, self.name)
        entry = databases.user(wanted.name)
        if entry is not None:
            self._fill(state, entry, databases)
            self._read_password(wanted, state, databases)
        elif databases.is_known_elsewhere(wanted.name, "user"):
            source = source_of(wanted.name, "user", host)
            raise Failure(f"user {wanted.name} is not local ({source}); manage it there")
        if wanted.ensure == ABSENT:
            if entry is not None:
                self._read_removal(wanted, state, entry, host)
            return state
        self._resolve_groups(wanted, state, host)
        if wanted.manage_home:
            home = wanted.home or state.home or databases.default_home(wanted.name)
            state.home_is_missing = home_is_missing(host.files, home)
        if wanted.uid is not None and wanted.uid != state.uid:
            state.uid_taken_by = databases.uid_owner(wanted.uid)
        if entry is not None and (wanted.uid not in (None, entry.uid) or wanted.home not in (None, entry.home)):
            state.processes = processes_of(entry.uid)
        return state

    def _fill(self, state: ShadowState, entry: UserEntry, databases: AccountDatabases) -> None:
        state.ensure = PRESENT
        state.uid, state.gid = entry.uid, entry.gid
        state.home, state.shell, state.comment = entry.home, entry.shell, entry.comment
        state.group = state.wanted_group = databases.gid_owner(entry.gid) or str(entry.gid)
        state.groups = tuple(sorted(databases.groups_of(entry.name)))

    def _read_password(self, wanted: User, state: ShadowState, databases: AccountDatabases) -> None:
        try:
            field = databases.password_field(wanted.name)
        except Failure:
            if wanted.password_hash is None and wanted.locked is None:
                # Only root reads it, and it is not needed.
                return
            raise
        if field is None:
            state.lacks_password_entry = True
            return
        state.password_hash = field.lstrip("!")
        state.lock_marks = len(field) - len(state.password_hash)
        state.locked = state.lock_marks > 0

    def _read_removal(self, wanted: User, state: ShadowState, entry: UserEntry, host: Host) -> None:
        state.is_own = entry.uid == host.files.effective_uid
        state.processes = processes_of(entry.uid)
        if wanted.manage_home:
            users = host.account_databases().users()
            others = [(user.name, user.home) for user in users if user.name != entry.name]
            state.kept_home = why_home_is_kept(host.files, entry.home, entry.uid, others)

    def _resolve_groups(self, wanted: User, state: ShadowState, host: Host) -> None:
        databases = host.account_databases()
        if wanted.group is not None:
            number = int(wanted.group) if wanted.group.isdigit() else databases.local_number(wanted.group, "group")
            if number is None and databases.is_known_elsewhere(wanted.group, "group"):
                number = host.accounts.gid(wanted.group)
            name = None if number is None else databases.gid_owner(number)
            if name is not None:
                state.wanted_gid, state.wanted_group = number, name
        missing, _ = groups_to_change(wanted, state)
        unknown = [name for name in missing if databases.group(name) is None]
        foreign = [name for name in unknown if databases.is_known_elsewhere(name, "group")]
        state.missing_groups = tuple(name for name in unknown if name not in foreign)
        state.foreign_groups = tuple(f"{name} ({source_of(name, 'group', host)})" for name in foreign)

    # ---- changing ----
    def perform(self, wanted: User, actual: ShadowState, change: Change, host: Host) -> None:
        with one_run_at_a_time(host):
            self._change(wanted, actual, change, host)

    def _change(self, wanted: User, actual: ShadowState, change: Change, host: Host) -> None:
        if change.verb == CREATE:
            self._create(wanted, actual, host)
        elif change.verb == REMOVE:
            if wanted.manage_home:
                # Before the user, whose entry is where a later run finds the path.
                remove_home(host.files, actual.home or "/")
            run_tool(host, ("userdel", "--", wanted.name))
        elif change.verb == PASSWORD:
            self._set_password(wanted, actual, host)
        elif change.verb == MAKE_HOME:
            self._make_home(wanted, host)
        else:
            self._update(wanted, actual, host)

    def _create(self, wanted: User, actual: ShadowState, host: Host) -> None:
        entry, own_group = self._new_entry(wanted, actual, host)
        if own_group is not None:
            # Not by useradd: killed in the middle, it would leave a user whose group does not exist.
            run_tool(host, ("groupadd", "--gid", str(entry.gid), *_system(wanted), "--", own_group))
        words = ["useradd", "--no-create-home", "--no-user-group", "--uid", str(entry.uid), "--gid", str(entry.gid)]
        words += [f"--home-dir={entry.home}", f"--comment={entry.comment}", *_system(wanted)]
        if wanted.shell is not None:
            words.append(f"--shell={wanted.shell}")
        missing, _ = groups_to_change(wanted, actual)
        if missing:
            words.append(f"--groups={','.join(missing)}")
        run_tool(host, (*words, "--", wanted.name))
        if wanted.password_hash is not None:
            self._set_password(wanted, actual, host)
        if actual.home_is_missing:
            self._make_home(wanted, host)
        self._warn_of_shell(wanted, host)

    def _new_entry(self, wanted: User, actual: ShadowState, host: Host) -> tuple[UserEntry, str | None]:
        """Returns the entry of a new user, and the name of its own group if that must be created.

        Numbers are chosen here and not by useradd, so that a dry run forecasts the same ones."""
        databases = host.account_databases()
        uid = databases.free_uid(system=wanted.system) if wanted.uid is None else wanted.uid
        own_group: str | None = None
        gid = actual.wanted_gid
        if gid is None:
            gid = databases.local_number(wanted.name, "group")
        if gid is None and databases.has_user_groups():
            own_group = wanted.name
            gid = databases.free_gid(system=wanted.system, preferred=uid)
        elif gid is None:
            gid = host.accounts.gid(databases.default_group())
        home = wanted.home or databases.default_home(wanted.name)
        shell = databases.default_shell() if wanted.shell is None else wanted.shell
        return UserEntry(wanted.name, uid, gid, wanted.comment or "", home, shell), own_group

    def _update(self, wanted: User, actual: ShadowState, host: Host) -> None:
        words = ["usermod"]
        if wanted.uid not in (None, actual.uid):
            words += ["--uid", str(wanted.uid)]
        if wanted.group is not None and actual.wanted_gid != actual.gid:
            words += ["--gid", str(actual.wanted_gid)]
        missing, surplus = groups_to_change(wanted, actual)
        if surplus:
            kept = [name for name in actual.groups if name not in surplus]
            words.append(f"--groups={','.join((*kept, *missing))}")
        elif missing:
            words += ["--append", f"--groups={','.join(missing)}"]
        for option, key in (("--home", "home"), ("--shell", "shell"), ("--comment", "comment")):
            value = getattr(wanted, key)
            if value is not None and value != getattr(actual, key):
                words.append(f"{option}={value}")
        changes_lock = self._changes_only_lock(wanted, actual)
        if changes_lock:
            words.append("--lock" if wanted.locked else "--unlock")
        run_tool(host, (*words, "--", wanted.name))
        if changes_lock and not wanted.locked:
            for _ in range(1, min(actual.lock_marks, MOST_LOCK_MARKS)):
                run_tool(host, ("usermod", "--unlock", "--", wanted.name))
        self._warn_of_files(wanted, actual, host)
        self._warn_of_shell(wanted, host)

    def _changes_only_lock(self, wanted: User, actual: ShadowState) -> bool:
        is_same_hash = wanted.password_hash in (None, actual.password_hash)
        return wanted.locked not in (None, actual.locked) and is_same_hash and not actual.lacks_password_entry

    def _set_password(self, wanted: User, actual: ShadowState, host: Host) -> None:
        line = f"{wanted.name}:{str.__str__(password_field(wanted, actual))}\n"
        run_tool(host, ("chpasswd", "--encrypted"), stdin=line.encode())

    def _make_home(self, wanted: User, host: Host) -> None:
        databases = host.account_databases()
        entry = databases.user(wanted.name)
        if entry is None:
            raise Failure(f"user {wanted.name} does not exist, so its home is not created")
        make_home(host.files, entry.home, uid=entry.uid, gid=entry.gid, mode=databases.home_mode())

    # ---- forecasting ----
    def forecast(self, wanted: User, actual: ShadowState, change: Change, host: Host) -> None:
        refuse_plain_users(host)
        databases = host.account_databases()
        if change.verb == REMOVE:
            if wanted.manage_home:
                remove_home(host.files, actual.home or "/")
            databases.remove_user(wanted.name)
        elif change.verb == CREATE:
            entry, own_group = self._new_entry(wanted, actual, host)
            if own_group is not None:
                databases.put_group(own_group, entry.gid)
            missing, _ = groups_to_change(wanted, actual)
            databases.put_user(entry, password=password_field(wanted, actual), groups=list(missing))
            if actual.home_is_missing:
                self._make_home(wanted, host)
            self._warn_of_shell(wanted, host)
        elif change.verb == PASSWORD:
            found = databases.user(wanted.name)
            if found is not None:
                field = password_field(wanted, actual)
                databases.put_user(found, password=field, groups=databases.groups_of(wanted.name))
        elif change.verb == MAKE_HOME:
            self._make_home(wanted, host)
        else:
            self._forecast_update(wanted, actual, host)
        host.accounts.forget()

    def _forecast_update(self, wanted: User, actual: ShadowState, host: Host) -> None:
        databases = host.account_databases()
        old = databases.user(wanted.name)
        if old is None:
            return
        new = UserEntry(
            old.name,
            old.uid if wanted.uid is None else wanted.uid,
            old.gid if actual.wanted_gid is None else actual.wanted_gid,
            old.comment if wanted.comment is None else wanted.comment,
            old.home if wanted.home is None else wanted.home,
            old.shell if wanted.shell is None else wanted.shell,
            old.password,
        )
        missing, surplus = groups_to_change(wanted, actual)
        groups = [name for name in (*actual.groups, *missing) if name not in surplus]
        changes_lock = self._changes_only_lock(wanted, actual)
        databases.put_user(new, password=password_field(wanted, actual) if changes_lock else None, groups=groups)
        if (old.uid, old.gid) != (new.uid, new.gid) and _owns(new.home, old.uid, host):
            host.files.note_new_owner(new.home, (old.uid, new.uid), (old.gid, new.gid))
        self._warn_of_files(wanted, actual, host)
        self._warn_of_shell(wanted, host)

    # ---- warnings ----
    def _warn_of_files(self, wanted: User, actual: ShadowState, host: Host) -> None:
        if wanted.uid not in (None, actual.uid):
            host.note(
                f"files of uid {actual.uid} outside the home keep that number; "
                f"`find / -xdev -uid {actual.uid}` lists those of one disk"
            )

    def _warn_of_shell(self, wanted: User, host: Host) -> None:
        if wanted.shell is not None and not host.files.exists(wanted.shell):
            host.note(f"shell {wanted.shell} does not exist, so a login as {wanted.name} fails")


def _system(wanted: User) -> tuple[str, ...]:
    return ("--system",) if wanted.system else ()


def _owns(home: str, uid: int, host: Host) -> bool:
    """Whether usermod would give the files of a home to the new user: only if the home belongs to the old one."""
    try:
        return bool(host.files.lstat(home).st_uid == uid)
    except (OSError, Failure):
        return False


PROVIDER = ShadowUsers()

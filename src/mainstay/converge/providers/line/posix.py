"""Lines of files on a POSIX host. Neighbours on one file share one read and one write."""

from __future__ import annotations

import stat as modes
from collections.abc import Sequence

from mainstay.converge.contract import NEW_SECRET, Change, Provider
from mainstay.converge.failures import DesiredStateFailed, Failure
from mainstay.converge.host.files import FileWrite
from mainstay.converge.host.host import Host
from mainstay.converge.line_edits import LONGEST_SEARCHED_BYTES, Document
from mainstay.converge.replacing import keep_backup, validator_of
from mainstay.converge.resources.file import ABSENT, DIRECTORY, LINK, PRESENT, REFUSE, REPLACE
from mainstay.converge.resources.line import TYPE, Line, LineState, rule_of
from mainstay.foundation import Any, Struct
from mainstay.foundation.digests import sha256_of
from mainstay.foundation.text import without_removed_lines

Step = tuple[Line, Any, Change]


LARGEST_FILE_BYTES = 64 * 1024 * 1024
KINDS = {modes.S_IFREG: PRESENT, modes.S_IFDIR: DIRECTORY, modes.S_IFLNK: LINK}


class _OpenFile(Struct):
    """A file that was read, with the changes that are made or will be made with it."""

    path: str
    stat: Any
    # Differs once anything may have changed the file.
    key: Any
    document: Document
    # Whether all of its content was written by the service of this run.
    is_own: bool


class EditedState(LineState):
    """The state of a line on this host."""

    def __init__(self, name: str, path: str, file: _OpenFile | None) -> None:
        super().__init__(name, path)
        self.file = file
        # The state after the change, if it is made together with neighbours.
        self.joined: EditedState | None = None
        # The diff and the diff without other content of the file, if the change is made together with neighbours.
        self.difference: tuple[str, str] | None = None


class PosixLines(Provider):
    name = "posix"
    works_on_files = True
    joins_neighbours = True
    joins_forecasts = True
    joins_triggers = False
    validate_timeout_seconds = 60.0

    def __init__(self) -> None:
        # The file that was read or written last, while nothing else was changed.
        self._file: _OpenFile | None = None

    def for_run(self) -> Provider:
        return self.__class__()

    # ---- reading ----
    def read(self, wanted: Line, host: Host, *, refresh: bool) -> EditedState:
        self._keep_secrets(wanted, host)
        path, files = wanted.path or "", host.files
        real_path, link_target = path, None
        try:
            found = files.lstat(path)
            if modes.S_ISLNK(found.st_mode):
                link_target = files.readlink(path)
                if wanted.links != REFUSE:
                    real_path = files.follow(path)
                    found = files.lstat(real_path)
        except FileNotFoundError:
            state = EditedState(wanted.name, path, None)
            state.link_target = link_target
            return state
        kind = KINDS.get(modes.S_IFMT(found.st_mode), "other")
        file = self._open(real_path, found, host) if kind == PRESENT else None
        state = self._state_of(wanted, file)
        state.link_target, state.real_path = link_target, real_path
        state.stat = found if file is None else file.stat
        # The link itself is replaced by a file with the content of its target.
        state.kind = LINK if kind == PRESENT and link_target is not None and wanted.links == REPLACE else kind
        return state

    def _state_of(self, wanted: Line, file: _OpenFile | None) -> EditedState:
        state = EditedState(wanted.name, wanted.path or "", file)
        if file is None:
            return state
        state.kind, state.stat, state.real_path = PRESENT, file.stat, file.path
        state.plan = file.document.plan(rule_of(wanted))
        is_reached = not (state.plan.reason or state.plan.problem)
        state.ensure = wanted.ensure if is_reached else ABSENT if wanted.ensure == PRESENT else PRESENT
        return state

    def _open(self, path: str, found: Any, host: Host) -> _OpenFile:
        """Reads the file, unless it is the one that was read last and nothing has changed since."""
        files = host.files
        file = self._file
        if file is not None and file.path == path and file.key == (host.activity, files.identity_of(found)):
            return file
        self._file = None
        stat, content = files.read_whole(path, LARGEST_FILE_BYTES)
        is_own = host.written_files is not None and host.written_files.holds(path, sha256_of(content))
        key = (host.activity, files.identity_of(stat))
        self._file = _OpenFile(path, stat, key, Document(content), is_own=is_own)
        return self._file

    def _keep_secrets(self, wanted: Line, host: Host) -> None:
        if wanted.sensitive and wanted.path is not None:
            host.keep_secret(wanted.path)
            if wanted.ensure == PRESENT:
                host.remember_secret(wanted.path)

    def hide_comparison(self, wanted: Line, actual: EditedState, host: Host, *, with_new_secrets: bool) -> None:
        """Searches a file that holds a secret only for kept secrets, other files only for what is no secret."""
        if actual.kind not in (PRESENT, LINK) or actual.file is None:
            return
        is_new = with_new_secrets and NEW_SECRET in wanted.secrets.values()
        if is_new or wanted.sensitive != host.held_secret(actual.real_path):
            actual.assumed_different = True

    # ---- neighbours ----
    def may_join(self, first: Line, later: Line) -> bool:
        if later.match is not None or later.validate is not None or later.health_checks:
            return False
        return (first.path, first.links, first.backup) == (later.path, later.links, later.backup)

    def read_joined(self, wanted: Line, steps: Sequence[Step], host: Host) -> EditedState:
        _, first, _ = steps[0]
        if first.file is None or first.kind != PRESENT:
            raise Failure("not a regular file")
        self._keep_secrets(wanted, host)
        self._apply(steps[-1], first.file)
        state = self._state_of(wanted, first.file)
        if host.shows_differences and state.plan.splices:
            state.difference = _differences(first.file.document, wanted, state)
        return state

    def _apply(self, step: Step, file: _OpenFile) -> None:
        """Applies the change of one resource to the document, once."""
        wanted, actual, _ = step
        if actual.joined is None:
            file.document.apply(actual.plan)
            actual.joined = self._state_of(wanted, file)

    # ---- changing ----
    def perform(self, wanted: Line, actual: EditedState, change: Change, host: Host) -> None:
        file = actual.file
        if file is None or file is not self._file:
            # The change failed together with those of neighbours, which the document contains.
            actual = self.read(wanted, host, refresh=False)
            TYPE.decide(wanted, actual, refresh=False)
            file = actual.file
        if file is None:
            raise Failure(f"{wanted.path} is not a regular file")
        self._apply((wanted, actual, change), file)
        self._write([(wanted, actual, change)], file, host)

    def perform_together(self, steps: Sequence[Step], host: Host) -> None:
        file = steps[0][1].file
        try:
            self._apply(steps[-1], file)
            self._write(steps, file, host)
        except BaseException:
            for _, actual, _ in steps:
                actual.joined = None
            self._file = None
            raise

    def _write(self, steps: Sequence[Step], file: _OpenFile, host: Host) -> None:
        wanted, actual, _ = steps[0]
        path = (wanted.path or "") if actual.kind == LINK else actual.real_path
        content, stat, files = file.document.content(), file.stat, host.files
        self._note_unsearched(actual, host)
        self._file = None
        write = FileWrite(
            path,
            stat.st_uid,
            stat.st_gid,
            modes.S_IMODE(stat.st_mode),
            content,
            old=stat,
            validate=validator_of(wanted, host, self.validate_timeout_seconds),
            about_to_replace=lambda: self._about_to_replace(wanted, actual, stat, host),
        )
        remark = files.replace(write)
        if remark:
            host.note(remark)
        found = files.lstat(path)
        if not files.holds(path, found, content):
            raise DesiredStateFailed(f"{path} was changed by another process right after it was written")
        file.path, file.stat, file.key = path, found, (host.activity, files.identity_of(found))
        self._file = file
        if host.written_files is not None and file.is_own:
            host.written_files.record(path, sha256_of(content))

    def _about_to_replace(self, wanted: Line, actual: LineState, stat: Any, host: Host) -> None:
        now = host.files.lstat(actual.real_path)
        if host.files.identity_of(now) != host.files.identity_of(stat):
            raise Failure(f"{actual.real_path} was changed by another process during the run; it is not replaced")
        if wanted.backup and actual.kind == PRESENT:
            keep_backup(host, actual.real_path, stat, sensitive=wanted.sensitive)

    def _note_unsearched(self, actual: LineState, host: Host) -> None:
        if actual.plan.unsearched:
            host.note(
                f"{actual.plan.unsearched} lines of more than {LONGEST_SEARCHED_BYTES // 1024} kB are not searched for patterns"
            )

    def confirm(self, wanted: Line, actual: EditedState, host: Host) -> EditedState:
        if actual.joined is not None:
            # The written file was compared with the document that contains all changes made together.
            return actual.joined
        return self.read(wanted, host, refresh=False)

    def confirm_failed(self, wanted: Line, actual: EditedState, host: Host) -> Any:
        self._file = None
        return super().confirm_failed(wanted, actual, host)

    # ---- dry runs ----
    def forecast(self, wanted: Line, actual: EditedState, change: Change, host: Host) -> None:
        if actual.assumed_different:
            if actual.plan.splices:
                self.perform(wanted, actual, change, host)
            return
        self.perform(wanted, actual, change, host)
        reached, reason = TYPE.desired(wanted, self.read(wanted, host, refresh=False))
        if not reached:
            raise DesiredStateFailed(reason)

    def forecast_together(self, steps: Sequence[Step], host: Host) -> None:
        self.perform_together(steps, host)

    # ---- differences ----
    def difference(self, wanted: Line, actual: EditedState, host: Host) -> str | None:
        if actual.assumed_different or actual.file is None:
            return _only_given(wanted) if actual.assumed_different else None
        if not actual.plan.splices:
            return None
        whole, own = actual.difference or _differences(actual.file.document, wanted, actual)
        if host.written_files is not None and not actual.file.is_own:
            host.consumer_diff = own
        # Other lines of the file may be the secret.
        return own if host.held_secret(actual.real_path) else whole


def _differences(document: Document, wanted: Line, actual: LineState) -> tuple[str, str]:
    """The change as a diff, and as a diff that shows nothing else of the file."""
    path = wanted.path or ""
    alone = document.difference(actual.plan, path, context=0)
    return document.difference(actual.plan, path), without_removed_lines(alone)


def _only_given(wanted: Line) -> str | None:
    """The lines of the manifest, without anything of the file."""
    rule = rule_of(wanted)
    if not rule.is_present:
        return None
    lines = rule.block if rule.block is not None else (rule.line or b"",)
    added = "".join(f"\n+{line.decode('utf-8', 'replace')}" for line in lines)
    return f"--- {wanted.path} (actual)\n+++ {wanted.path} (desired){added}"


PROVIDER = PosixLines()

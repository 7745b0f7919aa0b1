"""Files on a POSIX host: reads a path, and creates, replaces or removes what is there."""

from __future__ import annotations

import posixpath
import re
import stat as modes

from mainstay.converge.contract import NEW_SECRET, Change, Provider
from mainstay.converge.failures import DesiredStateFailed, Failure, Missing, NotYetThere
from mainstay.converge.host.files import FileWrite, compared_bits, kept_bits
from mainstay.converge.resources.file import (
    ABSENT,
    ATTRIBUTES,
    COPY_TREE,
    DIRECTORY,
    FOLLOW,
    LINK,
    MAKE_DIRECTORY,
    MAKE_LINK,
    PRESENT,
    REMOVE,
    REMOVE_TREE,
    STORE,
    TYPE,
    FileState,
)
from mainstay.foundation.digests import sha256_of
from mainstay.foundation.text import without_removed_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.converge.host.host import Host
    from mainstay.converge.host.trees import TreeDifference
    from mainstay.converge.resources.file import File

FILE_BITS = 0o7777
LARGEST_HASHED_AT_ONCE_BYTES = 1024 * 1024
# Statements of Jinja2, which authors may expect to work in `content`.
STATEMENT = rb"\{%-?\s*(?:if|for|set|include|macro|block|extends)\s"


class PosixFiles(Provider):
    name = "posix"
    works_on_files = True
    validate_timeout_seconds = 60.0

    # ---- reading ----
    def read(self, wanted: File, host: Host, *, refresh: bool) -> FileState:
        owner, group, accounts = wanted.owner, wanted.group, host.accounts
        uid = -1 if owner is None else accounts.uid(owner)
        gid = -1 if group is None else accounts.gid(group)
        return self._look(wanted, uid, gid, host)

    def _look(self, wanted: File, uid: int, gid: int, host: Host) -> FileState:
        if wanted.source is not None or wanted.sensitive:
            self._keep_secrets(wanted, host)
        path, files = wanted.name, host.files
        secret_files = host.secret_files
        is_hidden = wanted.sensitive or (secret_files is not None and secret_files.holds_exactly(path))
        state = FileState(path, uid, gid, sensitive=is_hidden)
        try:
            found = files.lstat(path)
            if found.st_mode & 0o170000 == 0o120000:
                state.link_target = files.readlink(path)
                if wanted.links == FOLLOW and wanted.ensure in (PRESENT, DIRECTORY):
                    state.real_path = path = files.follow(path)
                    found = files.lstat(path)
        except FileNotFoundError:
            # The source must exist only if it is going to be copied.
            if wanted.source is not None:
                self._find_source(wanted, host)
            return state
        self._fill(state, found, wanted, path, host)
        return state

    def _keep_secrets(self, wanted: File, host: Host) -> None:
        """Marks the copy of a secret file, and the source of a secret file, as secret."""
        source = None if wanted.source is None else host.resolve_source(wanted.source)
        if source is not None and host.is_secret(source):
            wanted.sensitive = True
        if wanted.sensitive:
            host.keep_secret(wanted.name)
            if wanted.ensure == PRESENT or wanted.recurse:
                host.remember_secret(wanted.name)
            if source is not None:
                host.keep_secret(source)

    def confirm(self, wanted: File, actual: FileState, host: Host) -> FileState:
        state = self._look(wanted, actual.wanted_uid, actual.wanted_gid, host)
        self._note_checksum(state, host)
        if host.written_files is not None and state.same_content and not (actual.same_content or wanted.sensitive):
            state.complete(host.files)
            host.written_files.record(state.real_path, state.known_checksum())
        return state

    def hide_comparison(self, wanted: File, actual: FileState, host: Host, *, with_new_secrets: bool) -> None:
        """Compares a kept secret only with a file that holds a secret, other content only with a file that holds none,
        and a new secret with nothing."""
        if with_new_secrets and wanted.source is not None and wanted.sensitive:
            raise NotYetThere("its source holds a secret, and the request gives a new one")
        if actual.kind != PRESENT or actual.same_content is None:
            return
        is_new = with_new_secrets and wanted.secrets.get("content") == NEW_SECRET
        if is_new or wanted.sensitive != host.held_secret(actual.real_path):
            actual.same_content, actual.matched_content = False, None
            actual.assumed_different = actual.sensitive = True

    def _note_checksum(self, state: FileState, host: Host) -> None:
        """Now, because a later resource may change the file. Not for a large file: hashing takes longer than copying."""
        if (
            state.matched_content is None
            and state.kind == PRESENT
            and state.stat.st_size <= LARGEST_HASHED_AT_ONCE_BYTES
        ):
            state.complete(host.files)

    def _fill(self, state: FileState, found: Any, wanted: File, path: str, host: Host) -> None:
        state.stat = found
        state.uid = uid = found.st_uid
        state.gid = gid = found.st_gid
        state.owner = host.accounts.user(uid)
        state.group = host.accounts.group(gid)
        mode = found.st_mode
        kind = mode & 0o170000
        if kind == 0o100000:
            state.kind = state.ensure = PRESENT
            state.mode = mode & FILE_BITS
            if wanted.ensure == PRESENT:
                state.same_content = self._same_content(wanted, found, path, host)
                if state.same_content:
                    state.matched_content = wanted.content
        elif kind == 0o040000:
            state.kind = state.ensure = DIRECTORY
            state.mode = mode & compared_bits(wanted.mode or 0)
            if wanted.ensure == ABSENT:
                state.is_empty_directory = not host.files.names_in(path)
            elif wanted.recurse and wanted.ensure == DIRECTORY:
                state.tree = self._tree(wanted, state, host)
        elif kind == 0o120000:
            state.kind = state.ensure = LINK
            state.mode = 0o777
        else:
            state.kind = "other"
            state.ensure = PRESENT

    def _same_content(self, wanted: File, found: Any, path: str, host: Host) -> bool | None:
        content = wanted.content
        if content is not None:
            return host.files.holds(path, found, _encoded(content))
        if wanted.source is not None:
            return host.files.same(path, found, *self._find_source(wanted, host))
        return None

    def _find_source(self, wanted: File, host: Host) -> tuple[str, Any]:
        """Returns the path of the source without links, and its status; raises `Failure` if it cannot be copied."""
        source = host.resolve_source(wanted.source or "")
        try:
            real, found = host.files.find_source(source)
        except FileNotFoundError:
            raise Missing(f"source {source} does not exist", path=source) from None
        if wanted.recurse:
            if not modes.S_ISDIR(found.st_mode):
                raise Failure(f"source {source} is not a directory")
        elif not modes.S_ISREG(found.st_mode):
            raise Failure(f"source {source} is not a regular file")
        return real, found

    def _tree(self, wanted: File, state: FileState, host: Host) -> tuple[TreeDifference, ...]:
        from mainstay.converge.host.trees import compare_trees

        return compare_trees(
            host.files,
            self._find_source(wanted, host)[0],
            state.real_path,
            uid=state.wanted_uid,
            gid=state.wanted_gid,
            mode=wanted.mode or 0,
            purge=wanted.purge,
        )

    # ---- changing ----
    def perform(self, wanted: File, actual: FileState, change: Change, host: Host) -> None:
        if change.verb == STORE:
            self._store(wanted, actual, host)
            return
        path = actual.real_path
        files = host.files
        uid, gid = actual.wanted_uid, actual.wanted_gid
        mode = wanted.mode or 0
        if change.verb == ATTRIBUTES:
            keep = kept_bits(mode) if actual.kind == DIRECTORY else 0
            files.set_attributes(path, actual.stat, uid=uid, gid=gid, mode=mode, keep_bits=keep)
        elif change.verb == MAKE_DIRECTORY:
            if actual.kind == LINK:
                files.remove(path)
            missing = self._missing_levels(path, host)
            # Compared before anything is created, so that a source that cannot be copied leaves nothing behind.
            tree = self._tree(wanted, actual, host) if wanted.recurse else ()
            for level in missing:
                files.make_directory(level, uid=uid, gid=gid, mode=mode)
            self._note_parents(missing, host)
            self._copy_tree(wanted, tree, actual, host)
        elif change.verb == COPY_TREE:
            if actual.mode != mode or actual.uid != uid or actual.gid != gid:
                files.set_attributes(path, actual.stat, uid=uid, gid=gid, mode=mode, keep_bits=kept_bits(mode))
            self._copy_tree(wanted, actual.tree, actual, host)
        elif change.verb == MAKE_LINK:
            files.make_link(path, wanted.target or "")
            if wanted.owner is not None or wanted.group is not None:
                files.set_link_owner(path, uid=uid, gid=gid)
        elif change.verb == REMOVE:
            _back_up(wanted, actual, host)
            files.remove(path)
            host.forget_secret(path)
        elif change.verb == REMOVE_TREE:
            files.check_removable(path)
            files.remove_tree(path)

    def _store(self, wanted: File, actual: FileState, host: Host) -> None:
        content, source = self._new_content(wanted, host)
        if content is not None and b"{%" in content and re.search(STATEMENT, content):
            host.note(
                "{% … %} is written as text, because content only evaluates {{ … }};"
                " put it into a file and write {{ template('path') }}"
            )
        uid, gid = actual.wanted_uid, actual.wanted_gid
        write = FileWrite(actual.real_path, uid, gid, wanted.mode or 0, content, source)
        if actual.kind == PRESENT:
            write.old = actual.stat
        if wanted.validate is not None:
            write.validate = self._validator(wanted, host)
        if wanted.backup:
            write.about_to_replace = lambda: _back_up(wanted, actual, host)
        remark = host.files.replace(write)
        if remark:
            host.note(remark)
        if not wanted.sensitive:
            host.forget_secret(actual.real_path)

    def _validator(self, wanted: File, host: Host) -> Callable[[str], None] | None:
        from mainstay.converge.replacing import validator_of

        return validator_of(wanted, host, self.validate_timeout_seconds)

    def _new_content(self, wanted: File, host: Host) -> tuple[bytes | None, str | None]:
        if wanted.source is not None:
            return None, self._find_source(wanted, host)[0]
        return _encoded(wanted.content or ""), None

    def _missing_levels(self, path: str, host: Host) -> list[str]:
        levels = []
        while True:
            try:
                found = host.files.lstat(host.files.follow(path))
            except FileNotFoundError:
                if host.files.lstat_or_none(path) is not None:
                    target = host.files.readlink(path)
                    raise Failure(f"{path} is a link to {target}, which does not exist") from None
                levels.append(path)
                path = posixpath.dirname(path)
                continue
            if levels and not modes.S_ISDIR(found.st_mode):
                raise Failure(f"{path} is not a directory")
            return levels[::-1]

    def _note_parents(self, levels: list[str], host: Host) -> None:
        if len(levels) > 1:
            host.note(f"missing parent directories get the same owner and mode: {', '.join(levels[:-1])}")

    def _copy_tree(self, wanted: File, tree: tuple[TreeDifference, ...], actual: FileState, host: Host) -> None:
        files = host.files
        uid, gid = actual.wanted_uid, actual.wanted_gid
        for entry in tree:
            if entry.verb == "remove":
                files.remove(entry.path)
            elif entry.verb == "remove tree":
                files.check_removable(entry.path)
                files.remove_tree(entry.path)
            elif entry.verb == "directory":
                files.make_directory(entry.path, uid=uid, gid=gid, mode=entry.mode)
            elif entry.verb == "link":
                files.make_link(entry.path, entry.target)
            elif entry.verb == "attributes":
                keep = kept_bits(entry.mode) if modes.S_ISDIR(entry.old.st_mode) else 0
                files.set_attributes(entry.path, entry.old, uid=uid, gid=gid, mode=entry.mode, keep_bits=keep)
            else:
                files.replace(FileWrite(entry.path, uid, gid, entry.mode, source=entry.source, old=entry.old))

    def forecast(self, wanted: File, actual: FileState, change: Change, host: Host) -> None:
        # The files of a dry run record each step instead of making it, and refuse what a run would refuse.
        self._note_checksum(actual, host)
        self.perform(wanted, actual, change, host)
        # The change may alter links in the path itself.
        reached, reason = TYPE.desired(wanted, self.read(wanted, host, refresh=False))
        if not reached:
            raise DesiredStateFailed(reason)

    # ---- differences ----
    def difference(self, wanted: File, actual: FileState, host: Host) -> str | None:
        from mainstay.converge.replacing import LARGEST_DIFF_BYTES, unified

        if wanted.ensure == PRESENT:
            content, source = self._new_content(wanted, host)
            if content == b"" and wanted.content is None:
                return None
            new = content if source is None else host.files.content(source, LARGEST_DIFF_BYTES)
        elif wanted.ensure == ABSENT and actual.kind == PRESENT:
            new = b""
        else:
            return None
        is_readable = actual.kind == PRESENT and not actual.assumed_different
        old = host.files.content(actual.real_path, LARGEST_DIFF_BYTES) if is_readable else b""
        if old == new and not actual.assumed_different:
            return None
        found = unified(old, new, wanted.name)
        if host.written_files is not None and old and not host.written_files.holds(actual.real_path, sha256_of(old)):
            host.consumer_diff = unified(b"", new, wanted.name)
        # Checked after the old content was read: another run records a secret before it writes it.
        return without_removed_lines(found) if host.held_secret(actual.real_path) else found


def _back_up(wanted: File, actual: FileState, host: Host) -> None:
    if wanted.backup and actual.kind == PRESENT:
        from mainstay.converge.replacing import keep_backup

        keep_backup(host, actual.real_path, actual.stat, sensitive=wanted.sensitive)


def _encoded(content: str) -> bytes:
    return content.encode("utf-8", "surrogateescape")


PROVIDER = PosixFiles()

"""Archives on a POSIX host: fetched under a hidden name, checked, unpacked beside their place, and put into place.

At every instant the next run can start over: the entry that holds `creates` and the archive file itself come last.
"""

from __future__ import annotations

import stat as modes

from mainstay.converge.contract import Change, Provider
from mainstay.converge.failures import Failure, Missing
from mainstay.converge.host.files import FileWrite
from mainstay.converge.resources.archive import (
    REMOVE,
    UNPACK,
    WITHOUT_CHECKSUM,
    ArchiveState,
    is_remote,
    shown_location,
)
from mainstay.converge.resources.file import DIRECTORY, LINK, PRESENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.converge.host.host import Host
    from mainstay.converge.host.staging import StagedFile
    from mainstay.converge.resources.archive import Archive

ARCHIVE_MODE = 0o644
LARGEST_HASHED_AT_ONCE_BYTES = 1024 * 1024
KINDS = {modes.S_IFREG: PRESENT, modes.S_IFDIR: DIRECTORY, modes.S_IFLNK: LINK}


class PosixArchives(Provider):
    name = "posix"
    works_on_files = True

    # ---- reading ----
    def read(self, wanted: Archive, host: Host, *, refresh: bool) -> ArchiveState:
        state = ArchiveState(wanted.name)
        files, accounts = host.files, host.accounts
        state.wanted_uid = files.effective_uid if wanted.owner is None else accounts.uid(wanted.owner)
        state.wanted_gid = files.effective_gid if wanted.group is None else accounts.gid(wanted.group)
        if wanted.creates is not None:
            state.creates_exists = files.lexists(wanted.creates)
        state.stat = found = files.lstat_or_none(wanted.name)
        if found is None:
            return state
        state.kind = KINDS.get(modes.S_IFMT(found.st_mode), "other")
        state.ensure = PRESENT
        state.owner, state.group = accounts.user(found.st_uid), accounts.group(found.st_gid)
        if state.kind == PRESENT and wanted.checksum is not None and not state.creates_exists:
            state.checksum = files.checksum_of(wanted.name, found)
        return state

    def confirm(self, wanted: Archive, actual: ArchiveState, host: Host) -> ArchiveState:
        state = self.read(wanted, host, refresh=False)
        self._note_checksum(state, host)
        return state

    def _note_checksum(self, state: ArchiveState, host: Host) -> None:
        """Now, because a later resource may change the file. Not for a large file: hashing takes long."""
        if state.kind == PRESENT and state.stat.st_size <= LARGEST_HASHED_AT_ONCE_BYTES:
            state.complete(host.files)

    # ---- changing ----
    def perform(self, wanted: Archive, actual: ArchiveState, change: Change, host: Host) -> None:
        files = host.files
        if change.verb == REMOVE:
            files.remove(wanted.name)
            return
        if change.verb == UNPACK:
            self._unpack_kept(wanted, actual, host)
            if wanted.cleanup:
                files.remove(wanted.name)
            return
        if wanted.extract_parent is not None:
            files.require_parent(f"{wanted.extract_parent}/.")
        if not is_remote(wanted.url or ""):
            self._find_source(wanted.url or "", host)
        from mainstay.converge.host.staging import stage_file

        staged = stage_file(files, wanted.name)
        try:
            try:
                self._fetch(wanted, staged.descriptor, host)
            except OSError as error:
                error.filename = error.filename or wanted.name
                raise
            self._check(wanted, staged)
            if wanted.extract_parent is not None:
                with staged.open_again() as archive:
                    self._unpack(wanted, actual, archive, host)
            if not wanted.cleanup:
                staged.put_in_place(uid=actual.wanted_uid, gid=actual.wanted_gid, mode=ARCHIVE_MODE)
        finally:
            staged.close()

    def _unpack_kept(self, wanted: Archive, actual: ArchiveState, host: Host) -> None:
        """Unpacks a copy: another user may be able to change the file between the check and the unpacking."""
        from mainstay.converge.host.staging import stage_file

        copy = stage_file(host.files, wanted.name)
        try:
            host.files.copy_into(wanted.name, copy.descriptor)
            self._check(wanted, copy)
            with copy.open_again() as archive:
                self._unpack(wanted, actual, archive, host)
        finally:
            copy.close()

    def _fetch(self, wanted: Archive, descriptor: int, host: Host) -> None:
        url = wanted.url or ""
        if wanted.checksum is None:
            host.note(WITHOUT_CHECKSUM)
        if not is_remote(url):
            host.files.copy_into(self._find_source(url, host), descriptor)
            return
        from mainstay.converge.host.downloads import Download

        host.about_to_wait()
        if url.startswith("http:") and (wanted.headers or wanted.username is not None or "@" in url):
            host.note("credentials are sent without encryption; use https")
        Download(
            url,
            headers=wanted.headers,
            username=wanted.username,
            password=wanted.password,
            environ=host.environ,
            stop=host.stop,
        ).fetch(descriptor)

    def _find_source(self, url: str, host: Host) -> str:
        source = host.resolve_source(url)
        try:
            real, found = host.files.find_source(source)
        except FileNotFoundError:
            raise Missing(f"{source} does not exist", path=source) from None
        if not modes.S_ISREG(found.st_mode):
            raise Failure(f"{source} is not a regular file")
        return real

    def _check(self, wanted: Archive, staged: StagedFile) -> None:
        if wanted.checksum is not None:
            self._compare_checksum(wanted, staged.checksum())

    def _compare_checksum(self, wanted: Archive, found: str | None) -> None:
        if found != wanted.checksum:
            raise Failure(
                f"{shown_location(wanted.url or '')}: checksum is {found}, expected {wanted.checksum}; nothing is unpacked or kept"
            )

    def _unpack(self, wanted: Archive, actual: ArchiveState, archive: Any, host: Host) -> None:
        from mainstay.converge.host.staging import stage_directory
        from mainstay.converge.host.unpacking import unpack

        parent = wanted.extract_parent or ""
        staged = stage_directory(host.files, parent)
        try:
            unpack(
                archive,
                staged.descriptor,
                strip=wanted.strip,
                uid=actual.wanted_uid,
                gid=actual.wanted_gid,
                is_stopped=lambda: host.stop.at_once,
            )
            names = staged.names()
            if wanted.creates is not None:
                relative = wanted.creates[len(parent.rstrip("/")) + 1 :]
                if not staged.holds(relative):
                    raise Failure(
                        f"the archive does not contain {relative}, which `creates` names; nothing is unpacked"
                    )
                last = relative.partition("/")[0]
                names.sort(key=lambda name: name == last)
            staged.sync()
            for name in names:
                staged.put_in_place(name)
        finally:
            staged.close()

    # ---- dry runs ----
    def forecast(self, wanted: Archive, actual: ArchiveState, change: Change, host: Host) -> None:
        files = host.files
        self._note_checksum(actual, host)
        if change.verb == REMOVE:
            files.remove(wanted.name)
            return
        host.require_known(wanted.creates)
        if wanted.extract_parent is not None:
            files.require_writable(wanted.extract_parent)
        if change.verb == UNPACK:
            if wanted.cleanup:
                files.remove(wanted.name)
            return
        files.require_parent(wanted.name)
        files.require_writable(wanted.name.rpartition("/")[0] or "/")
        if not is_remote(wanted.url or ""):
            source = self._find_source(wanted.url or "", host)
            if wanted.checksum is not None:
                self._compare_checksum(wanted, files.checksum_of(source, files.lstat(source)))
            if not wanted.cleanup:
                uid, gid = actual.wanted_uid, actual.wanted_gid
                files.replace(FileWrite(wanted.name, uid, gid, ARCHIVE_MODE, source=source, old=actual.stat))
        if wanted.checksum is None:
            host.note(WITHOUT_CHECKSUM)


PROVIDER = PosixArchives()

"""Reads, compares and replaces files of the host.

A new file is written under a hidden name with mode 0600 in the same directory and renamed, so that at every instant
the path is the old or the new file, whole, and never with wider permissions than the manifest asks for.

Managed paths are reached by the parents rule (`parents.py`): every call takes the descriptor of the directory.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import sys
from contextlib import suppress

from mainstay.converge.contract import Failure, Missing
from mainstay.converge.host.parents import ACCESS_ACL, DEFAULT_ACL, ENTRY_FLAGS, ROOT, LinkRefused, Parents
from mainstay.converge.host.state import TEMP_PREFIX
from mainstay.foundation import Struct
from mainstay.foundation.digests import sha256_of_pieces
from mainstay.foundation.private_files import Closing, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO, Any

    from mainstay.converge.host.parents import Place, Walk
    from mainstay.converge.host.state import StateDirectory

CHUNK_BYTES = 1024 * 1024
CONTENT_IDENTITY = ("st_dev", "st_ino", "st_size", "st_mtime_ns")
IDENTITY = (*CONTENT_IDENTITY, "st_ctime_ns")
SETTLED_NANOSECONDS = 2_000_000_000
KERNEL_CHUNK_BYTES = 64 * 1024 * 1024
# Two chunks of this size fit the processor's cache and the allocator's pools; larger chunks compare at a third of the
# speed.
LOOK_BYTES = 256 * 1024
FSYNC_EACH_UP_TO = 256
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
TEMP_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVILEGED_ATTRIBUTES = ("security.selinux", "security.SMACK64", ACCESS_ACL)
ACL_GROUP, ACL_MASK, ACL_OTHERS = 0x04, 0x10, 0x20
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The number of directories that are open at once while a tree is removed.
DEEPEST_OPEN = 200
# Another process may create entries in it as fast as they are removed.
MOST_PASSES = 1000
MOST_SOURCE_DIRECTORIES = 256
RENAME_EXCHANGE = 2
SPECIAL_BITS = modes.S_ISUID | modes.S_ISGID | modes.S_ISVTX
# Of `os.path.realpath`, since Python 3.10.
STRICT: Mapping[str, Any] = {"strict": True} if sys.version_info >= (3, 10) else {}


class Files:
    """Methods for managed paths follow the parents rule; those for what programs use follow links as the kernel does."""

    def __init__(self, run_id: str, state: StateDirectory) -> None:
        self.run_id = run_id
        self.state = state
        self.effective_uid = os.geteuid()
        self.effective_gid = os.getegid()
        # Sources below it are trusted as the manifest is; empty: none is.
        self.trusted_directory = ""
        # The number of changes; a resource that fails may have changed something before.
        self.altered = 0
        # Every path this run changed or, in a dry run, would have changed, in order.
        self.touched: list[str] = []
        self._parents = Parents(self.effective_uid)
        self._kept = self._parents.kept
        # The directory of a source → its real path.
        self._source_directories: dict[str, str] = {}
        self._temps = 0
        self._temp_directories: set[str] = set()
        self._new_files: list[str] = []
        self._directories: set[str] = set()
        self._devices: dict[int, str] = {}
        # The last written file, until it is compared: path, status, content.
        self._written: tuple[str, Any, bytes] | None = None
        # The last copied file: path, status, source, and the status of the source before it was read.
        self._copied: tuple[str, Any, str, Any] | None = None
        # Called with each directory before a temporary file is created in it, so that a later run can clean up.
        self.announce_directory: Callable[[str], None] = _without_journal

    # ---- reading what programs use ----
    def stat(self, path: str) -> Any:
        return os.stat(path)

    def exists(self, path: str) -> bool:
        return is_found(self.stat, path)

    def lexists(self, path: str) -> bool:
        """Like `exists`, but a link counts by itself."""
        return is_found(os.lstat, path)

    def refuse_to_run(self, path: str) -> None:
        """Raises `NotYetThere` in a dry run if an earlier resource would change the path."""

    def real_path(self, path: str) -> str:
        """Returns the path with all links followed; their target need not exist."""
        try:
            if not STRICT:
                # Raises what `realpath` passes over there, such as a loop of links.
                os.stat(path)
            return os.path.realpath(path, **STRICT)
        except FileNotFoundError:
            return os.path.realpath(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        with Closing(os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)) as descriptor:
            yield from read_all(descriptor)

    def read(self, path: str, limit: int) -> bytes | None:
        """Returns the whole content, or None if it is larger than `limit`."""
        return _join(self.chunks(path), limit)

    # ---- reaching managed paths ----
    def _walker(self) -> Walk:
        """Returns the directories as the run sees them."""
        return self._parents

    def _at(self, path: str) -> tuple[Place, str]:
        """Returns the open directory of a path, and the name in it."""
        directory, _, name = path.rpartition("/")
        place = self._kept.get(directory)
        if place is None:
            with ErrorsAt(path):
                place = self._parents.reach(directory)
        return place, name or "."

    def forget_directories(self) -> None:
        """Closes the directories that are kept open; call it before anything that may replace or unmount them."""
        self._parents.forget()
        self._source_directories.clear()

    def require_parent(self, path: str) -> None:
        """Raises `Failure` if the directory of a path does not exist."""
        directory = os.path.dirname(path)
        try:
            self._walker().reach(directory)
        except FileNotFoundError:
            raise Missing(f"parent directory {directory} does not exist", path=directory) from None

    def follow(self, path: str) -> str:
        """Returns the path with all links followed that may be followed; their target need not exist."""
        place, name = self._find(path, trusting=False)
        return place.below(name)

    def _find(self, path: str, *, trusting: bool) -> tuple[Place, str]:
        with ErrorsAt(path):
            return self._walker().find(path, trusting=trusting)

    # ---- reading managed paths ----
    def lstat(self, path: str) -> Any:
        # As `_at`, written out: a run of stable files spends a good part of its time here.
        directory, _, name = path.rpartition("/")
        try:
            place = self._kept.get(directory) or self._parents.reach(directory)
            return os.lstat(name or ".", dir_fd=place.handle)
        except OSError as error:
            error.filename = path
            raise

    def lstat_or_none(self, path: str) -> Any:
        """Like `lstat`; None if nothing is at the path."""
        try:
            return self.lstat(path)
        except FileNotFoundError:
            return None

    def readlink(self, path: str) -> str:
        place, name = self._at(path)
        with ErrorsAt(path):
            return os.readlink(name, dir_fd=place.handle)

    def names_in(self, path: str) -> list[str]:
        """Returns the sorted names in a directory, which must not be a link."""
        place, name = self._at(path)
        with ErrorsAt(path), Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as descriptor:
            return sorted(os.listdir(descriptor))

    def content_chunks(self, path: str) -> Iterator[bytes]:
        # Written out: every stable file with a source is compared here.
        descriptor = self._open(path)
        try:
            while chunk := os.read(descriptor, LOOK_BYTES):
                yield chunk
        finally:
            os.close(descriptor)

    def content(self, path: str, limit: int) -> bytes | None:
        """Returns the whole content of a file, or None if it is larger than `limit`."""
        return _join(self.content_chunks(path), limit)

    def read_whole(self, path: str, limit: int) -> tuple[Any, bytes]:
        """Returns status and content of one regular file; raises `Failure` if it is something else, or too large."""
        with Closing(self._open(path)) as descriptor:
            found = os.fstat(descriptor)
            if not modes.S_ISREG(found.st_mode):
                raise _was_replaced(path)
            content = _join(read_all(descriptor), limit)
        return found, require_size(content, path, limit)

    def identity_of(self, found: Any) -> Any:
        """Returns what differs between two statuses if the content may differ."""
        return tuple(getattr(found, each) for each in IDENTITY)

    def _open(self, path: str) -> int:
        place, name = self._at(path)
        # As `ErrorsAt`, written out: every stable file is opened here.
        try:
            return os.open(name, READ_FLAGS, dir_fd=place.handle)
        except OSError as error:
            error.filename = path
            raise

    def holds(self, path: str, found: Any, content: bytes) -> bool:
        """Whether the file at `path`, whose status is `found`, has exactly this content."""
        size = len(content)
        if found.st_size != size:
            return False
        written, self._written = self._written, None
        if written is not None and _is_untouched(written[0], written[1], path, found):
            return written[2] == content
        descriptor = self._open(path)
        try:
            if size <= CHUNK_BYTES:
                return os.read(descriptor, size + 1) == content
            offset = 0
            while chunk := os.read(descriptor, CHUNK_BYTES):
                if content[offset : offset + len(chunk)] != chunk:
                    return False
                offset += len(chunk)
            return offset == size
        finally:
            os.close(descriptor)

    def same(self, path: str, found: Any, source: str, now: Any = None) -> bool:
        """Whether two files have the same content, compared in pieces; `now` is the status of the source, if known."""
        now = self.lstat(source) if now is None else now
        copied, self._copied = self._copied, None
        if found.st_size != now.st_size:
            # Files that the kernel generates, as below /proc, have no blocks and no true size.
            if found.st_blocks and now.st_blocks:
                return False
        elif copied is not None and copied[2] == source and _is_untouched(copied[0], copied[1], path, found):
            before = copied[3]
            # A source that was just changed may change again without new times; some file systems update only one of
            # the two times.
            changed_ns = max(before.st_mtime_ns, before.st_ctime_ns)
            if _is_unchanged(before, now) and found.st_mtime_ns - changed_ns > SETTLED_NANOSECONDS:
                return True
        actual, expected = Pieces(self.content_chunks(path)), Pieces(self.content_chunks(source))
        while True:
            left, right = actual.take(LOOK_BYTES), expected.take(LOOK_BYTES)
            if left != right:
                return False
            if not left:
                return True

    def checksum_of(self, path: str, found: Any) -> str | None:
        """Returns the checksum of the file found with this status; None if it has changed since or is not readable."""
        try:
            now = Files.lstat(self, path)
            if any(getattr(now, each) != getattr(found, each) for each in CONTENT_IDENTITY):
                return None
            return sha256_of_pieces(Files.content_chunks(self, path))
        except (OSError, LinkRefused):
            return None

    # ---- reading sources ----
    def find_source(self, path: str) -> tuple[str, Any]:
        """Returns the real path of a source, and its status; raises `FileNotFoundError`, or `Failure` if it is refused.

        Below the trusted directory all links are followed, elsewhere those that the parents rule allows.
        """
        directory, _, name = path.rpartition("/")
        real = self._source_directories.get(directory)
        if real is not None:
            real = f"{real}/{name}"
            found = self.lstat(real)
            if found.st_nlink == 1 and not modes.S_ISLNK(found.st_mode):
                return real, found
        trusting = self._is_trusted(path)
        place, rest = self._find(path, trusting=trusting)
        real = place.below(rest)
        found = self.lstat(real)
        self.refuse_linked_source(real, found)
        self._keep_source_directory(directory, trusting=trusting)
        return real, found

    def _keep_source_directory(self, directory: str, *, trusting: bool) -> None:
        """Remembers where a directory leads, because neighbouring files share it."""
        place, rest = self._find(f"{directory}/.", trusting=trusting)
        if len(self._source_directories) >= MOST_SOURCE_DIRECTORIES:
            self._source_directories.clear()
        self._source_directories[directory] = place.path if rest == "." else place.below(rest)

    def trust(self, directory: str) -> None:
        """Trusts sources below a directory as the manifest is, unless anyone may place files in it, as in /tmp."""
        mode = os.stat(directory).st_mode if os.path.isdir(directory) else 0
        is_common = mode & modes.S_ISVTX and mode & (modes.S_IWGRP | modes.S_IWOTH)
        self.trusted_directory = "" if is_common else directory.rstrip("/")

    def _is_trusted(self, path: str) -> bool:
        trusted = self.trusted_directory
        if not trusted or not path.startswith(f"{trusted}/"):
            return False
        return "/.." not in path or os.path.normpath(path).startswith(f"{trusted}/")

    def refuse_linked_source(self, path: str, found: Any) -> None:
        """Raises `Failure` for a source that another user may have linked to have it read."""
        if found.st_nlink == 1 or not modes.S_ISREG(found.st_mode) or self._is_trusted(path):
            return
        if self._walker().reach(os.path.dirname(path)).is_shared:
            raise Failure(
                f"source {path} has {found.st_nlink} hard links and other users may create files in its directory; it"
                " is not read, because the file may belong elsewhere: copy it, or remove the other links"
            )

    # ---- changing ----
    def keep_backup(self, path: str, found: Any) -> None:
        """Keeps a copy of a file that is about to be replaced or removed."""
        from mainstay.converge.host.backups import Backups

        with Closing(self._open(path)) as descriptor:
            # Content and attributes of one file, also if another one has its name now.
            now = os.fstat(descriptor)
            if not _is_same_file(now, found):
                raise _was_replaced(path)
            Backups(self.state).keep(path, self.run_id, now, read_all(descriptor))

    def replace(
        self,
        path: str,
        content: bytes | None,
        source: str | None,
        *,
        uid: int,
        gid: int,
        mode: int,
        old: Any,
        validate: Callable[[str], None] | None = None,
        about_to_replace: Callable[[], None] | None = None,
    ) -> str | None:
        """Creates or replaces the file at `path`; returns a remark if it could not be renamed into place."""
        self.require_parent(path)
        place, name = self._at(path)
        directory = os.path.dirname(path)
        temp = self._temp_in(directory)
        before: Any = None
        descriptor = self._open_temp(temp, place, path)
        try:
            try:
                self._drop_inherited_lists(descriptor, place, uid)
                if source is not None:
                    before = self.copy_into(source, descriptor)
                elif content:
                    write_all(descriptor, content)
                if old is not None:
                    self._keep_attributes(place, name, descriptor, uid)
                found = os.fstat(descriptor)
                give_away(descriptor, found, uid, gid, path)
                if validate is not None:
                    self._validate(validate, place, f"{directory}/{temp}", descriptor)
                # Other than 0600 if the umask removed bits or the kept access list added some.
                if modes.S_IMODE(found.st_mode) != mode:
                    os.fchmod(descriptor, mode)
                if old is not None:
                    os.fsync(descriptor)
            finally:
                # Before the rename: a program that is open for writing cannot be started.
                os.close(descriptor)
            if about_to_replace is not None:
                about_to_replace()
            try:
                os.rename(temp, name, src_dir_fd=place.handle, dst_dir_fd=place.handle)
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EXDEV):
                    error.filename, error.filename2 = path, None
                    raise
                self._write_in_place(path, place, temp, found, uid=uid, gid=gid, mode=mode)
                os.unlink(temp, dir_fd=place.handle)
                self.touched.append(path)
                return f"{path} cannot be renamed over ({error.strerror}): written in place"
        except BaseException as error:
            _unlink_quietly(temp, place)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = path
            raise
        self._touched(path, place, is_new=old is None)
        # A validator may have changed the file.
        if validate is None:
            if source is not None:
                self._copied = (path, found, source, before)
            elif content is not None:
                self._written = (path, found, content)
        return None

    def set_attributes(self, path: str, old: Any, *, uid: int, gid: int, mode: int, keep_bits: int = 0) -> None:
        """Sets owner, group and mode in place, never wider in between than before or after."""
        wanted_mode = mode | (old.st_mode & keep_bits)
        changes_owner = old.st_uid != uid or old.st_gid != gid
        place, name = self._at(path)
        descriptor, target = self._open_for_attributes(place, name)
        with ErrorsAt(path), Closing(descriptor):
            now = os.fstat(descriptor)
            if not _is_same_file(now, old):
                # The path may be a hard link to another file now, to which the decision does not apply.
                raise _was_replaced(path)
            refuse_hard_links(path, now, is_shared=place.is_shared)
            if changes_owner:
                narrow = modes.S_IMODE(old.st_mode) & wanted_mode
                if narrow != modes.S_IMODE(old.st_mode):
                    os.chmod(target, narrow)
                if now.st_uid not in (ROOT, self.effective_uid, uid):
                    # Chosen by the stranger to whom the entry belonged.
                    _drop_access_lists(target)
                os.chown(target, uid, gid)
            if changes_owner or modes.S_IMODE(old.st_mode) != wanted_mode:
                os.chmod(target, wanted_mode)
        self._touched(path, place, is_new=True)
        if modes.S_ISDIR(old.st_mode):
            # It may be safe or unsafe now.
            self.forget_directories()

    def make_directory(self, path: str, *, uid: int, gid: int, mode: int) -> None:
        place, name = self._at(path)
        with ErrorsAt(path):
            os.mkdir(name, 0o700, dir_fd=place.handle)
            # By descriptor: a user with write access to the parent could replace the path by a link.
            descriptor = _open_new_directory(name, place)
        with Closing(descriptor):
            found = os.fstat(descriptor)
            if place.is_shared and (found.st_uid != self.effective_uid or os.listdir(descriptor)):
                # Another directory took its place; an empty one of ours is as good as the new one.
                raise _was_replaced(path)
            self._drop_inherited_lists(descriptor, place, uid)
            if found.st_uid != uid or found.st_gid != gid:
                os.fchown(descriptor, uid, gid)
            # The group that the parent passes on stays, unless the mode says which special bits are wanted.
            inherited = 0 if mode & modes.S_ISVTX else found.st_mode & modes.S_ISGID
            os.fchmod(descriptor, mode | inherited)
        self._touched(path, place, is_new=True)

    def hidden_path(self, path: str) -> str:
        """Returns where to build a directory before `put_in_place` gives it its path; a later run removes a left one."""
        self.require_parent(path)
        directory = os.path.dirname(path)
        return f"{directory.rstrip('/')}/{self._temp_in(directory)}"

    def put_in_place(self, hidden: str, path: str) -> None:
        """Renames a directory that was built at a hidden path. The path must be free."""
        place, name = self._at(path)
        built = os.path.basename(hidden)
        with ErrorsAt(path):
            before = os.lstat(built, dir_fd=place.handle)
            os.rename(built, name, src_dir_fd=place.handle, dst_dir_fd=place.handle)
            _require_placed(before, name, place, path)
        self.forget_directories()

        def moved(each: str) -> str:
            return path + each[len(hidden) :] if f"{each}/".startswith(f"{hidden}/") else each

        # What was written is synced under its new path.
        self._new_files = [moved(each) for each in self._new_files]
        self._directories = {moved(each) for each in self._directories}
        self._devices = {device: moved(each) for device, each in self._devices.items()}
        self._touched(path, place, is_new=True)

    def require_writable(self, directory: str) -> None:
        """Raises `Failure` if no entries can be created in a directory."""
        self.require_parent(f"{directory}/.")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise Failure(cannot_write_in(directory))

    def open_again(self, descriptor: int) -> IO[bytes]:
        """Opens the same file for reading from its start; the descriptor stays open."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        return open(os.dup(descriptor), "rb")

    def checksum_of_open(self, descriptor: int) -> str:
        os.lseek(descriptor, 0, os.SEEK_SET)
        found = sha256_of_pieces(read_all(descriptor))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return found

    def stage_file(self, path: str) -> StagedFile:
        """Opens an empty hidden file beside a path, which becomes the file at the path once it is complete."""
        self.require_parent(path)
        place, _ = self._at(path)
        temp = self._temp_in(os.path.dirname(path))
        return StagedFile(self, path, place, temp, self._open_temp(temp, place, path))

    def stage_directory(self, parent: str) -> StagedDirectory:
        """Creates an empty hidden directory inside `parent`, whose entries are put into place there one by one."""
        self.require_parent(f"{parent}/.")
        place = self._parents.reach(parent)
        temp = self._temp_in(parent)
        try:
            os.mkdir(temp, 0o700, dir_fd=place.handle)
            descriptor = _open_new_directory(temp, place)
        except PermissionError:
            raise Failure(cannot_write_in(parent)) from None
        found = os.fstat(descriptor)
        if found.st_uid != self.effective_uid or os.listdir(descriptor):
            os.close(descriptor)
            raise _was_replaced(f"{parent}/{temp}")
        _drop_access_lists(descriptor)
        return StagedDirectory(self, parent, place, temp, descriptor)

    def note_placed(self, path: str, place: Place) -> None:
        """Call it after a staged entry got its path."""
        self._touched(path, place, is_new=True)
        self.forget_directories()

    def remove_staged(self, name: str, place: Place) -> None:
        """Removes a hidden directory with its content, if it can be removed."""
        altered = self.altered
        with suppress(OSError, Failure):
            with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as top:
                self._empty(top)
            os.rmdir(name, dir_fd=place.handle)
        self.altered = altered

    def note_new_owner(self, path: str, uids: tuple[int, int], gids: tuple[int, int]) -> None:
        """Call it after a program gave files at a path, and below it, from one user and group to another."""

    def make_link(self, path: str, target: str) -> None:
        self.require_parent(path)
        place, name = self._at(path)
        temp = self._temp_in(os.path.dirname(path))
        try:
            os.symlink(target, temp, dir_fd=place.handle)
            os.rename(temp, name, src_dir_fd=place.handle, dst_dir_fd=place.handle)
        except BaseException as error:
            _unlink_quietly(temp, place)
            if isinstance(error, OSError):
                error.filename, error.filename2 = path, None
            raise
        self._touched(path, place, is_new=False)
        self.forget_directories()

    def set_link_owner(self, path: str, *, uid: int, gid: int) -> None:
        """Sets the owner of the link itself; -1 leaves user or group as it is."""
        place, name = self._at(path)
        with Closing(os.open(name, ENTRY_FLAGS, dir_fd=place.handle)) as handle, ErrorsAt(path):
            found = os.fstat(handle)
            if not modes.S_ISLNK(found.st_mode):
                raise _was_replaced(path)
            refuse_hard_links(path, found, is_shared=place.is_shared)
            os.chown(f"/proc/self/fd/{handle}", uid, gid)

    def remove(self, path: str) -> None:
        """Removes a file, a link (itself) or an empty directory."""
        place, name = self._at(path)
        with ErrorsAt(path):
            mode = os.lstat(name, dir_fd=place.handle).st_mode
            if modes.S_ISDIR(mode):
                os.rmdir(name, dir_fd=place.handle)
            else:
                os.unlink(name, dir_fd=place.handle)
        self._touched(path, place, is_new=False)
        if not modes.S_ISREG(mode):
            self.forget_directories()

    def remove_tree(self, path: str) -> None:
        """Removes a directory and its content, never through links. `check_removable` was called before."""
        place, name = self._at(path)
        with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as top:
            self.forget_directories()
            self._empty(top)
        os.rmdir(name, dir_fd=place.handle)
        self._touched(path, place, is_new=False)

    def _empty(self, top: int) -> None:
        """Removes the content of an open directory."""
        mount = _mount_of(top)
        # Directories that are too deep are moved up to here, so more than one pass may be needed.
        for _ in range(MOST_PASSES):
            for entry in os.listdir(top):
                self._remove_below(top, entry, mount, top, 0)
            if not os.listdir(top):
                break

    def _remove_below(self, parent: int, name: str, mount: tuple[int, bytes], top: int, depth: int) -> None:
        found = os.lstat(name, dir_fd=parent)
        if not modes.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            self.altered += 1
            return
        if depth > DEEPEST_OPEN:
            os.rename(name, f"{TEMP_PREFIX}{self.run_id}-{found.st_ino}", src_dir_fd=parent, dst_dir_fd=top)
            self.altered += 1
            return
        with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=parent)) as directory:
            # Of the open directory: another user may have moved a mounted one here since `check_removable`.
            if _mount_of(directory) != mount:
                raise Failure(f"{name} is on another file system; nothing is removed across a mount point")
            for child in os.listdir(directory):
                self._remove_below(directory, child, mount, top, depth + 1)
        os.rmdir(name, dir_fd=parent)
        self.altered += 1

    def check_removable(self, path: str) -> None:
        """Raises `Failure` for a tree that must never be removed."""
        if path == "/":
            raise Failure("/ is never removed")
        # The kernel names mount points by their real path.
        path = self._walker().reach(os.path.dirname(path)).below(os.path.basename(path))
        for point in _mount_points():
            if point == path or point.startswith(path + "/"):
                raise Failure(f"{point} is a mount point; nothing is removed across it")

    def remove_temps(self, directory: str, run_id: str) -> None:
        """Removes the temporary files that one run created in a directory, if it can still be reached."""
        try:
            names = self.names_in(f"{directory}/")
            place = self._parents.reach(directory)
        except (OSError, LinkRefused):
            return
        for name in names:
            if run_id and name.startswith(f"{TEMP_PREFIX}{run_id}-"):
                # Replaced by another user, or on a disk that is read-only now: not a reason to fail the run.
                _unlink_quietly(name, place)
                with suppress(OSError, Failure):
                    # A directory that was not put in place.
                    self.check_removable(f"{directory}/{name}")
                    self.remove_tree(f"{directory}/{name}")

    # ---- durability ----
    def sync(self) -> None:
        """Makes all changes durable: file by file, or for many files the whole file system."""
        if len(self._new_files) <= FSYNC_EACH_UP_TO:
            for path in (*self._new_files, *(f"{directory}/." for directory in self._directories)):
                self._sync_with(_fsync, path)
        else:
            for directory in self._devices.values():
                self._sync_with(_sync_file_system, f"{directory}/.")
        self._new_files.clear()
        self._directories.clear()
        self._devices.clear()
        self.forget_directories()

    def _sync_with(self, sync: Callable[[int], None], path: str) -> None:
        try:
            descriptor = self._open(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, LinkRefused):
            # It cannot be opened, or another user moved it: it may be anywhere.
            os.sync()
            return
        with Closing(descriptor):
            sync(descriptor)

    def _touched(self, path: str, place: Place, *, is_new: bool) -> None:
        self.altered += 1
        self.touched.append(path)
        if is_new:
            self._new_files.append(path)
        directory = path.rpartition("/")[0]
        if directory not in self._directories:
            self._directories.add(directory)
            self._devices.setdefault(place.device, directory)

    # ---- inner steps ----
    def _temp_in(self, directory: str) -> str:
        """Returns the name of a new temporary file."""
        if directory not in self._temp_directories:
            self.announce_directory(directory)
            self._temp_directories.add(directory)
        self._temps += 1
        return f"{TEMP_PREFIX}{self.run_id}-{self._temps}"

    def _open_temp(self, temp: str, place: Place, path: str) -> int:
        """Errors name the file of the manifest, not the temporary file."""
        try:
            return os.open(temp, TEMP_FLAGS, 0o600, dir_fd=place.handle)
        except PermissionError:
            raise Failure(cannot_write_in(os.path.dirname(path))) from None
        except FileNotFoundError:
            # Another process removed the directory that was kept open.
            self.forget_directories()
            raise Missing(f"parent directory {os.path.dirname(path)} does not exist") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None

    def copy_into(self, source: str, descriptor: int) -> Any:
        """Copies a source to an open file; returns the status that the source had before it was read."""
        with Closing(self._open(source)) as incoming:
            before = os.fstat(incoming)
            if not modes.S_ISREG(before.st_mode):
                raise Failure(f"source {source} is not a regular file")
            self.refuse_linked_source(source, before)
            _copy(incoming, descriptor)
            return before

    def _validate(self, validate: Callable[[str], None], place: Place, path: str, descriptor: int) -> None:
        if place.unsafe is None and not place.is_shared:
            validate(path)
            return
        # Another user may replace the temporary file while the command runs.
        os.lseek(descriptor, 0, os.SEEK_SET)
        with self.state.scratch_file(self.run_id, read_all(descriptor)) as copy:
            validate(copy)

    def _drop_inherited_lists(self, descriptor: int, place: Place, uid: int) -> None:
        """Removes what a new entry inherits from the directory of a stranger, who could read it by such a list."""
        if place.is_shared and os.fstat(place.handle).st_uid not in (ROOT, self.effective_uid, uid):
            _drop_access_lists(descriptor)

    def _keep_attributes(self, place: Place, name: str, descriptor: int, uid: int) -> None:
        """Copies user attributes, security label and access list of a replaced file.

        The list of a stranger is not kept: with it, a user could read what replaces its file.
        """
        try:
            old, target = self._open_for_attributes(place, name)
        except OSError:
            return
        try:
            is_own = os.fstat(old).st_uid in (ROOT, self.effective_uid, uid)
            for attribute in os.listxattr(target):
                if attribute.startswith("user.") or (is_own and attribute in PRIVILEGED_ATTRIBUTES):
                    self._copy_attribute(attribute, target, descriptor)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
                raise
        finally:
            os.close(old)

    def _copy_attribute(self, name: str, old: int | str, descriptor: int) -> None:
        try:
            value = os.getxattr(old, name)
            os.setxattr(descriptor, name, closed_list(value) if name == ACCESS_ACL else value)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA):
                raise

    def _write_in_place(
        self, path: str, place: Place, temp: str, written: Any, *, uid: int, gid: int, mode: int
    ) -> None:
        name = os.path.basename(path)
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with Closing(os.open(name, flags, dir_fd=place.handle)) as descriptor:
            old = os.fstat(descriptor)
            if not modes.S_ISREG(old.st_mode):
                raise _was_replaced(path)
            refuse_hard_links(path, old, is_shared=place.is_shared)
            with Closing(os.open(temp, READ_FLAGS, dir_fd=place.handle)) as incoming:
                if not _is_same_file(os.fstat(incoming), written):
                    raise _was_replaced(path)
                self._overwrite(descriptor, old, incoming, mode)
            if old.st_uid != uid or old.st_gid != gid:
                os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)

    def _overwrite(self, descriptor: int, old: Any, incoming: int, mode: int) -> None:
        size = os.fstat(incoming).st_size
        if size > old.st_size:
            # Allocate space first: on a full disk the old content stays whole.
            os.posix_fallocate(descriptor, old.st_size, size - old.st_size)
        os.fchmod(descriptor, modes.S_IMODE(old.st_mode) & mode)
        _copy(incoming, descriptor)
        os.ftruncate(descriptor, size)

    def _open_for_attributes(self, place: Place, name: str) -> tuple[int, int | str]:
        """Returns a descriptor of an entry, and what calls for attributes take: a file may not be readable."""
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=place.handle)
        except PermissionError:
            descriptor = os.open(name, ENTRY_FLAGS, dir_fd=place.handle)
            return descriptor, f"/proc/self/fd/{descriptor}"
        return descriptor, descriptor


class StagedFile(Struct):
    """A hidden file that is being written."""

    _files: Files
    _path: str
    _place: Place
    _temp: str
    descriptor: int

    def put_in_place(self, *, uid: int, gid: int, mode: int) -> None:
        """Gives the complete file its path; a file there is replaced."""
        found = os.fstat(self.descriptor)
        give_away(self.descriptor, found, uid, gid, self._path)
        os.fchmod(self.descriptor, mode)
        os.fsync(self.descriptor)
        name = os.path.basename(self._path)
        with ErrorsAt(self._path):
            os.rename(self._temp, name, src_dir_fd=self._place.handle, dst_dir_fd=self._place.handle)
            _require_placed(found, name, self._place, self._path)
        self._files.note_placed(self._path, self._place)

    def close(self) -> None:
        """Removes the file, unless it was put in place."""
        os.close(self.descriptor)
        _unlink_quietly(self._temp, self._place)


class StagedDirectory(Struct):
    """A hidden directory that is being filled, open only to the user of this process."""

    _files: Files
    _parent: str
    _place: Place
    _temp: str
    descriptor: int

    def names(self) -> list[str]:
        return sorted(os.listdir(self.descriptor))

    def holds(self, relative: str) -> bool:
        """Whether it contains this path, without following links."""
        opened = os.dup(self.descriptor)
        try:
            *above, name = relative.split("/")
            for each in above:
                inner = os.open(each, DIRECTORY_FLAGS, dir_fd=opened)
                os.close(opened)
                opened = inner
            os.lstat(name, dir_fd=opened)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            # The rest of the path is behind a link of the archive.
            return True
        finally:
            os.close(opened)
        return True

    def sync(self) -> None:
        _sync_file_system(self.descriptor)

    def put_in_place(self, name: str) -> None:
        """Gives one entry its path; what is there is replaced, and removed with the hidden directory."""
        path = f"{self._parent.rstrip('/')}/{name}"
        target = self._place.handle
        with ErrorsAt(path):
            found = os.lstat(name, dir_fd=self.descriptor)
            try:
                os.lstat(name, dir_fd=target)
            except FileNotFoundError:
                os.rename(name, name, src_dir_fd=self.descriptor, dst_dir_fd=target)
            else:
                self._files.check_removable(path)
                self._exchange(name)
            _require_placed(found, name, self._place, path)
        self._files.note_placed(path, self._place)

    def _exchange(self, name: str) -> None:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        exchange = getattr(library, "renameat2", None)
        raw = os.fsencode(name)
        if exchange is not None:
            if exchange(self.descriptor, raw, self._place.handle, raw, RENAME_EXCHANGE) == 0:
                return
            number = ctypes.get_errno()
            if number not in (errno.ENOSYS, errno.EINVAL):
                raise OSError(number, os.strerror(number))
        # Without it, the path is free for an instant.
        aside = f"{TEMP_PREFIX}{self._files.run_id}-{name}"[:200]
        os.rename(name, aside, src_dir_fd=self._place.handle, dst_dir_fd=self.descriptor)
        os.rename(name, name, src_dir_fd=self.descriptor, dst_dir_fd=self._place.handle)

    def close(self) -> None:
        """Removes the directory with what is left in it."""
        os.close(self.descriptor)
        self._files.remove_staged(self._temp, self._place)


def is_found(look: Callable[[str], Any], path: str) -> bool:
    try:
        look(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class ErrorsAt:
    """Errors of calls that take a descriptor and a name get the whole path, for messages."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename, error.filename2 = self._path, None


def give_away(descriptor: int, found: Any, uid: int, gid: int, shown: str) -> None:
    """Sets the owner of an open file with the status `found`; raises `Failure` without permission."""
    if found.st_uid != uid or found.st_gid != gid:
        try:
            os.fchown(descriptor, uid, gid)
        except PermissionError:
            raise Failure(cannot_give_away(shown)) from None


def _require_placed(found: Any, name: str, place: Place, path: str) -> None:
    """Raises `Failure` if the entry in a directory is not the one with the status `found`, which was put there."""
    if not _is_same_file(os.lstat(name, dir_fd=place.handle), found):
        raise _was_replaced(path)


def kept_bits(mode: int) -> int:
    """The bits of a directory that a wanted mode leaves as they are: the special ones, unless it has one itself."""
    return 0 if mode & SPECIAL_BITS else SPECIAL_BITS


def compared_bits(mode: int) -> int:
    return 0o7777 & ~kept_bits(mode)


def require_size(content: bytes | None, path: str, limit: int) -> bytes:
    if content is None:
        raise Failure(f"{path} is larger than {limit // 1024 // 1024} MB; it is not changed")
    return content


def _join(chunks: Iterator[bytes], limit: int) -> bytes | None:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


class Pieces:
    """Returns bytes from a stream of chunks in the requested amounts."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def take(self, amount: int) -> bytes:
        while len(self._rest) < amount:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest = self._rest + chunk if self._rest else chunk
        taken, self._rest = self._rest[:amount], self._rest[amount:]
        return taken


def closed_list(value: bytes) -> bytes:
    """Returns an access list that grants access only to the owner, until the mode is set.

    The format is a version of four bytes, then entries of eight: tag and permissions of two bytes each, and an id.
    """
    entries = bytearray(value)
    has_mask = any(entries[start] == ACL_MASK for start in range(4, len(entries), 8))
    for start in range(4, len(entries), 8):
        if entries[start] in (ACL_MASK, ACL_OTHERS) or (entries[start] == ACL_GROUP and not has_mask):
            entries[start + 2] = 0
    return bytes(entries)


def _drop_access_lists(target: int | str) -> None:
    for attribute in (ACCESS_ACL, DEFAULT_ACL):
        try:
            os.removexattr(target, attribute)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise


def cannot_write_in(directory: str) -> str:
    with suppress(OSError):
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            return f"{directory} is on a read-only file system"
    return f"no permission to write in {directory}"


def cannot_give_away(path: str) -> str:
    return f"no permission to give {path} to another user"


def _is_untouched(where: str, status: Any, path: str, found: Any) -> bool:
    """Whether the file found at a path is the file just written there, so that it need not be read again."""
    return (
        where == path
        and status.st_ino == found.st_ino
        and status.st_dev == found.st_dev
        and bool(status.st_mtime_ns == found.st_mtime_ns)
    )


def _is_same_file(now: Any, found: Any) -> bool:
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def _is_unchanged(before: Any, now: Any) -> bool:
    return all(getattr(before, each) == getattr(now, each) for each in IDENTITY)


def refuse_hard_links(path: str, found: Any, *, is_shared: bool) -> None:
    """Raises `Failure` for a file that another user may have linked here to have it changed."""
    if is_shared and found.st_nlink > 1 and not modes.S_ISDIR(found.st_mode):
        raise Failure(
            f"{path} has {found.st_nlink} hard links and other users may create files in its directory; it is not"
            " changed in place, because the file may belong elsewhere: remove it before, or remove the other links"
        )


def _was_replaced(path: str) -> Failure:
    return Failure(f"{path} was replaced by another process during the run; nothing is changed")


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as table:
        escaped = [line.split(b" ")[4] for line in table]
    return [os.fsdecode(point.decode("unicode_escape").encode("latin-1")) for point in escaped]


def _without_journal(directory: str) -> None:
    """Without a journal no later run cleans up after a killed run."""


def _open_new_directory(name: str, parent: Place) -> int:
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent.handle)
    except PermissionError:
        # The umask removed the permissions of the owner.
        with Closing(os.open(name, ENTRY_FLAGS | os.O_DIRECTORY, dir_fd=parent.handle)) as handle:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
            return os.open(f"/proc/self/fd/{handle}", DIRECTORY_FLAGS & ~os.O_NOFOLLOW)


def _mount_of(descriptor: int) -> tuple[int, bytes]:
    """Identifies the mount of an open directory: the device, and a number that differs for bind mounts."""
    number = b""
    with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", "rb") as lines:
        number = next((line for line in lines if line.startswith(b"mnt_id:")), b"")
    return os.fstat(descriptor).st_dev, number


def read_all(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, LOOK_BYTES):
        yield chunk


def _copy(incoming: int, descriptor: int) -> None:
    # Within the kernel, and on some file systems without copying data. If that fails, the rest is read and written,
    # which also raises the error.
    with suppress(OSError):
        while os.copy_file_range(incoming, descriptor, KERNEL_CHUNK_BYTES):
            pass
    while chunk := os.read(incoming, CHUNK_BYTES):
        write_all(descriptor, chunk)


def _unlink_quietly(name: str, directory: Place) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory.handle)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        # A pipe, a device or a file system without storage: there is nothing to sync.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def _sync_file_system(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

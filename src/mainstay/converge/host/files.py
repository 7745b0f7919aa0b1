"""Reads, compares and replaces files of the host.

A new file is written under a hidden name with mode 0600 in the same directory and renamed, so that at every instant
the path is the old or the new file, whole, and never with wider permissions than the manifest asks for.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from contextlib import suppress

from mainstay.converge.contract import Failure, Missing
from mainstay.converge.host.state import TEMP_PREFIX
from mainstay.foundation.digests import sha256_of_pieces
from mainstay.foundation.private_files import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

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
TEMP_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SECURITY_LABELS = ("security.selinux", "security.SMACK64")
ACCESS_ACL = "system.posix_acl_access"
ACL_GROUP, ACL_MASK, ACL_OTHERS = 0x04, 0x10, 0x20
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The number of directories that are open at once while a tree is removed.
DEEPEST_OPEN = 200


class Files:
    def __init__(self, run_id: str, state: StateDirectory) -> None:
        self.run_id = run_id
        self.state = state
        self.effective_uid = os.geteuid()
        # The number of changes; a resource that fails may have changed something before.
        self.altered = 0
        # Every path this run changed or, in a dry run, would have changed, in order.
        self.touched: list[str] = []
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

    # ---- reading ----
    def lstat(self, path: str) -> Any:
        return os.lstat(path)

    def stat(self, path: str) -> Any:
        """Like `lstat`, but follows links."""
        return os.stat(path)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def refuse_to_run(self, path: str) -> None:
        """Raises `NotYetThere` in a dry run if an earlier resource would change the path."""

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def real_path(self, path: str) -> str:
        """Returns the path with all links followed; their target need not exist."""
        try:
            return os.path.realpath(path, strict=True)
        except FileNotFoundError:
            return os.path.realpath(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        descriptor = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)
        try:
            while chunk := os.read(descriptor, LOOK_BYTES):
                yield chunk
        finally:
            os.close(descriptor)

    def read(self, path: str, limit: int) -> bytes | None:
        """Returns the whole content, or None if it is larger than `limit`."""
        content = bytearray()
        for chunk in self.chunks(path):
            content += chunk
            if len(content) > limit:
                return None
        return bytes(content)

    def holds(self, path: str, found: Any, content: bytes) -> bool:
        """Whether the file at `path`, whose status is `found`, has exactly this content."""
        size = len(content)
        if found.st_size != size:
            return False
        written, self._written = self._written, None
        if written is not None and _is_untouched(written[0], written[1], path, found):
            return written[2] == content
        descriptor = os.open(path, READ_FLAGS)
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

    def same(self, path: str, found: Any, source: str) -> bool:
        """Whether two files have the same content, compared in pieces."""
        now = self.stat(source)
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
        actual, expected = Pieces(self.chunks(path)), Pieces(self.chunks(source))
        while True:
            left, right = actual.take(LOOK_BYTES), expected.take(LOOK_BYTES)
            if left != right:
                return False
            if not left:
                return True

    def checksum_of(self, path: str, found: Any) -> str | None:
        """Returns the checksum of the file found with this status; None if it has changed since or is not readable."""
        try:
            now = os.lstat(path)
            if any(getattr(now, each) != getattr(found, each) for each in CONTENT_IDENTITY):
                return None
            return sha256_of_pieces(Files.chunks(self, path))
        except OSError:
            return None

    # ---- changing ----
    def keep_backup(self, path: str, found: Any) -> None:
        """Keeps a copy of a file that is about to be replaced or removed."""
        from mainstay.converge.host.backups import Backups

        Backups(self.state).keep(path, self.run_id, found, self.chunks(path))

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
        directory = path.rpartition("/")[0] or "/"
        temp = self._temp_in(directory)
        before: Any = None
        descriptor = self._open_temp(temp, path)
        try:
            try:
                if source is not None:
                    before = _copy(source, descriptor)
                elif content:
                    write_all(descriptor, content)
                if old is not None:
                    self._keep_attributes(path, descriptor)
                found = os.fstat(descriptor)
                if found.st_uid != uid or found.st_gid != gid:
                    self._give_away(descriptor, path, uid, gid)
                if validate is not None:
                    validate(temp)
                # Other than 0600 if the umask removed bits or the kept access list added some.
                if modes.S_IMODE(found.st_mode) != mode:
                    os.fchmod(descriptor, mode)
                if old is not None:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if about_to_replace is not None:
                about_to_replace()
            try:
                os.rename(temp, path)
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EXDEV):
                    raise
                self._write_in_place(path, temp, uid, gid, mode)
                os.unlink(temp)
                self.touched.append(path)
                return f"{path} cannot be renamed over ({error.strerror}): written in place"
        except BaseException:
            _unlink_quietly(temp)
            raise
        self._touched(path, directory, is_new=old is None)
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
        descriptor = self._open_for_attributes(path)
        target: Any = path if descriptor is None else descriptor
        try:
            now = os.lstat(path) if descriptor is None else os.fstat(descriptor)
            if (now.st_dev, now.st_ino) != (old.st_dev, old.st_ino):
                # The path may be a hard link to another file now, to which the decision does not apply.
                raise Failure(f"{path} was replaced by another process during the run; nothing is changed")
            if changes_owner:
                narrow = modes.S_IMODE(old.st_mode) & wanted_mode
                if narrow != modes.S_IMODE(old.st_mode):
                    os.chmod(target, narrow)
                os.chown(target, uid, gid)
            if changes_owner or modes.S_IMODE(old.st_mode) != wanted_mode:
                os.chmod(target, wanted_mode)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        self._touched(path, os.path.dirname(path), is_new=True)

    def make_directory(self, path: str, *, uid: int, gid: int, mode: int) -> None:
        os.mkdir(path, 0o700)
        # By descriptor: a user with write access to the parent could replace the path by a link.
        descriptor = _open_new_directory(path)
        try:
            found = os.fstat(descriptor)
            if found.st_uid != uid or found.st_gid != gid:
                os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode | (found.st_mode & modes.S_ISGID))
        finally:
            os.close(descriptor)
        self._touched(path, os.path.dirname(path), is_new=True)

    def make_link(self, path: str, target: str) -> None:
        directory = os.path.dirname(path)
        temp = self._temp_in(directory)
        os.symlink(target, temp)
        try:
            os.rename(temp, path)
        except BaseException:
            _unlink_quietly(temp)
            raise
        self._touched(path, directory, is_new=False)

    def set_link_owner(self, path: str, *, uid: int, gid: int) -> None:
        """Sets the owner of the link itself; -1 leaves user or group as it is."""
        os.chown(path, uid, gid, follow_symlinks=False)

    def remove(self, path: str) -> None:
        """Removes a file, a link (itself) or an empty directory."""
        if modes.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)
        self._touched(path, os.path.dirname(path), is_new=False)

    def remove_tree(self, path: str) -> None:
        """Removes a directory and its content, never through links. `check_removable` was called before."""
        device = os.lstat(path).st_dev
        directory = os.path.dirname(path)
        parent = os.open(directory, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        try:
            top = os.open(os.path.basename(path), DIRECTORY_FLAGS, dir_fd=parent)
            try:
                # Directories that are too deep are moved up to here, so more than one pass may be needed.
                while names := os.listdir(top):
                    for name in names:
                        self._remove_below(top, name, device, top, 0)
            finally:
                os.close(top)
            os.rmdir(os.path.basename(path), dir_fd=parent)
        finally:
            os.close(parent)
        self._touched(path, directory, is_new=False)

    def _remove_below(self, parent: int, name: str, device: int, top: int, depth: int) -> None:
        found = os.lstat(name, dir_fd=parent)
        if not modes.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            self.altered += 1
            return
        if found.st_dev != device:
            raise Failure(f"{name} is on another file system; nothing is removed across a mount point")
        if depth > DEEPEST_OPEN:
            os.rename(name, f"{TEMP_PREFIX}{self.run_id}-{found.st_ino}", src_dir_fd=parent, dst_dir_fd=top)
            self.altered += 1
            return
        directory = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
        try:
            for child in os.listdir(directory):
                self._remove_below(directory, child, device, top, depth + 1)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=parent)
        self.altered += 1

    def check_removable(self, path: str) -> None:
        """Raises `Failure` for a tree that must never be removed."""
        if path == "/":
            raise Failure("/ is never removed")
        # The kernel names mount points by their real path.
        path = f"{self.real_path(os.path.dirname(path)).rstrip('/')}/{os.path.basename(path)}"
        for point in _mount_points():
            if point == path or point.startswith(path + "/"):
                raise Failure(f"{point} is a mount point; nothing is removed across it")

    # ---- durability ----
    def sync(self) -> None:
        """Makes all changes durable: file by file, or for many files the whole file system."""
        if len(self._new_files) <= FSYNC_EACH_UP_TO:
            for path in (*self._new_files, *self._directories):
                _fsync_path(path)
        else:
            for path in self._devices.values():
                _sync_file_system(path)
        self._new_files.clear()
        self._directories.clear()
        self._devices.clear()

    def _touched(self, path: str, directory: str, *, is_new: bool) -> None:
        self.altered += 1
        self.touched.append(path)
        if is_new:
            self._new_files.append(path)
        if directory not in self._directories:
            self._directories.add(directory)
            try:
                self._devices.setdefault(os.stat(directory).st_dev, directory)
            except FileNotFoundError:
                return

    # ---- inner steps ----
    def _temp_in(self, directory: str) -> str:
        if directory not in self._temp_directories:
            self.announce_directory(directory)
            self._temp_directories.add(directory)
        self._temps += 1
        return f"{directory}/{TEMP_PREFIX}{self.run_id}-{self._temps}"

    def _open_temp(self, temp: str, path: str) -> int:
        """Errors name the file of the manifest, not the temporary file."""
        try:
            return os.open(temp, TEMP_FLAGS, 0o600)
        except PermissionError:
            raise Failure(cannot_write_in(os.path.dirname(path))) from None
        except OSError as error:
            require_parent(self, path)
            raise OSError(error.errno, error.strerror, path) from None

    def _give_away(self, descriptor: int, path: str, uid: int, gid: int) -> None:
        try:
            os.fchown(descriptor, uid, gid)
        except PermissionError:
            raise Failure(cannot_give_away(path)) from None

    def _keep_attributes(self, path: str, descriptor: int) -> None:
        """Copies user attributes, security label and access list of a replaced file."""
        try:
            names = os.listxattr(path)
        except OSError:
            return
        for name in names:
            if name.startswith("user.") or name in SECURITY_LABELS or name == ACCESS_ACL:
                try:
                    value = os.getxattr(path, name)
                    os.setxattr(descriptor, name, closed_list(value) if name == ACCESS_ACL else value)
                except OSError as error:
                    if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA):
                        raise

    def _write_in_place(self, path: str, temp: str, uid: int, gid: int, mode: int) -> None:
        old = os.lstat(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.lstat(temp).st_size
            if size > old.st_size:
                # Allocate space first: on a full disk the old content stays whole.
                os.posix_fallocate(descriptor, old.st_size, size - old.st_size)
            narrow = modes.S_IMODE(old.st_mode) & mode
            os.fchmod(descriptor, narrow)
            _copy(temp, descriptor)
            os.ftruncate(descriptor, size)
            if old.st_uid != uid or old.st_gid != gid:
                os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open_for_attributes(self, path: str) -> int | None:
        try:
            return os.open(path, READ_FLAGS)
        except PermissionError:
            return None


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


def cannot_write_in(directory: str) -> str:
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


def _is_unchanged(before: Any, now: Any) -> bool:
    return all(getattr(before, each) == getattr(now, each) for each in IDENTITY)


def require_parent(files: Files, path: str) -> None:
    """Raises `Failure` if the directory of a path does not exist or is not a directory."""
    directory = os.path.dirname(path)
    try:
        found = files.stat(directory)
    except FileNotFoundError:
        raise Missing(f"parent directory {directory} does not exist") from None
    if not modes.S_ISDIR(found.st_mode):
        raise Failure(f"{directory} is not a directory")


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as table:
        escaped = [line.split(b" ")[4] for line in table]
    return [os.fsdecode(point.decode("unicode_escape").encode("latin-1")) for point in escaped]


def _without_journal(directory: str) -> None:
    """Without a journal no later run cleans up after a killed run."""


def _open_new_directory(path: str) -> int:
    try:
        return os.open(path, DIRECTORY_FLAGS)
    except PermissionError:
        # The umask removed the permissions of the owner.
        handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
            return os.open(f"/proc/self/fd/{handle}", DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        finally:
            os.close(handle)


def _copy(source: str, descriptor: int) -> Any:
    """Copies a file; returns the status that the source had before it was read."""
    incoming = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(incoming)
        if not modes.S_ISREG(before.st_mode):
            raise Failure(f"source {source} is not a regular file")
        # Within the kernel, and on some file systems without copying data. If that fails, the rest is read and written,
        # which also raises the error.
        with suppress(OSError):
            while os.copy_file_range(incoming, descriptor, KERNEL_CHUNK_BYTES):
                pass
        while chunk := os.read(incoming, CHUNK_BYTES):
            write_all(descriptor, chunk)
        return before
    finally:
        os.close(incoming)


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _fsync_path(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        os.sync()
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # A pipe, a device or a file system without storage: there is nothing to sync.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


def _sync_file_system(path: str) -> None:
    import ctypes

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.sync()
        return
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)

"""Changes files of the host.

A new file is written under a hidden name with mode 0600 in the same directory and renamed, so that at every instant
the path is the old or the new file, whole, and never with wider permissions than the manifest asks for.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable
from contextlib import suppress

from mainstay.converge.failures import Failure, Missing
from mainstay.converge.host.file_reading import (
    CHUNK_BYTES,
    DIRECTORY_FLAGS,
    READ_FLAGS,
    ErrorsAt,
    FileReader,
    is_same_file,
    read_all,
    was_replaced,
)
from mainstay.converge.host.parents import ENTRY_FLAGS, ROOT, LinkRefused, Place
from mainstay.converge.host.state import TEMP_PREFIX, StateDirectory
from mainstay.foundation import Any, Struct
from mainstay.foundation.private_files import Closing, write_all

KERNEL_CHUNK_BYTES = 64 * 1024 * 1024
FSYNC_EACH_UP_TO = 256
TEMP_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SPECIAL_BITS = modes.S_ISUID | modes.S_ISGID | modes.S_ISVTX


class FileWrite(Struct):
    """A file to create or to replace, with `content` or with a copy of `source`; without both it is empty."""

    path: str
    uid: int
    gid: int
    mode: int
    content: bytes | None = None
    source: str | None = None
    # The status of the file that is replaced; None: there is none.
    old: Any = None
    # Called with the path of the complete file before it gets its own path; raises `Failure` to refuse it.
    validate: Callable[[str], None] | None = None
    about_to_replace: Callable[[], None] | None = None


class Files(FileReader):
    """Makes changes at managed paths, and makes them durable at the end of a run."""

    def __init__(self, run_id: str, state: StateDirectory) -> None:
        super().__init__()
        self.run_id = run_id
        self.state = state
        # The number of changes; a resource that fails may have changed something before.
        self.altered = 0
        # Every path this run changed or, in a dry run, would have changed, in order.
        self.touched: list[str] = []
        self._temps = 0
        self._temp_directories: set[str] = set()
        self._new_files: list[str] = []
        self._directories: set[str] = set()
        self._devices: dict[int, str] = {}
        # Called with each directory before a temporary file is created in it, so that a later run can clean up.
        self.announce_directory: Callable[[str], None] = _without_journal

    def keep_backup(self, path: str, found: Any) -> None:
        """Keeps a copy of a file that is about to be replaced or removed."""
        from mainstay.converge.host.backups import Backups

        with Closing(self._open(path)) as descriptor:
            # Content and attributes of one file, also if another one has its name now.
            now = os.fstat(descriptor)
            if not is_same_file(now, found):
                raise was_replaced(path)
            Backups(self.state).keep(path, self.run_id, now, read_all(descriptor))

    # ---- files ----
    def replace(self, write: FileWrite) -> str | None:
        """Creates or replaces a file; returns a remark if it could not be renamed into place."""
        path = write.path
        place, temp, descriptor = self.open_hidden(path)
        try:
            try:
                found, source_status = self._fill(write, place, temp, descriptor)
            finally:
                # Before the rename: a program that is open for writing cannot be started.
                os.close(descriptor)
            if write.about_to_replace is not None:
                write.about_to_replace()
            remark = self._rename_or_overwrite(write, place, temp, found)
        except BaseException as error:
            unlink_quietly(temp, place)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = path
            raise
        # A validator may have changed the file.
        if remark is None and write.validate is None:
            if write.source is not None:
                self._copied = (path, found, write.source, source_status)
            elif write.content is not None:
                self._written = (path, found, write.content)
        return remark

    def _fill(self, write: FileWrite, place: Place, temp: str, descriptor: int) -> tuple[Any, Any]:
        """Completes the hidden file; returns its status, and the status that the source had before it was read."""
        source_status: Any = None
        self._drop_inherited_lists(descriptor, place, write.uid)
        if write.source is not None:
            source_status = self.copy_into(write.source, descriptor)
        elif write.content:
            write_all(descriptor, write.content)
        if write.old is not None:
            from mainstay.converge.host.file_attributes import keep_attributes

            keep_attributes(place, os.path.basename(write.path), descriptor, (ROOT, self.effective_uid, write.uid))
        found = os.fstat(descriptor)
        give_away(descriptor, found, write.uid, write.gid, write.path)
        if write.validate is not None:
            self._validate(write.validate, place, f"{os.path.dirname(write.path)}/{temp}", descriptor)
        # Other than 0600 if the umask removed bits or the kept access list added some.
        if modes.S_IMODE(found.st_mode) != write.mode:
            os.fchmod(descriptor, write.mode)
        if write.old is not None:
            os.fsync(descriptor)
        return found, source_status

    def _rename_or_overwrite(self, write: FileWrite, place: Place, temp: str, found: Any) -> str | None:
        try:
            os.rename(temp, write.path.rpartition("/")[2], src_dir_fd=place.handle, dst_dir_fd=place.handle)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV):
                error.filename, error.filename2 = write.path, None
                raise
            self._write_in_place(write, place, temp, found)
            os.unlink(temp, dir_fd=place.handle)
            self.touched.append(write.path)
            return f"{write.path} cannot be renamed over ({error.strerror}): written in place"
        self._touched(write.path, place, is_new=write.old is None)
        return None

    def _write_in_place(self, write: FileWrite, place: Place, temp: str, written: Any) -> None:
        from mainstay.converge.host.file_attributes import refuse_hard_links

        path = write.path
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with Closing(os.open(os.path.basename(path), flags, dir_fd=place.handle)) as descriptor:
            old = os.fstat(descriptor)
            if not modes.S_ISREG(old.st_mode):
                raise was_replaced(path)
            refuse_hard_links(path, old, is_shared=place.is_shared)
            with Closing(os.open(temp, READ_FLAGS, dir_fd=place.handle)) as incoming:
                if not is_same_file(os.fstat(incoming), written):
                    raise was_replaced(path)
                self._overwrite(descriptor, old, incoming, write.mode)
            if old.st_uid != write.uid or old.st_gid != write.gid:
                os.fchown(descriptor, write.uid, write.gid)
            os.fchmod(descriptor, write.mode)
            os.fsync(descriptor)

    def _overwrite(self, descriptor: int, old: Any, incoming: int, mode: int) -> None:
        size = os.fstat(incoming).st_size
        if size > old.st_size:
            # Allocate space first: on a full disk the old content stays whole.
            os.posix_fallocate(descriptor, old.st_size, size - old.st_size)
        os.fchmod(descriptor, modes.S_IMODE(old.st_mode) & mode)
        _copy(incoming, descriptor)
        os.ftruncate(descriptor, size)

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
            from mainstay.converge.host.file_attributes import drop_access_lists

            drop_access_lists(descriptor)

    def set_attributes(self, path: str, old: Any, *, uid: int, gid: int, mode: int, keep_bits: int = 0) -> None:
        """Sets owner, group and mode in place, never wider in between than before or after."""
        from mainstay.converge.host.file_attributes import drop_access_lists, open_for_attributes, refuse_hard_links

        wanted_mode = mode | (old.st_mode & keep_bits)
        changes_owner = old.st_uid != uid or old.st_gid != gid
        place, name = self._at(path)
        descriptor, target = open_for_attributes(place, name)
        with ErrorsAt(path), Closing(descriptor):
            now = os.fstat(descriptor)
            if not is_same_file(now, old):
                # The path may be a hard link to another file now, to which the decision does not apply.
                raise was_replaced(path)
            refuse_hard_links(path, now, is_shared=place.is_shared)
            if changes_owner:
                narrow = modes.S_IMODE(old.st_mode) & wanted_mode
                if narrow != modes.S_IMODE(old.st_mode):
                    os.chmod(target, narrow)
                if now.st_uid not in (ROOT, self.effective_uid, uid):
                    # Chosen by the stranger to whom the entry belonged.
                    drop_access_lists(target)
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
                raise was_replaced(path)
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
            require_placed(before, name, place, path)
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

    def open_hidden(self, path: str) -> tuple[Place, str, int]:
        """Creates an empty hidden file beside a path; returns its directory, its name there, and a descriptor."""
        self.require_parent(path)
        place, _ = self._at(path)
        temp = self._temp_in(os.path.dirname(path))
        return place, temp, self._open_temp(temp, place, path)

    def make_hidden(self, parent: str) -> tuple[Place, str, int]:
        """Creates an empty hidden directory; returns `parent`, its name there, and a descriptor."""
        from mainstay.converge.host.file_attributes import drop_access_lists

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
            raise was_replaced(f"{parent}/{temp}")
        drop_access_lists(descriptor)
        return place, temp, descriptor

    def note_placed(self, path: str, place: Place) -> None:
        """Call it after a staged entry got its path."""
        self._touched(path, place, is_new=True)
        self.forget_directories()

    def remove_hidden(self, name: str, place: Place) -> None:
        """Removes a hidden directory with its content, if it can be removed."""
        from mainstay.converge.host.tree_removal import TreeRemoval

        with suppress(OSError, Failure):
            with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as top:
                TreeRemoval(self.run_id).empty(top)
            os.rmdir(name, dir_fd=place.handle)

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
            unlink_quietly(temp, place)
            if isinstance(error, OSError):
                error.filename, error.filename2 = path, None
            raise
        self._touched(path, place, is_new=False)
        self.forget_directories()

    def set_link_owner(self, path: str, *, uid: int, gid: int) -> None:
        """Sets the owner of the link itself; -1 leaves user or group as it is."""
        from mainstay.converge.host.file_attributes import refuse_hard_links

        place, name = self._at(path)
        with Closing(os.open(name, ENTRY_FLAGS, dir_fd=place.handle)) as handle, ErrorsAt(path):
            found = os.fstat(handle)
            if not modes.S_ISLNK(found.st_mode):
                raise was_replaced(path)
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
        from mainstay.converge.host.tree_removal import TreeRemoval

        removal = TreeRemoval(self.run_id)
        place, name = self._at(path)
        try:
            with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as top:
                self.forget_directories()
                removal.empty(top)
        finally:
            self.altered += removal.altered
        os.rmdir(name, dir_fd=place.handle)
        self._touched(path, place, is_new=False)

    def check_removable(self, path: str) -> None:
        """Raises `Failure` for a tree that must never be removed."""
        if path == "/":
            raise Failure("/ is never removed")
        # The kernel names mount points by their real path.
        path = self._walker().reach(os.path.dirname(path)).below(os.path.basename(path))
        from mainstay.converge.host.tree_removal import mount_points

        for point in mount_points():
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
                unlink_quietly(name, place)
                with suppress(OSError, Failure):
                    # A directory that was not put in place.
                    self.check_removable(f"{directory}/{name}")
                    self.remove_tree(f"{directory}/{name}")

    def sync(self) -> None:
        """Makes all changes durable: file by file, or for many files the whole file system."""
        if len(self._new_files) <= FSYNC_EACH_UP_TO:
            for path in (*self._new_files, *(f"{directory}/." for directory in self._directories)):
                self._sync_with(_fsync, path)
        else:
            for directory in self._devices.values():
                self._sync_with(sync_file_system, f"{directory}/.")
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


def give_away(descriptor: int, found: Any, uid: int, gid: int, shown: str) -> None:
    """Sets the owner of an open file with the status `found`; raises `Failure` without permission."""
    if found.st_uid != uid or found.st_gid != gid:
        try:
            os.fchown(descriptor, uid, gid)
        except PermissionError:
            raise Failure(cannot_give_away(shown)) from None


def require_placed(found: Any, name: str, place: Place, path: str) -> None:
    """Raises `Failure` if the entry in a directory is not the one with the status `found`, which was put there."""
    if not is_same_file(os.lstat(name, dir_fd=place.handle), found):
        raise was_replaced(path)


def kept_bits(mode: int) -> int:
    """The bits of a directory that a wanted mode leaves as they are: the special ones, unless it has one itself."""
    return 0 if mode & SPECIAL_BITS else SPECIAL_BITS


def compared_bits(mode: int) -> int:
    return 0o7777 & ~kept_bits(mode)


def cannot_write_in(directory: str) -> str:
    with suppress(OSError):
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            return f"{directory} is on a read-only file system"
    return f"no permission to write in {directory}"


def cannot_give_away(path: str) -> str:
    return f"no permission to give {path} to another user"


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


def _copy(incoming: int, descriptor: int) -> None:
    # Within the kernel, and on some file systems without copying data. If that fails, the rest is read and written,
    # which also raises the error.
    with suppress(OSError):
        while os.copy_file_range(incoming, descriptor, KERNEL_CHUNK_BYTES):
            pass
    while chunk := os.read(incoming, CHUNK_BYTES):
        write_all(descriptor, chunk)


def unlink_quietly(name: str, directory: Place) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory.handle)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        # A pipe, a device or a file system without storage: there is nothing to sync.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def sync_file_system(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

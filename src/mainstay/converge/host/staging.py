"""Hidden files and directories that get their path once they are complete. Loaded only for `archive`."""

from __future__ import annotations

import errno
import os

from mainstay.converge.host.file_reading import DIRECTORY_FLAGS, ErrorsAt, read_all
from mainstay.converge.host.files import Files, give_away, require_placed, sync_file_system, unlink_quietly
from mainstay.converge.host.parents import Place
from mainstay.converge.host.state import TEMP_PREFIX
from mainstay.foundation import IO, Struct
from mainstay.foundation.digests import sha256_of_pieces

RENAME_EXCHANGE = 2


def stage_file(files: Files, path: str) -> StagedFile:
    """Opens an empty hidden file beside a path, which becomes the file at the path once it is complete."""
    return StagedFile(files, path, *files.open_hidden(path))


def stage_directory(files: Files, parent: str) -> StagedDirectory:
    """Creates an empty hidden directory inside `parent`, whose entries are put into place there one by one."""
    return StagedDirectory(files, parent, *files.make_hidden(parent))


class StagedFile(Struct):
    """A hidden file that is being written."""

    _files: Files
    _path: str
    _place: Place
    _temp: str
    descriptor: int

    def open_again(self) -> IO[bytes]:
        """Opens the same file for reading from its start; the descriptor stays open."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return open(os.dup(self.descriptor), "rb")

    def checksum(self) -> str:
        with self.open_again() as file:
            return sha256_of_pieces(read_all(file.fileno()))

    def put_in_place(self, *, uid: int, gid: int, mode: int) -> None:
        """Gives the complete file its path; a file there is replaced."""
        found = os.fstat(self.descriptor)
        give_away(self.descriptor, found, uid, gid, self._path)
        os.fchmod(self.descriptor, mode)
        os.fsync(self.descriptor)
        name = os.path.basename(self._path)
        with ErrorsAt(self._path):
            os.rename(self._temp, name, src_dir_fd=self._place.handle, dst_dir_fd=self._place.handle)
            require_placed(found, name, self._place, self._path)
        self._files.note_placed(self._path, self._place)

    def close(self) -> None:
        """Removes the file, unless it was put in place."""
        os.close(self.descriptor)
        unlink_quietly(self._temp, self._place)


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
        sync_file_system(self.descriptor)

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
            require_placed(found, name, self._place, path)
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
        self._files.remove_hidden(self._temp, self._place)

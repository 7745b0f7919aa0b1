"""The files of the host as they would be in a dry run: changes of earlier resources over the real files.

Nothing is ever written. The changes are kept in memory by real path.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator
from contextlib import suppress

from mainstay.converge.failures import Failure, NotYetThere
from mainstay.converge.host.file_attributes import refuse_hard_links
from mainstay.converge.host.file_reading import CHUNK_BYTES, is_found, require_size
from mainstay.converge.host.files import Files, FileWrite, cannot_give_away, cannot_write_in
from mainstay.converge.host.parents import Place, Walk, has_access_list
from mainstay.converge.host.state import TEMP_PREFIX, StateDirectory
from mainstay.foundation import Any, Struct
from mainstay.foundation.digests import sha256_of_pieces


class ForecastEntry(Struct):
    """The forecast of a path, with the fields of a file status that callers use."""

    st_mode: int
    st_uid: int
    st_gid: int
    st_size: int = 0
    content: bytes | None = None
    # The real file that has the content.
    source: str | None = None
    target: str = ""
    # A directory that is not new still contains its real entries.
    is_new: bool = True
    # As of generated files: the size of the source may not be its true size.
    st_blocks: int = 0
    st_mtime: float = 0.0
    st_dev: int = -1
    st_ino: int = 0
    st_nlink: int = 1


GONE = ForecastEntry(0, 0, 0)


class ForecastFiles(Files):
    """Records every change instead of making it, and refuses what the kernel would refuse."""

    def __init__(self, run_id: str, state: StateDirectory) -> None:
        super().__init__(run_id, state)
        self.entries: dict[str, ForecastEntry] = {}
        # Directory → names in it that have an entry, at or below them.
        self._names: dict[str, set[str]] = {}
        self._forecast_walk = ForecastWalk(self)
        # Directories (with a final slash) whose files a program would have given away: uid and gid, before and after.
        self._new_owners: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
        # Whether anything is recorded at all.
        self._is_changed = False

    def _walker(self) -> Walk:
        return self._forecast_walk if self._is_changed else super()._walker()

    def forget_directories(self) -> None:
        super().forget_directories()
        self._forecast_walk.forget()

    # ---- recording changes ----
    def keep_backup(self, path: str, found: Any) -> None:
        """Nothing is replaced, so nothing is kept."""

    def replace(self, write: FileWrite) -> str | None:
        path, content, source = write.path, write.content, write.source
        self.require_parent(path)
        self._refuse_without_permission(path)
        self._refuse_foreign(path, write.uid, write.gid)
        size = 0
        if source is not None:
            size = self.lstat(source).st_size
        if write.validate is not None:
            pieces = self.content_chunks(source) if source is not None else iter((content or b"",))
            with self.state.scratch_file(self.run_id, pieces) as copy:
                write.validate(copy)
        if source is not None:
            source = self._key(source)
            behind = self.entries.get(source)
            if behind is not None:
                content, source = behind.content, behind.source
        size = size if content is None else len(content)
        self._put(path, ForecastEntry(modes.S_IFREG | write.mode, write.uid, write.gid, size, content, source))
        return None

    def set_attributes(self, path: str, old: Any, *, uid: int, gid: int, mode: int, keep_bits: int = 0) -> None:
        if self.effective_uid not in (0, old.st_uid):
            raise Failure(f"no permission to change {path}: it belongs to another user")
        if (old.st_uid, old.st_gid) != (uid, gid):
            self._refuse_foreign(path, uid, gid if old.st_gid != gid else self.effective_gid)
        place = self._walker().reach(os.path.dirname(path))
        refuse_hard_links(path, old, is_shared=place.is_shared)
        kind = modes.S_IFMT(old.st_mode)
        bits = mode | (modes.S_IMODE(old.st_mode) & keep_bits)
        key = place.below(os.path.basename(path) or ".")
        behind = self.entries.get(key)
        if behind is None and os.statvfs(key).f_flag & os.ST_RDONLY:
            raise Failure(f"no permission to change {path}: its file system is read-only")
        if modes.S_ISDIR(kind):
            self.forget_directories()
        if behind is not None and behind is not GONE:
            behind.st_mode, behind.st_uid, behind.st_gid = kind | bits, uid, gid
            return
        source = key if modes.S_ISREG(kind) else None
        self._note(key, ForecastEntry(kind | bits, uid, gid, old.st_size, source=source, is_new=False))

    def make_directory(self, path: str, *, uid: int, gid: int, mode: int) -> None:
        self._refuse_without_permission(path)
        self._refuse_foreign(path, uid, gid)
        self._put(path, ForecastEntry(modes.S_IFDIR | mode, uid, gid))

    def hidden_path(self, path: str) -> str:
        """Nothing is hidden: the directory is recorded at its own path."""
        self.require_parent(path)
        return path

    def put_in_place(self, hidden: str, path: str) -> None:
        """It is there already."""

    def note_new_owner(self, path: str, uids: tuple[int, int], gids: tuple[int, int]) -> None:
        key = self._key(path)
        self._is_changed = True
        self.forget_directories()
        self._new_owners.append((f"{key}/", uids, gids))
        for below, entry in self.entries.items():
            if f"{below}/".startswith(f"{key}/") and entry is not GONE:
                entry.st_uid, entry.st_gid = _given_away(entry, uids, gids)

    def make_link(self, path: str, target: str) -> None:
        self.require_parent(path)
        self._refuse_without_permission(path)
        # A new link belongs to the user of this process.
        mode = modes.S_IFLNK | 0o777
        self._put(path, ForecastEntry(mode, self.effective_uid, self.effective_gid, target=target))

    def set_link_owner(self, path: str, *, uid: int, gid: int) -> None:
        self._refuse_foreign(path, uid, gid)
        entry = self.entries[self._key(path)]
        self.forget_directories()
        entry.st_uid = entry.st_uid if uid < 0 else uid
        entry.st_gid = entry.st_gid if gid < 0 else gid

    def remove(self, path: str) -> None:
        self._refuse_without_permission(path)
        self.check_removable(path)
        self._put(path, GONE)

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def require_writable(self, directory: str) -> None:
        self.require_parent(f"{directory}/.")
        self._refuse_without_permission(f"{directory.rstrip('/')}/{TEMP_PREFIX}none")

    def _refuse_without_permission(self, path: str) -> None:
        """Raises `Failure` if the directory is not writable, as the kernel would in a run."""
        directory = os.path.dirname(path)
        key = self._walker().reach(directory).path or "/"
        found = self._look(key, directory)
        if isinstance(found, ForecastEntry) and (self.effective_uid == 0 or found.is_new):
            return
        if not os.access(key, os.W_OK | os.X_OK):
            raise Failure(cannot_write_in(directory))
        if found.st_mode & modes.S_ISVTX and self.effective_uid not in (0, found.st_uid):
            old = self.lstat_or_none(path)
            if old is not None and old.st_uid != self.effective_uid:
                raise Failure(f"no permission to replace {path}: it belongs to another user")

    def _refuse_foreign(self, path: str, uid: int, gid: int) -> None:
        """Raises `Failure` as the kernel would: only root changes owners, other users only to their own groups."""
        if self.effective_uid == 0:
            return
        if uid not in (-1, self.effective_uid):
            raise Failure(cannot_give_away(path))
        if gid not in (-1, self.effective_gid, *os.getgroups()):
            raise Failure(f"no permission to give {path} to a group this user is not in")

    def _put(self, path: str, entry: ForecastEntry) -> None:
        key = self._key(path)
        self.touched.append(path)
        if not self._is_free_or_file(key):
            # A directory or a link may be on the way to a directory that is kept.
            self.forget_directories()
        # Entries below belong to what was here before.
        emptied = [key]
        while emptied:
            directory = emptied.pop()
            for name in self._names.pop(directory, ()):
                below = f"{directory}/{name}"
                self.entries.pop(below, None)
                emptied.append(below)
        self._note(key, entry)

    def _is_free_or_file(self, key: str) -> bool:
        try:
            return modes.S_ISREG(self.look(key).st_mode)
        except OSError:
            return True

    def _note(self, key: str, entry: ForecastEntry) -> None:
        self.entries[key] = entry
        self._is_changed = True
        while key not in ("", "/"):
            directory, _, name = key.rpartition("/")
            names = self._names.setdefault(directory or "/", set())
            if name in names:
                return
            names.add(name)
            key = directory

    # ---- reading what programs use ----
    def stat(self, path: str) -> Any:
        if not self._is_changed:
            return os.stat(path)
        return self._look(self._resolved(path), path)

    def lexists(self, path: str) -> bool:
        if not self._is_changed:
            return super().lexists(path)
        return is_found(lambda path: self.look(self._resolved(path, follows_last=False)), path)

    def refuse_to_run(self, path: str) -> None:
        if not self._is_changed:
            return
        entry = self._look(self._resolved(path), path)
        if not isinstance(entry, ForecastEntry):
            return
        attributes_only = not entry.is_new or entry.source == self._resolved(path)
        if not attributes_only or not os.access(path, os.X_OK):
            raise NotYetThere(f"{path} would be changed by an earlier resource")

    def real_path(self, path: str) -> str:
        return self._resolved(path) if self._is_changed else super().real_path(path)

    def listdir(self, path: str) -> list[str]:
        return self._names_at(self._resolved(path), path) if self._is_changed else super().listdir(path)

    def chunks(self, path: str) -> Iterator[bytes]:
        return self._chunks_at(self._resolved(path)) if self._is_changed else super().chunks(path)

    # ---- reading managed paths ----
    def lstat(self, path: str) -> Any:
        return self._look(self._key(path), path) if self._is_changed else super().lstat(path)

    def readlink(self, path: str) -> str:
        if not self._is_changed:
            return super().readlink(path)
        key = self._key(path)
        entry = self.entries.get(key)
        return super().readlink(key) if entry is None else entry.target

    def names_in(self, path: str) -> list[str]:
        return self._names_at(self._key(path), path) if self._is_changed else super().names_in(path)

    def content_chunks(self, path: str) -> Iterator[bytes]:
        return self._chunks_at(self._key(path)) if self._is_changed else super().content_chunks(path)

    def holds(self, path: str, found: Any, content: bytes) -> bool:
        if not isinstance(found, ForecastEntry):
            return super().holds(self._key(path) if self._is_changed else path, found, content)
        return found.st_size == len(content) and b"".join(self.content_chunks(path)) == content

    def read_whole(self, path: str, limit: int) -> tuple[Any, bytes]:
        found = self.lstat(path)
        if not isinstance(found, ForecastEntry):
            return super().read_whole(self._key(path) if self.entries else path, limit)
        return found, require_size(self.content(path, limit), path, limit)

    def identity_of(self, found: Any) -> Any:
        return found if isinstance(found, ForecastEntry) else super().identity_of(found)

    def checksum_of(self, path: str, found: Any) -> str | None:
        if not isinstance(found, ForecastEntry):
            # Also of a file in a directory that a later resource would remove.
            with suppress(OSError, Failure):
                path = self._key(path)
            return super().checksum_of(path, found)
        try:
            return sha256_of_pieces(self._chunks_of(found))
        except OSError:
            return None

    # ---- internals ----
    def _names_at(self, key: str, path: str) -> list[str]:
        found = self._look(key, path)
        names = set() if isinstance(found, ForecastEntry) and found.is_new else set(super().names_in(key))
        for name in self._names.get(key, ()):
            entry = self.entries.get(f"{key.rstrip('/')}/{name}")
            if entry is not None:
                (names.discard if entry is GONE else names.add)(name)
        return sorted(names)

    def _chunks_at(self, key: str) -> Iterator[bytes]:
        entry = self.entries.get(key)
        if entry is None:
            return super().content_chunks(key)
        if entry is GONE:
            raise _not_found(key)
        return self._chunks_of(entry)

    def _chunks_of(self, entry: ForecastEntry) -> Iterator[bytes]:
        if entry.source is not None:
            yield from super().content_chunks(entry.source)
            return
        content = entry.content or b""
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]

    def _look(self, key: str, path: str) -> Any:
        try:
            return self.look(key)
        except OSError as error:
            error.filename = path
            raise

    def look(self, key: str) -> Any:
        """Returns the status of a path without links: forecast or real."""
        entry = self.entries.get(key)
        if entry is GONE:
            raise _not_found(key)
        if entry is not None:
            return entry
        above = key
        while above != "/" and above:
            above = above.rpartition("/")[0] or "/"
            entry = self.entries.get(above)
            if entry is None:
                continue
            if entry is not GONE and not modes.S_ISDIR(entry.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), key)
            if entry is GONE or entry.is_new:
                raise _not_found(key)
        found = os.lstat(key)
        for directory, uids, gids in self._new_owners:
            if f"{key}/".startswith(directory):
                found = _with_owner(key, found, *_given_away(found, uids, gids))
        return found

    def _key(self, path: str) -> str:
        """Returns the path with the links of its directory followed, but not a link at the path itself."""
        directory, _, name = path.rpartition("/")
        try:
            return self._forecast_walk.reach(directory).below(name or ".")
        except OSError as error:
            error.filename = path
            raise

    def _resolved(self, path: str, *, follows_last: bool = True) -> str:
        """Returns the path with all links followed as the kernel does, forecast links included."""
        directory, _, name = path.rpartition("/")
        if follows_last or name in ("", ".", ".."):
            place, rest = self._forecast_walk.find(path, trusting=True)
            return place.below(rest)
        place, rest = self._forecast_walk.find(f"{directory}/.", trusting=True)
        return f"{place.below(rest).rstrip('/')}/{name}"


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _given_away(found: Any, uids: tuple[int, int], gids: tuple[int, int]) -> tuple[int, int]:
    uid = uids[1] if found.st_uid == uids[0] else found.st_uid
    return uid, gids[1] if found.st_gid == gids[0] else found.st_gid


def _with_owner(key: str, found: Any, uid: int, gid: int) -> Any:
    """Returns a real entry with another owner."""
    if (found.st_uid, found.st_gid) == (uid, gid):
        return found
    source = key if modes.S_ISREG(found.st_mode) else None
    target = os.readlink(key) if modes.S_ISLNK(found.st_mode) else ""
    return ForecastEntry(found.st_mode, uid, gid, found.st_size, source=source, target=target, is_new=False)


class ForecastWalk(Walk):
    """The directories as a dry run would leave them, known by their path."""

    def __init__(self, files: ForecastFiles) -> None:
        super().__init__(files.effective_uid)
        self._files = files

    def open_root(self) -> Place:
        return Place("/", "", self._files.look("/"), self.user, unsafe=None)

    def open(self, place: Place, name: str, *, is_last: bool) -> tuple[str, Any]:
        key = (place.path.rpartition("/")[0] or "/") if name == ".." else f"{place.path}/{name}"
        return key, self._files.look(key)

    def read_link(self, handle: str) -> str:
        entry = self._files.entries.get(handle)
        return os.readlink(handle) if entry is None else entry.target

    def close(self, handle: str) -> None:
        """A path needs no closing."""

    def enter(self, place: Place, path: str, handle: str, status: Any) -> Place:
        listed = not isinstance(status, ForecastEntry) and has_access_list(status, handle)
        return Place(handle, path, status, self.user, unsafe=place.unsafe, has_access_list=listed)

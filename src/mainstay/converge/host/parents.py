"""Reaches the directory of a managed path one name at a time, so that no other user can lead a run elsewhere.

`Place` decides which links may be followed, without any call. `Walk` asks it for any entries: those of the host
(`Parents`, by descriptor), or those that a dry run forecasts.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from abc import ABC, abstractmethod

from mainstay.converge.failures import Failure
from mainstay.foundation import Any
from mainstay.foundation.private_files import Closing

ROOT = 0
MOST_LINKS = 40
MOST_KEPT = 256
# A run keeps at most an eighth of the descriptors that the process may open: several runs of an agent share them.
KEPT_SHARE = 8
ACCESS_ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"
# With O_DIRECTORY, because the kernel mounts on demand only then.
DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ENTRY_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class LinkRefused(Failure):
    """A link on the way to a managed path may be the work of another user; the text names it."""


# ---- deciding ----
def is_shared(status: Any, user: int, *, has_access_list: bool = False) -> bool:
    """Whether users other than root and `user` may write to a file, or create entries in a directory, sticky or not."""
    mode = status.st_mode
    if status.st_uid not in (ROOT, user) or mode & modes.S_IWOTH:
        return True
    # With an access list, the bits of the group are the limit for everyone whom the list names.
    return bool(mode & modes.S_IWGRP) and (status.st_gid != ROOT or has_access_list)


def _is_safe(status: Any, user: int, *, has_access_list: bool = False) -> bool:
    """Whether no user other than root and `user` can replace an entry of the directory that belongs to these two."""
    if status.st_uid not in (ROOT, user):
        return False
    return bool(status.st_mode & modes.S_ISVTX) or not is_shared(status, user, has_access_list=has_access_list)


class Place:
    """A directory that a walk has reached."""

    __slots__ = ("device", "handle", "is_shared", "path", "unsafe")

    def __init__(
        self, handle: Any, path: str, status: Any, user: int, *, unsafe: str | None, has_access_list: bool = False
    ) -> None:
        # A descriptor, or what else the entries of the walk are known by.
        self.handle = handle
        # Without links; empty for the root.
        self.path = path
        self.device: int = status.st_dev
        self.is_shared = is_shared(status, user, has_access_list=has_access_list)
        # The first unsafe directory on the way here; it may be this one.
        if unsafe is None and not _is_safe(status, user, has_access_list=has_access_list):
            unsafe = path or "/"
        self.unsafe = unsafe

    def link_refusal(self, link: Any, user: int) -> str | None:
        """Returns why a link with the status `link` in this directory is not followed, or None if it may be."""
        if self.unsafe is not None:
            return f"other users may change {self.unsafe}"
        if link.st_uid not in (ROOT, user):
            return f"it belongs to user {link.st_uid}"
        if self.is_shared and link.st_nlink > 1:
            # Another user may have given a link of root a second name here.
            return f"it has more than one hard link and other users may create entries in {self.path or '/'}"
        return None

    def below(self, name: str) -> str:
        return (self.path or "/") if name == "." else f"{self.path}/{name}"


# ---- walking ----
class Walk(ABC):
    """Follows paths by the parents rule; subclasses provide the entries.

    The directories reached last are kept, because neighbouring files share them.
    """

    def __init__(self, user: int) -> None:
        self.user = user
        # By path as given; the root by an empty one.
        self.kept: dict[str, Place] = {}
        self.most_kept = MOST_KEPT

    @abstractmethod
    def open_root(self) -> Place:
        """Returns the root directory."""

    @abstractmethod
    def open(self, place: Place, name: str, *, is_last: bool) -> tuple[Any, Any]:
        """Returns handle and status of an entry, which may be `..`; raises `OSError`. The last one is not entered."""

    @abstractmethod
    def read_link(self, handle: Any) -> str:
        """Returns the target of a link and closes its handle."""

    @abstractmethod
    def close(self, handle: Any) -> None:
        """Closes the handle of an entry that is neither a link nor entered."""

    @abstractmethod
    def enter(self, place: Place, path: str, handle: Any, status: Any) -> Place:
        """Returns the directory that was opened in `place`; owns the handle from now on."""

    def forget(self) -> None:
        """Drops all directories, which closes those that are not in use: they may be replaced or unmounted now."""
        self.kept.clear()

    def reach(self, directory: str) -> Place:
        """Returns the directory at an absolute path; raises `OSError` as the kernel would, or `LinkRefused`."""
        kept = self.kept.get(directory)
        if kept is not None:
            return kept
        names = []
        while directory and kept is None:
            directory, _, name = directory.rpartition("/")
            names.append(name)
            kept = self.kept.get(directory)
        place = kept or self.root()
        while names:
            name = names.pop()
            place, _ = self.walk(place, name, into=True)
            directory = f"{directory}/{name}"
            self._keep(directory, place)
        return place

    def root(self) -> Place:
        kept = self.kept.get("")
        if kept is None:
            kept = self.open_root()
            self._keep("", kept)
        return kept

    def _keep(self, directory: str, place: Place) -> None:
        if len(self.kept) >= self.most_kept:
            del self.kept[next(iter(self.kept))]
        self.kept[directory] = place

    def find(self, path: str, *, trusting: bool = False) -> tuple[Place, str]:
        """Returns the directory and the name of what is at an absolute path after links.

        The name is `.` for the directory itself, and has several parts if directories are missing. `trusting` follows
        every link.
        """
        return self.walk(self.root(), path, into=False, trusting=trusting)

    def walk(self, place: Place, path: str, *, into: bool, trusting: bool = False) -> tuple[Place, str]:
        """Follows a path from a directory. `into`: the last name must be a directory, too."""
        pending = _names(path)
        links = 0
        while pending:
            name = pending.pop()
            if name == ".":
                continue
            is_last = not (into or pending or name == "..")
            try:
                handle, status = self.open(place, name, is_last=is_last)
            except FileNotFoundError:
                if into:
                    raise
                return place, "/".join((name, *reversed(pending)))
            kind = modes.S_IFMT(status.st_mode)
            if kind == modes.S_IFLNK:
                target = self.read_link(handle)
                reason = None if trusting else place.link_refusal(status, self.user)
                if reason is not None:
                    raise LinkRefused(
                        f"{place.below(name)} is a link to {target} and is not followed, because {reason};"
                        " write the path without links"
                    )
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    place = self.root()
                pending += _names(target)
            elif is_last:
                self.close(handle)
                return place, name
            elif kind == modes.S_IFDIR:
                inner = place.path.rpartition("/")[0] if name == ".." else f"{place.path}/{name}"
                place = self.enter(place, inner, handle, status)
            else:
                self.close(handle)
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return place, "."


def _names(path: str) -> list[str]:
    """Returns the names of a path, the first one last; a slash at the end adds `.`, which requires a directory."""
    found = [part for part in path.split("/") if part]
    if path.endswith("/"):
        found.append(".")
    found.reverse()
    return found


# ---- on the host ----
class OpenDirectory(Place):
    """A directory of the host, open as long as this object is in use."""

    __slots__ = ()

    def __del__(self, close: Any = os.close) -> None:
        close(self.handle)


class Parents(Walk):
    """The directories of the host, by descriptor."""

    def __init__(self, user: int) -> None:
        super().__init__(user)
        limit = os.sysconf("SC_OPEN_MAX")
        if limit > 0:
            self.most_kept = max(1, min(MOST_KEPT, limit // KEPT_SHARE))

    def open_root(self) -> Place:
        handle = os.open("/", DIRECTORY_FLAGS)
        return OpenDirectory(handle, "", os.fstat(handle), self.user, unsafe=None)

    def open(self, place: Place, name: str, *, is_last: bool) -> tuple[int, Any]:
        try:
            handle = os.open(name, ENTRY_FLAGS if is_last else DIRECTORY_FLAGS, dir_fd=place.handle)
        except NotADirectoryError:
            handle = os.open(name, ENTRY_FLAGS, dir_fd=place.handle)
        return handle, os.fstat(handle)

    def read_link(self, handle: int) -> str:
        with Closing(handle):
            # Reads the link that was opened, also if another entry has its name now.
            return os.readlink("", dir_fd=handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def enter(self, place: Place, path: str, handle: int, status: Any) -> Place:
        listed = has_access_list(status, f"/proc/self/fd/{handle}")
        return OpenDirectory(handle, path, status, self.user, unsafe=place.unsafe, has_access_list=listed)


def has_access_list(status: Any, path: str) -> bool:
    """Whether an access list may name more writers of a directory than its mode does; asked only where it matters."""
    if not status.st_mode & modes.S_IWGRP or status.st_gid != ROOT:
        return False
    try:
        os.getxattr(path, ACCESS_ACL)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True

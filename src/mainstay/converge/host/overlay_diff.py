"""What changed in a tree that is an overlay: compares two states of its upper layer, over the lower layer `/`.

Entries are read by descriptor and without following links: the upper layer is the work of a trial run. Times are not
compared, so a file that was written again with the same content did not change.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Mapping

from mainstay.converge.host.file_reading import DIRECTORY_FLAGS, READ_FLAGS, read_all
from mainstay.foundation import Any, Struct
from mainstay.foundation.digests import sha256_of, sha256_of_pieces
from mainstay.foundation.private_files import Closing

FILE, DIRECTORY, LINK, OTHER, NONE = "file", "directory", "link", "other", "none"
KINDS = {modes.S_IFREG: FILE, modes.S_IFDIR: DIRECTORY, modes.S_IFLNK: LINK}
ADDED, CHANGED, REMOVED = "added", "changed", "removed"
OPAQUE = "trusted.overlay.opaque"
LARGEST_KEPT_BYTES = 64 * 1024
MOST_ENTRIES = 200_000
# Written by systemd and by tools that manage accounts, whatever a manifest says.
LEFT_OUT = ("/var/lib/systemd/", "/var/log/journal/", "/var/lib/private/", "/etc/.pwd.lock")


class TooManyEntries(Exception):
    """The layer has more entries than are compared."""


class LayerEntry:
    """An entry as it is compared. `content` is kept of small files, for a diff."""

    __slots__ = ("content", "digest", "gid", "is_opaque", "kind", "mode", "size", "target", "uid")

    def __init__(self, status: Any) -> None:
        self.kind = KINDS.get(modes.S_IFMT(status.st_mode), OTHER)
        if modes.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            # Hides the entry of the lower layer.
            self.kind = NONE
        self.mode = modes.S_IMODE(status.st_mode)
        self.uid: int = status.st_uid
        self.gid: int = status.st_gid
        self.size: int = status.st_size if self.kind == FILE else 0
        self.digest = ""
        self.target = ""
        self.content: bytes | None = None
        # Whether this directory hides all entries of the lower layer.
        self.is_opaque = False

    def same_as(self, other: LayerEntry) -> bool:
        return self.same_attributes(other) and self.same_content(other)

    def same_attributes(self, other: LayerEntry) -> bool:
        own = (self.kind, self.mode if self.kind != LINK else 0, self.uid, self.gid)
        return own == (other.kind, other.mode if other.kind != LINK else 0, other.uid, other.gid)

    def same_content(self, other: LayerEntry) -> bool:
        return (self.size, self.digest, self.target) == (other.size, other.digest, other.target)


class TreeChange(Struct):
    """A path that was added, changed or removed. `before` and `after` are None where it does not exist."""

    path: str
    before: LayerEntry | None
    after: LayerEntry | None

    @property
    def kind(self) -> str:
        if self.before is None:
            return ADDED
        return REMOVED if self.after is None else CHANGED


def read_layer(place: str) -> dict[str, LayerEntry]:
    """Returns the entries of an upper layer by path."""
    found: dict[str, LayerEntry] = {}
    top = os.open(place, DIRECTORY_FLAGS)
    pending = [("", top)]
    try:
        while pending:
            folder, descriptor = pending.pop()
            with Closing(descriptor):
                for name in os.listdir(descriptor):
                    path = f"{folder}/{name}"
                    if f"{path}/".startswith(LEFT_OUT) or path in LEFT_OUT:
                        continue
                    entry = _read_entry(name, descriptor)
                    if entry is None:
                        continue
                    found[path] = entry
                    if len(found) > MOST_ENTRIES:
                        raise TooManyEntries(f"more than {MOST_ENTRIES} paths changed")
                    if entry.kind == DIRECTORY:
                        pending.append((path, os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)))
    except BaseException:
        for _, descriptor in pending:
            os.close(descriptor)
        raise
    return found


def _read_entry(name: str, folder: int) -> LayerEntry | None:
    try:
        entry = LayerEntry(os.lstat(name, dir_fd=folder))
        if entry.kind == LINK:
            entry.target = os.readlink(name, dir_fd=folder)
        elif entry.kind in (FILE, DIRECTORY):
            flags = READ_FLAGS if entry.kind == FILE else DIRECTORY_FLAGS
            with Closing(os.open(name, flags, dir_fd=folder)) as descriptor:
                _complete(entry, descriptor)
    except FileNotFoundError:
        # Removed by a process that is still running.
        return None
    return entry


def _complete(entry: LayerEntry, descriptor: int) -> None:
    if entry.kind == DIRECTORY:
        try:
            entry.is_opaque = os.getxattr(f"/proc/self/fd/{descriptor}", OPAQUE) == b"y"
        except OSError:
            entry.is_opaque = False
    elif entry.size <= LARGEST_KEPT_BYTES:
        entry.content = os.read(descriptor, LARGEST_KEPT_BYTES)
        entry.digest = sha256_of(entry.content)
    else:
        entry.digest = sha256_of_pieces(read_all(descriptor))


def find_changes(before: Mapping[str, LayerEntry], after: Mapping[str, LayerEntry]) -> list[TreeChange]:
    """Compares two states of a layer. What is below a removed directory is not listed."""
    paths = set(before) | set(after)
    for path, entry in after.items():
        if entry.is_opaque and not (path in before and before[path].is_opaque):
            # Created anew in the place of a directory of the lower layer.
            paths |= {f"{path}/{name}" for name in _lower_names(path, before)}
    found: list[TreeChange] = []
    removed = "\0"
    for path in sorted(paths):
        if path.startswith(removed):
            continue
        old = before[path] if path in before else _lower_entry(path, before)
        new = after.get(path)
        old = None if old is None or old.kind == NONE else old
        new = None if new is None or new.kind == NONE else new
        if old is new or (old is not None and new is not None and old.same_as(new)):
            continue
        found.append(TreeChange(path, old, new))
        if new is None:
            removed = f"{path}/"
    return found


def _lower_names(path: str, layer: Mapping[str, LayerEntry]) -> list[str]:
    entry = _lower_entry(path, layer)
    return [] if entry is None or entry.kind != DIRECTORY else os.listdir(path)


def _lower_entry(path: str, layer: Mapping[str, LayerEntry]) -> LayerEntry | None:
    """Returns the entry of the lower layer, which is this machine's `/`, unless the upper layer hides it."""
    parent = path.rpartition("/")[0]
    above = parent
    while above:
        entry = layer.get(above)
        if entry is not None and (entry.kind != DIRECTORY or entry.is_opaque):
            return None
        above = above.rpartition("/")[0]
    try:
        with Closing(os.open(parent or "/", DIRECTORY_FLAGS)) as folder:
            if os.fstat(folder).st_dev != os.stat("/").st_dev:
                # Another file system is mounted there, which is no part of the lower layer.
                return None
            return _read_entry(path.rpartition("/")[2], folder)
    except OSError:
        return None

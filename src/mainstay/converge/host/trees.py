"""Compares a directory with the source it is copied from; returns the differences in the order to fix them."""

from __future__ import annotations

import stat as modes

from mainstay.converge.failures import Failure, file_word
from mainstay.converge.host.files import SPECIAL_BITS, Files, compared_bits
from mainstay.foundation import Any, Struct

MOST_ENTRIES = 100_000
DEEPEST = 100


class TreeDifference(Struct):
    """One entry that differs from the source."""

    verb: str
    path: str
    source: str = ""
    mode: int = 0
    old: Any = None
    target: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDifference) and str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]  # compared, never collected

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


def compare_trees(
    files: Files, source: str, target: str, *, uid: int, gid: int, mode: int, purge: bool
) -> tuple[TreeDifference, ...]:
    found: list[TreeDifference] = []
    TreeComparison(files, uid, gid, mode, purge=purge, found=found).directory(source, target, 0, exists=True)
    return tuple(found)


def _file_mode(mode: int, source_mode: int) -> int:
    """Files of a tree get the directory's mode without execute bits, unless the source is a program."""
    mode &= ~SPECIAL_BITS
    return mode if source_mode & modes.S_IXUSR else mode & ~0o111


class TreeComparison(Struct):
    files: Files
    uid: int
    gid: int
    mode: int
    purge: bool
    found: list[TreeDifference]

    def directory(self, source: str, target: str, depth: int, *, exists: bool) -> None:
        if depth > DEEPEST or len(self.found) > MOST_ENTRIES:
            raise Failure(f"source {source} is too deep or too large to copy")
        names = self.files.names_in(source)
        existing = self._existing(target) if exists else set()
        if self.purge:
            for name in sorted(existing.difference(names)):
                self.remove(f"{target}/{name}")
        for name in names:
            self._entry(f"{source}/{name}", f"{target}/{name}", depth, exists=name in existing)

    def _existing(self, target: str) -> set[str]:
        try:
            return set(self.files.names_in(target))
        except FileNotFoundError:
            return set()

    def remove(self, path: str) -> None:
        is_directory = modes.S_ISDIR(self.files.lstat(path).st_mode)
        self.found.append(TreeDifference("remove tree" if is_directory else "remove", path))

    def _entry(self, source: str, target: str, depth: int, *, exists: bool) -> None:
        wanted = self.files.lstat(source)
        old = self.files.lstat(target) if exists else None
        kind = modes.S_IFMT(wanted.st_mode)
        if old is not None and modes.S_IFMT(old.st_mode) != kind:
            if modes.S_ISDIR(old.st_mode) or modes.S_ISDIR(kind):
                raise Failure(f"{target} and {source} are not of the same kind; it is not removed")
            if not (modes.S_ISREG(old.st_mode) or modes.S_ISLNK(old.st_mode)):
                raise Failure(f"{target} is {file_word(old.st_mode)}, not a regular file")
            old = None
        if modes.S_ISDIR(kind):
            if old is None:
                self.found.append(TreeDifference("directory", target, mode=self.mode))
            else:
                self._attributes(target, old, self.mode, modes.S_IMODE(old.st_mode) & compared_bits(self.mode))
            self.directory(source, target, depth + 1, exists=old is not None)
        elif modes.S_ISLNK(kind):
            link_target = self.files.readlink(source)
            if old is None or self.files.readlink(target) != link_target:
                self.found.append(TreeDifference("link", target, target=link_target))
        elif modes.S_ISREG(kind):
            self.files.refuse_linked_source(source, wanted)
            mode = _file_mode(self.mode, wanted.st_mode)
            if old is None or not self.files.same(target, old, source, wanted):
                self.found.append(TreeDifference("file", target, source=source, mode=mode, old=old))
            else:
                self._attributes(target, old, mode, modes.S_IMODE(old.st_mode))
        else:
            raise Failure(f"source {source} is neither a file, a directory nor a link")

    def _attributes(self, target: str, old: Any, mode: int, bits: int) -> None:
        if bits != mode or old.st_uid != self.uid or old.st_gid != self.gid:
            self.found.append(TreeDifference("attributes", target, mode=mode, old=old))

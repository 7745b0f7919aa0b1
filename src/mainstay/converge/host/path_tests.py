"""Evaluates guards that only test a path (`test -e PATH`, `[ ! -d PATH ]`) on the files as a run sees them.

A dry run uses it: the programs themselves would not see what earlier resources would have made."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Sequence

from mainstay.converge.host.files import Files
from mainstay.foundation import Any, Struct

PROGRAMS = ("test", "/bin/test", "/usr/bin/test")
BRACKETS = ("[", "/bin/[", "/usr/bin/[")
LINK_OPERATORS = ("-L", "-h")
OPERATORS = ("-e", "-f", "-d", "-s", *LINK_OPERATORS)
# A shell gives these a meaning that words do not have.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\*?#~{}\n")


class PathTest(Struct):
    """One test of one path."""

    operator: str
    path: str
    is_negated: bool

    def run(self, files: Files) -> tuple[bool, bool]:
        """Returns whether the test succeeds, and whether the path exists."""
        found = self._look(files)
        if found is None:
            return self.is_negated, False
        return self._holds(found) != self.is_negated, True

    def _look(self, files: Files) -> Any:
        try:
            if self.operator in LINK_OPERATORS:
                return files.lstat(self.path)
            return files.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _holds(self, found: Any) -> bool:
        if self.operator in LINK_OPERATORS:
            return modes.S_ISLNK(found.st_mode)
        if self.operator == "-f":
            return modes.S_ISREG(found.st_mode)
        if self.operator == "-d":
            return modes.S_ISDIR(found.st_mode)
        return self.operator == "-e" or bool(found.st_size > 0)


def parse_path_test(words: Sequence[str], cwd: str) -> PathTest | None:
    """Returns the test that a command without a shell makes; None: it does something else."""
    program, *rest = words
    if program in BRACKETS and rest[-1:] == ["]"]:
        rest = rest[:-1]
    elif program not in PROGRAMS:
        return None
    is_negated = rest[:1] == ["!"]
    if is_negated:
        rest = rest[1:]
    if len(rest) != 2 or rest[0] not in OPERATORS or not rest[1]:
        return None
    return PathTest(rest[0], os.path.join(cwd, rest[1]), is_negated=is_negated)


def parse_shell_test(text: str, words: Sequence[str], cwd: str) -> PathTest | None:
    """Returns the test that a plain command of a shell makes. `words` are those of the text."""
    if not SHELL_CHARACTERS.isdisjoint(text):
        return None
    if words[0] != "!":
        return parse_path_test(words, cwd)
    found = parse_path_test(words[1:], cwd) if len(words) > 1 else None
    if found is not None:
        found.is_negated = not found.is_negated
    return found

"""Decides what free text of a consumer can do where it is written: which characters a pattern allows, and where in the
text of a shell command an expression is. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from mainstay.converge.command_words import UNQUOTED_CHARACTERS, Slot
from mainstay.foundation.text import line_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# Characters that decide whether a text is safe: a shell gives no meaning to other ones, and none of them ends a line.
PROBES = [chr(code) for code in range(0x100)] + list("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069")
PATTERN_TOKEN = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+?]\??|\{\d+(?:,\d*)?\}\??)|(?P<one>\\.|[^\\])",
    re.DOTALL,
)
SHELLS = frozenset(("sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "busybox", "su", "runuser"))
TAKES_A_SCRIPT = re.compile(r"-[A-Za-z]*c|--command")


def allows_only_lines(pattern: object) -> bool:
    """Whether every text that the pattern accepts is one line without control characters."""
    return _allows_only(pattern, lambda character: line_problem(character) is None)


def allows_only_words(pattern: object) -> bool:
    """Whether every text that the pattern accepts is one word of a shell, also without quotes."""
    return _allows_only(pattern, UNQUOTED_CHARACTERS.__contains__)


def _allows_only(pattern: object, is_safe: Callable[[str], bool]) -> bool:
    """Understands sets, escapes, groups and repetitions between `^` and `$`; every other pattern allows anything."""
    if not isinstance(pattern, str) or not re.fullmatch(r"\^.*(?<!\\)(?:\\\\)*\$", pattern, re.DOTALL):
        return False
    unsafe = [character for character in PROBES if not is_safe(character)]
    body, depth, at = pattern[1:-1], 0, 0
    while at < len(body):
        token = PATTERN_TOKEN.match(body, at)
        if token is None:
            return False
        at = token.end()
        kind, text = token.lastgroup, token[0]
        depth += {"open": 1, "close": -1}.get(kind or "", 0)
        # An alternative outside a group has only one of the anchors.
        if depth < 0 or (kind == "or" and depth == 0) or (kind == "open" and body[at : at + 1] == "?"):
            return False
        if kind in ("set", "one") and not _matches_none(text, unsafe):
            return False
    return depth == 0


def _matches_none(token: str, unsafe: Iterable[str]) -> bool:
    if "[:" in token or token in ("^", "$"):
        return False
    try:
        form = re.compile(token, re.ASCII)
    except re.error:
        return False
    return not any(form.fullmatch(character) for character in unsafe)


# ---- where an expression is in a shell command ----
class _ShellText:
    """Follows the quotes, comments and here-documents of a shell through the text between expressions."""

    def __init__(self) -> None:
        self.quote = ""
        self.is_comment = False
        self.has_here_document = False
        self.before = " "

    def read(self, text: str) -> None:
        index = 0
        while index < len(text):
            character = text[index]
            if self.is_comment:
                self.is_comment = character != "\n"
            elif character == "\\" and self.quote != "'":
                index += 1
            elif self.quote:
                if character == self.quote:
                    self.quote = ""
            elif character in "'\"`":
                self.quote = character
            elif character == "#" and self.before in " \t\n;&|()":
                self.is_comment = True
            elif character == "<" and self.before == "<":
                self.has_here_document = True
            self.before = character
            index += 1

    def place(self) -> str | None:
        """Where the text ends, if a quoted word would not be one word there; otherwise None."""
        if self.is_comment:
            return "a comment"
        if self.has_here_document:
            return "a here-document"
        return {"'": "single quotes", '"': "double quotes", "`": "backquotes"}.get(self.quote)


def shell_places(parts: Iterable[Any]) -> Iterator[tuple[Any, str | None]]:
    """(expression, where it is inside quotes or the like of the shell) of each part that is not text."""
    shell = _ShellText()
    for part in parts:
        if isinstance(part, str):
            shell.read(part)
        else:
            yield part, shell.place()
            shell.before = "x"


def scripts_in(words: list[list[str | Slot]]) -> Iterator[list[Any]]:
    """The parts of the arguments that a shell runs, as in `sh -c '…'`: texts and expressions."""
    texts = [None if any(isinstance(piece, Slot) for piece in word) else "".join(map(str, word)) for word in words]
    has_shell = False
    for index, text in enumerate(texts[:-1]):
        has_shell = has_shell or (text is not None and posixpath.basename(text) in SHELLS)
        if has_shell and text is not None and TAKES_A_SCRIPT.fullmatch(text):
            yield [piece.expression if isinstance(piece, Slot) else piece for piece in words[index + 1]]

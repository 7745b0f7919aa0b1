"""Decides what free text of a consumer can do where it is written: which characters a pattern allows, and where in the
text of a shell command an expression is. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mainstay.converge.command_words import UNQUOTED_CHARACTERS, Slot
from mainstay.foundation.text import line_problem

# Characters that decide whether a text is safe: a shell gives no meaning to other ones, and none of them ends a line.
PROBES = [chr(code) for code in range(0x100)] + list("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069")
PATTERN_TOKEN = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+?]\??|\{\d+(?:,\d*)?\}\??)|(?P<one>\\.|[^\\])",
    re.DOTALL,
)
# Programs that run the argument of `-c`.
SHELLS = frozenset(
    (
        *("sh", "ash", "bash", "rbash", "dash", "ksh", "mksh", "oksh", "yash", "posh", "zsh", "fish", "csh", "tcsh"),
        *("busybox", "toybox", "su", "runuser", "flock", "script"),
    )
)
# Programs that join their arguments and have a shell run them.
JOINING = frozenset(("eval", "ssh", "watch"))
TAKES_A_SCRIPT = re.compile(r"-[A-Za-z]*c[A-Za-z]*|--command")
STARTS_A_SCRIPT = re.compile(r"--command=|-c(?=.)", re.DOTALL)
CONSTANT = re.compile(r"""'([^'\\]*)'|"([^"\\]*)\"""")
COMMAND_END = frozenset(";&|()\n`{}")


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
        self.is_escaped = False
        self.before = " "
        # The current command so far, with its quotes.
        self.command = ""

    def read(self, text: str) -> None:
        index = 0
        self.is_escaped = False
        while index < len(text):
            character = text[index]
            self.command = "" if character in COMMAND_END and not self.quote else self.command + character
            if self.is_comment:
                self.is_comment = character != "\n"
            elif character == "\\" and self.quote != "'":
                index += 1
                self.is_escaped = index == len(text)
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
        """The context at the end of the text if `quote` does not protect there, such as a comment; else None."""
        if self.is_comment:
            return "a comment"
        if self.has_here_document:
            return "a here-document"
        if self.is_escaped:
            return "an escape"
        if not self.quote and _is_run_again(self.command.split()):
            return "the script of another shell"
        return {"'": "single quotes", '"': "double quotes", "`": "backquotes"}.get(self.quote)


def shell_places(parts: Iterable[Any]) -> Iterator[tuple[Any, str | None]]:
    """(expression, where it is inside quotes or the like of the shell) of each part that is not text."""
    shell = _ShellText()
    for part in parts:
        if isinstance(part, str):
            shell.read(part)
        else:
            yield part, shell.place()
            shell.is_escaped = False
            shell.before = "x"
            shell.command += "x"


def _is_run_again(words: list[str]) -> bool:
    """Whether the next word of a command is code for another shell, as after `sh -c`."""
    names = [posixpath.basename(word) for word in words]
    if not JOINING.isdisjoint(names):
        return True
    shell = next((index for index, name in enumerate(names) if name in SHELLS), len(names))
    return any(
        TAKES_A_SCRIPT.fullmatch(word) and _script_after(words, index) == len(words)
        for index, word in enumerate(words)
        if index > shell
    )


def _script_after(texts: Sequence[str | None], flag: int) -> int:
    """The index of the script after `-c`: other options may be between them. None is a word with an expression."""
    index = flag + 1
    while index < len(texts):
        text = texts[index]
        if text is None or text[:1] not in ("-", "+"):
            break
        # `-o` and `+o` have an argument.
        index += 2 if text[-1:] == "o" and not text.startswith("--") else 1
        if text == "--":
            break
    return index


def scripts_in(words: list[list[str | Slot]]) -> Iterator[list[Any]]:
    """The parts of the arguments that a shell runs, as in `sh -c '…'`: texts and expressions."""
    texts = [None if any(isinstance(piece, Slot) for piece in word) else "".join(map(str, word)) for word in words]
    has_shell = joins = False
    script = -1
    for index, (word, text) in enumerate(zip(words, texts, strict=True)):
        constants = _constants_of(word)
        if joins or index == script or (has_shell and text is None and STARTS_A_SCRIPT.match(_start_of(word))):
            yield [piece.expression if isinstance(piece, Slot) else piece for piece in word]
        elif any(map(TAKES_A_SCRIPT.fullmatch, constants)) and (has_shell or not SHELLS.isdisjoint(constants)):
            # A list of arguments.
            yield [piece.expression for piece in word if isinstance(piece, Slot)]
        name = "" if text is None else posixpath.basename(text)
        has_shell = has_shell or name in SHELLS
        joins = joins or name in JOINING
        if has_shell and text is not None and TAKES_A_SCRIPT.fullmatch(text):
            script = _script_after(texts, index)


def _start_of(word: list[str | Slot]) -> str:
    """The text of a word before its first expression, which is shown as one character."""
    found = ""
    for piece in word:
        if isinstance(piece, Slot):
            return f"{found}x"
        found += piece
    return found


def _constants_of(word: list[str | Slot]) -> set[str]:
    """The last parts of all constant texts in an expression that is a whole word, and may be a list."""
    if len(word) != 1 or not isinstance(word[0], Slot) or word[0].is_quoted:
        return set()
    found = CONSTANT.findall(word[0].expression.source)
    return {posixpath.basename(single or double) for single, double in found}

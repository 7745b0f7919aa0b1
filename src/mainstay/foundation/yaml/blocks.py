"""Reads the plainest YAML line by line: block maps and lists, keys and values on one line, literal blocks.

Most manifests use nothing else, and reading them with libyaml would take more than half of the time of a stable
run. `read` returns the same nodes as the composer. At the first line that may mean anything else, or is wrong, it
returns None, and libyaml reads the whole text and reports the faults. So this module knows neither faults nor
positions. Measured in docs/decisions/0007-plain-blocks.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from mainstay.foundation import Any, TypeAlias
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml.scalars import CORE, FIRST_OF_CORE, Node, PlainScalar

# Column of the line, column after its dash (0 without a dash), key, value (None if it follows below).
Line: TypeAlias = "tuple[int, int, str | None, Any]"


# Unquoted text begins with a character that has no other meaning there; `: ` and ` #` would end it.
UNQUOTED = r"(?!\.\.\.)[A-Za-z0-9_/.~$+(][!-9;-~]*+(?:(?::(?=[!-~])|\ ++(?=[!\"$-9;-~]|:+[!-~]))[!-9;-~]*+)*+"
QUOTED = r"\"[^\"\\\n]*\"|'[^'\n]*'"
WORD = r"[A-Za-z0-9_/.~][A-Za-z0-9_/.~#@%+=-]*+"
WORDS = rf"\[{WORD}(?:,\ {WORD})*+\]"
# Maps of words and quoted texts on one line are read by `_read_pairs`. Passed to the composer as a document of its own:
# other brackets, and quotes with escapes.
PART = r"[\[{\"'].*"
ESCAPED = r"\"[^\"\\\n]*+(?:\\[nt\"][^\"\\\n]*+)*+\""
PAIR = rf"({WORD}):\ ++({WORD}(?:\ {WORD})*+|{ESCAPED}|'[^'\n]*'|{WORDS})"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern if sys.version_info >= (3, 11) else without_possessive(pattern))


def without_possessive(pattern: str) -> str:
    """The pattern for Python before 3.11. It matches the same: no text can be split in two ways here, so giving back
    characters never leads to another match."""
    return pattern.replace("*+", "*").replace("++", "+")


LINE = _compile(
    rf"(?P<indent>\ *+)(?P<dash>-\ ++)?"
    rf"(?:(?P<key>{UNQUOTED}|{QUOTED}):(?=\ |$)"
    rf"(?:\ ++(?:(?P<value>{UNQUOTED}|{QUOTED}|{WORDS})|(?P<literal>\|-?)|(?P<part>{PART})))?"
    rf"|(?P<item>{UNQUOTED}|{QUOTED}|{WORDS})|(?P<part_item>{PART}))"
    r"\ *+(?:(?<=\ )\#.*)?"
)
PART_KINDS: dict[str, Any] = {"[": list, "{": dict, '"': str, "'": str}
QUOTES = frozenset("\"'")
# Well within the limits of libyaml and the composer. A bracket that contains a pair, `[a: b]`, is two levels.
LONGEST_KEY = 500
DEEPEST = 25
MOST_BRACKETS = 15
# Bounds the cache of repeated lines.
MOST_KNOWN_LINES = 1000
# Bounds the parts passed to the composer: with more of them it reads the whole text in less time.
MOST_PARTS = 100
PIECE_LENGTH = 100_000
CLIPPED, STRIPPED = object(), object()
EMPTY = PlainScalar("")
BLANK: Line = (-1, 0, None, None)
# The characters of nearly every text.
COMMON = bytes([*range(32, 127), 10])


class Declined(Exception):
    """The text is more than the plainest YAML, or has a mistake."""


def read(text: str) -> Node | None:
    """Returns the document, or None if libyaml has to read it."""
    # Text that Python calls printable has no control characters, surrogates or other line breaks.
    if text[-1:] != "\n" or (
        text.encode("utf-8", "surrogatepass").translate(None, COMMON) and not _has_only_text(text)
    ):
        return None
    try:
        node: Node = _read_lines(text)
    except Declined:
        return None
    return node


def _has_only_text(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def _read_lines(text: str) -> Any:
    """One loop without functions for its parts: a call per line would take longer than reading most lines."""
    known: dict[str, Line] = {}
    parts: dict[str, Any] = {}
    # The innermost open map or list, its column, and those around it.
    root: Any = None
    top: Any = None
    column = 0
    above: list[tuple[int, Any]] = []
    opened: Any
    # The key whose value follows on the lines below, and the lines of its literal block if it has one.
    waiting: str | None = None
    block: list[str] | None = None
    chomping: object = None
    indent, before = 0, ""
    for line in chain.from_iterable(_lines_of(text)):
        if block is not None:
            if not block:
                indent, before = _start_of_literal(line, column)
            if line[:indent] == before:
                block.append(line[indent:])
                continue
            if not line.strip(" "):
                block.append("")
                continue
            top[waiting] = _literal(block, chomping)
            waiting = block = None
        found = known.get(line) or _read_line(line, known, parts)
        if found is BLANK:
            continue
        begin, inner, key, value = found
        if waiting is not None:
            # A list may begin right below its key, without more indent.
            if begin > column or (inner and begin == column):
                if len(above) > DEEPEST:
                    raise Declined
                above.append((column, top))
                top[waiting] = opened = [] if inner else {}
                column, top = begin, opened
            waiting = None
        elif root is None:
            root = top = [] if inner else {}
        if begin != column or inner or top.__class__ is list:
            while begin < column:
                column, top = above.pop()
            if not inner and top.__class__ is list and above and above[-1][0] == column:
                column, top = above.pop()
            if begin != column or (top.__class__ is list) is not bool(inner):
                raise Declined
            if key is None:
                top.append(value)
                continue
            if inner:
                above.append((column, top))
                opened = {}
                top.append(opened)
                column, top = inner, opened
        if key in top:
            raise Declined
        if value is None:
            waiting = key
            # Fixes the order of the keys; the value follows below.
            top[key] = EMPTY
        elif value is CLIPPED or value is STRIPPED:
            waiting, block, chomping = key, [], value
        else:
            top[key] = value
    if root is None:
        raise Declined
    return root


def _lines_of(text: str) -> Iterator[list[str]]:
    """Yields the lines in pieces: a list of all short lines would take many times the memory of the text."""
    start = len("---\n") if text.startswith("---\n") else 0
    while start < len(text):
        end = text.find("\n", start + PIECE_LENGTH)
        if end < 0:
            end = len(text) - 1
        yield text[start:end].split("\n")
        start = end + 1
    # Ends a literal block.
    yield ["#"]


def _read_line(line: str, known: dict[str, Line], parts: dict[str, Any]) -> Line:
    is_early = len(known) < MOST_KNOWN_LINES
    match = LINE.fullmatch(line)
    if match is None:
        rest = line.lstrip(" ")
        if rest and rest[0] != "#":
            raise Declined
        if is_early:
            known[line] = BLANK
        return BLANK
    indent, dash, key, value, literal, part, item, part_item = match.groups()
    if key is None and dash is None:
        raise Declined
    if key is not None:
        if len(key) > LONGEST_KEY:
            raise Declined
        if key[0] in QUOTES:
            key = key[1:-1]
    given: Any = None
    if value or item:
        given = _value_of(value or item)
    elif part or part_item:
        given = _read_part(part or part_item, parts)
    elif literal:
        given = STRIPPED if literal == "|-" else CLIPPED
    column = len(indent)
    found: Line = (column, column + len(dash) if dash else 0, key, given)
    if is_early:
        known[line] = found
    return found


def _start_of_literal(first: str, column: int) -> tuple[int, str]:
    """The indent of a literal block, as a number and as the text before each of its lines."""
    rest = first.lstrip(" ")
    indent = len(first) - len(rest)
    if not rest or rest[0] == "\t" or indent <= column:
        raise Declined
    return indent, first[:indent]


def _literal(lines: list[str], chomping: object) -> str:
    while not lines[-1]:
        lines.pop()
    if chomping is CLIPPED:
        lines.append("")
    return "\n".join(lines)


def _read_part(text: str, parts: dict[str, Any]) -> Any:
    node = _read_pairs(text) if text[0] == "{" else None
    if node is None:
        node = parts.get(text)
    if node is None:
        if len(parts) >= MOST_PARTS:
            raise Declined
        node = parts[text] = compose_part(text)
    return node


def _read_pairs(text: str) -> dict[str, Any] | None:
    """A map on one line, or None when the composer has to read it."""
    line, pair = pair_patterns()
    if line.fullmatch(text) is None:
        return None
    pairs = pair.findall(text)
    entries = {key: _value_of(value) for key, value in pairs}
    return entries if len(entries) == len(pairs) and len(max(entries, key=len)) <= LONGEST_KEY else None


@lru_cache(maxsize=1)
def pair_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compiled on first need: most manifests have no such maps, and compiling takes longer than reading many lines."""
    return _compile(rf"\{{\ *+{PAIR}(?:,\ *+{PAIR})*+\ *+\}}\ *+"), _compile(PAIR)


def compose_part(text: str) -> Any:
    from mainstay.foundation.yaml.composer import compose

    # An alias needs an anchor before it, and the bound on aliases holds for a whole document.
    if text.count("[") + text.count("{") > MOST_BRACKETS or "&" in text:
        raise Declined
    try:
        node = compose(text, "")
    except DoesNotLoad:
        raise Declined from None
    # `"a": b` is a map as a document, and wrong as a value.
    if not isinstance(node, PART_KINDS[text[0]]):
        raise Declined
    return node


def _value_of(text: str) -> Any:
    first = text[0]
    if first in QUOTES:
        text = text[1:-1]
        if first == '"' and "\\" in text:
            # No escaped backslash is read here, so that each backslash begins one of these.
            return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        return text
    if first == "[":
        return [_value_of(word) for word in text[1:-1].split(", ")]
    if first in FIRST_OF_CORE and CORE.fullmatch(text):
        return PlainScalar(text)
    return text

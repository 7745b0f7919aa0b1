"""Unified diffs as lines with the changed words marked, within bounds. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

DiffLineKind = Literal["same", "added", "removed", "place"]

MAX_LINES = 300
MAX_LINE = 1000
MAX_COMPARED = 300
# Below this share of common text the lines have nothing to do with each other, and marks would only distract.
LEAST_COMMON = 0.4
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_KINDS: dict[str, DiffLineKind] = {"+": "added", "-": "removed", "@": "place", "\\": "place"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: DiffLineKind
    # (text, whether it differs from the line that it replaces)
    parts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class ShownDiff:
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    # Lines that are not shown.
    left_out: int = 0


@dataclass(slots=True)
class DiffBudget:
    """What all diffs of a page may show together."""

    lines: int = 1500
    comparisons: int = 200
    # Upper bound of the steps that compare words: a tenth of a second.
    steps: int = 4_000_000


def read_diff(text: str, budget: DiffBudget) -> ShownDiff:
    lines = [_parse_line(line) for line in _without_header(text.rstrip("\n").split("\n"))]
    shown = lines[: max(0, min(MAX_LINES, budget.lines))]
    budget.lines -= len(shown)
    return ShownDiff(
        added=sum(kind == "added" for kind, _ in lines),
        removed=sum(kind == "removed" for kind, _ in lines),
        lines=_mark_words(shown, budget),
        left_out=len(lines) - len(shown),
    )


def _without_header(lines: Sequence[str]) -> Sequence[str]:
    has_header = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
    return lines[2:] if has_header else lines


def _parse_line(line: str) -> tuple[DiffLineKind, str]:
    kind = _KINDS.get(line[:1], "same")
    text = line if kind == "place" else line[1:] if line[:1] in "+- " else line
    return kind, text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} … {len(text) - MAX_LINE:,} more characters"


def _mark_words(lines: Sequence[tuple[DiffLineKind, str]], budget: DiffBudget) -> tuple[DiffLine, ...]:
    """Compares the n-th removed line of a block with the n-th line that is added after it."""
    found = [DiffLine(kind, ((text, False),)) for kind, text in lines]
    start = 0
    while start < len(lines):
        middle = _end_of(lines, start, "removed")
        end = _end_of(lines, middle, "added")
        for old, new in zip(range(start, middle), range(middle, end), strict=False):
            if budget.comparisons <= 0:
                return tuple(found)
            budget.comparisons -= 1
            before, after = _changed_words(lines[old][1], lines[new][1], budget)
            found[old], found[new] = DiffLine("removed", before), DiffLine("added", after)
        start = max(end, start + 1)
    return tuple(found)


def _end_of(lines: Sequence[tuple[DiffLineKind, str]], start: int, kind: DiffLineKind) -> int:
    while start < len(lines) and lines[start][0] == kind:
        start += 1
    return start


Parts = tuple[tuple[str, bool], ...]


def _changed_words(before: str, after: str, budget: DiffBudget) -> tuple[Parts, Parts]:
    if len(before) > MAX_COMPARED or len(after) > MAX_COMPARED:
        return ((before, False),), ((after, False),)
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    steps = _most_steps(old, new)
    if steps > budget.steps:
        return ((before, False),), ((after, False),)
    budget.steps -= steps
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < LEAST_COMMON:
        return ((before, False),), ((after, False),)
    left: list[tuple[str, bool]] = []
    right: list[tuple[str, bool]] = []
    for operation, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        changed = operation != "equal"
        if old_to > old_from:
            left.append(("".join(old[old_from:old_to]), changed))
        if new_to > new_from:
            right.append(("".join(new[new_from:new_to]), changed))
    return tuple(left), tuple(right)


def _most_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """What comparing costs at most: the pairs of equal words, once for each common block. Lines that repeat a few words
    have the most of both."""
    counts = Counter(new)
    return sum(counts[word] for word in old) * min(len(old), len(new))

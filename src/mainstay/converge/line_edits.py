"""Edits of lines and marked blocks in a text of bytes: (content, rule) → a plan, or why there is none. Pure.

Many rules may be applied to one document, each to the result of those before it. The work is linear in the size of the
document and the number of rules: lines are found by an index, and a new line moves no other line.
"""

from __future__ import annotations

from itertools import islice

from mainstay.foundation import Struct
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainstay.converge.linear_search import LinearSearch

    # The place of a line: the number of an original line, and -1 for this line itself or the position among the lines
    # that were inserted after it. The number is -1 for lines inserted before the first original line.
    Place = tuple[int, int]

# Longer lines are not searched for patterns.
LONGEST_SEARCHED_BYTES = 64 * 1024
# Line numbers in a message.
MOST_NUMBERS = 10
CONTEXT_LINES = 3
LARGEST_DIFF_BYTES = 512 * 1024
START = (-1, -1)


class LineRule(Struct):
    """What a `line` resource asks for. Exactly one of `line` and `block` is given, or only `match` for removal."""

    is_present: bool
    line: bytes | None
    block: tuple[bytes, ...] | None
    # The markers of a block.
    begin: bytes
    end: bytes
    match: LinearSearch | None
    after: LinearSearch | None
    before: LinearSearch | None


class Splice(Struct):
    """Replaces neighbouring lines by others, which come after the line `at` a place.

    Without a place, lines are only removed, or one line is replaced and keeps its ending."""

    at: Place | None
    removed: Sequence[int]
    added: Sequence[bytes]


class LinePlan(Struct):
    """What a rule means for a document: nothing to do (no `reason`), splices in order, or a `problem`."""

    reason: str = ""
    splices: Sequence[Splice] = ()
    problem: str = ""
    # The number of lines that are too long for patterns.
    unsearched: int = 0


class Document:
    """The lines of a file. A line is known by a number that it keeps; original lines are numbered from 0."""

    def __init__(self, content: bytes) -> None:
        # Lines without their newline; a carriage return before it is kept. None: removed.
        self._raw: list[bytes | None] = list(content.split(b"\n"))
        last = self._raw.pop()
        # Whether the last original line has no newline.
        self._is_open = bool(last)
        if last:
            self._raw.append(last)
        self._originals = len(self._raw)
        # Original line → the lines inserted after it, in order; inserted line → that original line.
        self._inserted: dict[int, list[int]] = {}
        self._owner: dict[int, int] = {}
        # Original lines that are removed, or have lines inserted after them.
        self._changed: set[int] = set()
        # Original lines before this one are removed, and no lines are inserted after them.
        self._first = 0
        self._index: dict[bytes, list[int]] = {}
        for number in range(self._originals):
            self._index.setdefault(self._text(number), []).append(number)
        # Pattern → the last line that it matches, or None.
        self._last: dict[LinearSearch, int | None] = {}
        self._unsearched = sum(len(self._index[text]) for text in self._index if len(text) > LONGEST_SEARCHED_BYTES)

    def content(self) -> bytes:
        lines = [self._raw[number] or b"" for number in self._after(START)]
        if not lines:
            return b""
        return b"\n".join(lines) + (b"" if self._is_open else b"\n")

    # ---- planning ----
    def plan(self, rule: LineRule) -> LinePlan:
        plan = self._plan(rule)
        if rule.match is not None or rule.after is not None or rule.before is not None:
            plan.unsearched = self._unsearched
        return plan

    def _plan(self, rule: LineRule) -> LinePlan:
        if rule.block is not None:
            return self._plan_block(rule, rule.block)
        same = [] if rule.line is None else self._index.get(rule.line, [])
        if rule.match is not None:
            found = [number for number in self._after(START) if _matches(rule.match, self._text(number))]
            if rule.is_present:
                return self._plan_match(rule, found, same)
            gone = sorted({*found, *same}, key=self._place)
            return _plan_removal(gone, f"{_count(gone)} there, expected none")
        if not rule.is_present:
            gone = sorted(same, key=self._place) if len(same) > 1 else same
            return _plan_removal(gone, "the line is there, expected absent")
        if same:
            return LinePlan()
        return self._plan_insertion(rule, (rule.line or b"",), "the line is missing")

    def _plan_match(self, rule: LineRule, found: list[int], same: list[int]) -> LinePlan:
        line = rule.line or b""
        if len(found) > 1:
            numbers = self._list_numbers(found)
            return LinePlan(problem=f"`match` matches {len(found)} lines ({numbers}); it must match at most one")
        if found:
            if self._text(found[0]) == line:
                return LinePlan()
            reason = f"line {self._number_of(found[0])} matches and differs"
            return LinePlan(reason, (Splice(None, found, (line,)),))
        if same:
            return LinePlan()
        return self._plan_insertion(rule, (line,), "no line matches, and the line is missing")

    def _plan_block(self, rule: LineRule, block: tuple[bytes, ...]) -> LinePlan:
        begins, ends = self._index.get(rule.begin, []), self._index.get(rule.end, [])
        if not begins and not ends:
            if not rule.is_present:
                return LinePlan()
            return self._plan_insertion(rule, (rule.begin, *block, rule.end), "the block is missing")
        if len(begins) != 1 or len(ends) != 1 or self._place(begins[0]) > self._place(ends[0]):
            return LinePlan(problem=self._describe_markers(rule, begins, ends))
        begin, end = begins[0], ends[0]
        inner = []
        for number in self._after(self._place(begin)):
            if number == end:
                break
            inner.append(number)
        if not rule.is_present:
            return LinePlan("the block is there, expected absent", (Splice(None, (begin, *inner, end), ()),))
        texts = [self._text(number) for number in inner]
        same = _common_start(texts, block)
        if same == len(texts) == len(block):
            return LinePlan()
        tail = _common_start(texts[same:][::-1], block[same:][::-1])
        anchor = self._place(inner[same - 1] if same else begin)
        splice = Splice(anchor, inner[same : len(inner) - tail], block[same : len(block) - tail])
        return LinePlan("the block differs", (splice,))

    def _describe_markers(self, rule: LineRule, begins: list[int], ends: list[int]) -> str:
        found = [
            f"`{shorten(_decoded(marker))}` is {'at ' + self._list_numbers(numbers) if numbers else 'missing'}"
            for marker, numbers in ((rule.begin, begins), (rule.end, ends))
        ]
        return f"the markers of the block do not pair: {', '.join(found)}; repair or remove them by hand"

    def _plan_insertion(self, rule: LineRule, lines: tuple[bytes, ...], reason: str) -> LinePlan:
        after = None if rule.after is None else self._last_match(rule.after)
        if after is not None:
            return LinePlan(reason, (Splice(self._place(after), (), lines),))
        before = None if rule.before is None else self._last_match(rule.before)
        if before is not None:
            owner, position = self._place(before)
            at = (owner, position - 1) if position >= 0 else self._last_place(owner - 1)
            return LinePlan(reason, (Splice(at, (), lines),))
        return LinePlan(reason, (Splice(self._last_place(self._originals - 1), (), lines),))

    # ---- applying ----
    def apply(self, plan: LinePlan) -> None:
        for splice in plan.splices:
            if splice.at is None and splice.added:
                self._replace(splice.removed[0], splice.added[0])
                continue
            ending = self._ending() if splice.added else b""
            for number in splice.removed:
                self._remove(number)
            if splice.at is not None:
                owner, position = splice.at
                for offset, text in enumerate(splice.added):
                    self._insert(owner, position + 1 + offset, text, ending)

    def _replace(self, number: int, text: bytes) -> None:
        ending = self._ending_of(number)
        self._forget(number)
        self._raw[number] = text + ending
        self._note(number, text)

    def _remove(self, number: int) -> None:
        self._forget(number)
        if self._is_last_and_open(number):
            self._is_open = False
        self._raw[number] = None
        owner, position = self._place(number)
        self._changed.add(owner)
        if position >= 0:
            del self._inserted[owner][position]
            del self._owner[number]

    def _insert(self, owner: int, position: int, text: bytes, ending: bytes) -> None:
        if self._is_last_and_open(owner):
            # A line follows it now, so it needs an ending.
            self._forget(owner)
            self._is_open = False
            self._raw[owner] = (self._raw[owner] or b"") + ending
            self._note(owner, self._text(owner))
        number = len(self._raw)
        self._raw.append(text + ending)
        self._inserted.setdefault(owner, []).insert(position, number)
        self._owner[number] = owner
        self._first = min(self._first, max(owner, 0))
        self._changed.add(owner)
        self._note(number, text)

    def _note(self, number: int, text: bytes) -> None:
        """Adds the text of a line to the index, and to what patterns match."""
        self._index.setdefault(text, []).append(number)
        if len(text) > LONGEST_SEARCHED_BYTES:
            self._unsearched += 1
        for pattern, last in self._last.items():
            if _matches(pattern, text) and (last is None or self._place(number) > self._place(last)):
                self._last[pattern] = number

    def _forget(self, number: int) -> None:
        text = self._text(number)
        self._index[text].remove(number)
        if len(text) > LONGEST_SEARCHED_BYTES:
            self._unsearched -= 1
        for pattern in [pattern for pattern, last in self._last.items() if last == number]:
            del self._last[pattern]

    # ---- the lines ----
    def _text(self, number: int) -> bytes:
        raw = self._raw[number] or b""
        return raw[:-1] if raw.endswith(b"\r") and not self._is_last_and_open(number) else raw

    def _ending_of(self, number: int) -> bytes:
        """What the line has before its newline."""
        raw = self._raw[number] or b""
        return b"\r" if raw.endswith(b"\r") and not self._is_last_and_open(number) else b""

    def _ending(self) -> bytes:
        """The ending of a new line: as the first line."""
        first = next(self._after(START), None)
        return b"" if first is None else self._ending_of(first)

    def _is_last_and_open(self, number: int) -> bool:
        return self._is_open and number == self._originals - 1

    def _last_match(self, pattern: LinearSearch) -> int | None:
        if pattern not in self._last:
            lines = self._backwards(self._last_place(self._originals - 1))
            self._last[pattern] = next((each for each in lines if _matches(pattern, self._text(each))), None)
        return self._last[pattern]

    def _place(self, number: int) -> Place:
        owner = self._owner.get(number)
        if owner is None:
            return number, -1
        inserted = self._inserted[owner]
        # Most are looked up right after they were appended.
        return owner, len(inserted) - 1 if inserted[-1] == number else inserted.index(number)

    def _last_place(self, owner: int) -> Place:
        """The place of the last line inserted after an original line, or of that line."""
        return owner, len(self._inserted.get(owner, ())) - 1

    def _after(self, place: Place) -> Iterator[int]:
        """The lines after a place, in order."""
        owner, position = place
        while owner < self._originals:
            inserted = self._inserted.get(owner, ())
            for index in range(position + 1, len(inserted)):
                yield inserted[index]
            owner = self._skip_removed() if owner == -1 else owner + 1
            position = -1
            if owner < self._originals and self._raw[owner] is not None:
                yield owner

    def _skip_removed(self) -> int:
        """The first original line that is kept, or followed by an inserted line."""
        while (
            self._first < self._originals and self._raw[self._first] is None and not self._inserted.get(self._first)
        ):
            self._first += 1
        return self._first

    def _backwards(self, place: Place) -> Iterator[int]:
        """The line at a place and those before it."""
        owner, position = place
        while owner >= -1:
            inserted = self._inserted.get(owner, ())
            for index in range(position, -1, -1):
                yield inserted[index]
            if owner >= 0 and self._raw[owner] is not None:
                yield owner
            owner, position = self._last_place(owner - 1)

    # ---- numbers, for messages and diffs ----
    def _number_of(self, number: int) -> int:
        """The number of a line in the file, from 1."""
        owner, position = self._place(number)
        before = sum(self._surplus(each) for each in self._changed if each < owner)
        return before + max(owner, 0) + (position + 1) + (1 if owner >= 0 and self._raw[owner] is not None else 0)

    def _surplus(self, owner: int) -> int:
        """How many lines there are for one original line, beyond itself."""
        is_gone = owner >= 0 and self._raw[owner] is None
        return len(self._inserted.get(owner, ())) - is_gone

    def _list_numbers(self, found: list[int]) -> str:
        shown = [str(self._number_of(number)) for number in sorted(found, key=self._place)[:MOST_NUMBERS]]
        more = ", …" if len(found) > MOST_NUMBERS else ""
        return ("line " if len(found) == 1 else "lines ") + ", ".join(shown) + more

    # ---- differences ----
    def difference(self, plan: LinePlan, path: str, *, context: int = CONTEXT_LINES) -> str:
        """Returns what the plan changes as a unified diff. Call it before `apply`."""
        hunks: list[_Hunk] = []
        end: Place | None = None
        shift = 0
        for splice in plan.splices:
            start = splice.removed[0] if splice.removed else next(self._after(splice.at or START), None)
            between = None if end is None else self._between(end, start, 2 * context)
            if between is None:
                self._end_hunk(hunks, end, context)
                lead = self._lead(splice, start, context)
                first = self._next_number(splice) - len(lead)
                hunks.append(_Hunk(first, first + shift))
                between = lead
            hunk = hunks[-1]
            for number in between:
                hunk.add(" ", self._raw[number] or b"", is_open=self._is_last_and_open(number))
            self._add_splice(hunk, splice)
            shift += len(splice.added) - len(splice.removed)
            end = self._place(splice.removed[-1]) if splice.removed else splice.at
        self._end_hunk(hunks, end, context)
        return _join_hunks(hunks, path)

    def _next_number(self, splice: Splice) -> int:
        """The number of the first removed line, or that of the first added one."""
        if splice.removed:
            return self._number_of(splice.removed[0])
        before = next(self._backwards(splice.at or START), None)
        return 1 if before is None else self._number_of(before) + 1

    def _between(self, end: Place, stop: int | None, most: int) -> list[int] | None:
        """The lines from a place to a line; None if they are too many."""
        found: list[int] = []
        for number in self._after(end):
            if number == stop:
                break
            if len(found) == most:
                return None
            found.append(number)
        return found

    def _lead(self, splice: Splice, start: int | None, context: int) -> list[int]:
        place = splice.at
        if splice.removed:
            owner, position = self._place(splice.removed[0])
            place = (owner, position - 1) if position >= 0 else self._last_place(owner - 1)
        found: list[int] = []
        lines = self._backwards(place or START)
        # With an end that has no newline, the line before is changed too.
        least = 1 if start is None and self._is_open else 0
        while len(found) < max(context, least):
            number = next(lines, None)
            if number is None:
                break
            found.append(number)
        return found[::-1]

    def _add_splice(self, hunk: _Hunk, splice: Splice) -> None:
        ending = self._ending()
        for number in splice.removed:
            hunk.add("-", self._raw[number] or b"", is_open=self._is_last_and_open(number))
        if splice.at is None and splice.added:
            number = splice.removed[0]
            raw = splice.added[0] + self._ending_of(number)
            hunk.add("+", raw, is_open=self._is_last_and_open(number))
            return
        if splice.added and hunk.ends_open():
            hunk.close_line(ending)
        for text in splice.added:
            hunk.add("+", text + ending, is_open=False)

    def _end_hunk(self, hunks: list[_Hunk], end: Place | None, context: int) -> None:
        if end is None:
            return
        for number in islice(self._after(end), context):
            hunks[-1].add(" ", self._raw[number] or b"", is_open=self._is_last_and_open(number))


class _Hunk:
    """Neighbouring rows of a diff: (sign, line, whether it has no newline)."""

    def __init__(self, old_start: int, new_start: int) -> None:
        self.old_start = old_start
        self.new_start = new_start
        self.rows: list[tuple[str, bytes, bool]] = []

    def add(self, sign: str, raw: bytes, *, is_open: bool) -> None:
        self.rows.append((sign, raw, is_open))

    def ends_open(self) -> bool:
        return bool(self.rows) and self.rows[-1][0] == " " and self.rows[-1][2]

    def close_line(self, ending: bytes) -> None:
        """The last row gets its newline, because a line follows."""
        _, raw, _ = self.rows.pop()
        self.rows += [("-", raw, True), ("+", raw + ending, False)]

    def header(self) -> str:
        old = sum(sign != "+" for sign, _, _ in self.rows)
        new = sum(sign != "-" for sign, _, _ in self.rows)
        return f"@@ -{_range(self.old_start, old)} +{_range(self.new_start, new)} @@"


def _range(start: int, length: int) -> str:
    return f"{start}" if length == 1 else f"{start if length else start - 1},{length}"


def _join_hunks(hunks: list[_Hunk], path: str) -> str:
    if sum(len(raw) + 2 for hunk in hunks for _, raw, _ in hunk.rows) > LARGEST_DIFF_BYTES:
        return f"{path}: too large to show"
    shown = [f"--- {path} (actual)", f"+++ {path} (desired)"]
    for hunk in hunks:
        shown.append(hunk.header())
        for sign, raw, is_open in hunk.rows:
            if b"\0" in raw:
                return f"{path}: binary content differs"
            try:
                shown.append(sign + raw.decode("utf-8"))
            except UnicodeDecodeError:
                return f"{path}: binary content differs"
            if is_open:
                shown.append("\\ No newline at end of file")
    return "\n".join(shown)


def _plan_removal(found: list[int], reason: str) -> LinePlan:
    return LinePlan(reason, [Splice(None, (number,), ()) for number in found]) if found else LinePlan()


def _count(found: Sequence[int]) -> str:
    return "1 line is" if len(found) == 1 else f"{len(found)} lines are"


def _matches(pattern: LinearSearch, text: bytes) -> bool:
    return len(text) <= LONGEST_SEARCHED_BYTES and pattern.matches(_decoded(text))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _common_start(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    most = min(len(one), len(other))
    return next((index for index in range(most) if one[index] != other[index]), most)

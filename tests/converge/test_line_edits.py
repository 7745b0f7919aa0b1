"""The rules of `line` on bytes: cases as data, and a comparison with a plain model of lists."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.converge import line_edits
from mainstay.converge.line_edits import LONGEST_SEARCHED_BYTES, Document, LinePlan, LineRule
from mainstay.converge.linear_search import LinearSearch
from mainstay.converge.resources.line import Line, rule_of

CASES = Path(__file__).parents[1] / "cases" / "line" / "edits.yaml"
NAME = "n"


def rule(**properties: str) -> LineRule:
    return rule_of(Line({"name": NAME, **properties}))


def edited(content: bytes, wanted: LineRule) -> tuple[bytes, LinePlan]:
    document = Document(content)
    plan = document.plan(wanted)
    document.apply(plan)
    return document.content(), plan


# ---- cases ----
def cases() -> list[Any]:
    return [pytest.param(case, id=case["case"]) for case in yaml.load(CASES.read_text(), yaml.BaseLoader)]


@pytest.mark.parametrize("case", cases())
def test_a_rule_edits_a_text(case: dict[str, Any]) -> None:
    content = case["content"].encode("latin-1" if "\xff" in case["content"] else "utf-8")
    new, plan = edited(content, rule(**case["rule"]))
    assert plan.problem == case.get("problem", "")
    assert new == case.get("becomes", case["content"]).encode("latin-1" if "\xff" in case["content"] else "utf-8")
    assert bool(plan.reason) == ("becomes" in case)
    if "reason" in case:
        assert plan.reason == case["reason"]
    if "problem" not in case:
        assert edited(new, rule(**case["rule"]))[0] == new
        assert edited(new, rule(**case["rule"]))[1].reason == ""


def test_a_line_of_more_than_64_kb_is_not_searched() -> None:
    long, longest = b"p" * (LONGEST_SEARCHED_BYTES + 1), b"p" * LONGEST_SEARCHED_BYTES
    new, plan = edited(long + b"\n", rule(line="x", match="^p"))
    assert (new, plan.unsearched) == (long + b"\nx\n", 1)
    new, plan = edited(longest + b"\n", rule(line="x", match="^p"))
    assert (new, plan.unsearched) == (b"x\n", 0)
    assert edited(long + b"\n", rule(line="x"))[1].unsearched == 0


# ---- a plain model ----
def split(content: bytes) -> list[tuple[bytes, bytes]]:
    """(text, ending)"""
    found = []
    for raw in re.findall(rb"[^\n]*\n|[^\n]+\Z", content):
        ending = b"\r\n" if raw.endswith(b"\r\n") else b"\n" if raw.endswith(b"\n") else b""
        found.append((raw[: len(raw) - len(ending)], ending))
    return found


def model(content: bytes, wanted: LineRule) -> bytes | None:
    """The new content; None for a failure."""
    lines = split(content)
    ending = (lines[0][1] if lines else b"") or b"\n"
    texts = [text for text, _ in lines]
    if wanted.block is not None:
        begins = [index for index, text in enumerate(texts) if text == wanted.begin]
        ends = [index for index, text in enumerate(texts) if text == wanted.end]
        if begins or ends:
            if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
                return None
            begin, end = begins[0], ends[0]
            if not wanted.is_present:
                return joined(lines[:begin] + lines[end + 1 :])
            if tuple(texts[begin + 1 : end]) == wanted.block:
                return content
            return model_block(lines, begin, end, wanted.block, ending)
        new = [wanted.begin, *wanted.block, wanted.end]
    else:
        matching = [index for index, text in enumerate(texts) if searches(wanted.match, text)]
        if not wanted.is_present:
            return joined(
                [each for index, each in enumerate(lines) if index not in matching and each[0] != wanted.line]
            )
        if len(matching) > 1:
            return None
        assert wanted.line is not None
        if matching:
            lines[matching[0]] = (wanted.line, lines[matching[0]][1])
            return joined(lines)
        if wanted.line in texts:
            return content
        new = [wanted.line]
    if not wanted.is_present:
        return content
    where = len(lines)
    for pattern, offset in ((wanted.after, 1), (wanted.before, 0)):
        found = [index for index, text in enumerate(texts) if searches(pattern, text)]
        if found:
            where = found[-1] + offset
            break
    if where == len(lines) and lines and not lines[-1][1]:
        lines[-1] = (lines[-1][0], ending)
    lines[where:where] = [(text, ending) for text in new]
    return joined(lines)


def model_block(
    lines: list[tuple[bytes, bytes]], begin: int, end: int, block: tuple[bytes, ...], ending: bytes
) -> bytes:
    """Lines that are the same at the start and the end of the block stay as they are."""
    inner = lines[begin + 1 : end]
    start = 0
    while start < min(len(inner), len(block)) and inner[start][0] == block[start]:
        start += 1
    tail = 0
    while tail < min(len(inner), len(block)) - start and inner[-1 - tail][0] == block[-1 - tail]:
        tail += 1
    new = [
        *inner[:start],
        *((text, ending) for text in block[start : len(block) - tail]),
        *inner[len(inner) - tail :],
    ]
    return joined([*lines[: begin + 1], *new, *lines[end:]])


def searches(pattern: LinearSearch | None, text: bytes) -> bool:
    return pattern is not None and bool(re.search(pattern.pattern, text.decode("utf-8", "surrogateescape")))


def joined(lines: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(text + ending for text, ending in lines)


TEXTS = (b"a", b"b", b"ab", b"", b"\xff", b"x\r", b"# BEGIN mainstay n", b"# END mainstay n")
WANTED = ("a", "b", "ab", "", "c", "# x")
PATTERNS = ("a", "^b$", "^$", "[ab]", "zzz", "mainstay")
contents = st.builds(
    lambda lines, end: b"".join(text + ending for text, ending in lines) + end,
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from((b"\n", b"\n", b"\r\n"))), max_size=8),
    st.sampled_from((b"", b"", b"a", b"q\r", b"# END mainstay n")),
)


@st.composite
def rules(draw: st.DrawFn, *, joins: bool = False) -> LineRule:
    given: dict[str, str] = {"ensure": draw(st.sampled_from(("present", "present", "absent")))}
    kind = draw(st.sampled_from(("line", "line", "block") if joins else ("line", "match", "block")))
    if kind == "block":
        given["block"] = "\n".join(draw(st.lists(st.sampled_from(WANTED), max_size=4)))
    else:
        given["line"] = draw(st.sampled_from(WANTED))
    if kind == "match":
        given["match"] = draw(st.sampled_from(PATTERNS))
    for key in ("after", "before"):
        if given["ensure"] == "present" and draw(st.booleans()):
            given[key] = draw(st.sampled_from(PATTERNS))
    return rule(**given)


@settings(max_examples=300)
@given(content=contents, wanted=rules())
def test_one_edit_is_that_of_the_model(content: bytes, wanted: LineRule) -> None:
    expected = model(content, wanted)
    new, plan = edited(content, wanted)
    assert bool(plan.problem) == (expected is None)
    assert new == (content if expected is None else expected)
    assert bool(plan.reason) == (new != content)


@settings(max_examples=300)
@given(content=contents, many=st.lists(rules(joins=True), max_size=8))
def test_edits_of_one_document_are_those_of_one_after_the_other(content: bytes, many: list[LineRule]) -> None:
    document = Document(content)
    for wanted in many:
        plan = document.plan(wanted)
        new, alone = edited(content, wanted)
        assert (plan.reason, plan.problem) == (alone.reason, alone.problem)
        assert document.difference(plan, "p") == Document(content).difference(alone, "p")
        document.apply(plan)
        content = document.content()
        assert content == new


@settings(max_examples=200)
@given(content=contents, wanted=rules(), context=st.sampled_from((0, 1, 3)))
def test_a_difference_turns_the_old_text_into_the_new_one(content: bytes, wanted: LineRule, context: int) -> None:
    document = Document(content)
    plan = document.plan(wanted)
    shown = document.difference(plan, "p", context=context)
    new, _ = edited(content, wanted)
    if not plan.splices or b"\xff" in content:
        return
    assert patched(content, shown) == new


def patched(content: bytes, shown: str) -> bytes:
    """Applies a unified diff."""
    old = [text + ending for text, ending in split(content)]
    new: list[bytes] = []
    done = 0
    for hunk in re.split(r"^(?=@@ )", shown.split("\n", 2)[2], flags=re.M)[1:]:
        header, _, body = hunk.removesuffix("\n").partition("\n")
        start, length = re.match(r"@@ -(\d+)(?:,(\d+))?", header).groups()  # type: ignore[union-attr]
        first = int(start) - (1 if length != "0" else 0)
        new += old[done:first]
        done = first
        for row in re.findall(r"^[ +-][^\n]*(?:\n\\ No newline at end of file)?", body, re.M):
            text = row[1:].encode()
            mark = b"\n\\ No newline at end of file"
            line = text.removesuffix(mark) if text.endswith(mark) else text + b"\n"
            if row[0] != "+":
                assert old[done] == line
                done += 1
            if row[0] != "-":
                new.append(line)
    return b"".join(new + old[done:])


# ---- cost ----
def steps_of(lines: int, count: int, kind: str) -> int:
    """The number of source lines that run for many rules on one document."""
    content = b"".join(b"line %d\n" % number for number in range(lines))
    many = {
        "appended": [rule(line=f"new {number}") for number in range(count)],
        "after one line": [rule(line=f"new {number}", after=r"^line 3$") for number in range(count)],
        "before the first line": [rule(line=f"new {number}", before=r"^line 0$") for number in range(count)],
        "removed": [rule(line=f"line {number}", ensure="absent") for number in range(count)],
        "removed from the end": [rule(line=f"line {lines - 1 - number}", ensure="absent") for number in range(count)],
        "in turn": [rule(line="x", ensure=("present", "absent")[number % 2]) for number in range(count)],
        "removed, then appended": [
            *(rule(line=f"line {lines - 1 - number}", ensure="absent") for number in range(count // 2)),
            *(rule(line=f"new {number}") for number in range(count // 2)),
        ],
    }[kind]
    ran = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal ran
        if frame.f_code.co_filename != line_edits.__file__:
            return None
        ran += event == "line"
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        document = Document(content)
        for wanted in many:
            document.apply(document.plan(wanted))
        document.content()
    finally:
        sys.settrace(old)
    return ran


@pytest.mark.parametrize(
    "kind",
    [
        "appended",
        "after one line",
        "before the first line",
        "removed",
        "removed from the end",
        "in turn",
        "removed, then appended",
    ],
)
def test_the_cost_of_many_edits_is_linear_in_lines_and_rules(kind: str) -> None:
    small, large = steps_of(500, 400, kind), steps_of(1000, 800, kind)
    assert small > 500
    assert large < 2.2 * small

"""Patterns of manifests: the same answer as Python's `re`, in time linear in the text."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.converge import linear_search
from mainstay.converge.linear_search import LinearSearch, Unsupported
from torture import count_of

LEAVES = st.sampled_from(
    [*"abZ_1 ,é", ".", r"\w", r"\W", r"\d", r"\s", r"\S", "[ab]", "[^ab]", r"[\w,]", "[a-z]", "ß", "K", r"\n"]
)
POSITIONS = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?:)"])
REPETITIONS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0}"])
FLAGS = st.sampled_from(["", "", "", "(?i)", "(?m)", "(?s)", "(?a)", "(?im)", "(?ia)"])
# No (?a:…): `re` does not find (?a:\\S) in "\\x1c", because its check of the first character ignores the flag of the group.
GROUPS = st.sampled_from(["(%s)", "(?:%s)", "(?P<name>%s)", "(?i:%s)", "(?s-i:%s)"])


def larger(pattern: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(pattern, min_size=1, max_size=4).map("".join),
        st.lists(pattern, min_size=1, max_size=3).map(lambda each: "(?:" + "|".join(each) + ")"),
        st.tuples(GROUPS, pattern).map(lambda pair: pair[0] % pair[1]),
        st.tuples(pattern, REPETITIONS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


PATTERNS = st.tuples(FLAGS, st.recursive(LEAVES | POSITIONS, larger, max_leaves=8)).map("".join)
TEXTS = st.text(alphabet="abABzZ_1 ,éÉßKſ\n\r\x1c\udc80", max_size=12)


@settings(max_examples=count_of(40_000), deadline=None, derandomize=True, database=None)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_a_search_answers_as_re_does(pattern: str, texts: list[str]) -> None:
    try:
        expected = re.compile(pattern)
    except re.error:
        return
    try:
        search = LinearSearch(pattern)
    except Unsupported as refusal:
        assert "repeated group" in str(refusal)  # noqa: PT017  # the other patterns must be searched
        return
    for text in texts:
        assert search.matches(text) is (expected.search(text) is not None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a|aa)+$", "a" * 45 + "b"),
        ("^(a|a)*$", "a" * 32 + "b"),
        (r"^\s*Port\s*=?\s*\d+$", "Port" + " " * 60_000 + "x"),
        ("^.*,.*,.*,.*x$", "," * 3000),
        (r"port\s*=?\s*\d+$", "banner port" + " " * 60_000 + "x"),
    ],
)
def test_a_hostile_line_takes_no_time(pattern: str, text: str) -> None:
    """`re` takes exponential, quadratic or cubic time on these."""
    started = time.process_time()
    assert LinearSearch(pattern).matches(text) is False
    assert time.process_time() - started < 0.5


def test_a_text_that_meets_ever_new_states_keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """An automaton of 2^20 states: each text of 20 letters leads to another one."""
    monkeypatch.setattr(linear_search, "MOST_TRANSITIONS", 50)
    search = LinearSearch("(a|b)*a(a|b){20}c")
    number = 1
    text = ""
    for _ in range(3000):
        number = number * 1103515245 % 2147483647
        text += "ab"[number >> 8 & 1]
    assert search.matches(text) is (re.search("a[ab]{20}c", text) is not None)
    assert search.matches(text + "a" + "b" * 20 + "c") is True
    assert len(search._states) <= 51
    assert sum(len(state) for state in search._states.values()) <= 51


@pytest.mark.parametrize(
    ("pattern", "way_out"),
    [
        (r"(a)\1", "write the text out"),
        ("(?<!#)Port", "describe the text itself"),
        ("Port(?= 22)", "describe the text itself"),
        ("a(?!)", "describe the text itself"),
        ("((a{100}){100}){100}", "use * or + instead"),
        ("(a{1,900}){900}", "use * or + instead"),
        pytest.param(
            "(?>a+)b",
            "write (?:…)",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="new in Python 3.11"),
        ),
        pytest.param(
            "a++b",
            "leave out the +",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="new in Python 3.11"),
        ),
    ],
)
def test_a_pattern_that_needs_more_than_an_automaton_is_refused_with_the_way_out(pattern: str, way_out: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(way_out)):
        LinearSearch(pattern)


def test_repetitions_of_nothing_take_no_time() -> None:
    started = time.process_time()
    assert LinearSearch("(?:){4000000000}a").matches("ba") is True
    assert time.process_time() - started < 0.5


def test_the_search_is_loaded_only_by_a_manifest_with_a_pattern() -> None:
    program = (
        "import sys, mainstay.converge.resources.line, mainstay.converge.providers.line.posix; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "mainstay.converge.patterns" in done.stdout
    assert "linear_search" not in done.stdout

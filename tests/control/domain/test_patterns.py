"""A compiled pattern matches the same texts as a plain search."""

from __future__ import annotations

import pytest
import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstay.control.domain.patterns import compile_pattern

PATTERNS = [
    "^[a-zA-Z0-9-]+$",
    "^[a-z]*$",
    "^[a-c.x_ -]+$",
    "^[-]+$",
    "^[A-z]+$",
    "^[0-9a-]*$",
    "^[.-]+$",
    "^[a-c-e]+$",
    "^[]+$",
    "^[a-]*$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(text=st.text(alphabet="abcdexyzAZ09-_. ^[]\\`\nä日", max_size=6))
@example(text="")
@example(text="abc\n")
def test_a_compiled_pattern_matches_like_a_plain_search(pattern: str, text: str) -> None:
    try:
        expected = re2.compile(pattern)
    except re2.error:
        return
    assert compile_pattern(pattern)(text) is (expected.search(text) is not None)

"""A pattern makes text safe only if it is anchored and allows no character with a meaning."""

from __future__ import annotations

import pytest

from mainstay.blueprints.free_text import allows_only_lines, allows_only_words

WORDS = ["^[a-z]+$", r"^(?:\d{1,3}\.){3}\d+$", "^(a|b-[0-9]{2})$", r"^\w*$", "^[A-Za-z0-9_.-]+$", "^$", "^a??$"]
LINES = ["^[ -~]*$", "^[a-z '\";$]+$", r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"]
ANYTHING = [
    *("^.*$", "[a-z]+", "^[a-z]+", "[a-z]+$", "^a$|^b$", "^a|b$", r"^[a-z\s]+$", r"^[a-z]+\$", r"^[a-z]+\\\$"),
    *(
        "^(?s:.)$",
        "(?m)^[a-z]$",
        "^(?i)a$",
        r"^\D$",
        r"^\pL$",
        "^[[:cntrl:]]$",
        "^[^a]$",
        "^a)$",
        "^(a$",
        r"^\x0a$",
        "^[a$",
    ),
    *("", "^", "$", "^\n$", "^a$b$", "^a^b$", None, 3),
]


@pytest.mark.parametrize("pattern", WORDS)
def test_a_pattern_of_plain_characters_allows_only_words_and_lines(pattern: str) -> None:
    assert allows_only_words(pattern)
    assert allows_only_lines(pattern)


@pytest.mark.parametrize("pattern", LINES)
def test_a_pattern_without_control_characters_allows_only_lines(pattern: str) -> None:
    assert allows_only_lines(pattern)
    assert not allows_only_words(pattern)


@pytest.mark.parametrize("pattern", ANYTHING)
def test_every_other_pattern_allows_anything(pattern: object) -> None:
    assert not allows_only_words(pattern)
    assert not allows_only_lines(pattern)

"""Did-you-mean: close words, and bounds on the search."""

from __future__ import annotations

import pytest

from mainstay.foundation.suggestions import closest, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("prot", ["host", "port"], "port"),
        ("80800", [8080, 443], "8080"),
        ("zebra", ["host", "port"], None),
        ("prot", [], None),
        ("p" * 201, ["p" * 200], None),
        ("prot", ["port"] * 2001, None),
    ],
)
def test_the_closest_known_word_is_found(word: str, known: list[object], expected: str | None) -> None:
    assert closest(word, known) == expected


def test_a_suggestion_is_the_end_of_a_message() -> None:
    assert did_you_mean("prot", {"port": 1}) == " (did you mean 'port'?)"
    assert did_you_mean("zebra", {"port": 1}) == ""

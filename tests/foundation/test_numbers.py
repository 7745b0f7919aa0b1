"""Whole numbers in text: plain digits, within bounds, at any length."""

from __future__ import annotations

import pytest

from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("007", 7),
        ("1000", 1000),
        ("0", None),
        ("1001", None),
        *((text, None) for text in ("", " 1", "+1", "-1", "1.0", "1_0", "1e2", "٣", "²", "x", "9" * 5000)),
    ],
)
def test_a_count_is_plain_digits_within_its_bounds(text: str, expected: int | None) -> None:
    assert parse_count(text, 1, 1000) == expected


def test_the_largest_number_of_a_database_column_is_read() -> None:
    assert parse_count(str(LARGEST_NUMBER), 0, LARGEST_NUMBER) == LARGEST_NUMBER
    assert parse_count(str(LARGEST_NUMBER + 1), 0, LARGEST_NUMBER) is None

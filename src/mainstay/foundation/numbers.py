"""Whole numbers in text, within bounds."""

from __future__ import annotations

# The largest that a column of a database holds.
LARGEST_NUMBER = 2**63 - 1
LONGEST_DIGITS = 19


def parse_count(text: str, least: int, most: int) -> int | None:
    """The number that `text` is, in plain digits; None for anything else and for what is out of bounds.

    The length is checked first, because Python refuses to convert very long ones.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > LONGEST_DIGITS:
        return None
    number = int(text)
    return number if least <= number <= most else None

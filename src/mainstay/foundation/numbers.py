"""Whole numbers in text, within bounds."""

from __future__ import annotations

# The largest value of an integer column in a database.
LARGEST_NUMBER = 2**63 - 1
LONGEST_DIGITS = 19
# Largest number of a user or group; the next one means "unchanged" to the kernel.
LARGEST_ID = 2**32 - 2


def parse_count(text: str, least: int, most: int) -> int | None:
    """Returns the number that `text` spells in plain digits; None for other text and numbers out of bounds.

    Checks the length first, because Python refuses to convert very long numbers.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > LONGEST_DIGITS:
        return None
    number = int(text)
    return number if least <= number <= most else None

"""Names in drawings: printable, bounded in length, and with an estimated width, since the reader's font is unknown."""

from __future__ import annotations

from unicodedata import combining, east_asian_width

MAX_DRAWN_LENGTH = 40
# In units of the font size. Generous: a label that is a little too wide is better than one that overlaps.
NARROW, USUAL, CAPITAL, WIDE = 0.36, 0.62, 0.74, 1.0
NARROW_CHARACTERS = frozenset("fijlrtI.,:;|!'()[] ")
WIDE_CHARACTERS = frozenset("mwMW@%—…")


def printable(text: str) -> str:
    """Replaces characters that XML forbids or that change the direction of the text around them."""
    return "".join(character if character.isprintable() else " " for character in text)


def shortened(text: str, limit: int = MAX_DRAWN_LENGTH) -> str:
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def text_width(text: str, font_size: float) -> float:
    return sum(_character_width(character) for character in text) * font_size


def _character_width(character: str) -> float:
    if combining(character):
        return 0.0
    if character in NARROW_CHARACTERS:
        return NARROW
    if character in WIDE_CHARACTERS or east_asian_width(character) in "WF":
        return WIDE
    return CAPITAL if character.isupper() else USUAL

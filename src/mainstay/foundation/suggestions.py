"""Did-you-mean: finds the known word closest to an unknown word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Beyond these sizes the search is too slow.
LONGEST_WORD = 200
MOST_CANDIDATES = 2000


def one_of(words: Sequence[str]) -> str:
    return f"must be {words[0]}" if len(words) == 1 else f"must be {', '.join(words[:-1])} or {words[-1]}"


def closest(word: str, known: Iterable[object]) -> str | None:
    """Returns the known word closest to `word`; None if none is close or the search would take too long."""
    from difflib import get_close_matches

    candidates = [str(each) for each in known]
    if len(word) > LONGEST_WORD or len(candidates) > MOST_CANDIDATES:
        return None
    return next(iter(get_close_matches(word, candidates, n=1)), None)


def did_you_mean(word: str, known: Iterable[object]) -> str:
    """Returns the suggestion as the end of a message; empty if there is none."""
    close = closest(word, known)
    return f" (did you mean {close!r}?)" if close is not None else ""

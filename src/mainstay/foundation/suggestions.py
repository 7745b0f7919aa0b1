"""Did-you-mean: the known word that was probably meant."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def one_of(words: Sequence[str]) -> str:
    return f"must be {words[0]}" if len(words) == 1 else f"must be {', '.join(words[:-1])} or {words[-1]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    candidates = list(known)
    # Beyond these sizes the search would take longer than the reader would.
    if len(word) > 200 or len(candidates) > 2000:
        return ""
    close = get_close_matches(word, candidates, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

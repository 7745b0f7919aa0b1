"""Regular expressions in manifests: which ones are accepted, and how values become part of them. Pure."""

from __future__ import annotations

import re

from mainstay.converge.value_kinds import SCALAR_SCHEMA, Unfit, parsed_kind, text_problem
from mainstay.foundation.text import shorten

LONGEST_PATTERN = 2000


def _check_pattern(text: str) -> str:
    """Returns the pattern, or raises `Unfit`: a search must be possible in time linear in the line."""
    problem = text_problem(text)
    if problem:
        raise Unfit(problem)
    if len(text) > LONGEST_PATTERN:
        raise Unfit(f"is longer than {LONGEST_PATTERN} characters")
    if not text:
        raise Unfit("an empty pattern matches every line")
    from mainstay.converge.linear_search import Unsupported, compile_pattern

    try:
        compile_pattern(text)
    except Unsupported as problem:
        raise Unfit(f"{shorten(text)!r}: {problem}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise Unfit(f"{shorten(text)!r} is not a regular expression: {error}") from None
    return text


# A value is text, whatever characters it contains.
PATTERN = parsed_kind("pattern", _check_pattern, SCALAR_SCHEMA, escape=re.escape)

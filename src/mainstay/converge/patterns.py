"""Regular expressions in manifests: which ones are accepted, and how values become part of them. Pure."""

from __future__ import annotations

import re
import sys
from importlib import import_module

from mainstay.converge.value_kinds import SCALAR_SCHEMA, Unfit, parsed_kind, text_problem
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LONGEST_PATTERN = 2000
# A repetition with a larger maximum counts as unbounded.
LARGEST_REPETITION = 1000


def _check_pattern(text: str) -> str:
    """Returns the pattern, or raises `Unfit`: a pattern must not take exponential time on any line."""
    problem = text_problem(text)
    if problem:
        raise Unfit(problem)
    if len(text) > LONGEST_PATTERN:
        raise Unfit(f"is longer than {LONGEST_PATTERN} characters")
    if not text:
        raise Unfit("an empty pattern matches every line")
    try:
        re.compile(text)
        problem = slow_pattern_problem(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise Unfit(f"{shorten(text)!r} is not a regular expression: {error}") from None
    if problem is not None:
        raise Unfit(f"{shorten(text)!r}: {problem}")
    return text


def slow_pattern_problem(text: str) -> str | None:
    """Names what makes a valid pattern take exponential time on some texts; None if nothing does."""
    return next(_problems(_parser().parse(text), is_repeated=False), None)


def _parser() -> Any:
    return import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def _problems(parsed: Any, *, is_repeated: bool) -> Iterator[str]:
    """Walks a parsed pattern: each node is an operation with its arguments, some of which are patterns again."""
    for operation, arguments in parsed:
        name = str(operation)
        if name.startswith("GROUPREF"):
            yield "a back-reference is not supported; write the text out"
        if name.endswith("_REPEAT"):
            _, most, inner = arguments
            is_unbounded = most > LARGEST_REPETITION
            if is_unbounded and is_repeated:
                yield (
                    "a repeated group must not contain an unbounded repetition (such as (a+)+), because it can take"
                    " exponential time"
                )
            yield from _problems(inner, is_repeated=is_repeated or most > 1)
        else:
            for inner in _inner_patterns(arguments):
                yield from _problems(inner, is_repeated=is_repeated)


def _inner_patterns(arguments: Any) -> Iterator[Any]:
    if hasattr(arguments, "getwidth"):
        yield arguments
    elif isinstance(arguments, (list, tuple)):
        for each in arguments:
            yield from _inner_patterns(each)


# A value is text, whatever characters it contains.
PATTERN = parsed_kind("pattern", _check_pattern, SCALAR_SCHEMA, escape=re.escape)

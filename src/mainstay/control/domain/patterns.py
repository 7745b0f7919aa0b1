"""Regular expressions of users: searched unanchored, in linear time for every pattern."""

from __future__ import annotations

from collections.abc import Callable

import re2

MAX_PATTERN_LENGTH = 2000
# The set matcher has a fixed memory limit; larger programs use the slower search.
MAX_SET_PROGRAM = 1000

Search = Callable[[str], bool]


class BadPattern(Exception):
    """Not a regular expression that can be searched in linear time; the message is the reason."""


def compile_pattern(pattern: str) -> Search:
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise BadPattern(f"longer than {MAX_PATTERN_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        program = re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_reason(error)) from None
    except UnicodeEncodeError:
        raise BadPattern("invalid Unicode") from None
    if program.programsize > MAX_SET_PROGRAM:
        return lambda text: program.search(text) is not None
    # A set with one pattern builds no match object, which is five times as fast.
    one = re2.Set.SearchSet(options)
    one.Add(pattern)
    one.Compile()
    match = one.Match
    return lambda text: match(text.encode()) is not None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "not a regular expression"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)

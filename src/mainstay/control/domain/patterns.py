"""Regular expressions that users write: searched unanchored, in time linear in the text whatever the pattern."""

from __future__ import annotations

import re
from collections.abc import Callable

import re2

MAX_PATTERN_LENGTH = 2000
# The set matcher has only one engine, whose states must fit into a fixed memory; larger programs take the slower door.
MAX_SET_PROGRAM = 1000

Search = Callable[[str], bool]
# `^[a-z0-9-]+$`, with no more than letters, digits and a few signs between the brackets.
_ONE_CLASS = re.compile(r"\^\[(?P<chosen>(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_. ])*-?)\](?P<often>[+*])\$")


class BadPattern(Exception):
    """Not a regular expression of the linear-time language; the text says what is wrong with it."""


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
    simple = _ONE_CLASS.fullmatch(pattern)
    if simple is not None:
        return _only_of(_characters(simple["chosen"]), may_be_empty=simple["often"] == "*")
    if program.programsize > MAX_SET_PROGRAM:
        return lambda text: program.search(text) is not None
    # A set of one answers yes or no without building a match, five times as fast.
    one = re2.Set.SearchSet(options)
    one.Add(pattern)
    one.Compile()
    match = one.Match
    return lambda text: match(text.encode()) is not None


def _only_of(allowed: str, *, may_be_empty: bool) -> Search:
    """The commonest pattern of all needs no engine: nothing is left of a text once the allowed characters are stripped."""
    if may_be_empty:
        return lambda text: not text.strip(allowed)
    return lambda text: text != "" and not text.strip(allowed)


def _characters(chosen: str) -> str:
    ranges = re.findall(r"(.)-(.)", chosen)
    single = re.sub(r".-.", "", chosen)
    return single + "".join(chr(code) for first, last in ranges for code in range(ord(first), ord(last) + 1))


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "not a regular expression"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)

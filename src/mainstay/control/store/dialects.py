"""Where the two databases differ: how parameters are written, and what the words of a table definition are called."""

from __future__ import annotations

import re
from functools import cache

# Quoted text is matched first, so that a colon in it is left alone; `::` is a cast.
_TOKENS = re.compile(r"'(?:[^']|'')*'|::|:([a-z_][a-z0-9_]*)")
# Text is ordered by its bytes in both, whatever language the server speaks.
_TYPES = {"INTEGER": "BIGINT", "BLOB": "BYTEA", "REAL": "DOUBLE PRECISION", "TEXT": 'TEXT COLLATE "C"'}
_TYPE_WORDS = re.compile(r"\b(INTEGER|BLOB|REAL|TEXT)\b")


@cache
def number_parameters(statement: str) -> tuple[str, tuple[str, ...]]:
    """`:name` as PostgreSQL wants it, `$1`, with the names in the order of their numbers."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group(0)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _TOKENS.sub(numbered, statement), tuple(names)


def postgresql_definition(script: str) -> str:
    """A table definition written for SQLite's strict tables, in the words of PostgreSQL."""
    return _TYPE_WORDS.sub(lambda word: _TYPES[word.group(1)], script).replace(") STRICT;", ");")

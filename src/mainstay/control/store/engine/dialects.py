"""SQL differences between the databases: parameter syntax, column types, and batches of writes for PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mainstay.control.store.engine.contract import Value

# String literals match first, so that a colon inside them is ignored; `::` is a cast.
_TOKENS = re.compile(r"'(?:[^']|'')*'|::|:([a-z_][a-z0-9_]*)")
# Both databases order text by its bytes, whatever the locale of the server.
_TYPES = {"INTEGER": "BIGINT", "BLOB": "BYTEA", "REAL": "DOUBLE PRECISION", "TEXT": 'TEXT COLLATE "C"'}
_TYPE_WORDS = re.compile(r"\b(INTEGER|BLOB|REAL|TEXT)\b")


@lru_cache(maxsize=2000)
def number_parameters(statement: str) -> tuple[str, tuple[str, ...]]:
    """Replaces `:name` by `$1`; returns the names in the order of their numbers."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group(0)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _TOKENS.sub(numbered, statement), tuple(names)


class Batch:
    """Writes combined into one statement. All parts see the tables as they were before the statement, so a batch may
    contain several INSERTs into a table, but an UPDATE or DELETE only if it is the only write to its table."""

    LIMIT = 20

    def __init__(self) -> None:
        self._statements: list[str] = []
        self._values: list[Value] = []
        self._tables: dict[str, str] = {}

    @property
    def empty(self) -> bool:
        return not self._statements

    def takes(self, statement: str) -> bool:
        verb, table = _target(statement)
        earlier = self._tables.get(table)
        return len(self._statements) < self.LIMIT and (earlier is None or earlier == verb == "INSERT")

    def add(self, statement: str, parameters: Mapping[str, Value]) -> None:
        verb, table = _target(statement)
        self._tables[table] = verb
        self._statements.append(statement)
        self._values += [parameters[name] for name in number_parameters(statement)[1]]

    def together(self) -> tuple[str, list[Value]]:
        return _combined(tuple(self._statements)), self._values


@lru_cache(maxsize=2000)
def _target(statement: str) -> tuple[str, str]:
    words = statement.split(None, 3)
    return words[0], words[1] if words[0] == "UPDATE" else words[2]


@lru_cache(maxsize=500)
def _combined(statements: tuple[str, ...]) -> str:
    texts = []
    shift = 0
    for statement in statements:
        text, names = number_parameters(statement)
        texts.append(re.sub(r"\$(\d+)", lambda mark, shift=shift: f"${int(mark[1]) + shift}", text))  # type: ignore[misc]
        shift += len(names)
    *first, last = texts
    parts = ", ".join(f"part_{number} AS ({text})" for number, text in enumerate(first))
    return f"WITH {parts} {last}" if parts else last


def postgresql_definition(script: str) -> str:
    """Translates the definition of a strict SQLite table to PostgreSQL."""
    return _TYPE_WORDS.sub(lambda word: _TYPES[word.group(1)], script).replace(") STRICT;", ");")

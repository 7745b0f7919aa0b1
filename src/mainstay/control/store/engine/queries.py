"""Short forms of queries: one value, one column, and lists as parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction, Value


async def fetch_value(tx: Transaction, statement: str, *, slow: bool = False, **parameters: Value) -> Any | None:
    """The first column of the first row. None: no row was found."""
    rows = await tx.fetch(statement, slow=slow, **parameters)
    return _first_column(rows[0]) if rows else None


async def fetch_number(tx: Transaction, statement: str, *, slow: bool = False, **parameters: Value) -> int:
    """The same for an integer. 0: no row was found."""
    return await fetch_value(tx, statement, slow=slow, **parameters) or 0


async def fetch_column(tx: Transaction, statement: str, **parameters: Any) -> list[Any]:
    """The first column of every row."""
    return [_first_column(row) for row in await tx.fetch(statement, **parameters)]


def _first_column(row: Row) -> Any:
    return row[next(iter(row.keys()))]


def placeholders(values: Iterable[Value], name: str = "id") -> tuple[str, dict[str, Any]]:
    """The list for `IN`, such as `(:id_0, :id_1)`, and its parameters."""
    parameters = {f"{name}_{index}": value for index, value in enumerate(values)}
    return f"({', '.join(f':{each}' for each in parameters)})", parameters


def literals(values: Iterable[str]) -> str:
    """A list for `IN` of words of this program: a partial index is used only if its condition is in the statement."""
    quoted = (f"'{value}'" for value in values)
    return f"({', '.join(quoted)})"


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def encode_optional(value: object) -> str | None:
    return None if value is None else encode_json(value)


def decode_optional(text: str | None) -> Any | None:
    return None if text is None else msgspec.json.decode(text)

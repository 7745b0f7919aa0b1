"""The names of related rows, for many rows in one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.control.store.engine.contract import Transaction, placeholders
from mainstay.control.store.engine.records import Record, Table


async def read_related_names(
    tx: Transaction, table: Table[Any], rows: Sequence[Record], related: Mapping[str, tuple[str, Table[Any]]]
) -> dict[str, dict[str, str | None]]:
    """Id of the row → member → name. `related`: member → (column with the id, table of the related row)."""
    listed, marks = placeholders(row.id for row in rows)
    if not marks or not related:
        return {row.id: {} for row in rows}
    names = ", ".join(f"{member}_row.name AS {member}_name" for member in related)
    joins = " ".join(
        f"LEFT JOIN {other.name} AS {member}_row ON {member}_row.id = {table.name}.{column}"
        for member, (column, other) in related.items()
    )
    found = await tx.fetch(
        f"SELECT {table.name}.id AS row_id, {names} FROM {table.name} {joins} WHERE {table.name}.id IN {listed}",
        **marks,
    )
    return {row["row_id"]: {member: row[f"{member}_name"] for member in related} for row in found}

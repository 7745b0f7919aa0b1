"""Values of list pools: a holder takes the oldest free one in one guarded UPDATE, so that two never get the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from mainstay.control.store.engine.contract import Transaction, fetch_column, placeholders
from mainstay.control.store.engine.records import MAX_DEPENDANTS, Record, Table, to_microseconds

V = TypeVar("V", bound=Record)


@dataclass(frozen=True, slots=True)
class ListedValues(Generic[V]):
    """The values of one kind of pool. `holder_column` is null while a value is free."""

    table: Table[V]
    pool_column: str
    holder_column: str
    holder_table: str

    async def take(
        self, tx: Transaction, pool_id: str, holder_id: str, path: str, now: datetime, value_key: str | None
    ) -> V | None:
        """Allocates the oldest free value, or the one with this key. None: no value is free."""
        wanted = "" if value_key is None else " AND value_key = :value_key"
        name, holder = self.table.name, self.holder_column
        rows = await tx.fetch(
            f"UPDATE {name} SET {holder} = :holder_id, property_name = :path, allocated_at = :now,"
            f" updated_at = :now WHERE id = (SELECT id FROM {name} WHERE {self.pool_column} = :pool_id"
            f" AND {holder} IS NULL{wanted} ORDER BY created_at, id LIMIT 1{tx.skip_locked})"
            f" AND {holder} IS NULL RETURNING {self.table.select()}",
            holder_id=holder_id,
            path=path,
            now=to_microseconds(now),
            pool_id=pool_id,
            value_key=value_key,
        )
        return self.table.decode(rows[0]) if rows else None

    async def held_by(self, tx: Transaction, holder_id: str) -> list[V]:
        return await self.table.all_by(tx, self.holder_column, holder_id, lock=True, limit=10_000)

    async def free(self, tx: Transaction, value_id: str, now: datetime) -> None:
        await tx.execute(
            f"UPDATE {self.table.name} SET {self.holder_column} = NULL, property_name = NULL, allocated_at = NULL,"
            " updated_at = :now WHERE id = :id",
            id=value_id,
            now=to_microseconds(now),
        )

    async def holders(self, tx: Transaction, pool_id: str) -> list[str]:
        """Some of the holders of values of the pool."""
        return await fetch_column(
            tx,
            f"SELECT DISTINCT {self.holder_column} FROM {self.table.name}"
            f" WHERE {self.pool_column} = :pool_id AND {self.holder_column} IS NOT NULL LIMIT {MAX_DEPENDANTS}",
            pool_id=pool_id,
        )

    async def count(self, tx: Transaction, pool_id: str) -> tuple[int, int]:
        """(total, allocated)."""
        rows = await tx.fetch(
            f"SELECT count(*) AS total, count({self.holder_column}) AS allocated FROM {self.table.name}"
            f" WHERE {self.pool_column} = :pool_id",
            pool_id=pool_id,
        )
        return rows[0]["total"], rows[0]["allocated"]

    async def with_holders(self, tx: Transaction, pool_ids: Sequence[str], limit: int) -> list[tuple[V, str]]:
        """Values in the order in which they are allocated, each with the name of its holder; "" if free."""
        listed, marks = placeholders(pool_ids)
        if not marks:
            return []
        name = self.table.name
        rows = await tx.fetch(
            f"SELECT {self.table.select(name)}, holders.name AS holder FROM {name}"
            f" LEFT JOIN {self.holder_table} AS holders ON holders.id = {name}.{self.holder_column}"
            f" WHERE {self.pool_column} IN {listed} ORDER BY {name}.created_at, {name}.id LIMIT {int(limit)}",
            **marks,
        )
        return [(self.table.decode(row), row["holder"] or "") for row in rows]

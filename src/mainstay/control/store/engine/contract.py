"""The interface of a database: transactions with named parameters, named errors, notifications after a commit, and short
forms of queries."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol

import msgspec

# Column → value as the driver returns it.
Row = Mapping[str, Any]
Value = str | int | float | bytes | None


class Duplicate(Exception):
    """A unique constraint was violated; `columns` names it as `table.column, table.column`."""

    def __init__(self, columns: str) -> None:
        super().__init__(columns)
        self.columns = columns


class StillReferenced(Exception):
    """A foreign key was violated: another row references this one, or the referenced row does not exist."""


class Unavailable(Exception):
    """The database is not reachable or too busy; the same request may succeed later."""


class Transaction(Protocol):
    # Appended to a SELECT: locks the rows until the commit.
    for_update: str
    # Appended to a SELECT: the rows stay as they are until the commit; other transactions may do the same.
    for_key_share: str
    # Like `for_update`, without rows that other transactions have locked.
    skip_locked: str
    # Whether the name index is a table to query; if not, the planner of the database uses the index.
    asks_name_index: bool
    # The function that returns the items of a JSON array as rows with the column `value`.
    json_items: str
    # Appended to a column of JSON text, before `-> 'member'`.
    as_json: str

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]: ...

    async def execute(self, statement: str, **parameters: Value) -> int:
        """Returns the number of affected rows."""
        ...

    async def defer(self, statement: str, **parameters: Value) -> None:
        """Queues a write whose result is not needed. It runs before the next statement or the commit, possibly in one
        batch with others, and raises its errors there."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """A part of the transaction: an exception inside undoes the part and is raised again, and the transaction can
        go on."""
        ...

    async def lock(self, name: str) -> None:
        """Takes a named lock, across all replicas, until the end of the transaction."""
        ...

    async def try_lock(self, name: str) -> bool:
        """Like `lock`, but returns False at once if another transaction holds the lock."""
        ...

    def announce(self, topic: str) -> None:
        """Wakes the listeners of the topic once this transaction is committed."""
        ...


async def ping(tx: Transaction) -> None:
    """Raises `Unavailable` if the database does not answer."""
    await tx.fetch("SELECT 1 AS one")


async def try_write(tx: Transaction, rows: int) -> None:
    """Writes rows of 2 kB that mean nothing, and deletes them. Raises `Unavailable`, here or at the commit, if the
    database cannot write."""
    await tx.execute(
        "INSERT INTO batch_revisions (owner, revision) WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL"
        f" SELECT number + 1 FROM numbers WHERE number < {int(rows)})"
        " SELECT '/ready/' || number || :padding, 0 FROM numbers",
        padding="x" * 2000,
    )
    await tx.execute("DELETE FROM batch_revisions WHERE owner LIKE '/ready/%'")


class ClockWatch:
    """Which step of the clock this process has adopted. A store calls `follow` in the first transaction after another
    one, before the transaction reads the clock. `follow` None: no clock is followed."""

    def __init__(self) -> None:
        self.number = 0
        self.follow: Callable[[Transaction], Awaitable[None]] | None = None


class Store(Protocol):
    dialect: str
    bus: Bus
    clock_watch: ClockWatch

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def autocommit(self) -> AbstractAsyncContextManager[Transaction]:
        """For a single query: cheaper, because statements do not share a snapshot."""
        ...

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """A read-only snapshot of the committed data."""
        ...

    async def is_new(self) -> bool:
        """Whether no migration was ever applied."""
        ...

    async def migrate(self) -> list[str]:
        """Runs pending migrations under a lock and returns their names."""
        ...

    def connection_counts(self) -> tuple[int, int, int]:
        """Connections to the database: in use, idle, and the most that may be open."""
        ...

    async def close(self) -> None: ...


class Bus:
    """Notifies the listeners of a topic within this process."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listening(self, topic: str) -> Iterator[asyncio.Event]:
        """Listen before reading the tables, so that no commit in between is missed."""
        event = asyncio.Event()
        self._waiters[topic].add(event)
        try:
            yield event
        finally:
            self._waiters[topic].discard(event)
            if not self._waiters[topic]:
                del self._waiters[topic]

    def publish(self, topics: frozenset[str]) -> None:
        for topic in topics:
            for event in self._waiters.get(topic, ()):
                event.set()

    def wake_all(self) -> None:
        self.publish(frozenset(self._waiters))


async def fetch_value(tx: Transaction, statement: str, *, slow: bool = False, **parameters: Value) -> Any | None:
    """The first column of the first row. None: no row was found."""
    rows = await tx.fetch(statement, slow=slow, **parameters)
    return _first_column(rows[0]) if rows else None


async def fetch_number(tx: Transaction, statement: str, *, slow: bool = False, **parameters: Value) -> int:
    """The first column of the first row as an integer. 0: no row was found."""
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

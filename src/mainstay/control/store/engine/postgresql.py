"""PostgreSQL, for several replicas: a pool of connections, and one more that listens for what others committed."""

from __future__ import annotations

import asyncio
import re
import secrets
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from mainstay.control.store.engine.contract import (
    Bus,
    Duplicate,
    Row,
    StillReferenced,
    Transaction,
    Unavailable,
    Value,
)
from mainstay.control.store.engine.dialects import Batch, number_parameters
from mainstay.control.store.engine.migrations import HISTORY, Migration, pending

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

CHANNEL = "mainstay"
MIGRATION_LOCK = 0x6D61696E
POOL_SIZE = 10
# A payload may hold 8,000 bytes; topics are short.
TOPICS_PER_NOTICE = 60
RECONNECT_SECONDS = 1.0
STATEMENT_SECONDS = 60
MIGRATION_SECONDS = 3600
# A plan for any values at all is made for none: whoever owns nothing would have a list look past what everybody owns.
PLAN_FOR_THESE_VALUES = "SET LOCAL plan_cache_mode = force_custom_plan"
KEY = re.compile(r"Key \((.*?)\)=")
GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
    # Two that waited for each other, or could not be put in a row.
    asyncpg.TransactionRollbackError,
    # No room, no memory, no connection left.
    asyncpg.InsufficientResourcesError,
    # Shutting down, starting up, cancelled.
    asyncpg.OperatorInterventionError,
    # The disk itself.
    asyncpg.PostgresSystemError,
)
# The extension is not installed, or this role may not create it.
LACKING = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFileError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.UndefinedObjectError,
)

log = structlog.get_logger("mainstay.store")


class LeanConnection(asyncpg.Connection):
    """Every transaction ends by itself and nothing is set on the session, so there is nothing to reset."""

    def get_reset_query(self) -> str:
        return ""


class PostgresqlTransaction:
    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    asks_name_index = False

    def __init__(self, connection: PoolConnectionProxy[Any], *, plans_for_values: bool = False) -> None:
        self._connection = connection
        self._plans_for_values = plans_for_values
        self._batch = Batch()
        self.topics: set[str] = set()

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        await self.flush()
        if slow and not self._plans_for_values:
            self._plans_for_values = True
            await self._connection.execute(PLAN_FOR_THESE_VALUES)
        text, names = number_parameters(statement)
        return await self._connection.fetch(text, *[parameters[name] for name in names])

    async def execute(self, statement: str, **parameters: Value) -> int:
        await self.flush()
        text, names = number_parameters(statement)
        status = await self._connection.execute(text, *[parameters[name] for name in names])
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def later(self, statement: str, **parameters: Value) -> None:
        if not self._batch.takes(statement):
            await self.flush()
        self._batch.add(statement, parameters)

    async def flush(self) -> None:
        """What was put off, in one round trip."""
        if not self._batch.empty:
            batch, self._batch = self._batch, Batch()
            text, values = batch.together()
            await self._connection.execute(text, *values)

    async def lock(self, name: str) -> None:
        await self._connection.execute("SELECT pg_advisory_xact_lock($1)", zlib.crc32(name.encode()))

    def announce(self, topic: str) -> None:
        self.topics.add(topic)


class PostgresqlStore:
    dialect = "postgresql"

    def __init__(self, url: str, *, pool_size: int = POOL_SIZE) -> None:
        self.bus = Bus()
        self._url = url
        # Who is in this process was already told, without the way through the database.
        self._name = secrets.token_hex(8)
        self._pool: asyncpg.Pool[Any] | None = None
        self._pool_size = pool_size
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: set[str] = set()
        self._news = asyncio.Event()

    async def open(self) -> None:
        with _NamedRefusals():
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_size,
                connection_class=LeanConnection,
                command_timeout=STATEMENT_SECONDS,
                server_settings={"application_name": "mainstay", "timezone": "UTC"},
            )
        self._tasks = {asyncio.create_task(self._listen()), asyncio.create_task(self._tell())}

    @property
    def pool(self) -> asyncpg.Pool[Any]:
        if self._pool is None:
            raise Unavailable("the database is not open")
        return self._pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        with _NamedRefusals():
            async with self.pool.acquire() as connection, connection.transaction():
                transaction = PostgresqlTransaction(connection)
                yield transaction
                await transaction.flush()
        if transaction.topics:
            # Sent after the commit and not in it, where it would make commits queue behind each other.
            self.bus.publish(frozenset(transaction.topics))
            self._unsent |= transaction.topics
            self._news.set()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Transaction]:
        with _NamedRefusals():
            async with self.pool.acquire() as connection:
                transaction = PostgresqlTransaction(connection)
                yield transaction
                await transaction.flush()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        with _NamedRefusals():
            async with self.pool.acquire() as connection:
                # Both in one round trip.
                await connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {PLAN_FOR_THESE_VALUES}")
                try:
                    transaction = PostgresqlTransaction(connection, plans_for_values=True)
                    yield transaction
                    await transaction.flush()
                finally:
                    await connection.execute("ROLLBACK")

    async def migrate(self) -> list[str]:
        with _NamedRefusals():
            async with self.pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
                await connection.execute(HISTORY)
                applied = {row["name"]: row["checksum"] for row in await connection.fetch("SELECT * FROM migrations")}
                return [
                    migration.name
                    for migration in pending(self.dialect, applied)
                    if await self._run(connection, migration)
                ]

    async def _run(self, connection: PoolConnectionProxy[Any], migration: Migration) -> bool:
        """Whether it was run; only an optional one may be left for another time."""
        try:
            async with connection.transaction():
                await connection.execute(migration.script, timeout=MIGRATION_SECONDS)
        except LACKING as error:
            if not migration.optional:
                raise
            log.warning("going on without an index", migration=migration.name, reason=str(error))
            return False
        await connection.execute(
            "INSERT INTO migrations VALUES ($1, $2, now()::text)", migration.name, migration.checksum
        )
        return True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            with suppress(*GONE, TimeoutError):
                await asyncio.wait_for(self._pool.close(), timeout=5)

    async def _listen(self) -> None:
        """Passes on what other replicas announce; after a lost connection everybody looks again."""
        while True:
            with suppress(*GONE, asyncpg.PostgresError, TimeoutError):
                connection = await asyncpg.connect(self._url)
                try:
                    lost = asyncio.Event()
                    connection.add_termination_listener(lambda _connection, lost=lost: lost.set())
                    await connection.add_listener(CHANNEL, self._hear)
                    self.bus.wake_all()
                    await lost.wait()
                finally:
                    with suppress(*GONE, TimeoutError):
                        await connection.close(timeout=2)
            await asyncio.sleep(RECONNECT_SECONDS)

    def _hear(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split(",")
        if sender != self._name:
            self.bus.publish(frozenset(topics))

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            topics, self._unsent = sorted(self._unsent), set()
            # Who misses a notice looks again after a while by himself, so a lost one costs time and nothing else.
            with suppress(*GONE, asyncpg.PostgresError, TimeoutError):
                for start in range(0, len(topics), TOPICS_PER_NOTICE):
                    payload = ",".join([self._name, *topics[start : start + TOPICS_PER_NOTICE]])
                    await self.pool.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)


class _NamedRefusals:
    """The database's own errors, under the names the rest of the program knows."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, asyncpg.UniqueViolationError):
            key = KEY.match(error.detail or "")
            columns = key.group(1).split(", ") if key else [str(error.constraint_name)]
            raise Duplicate(", ".join(f"{error.table_name}.{column}" for column in columns)) from error
        if isinstance(error, asyncpg.ForeignKeyViolationError):
            raise StillReferenced(str(error)) from error
        if isinstance(error, GONE):
            raise Unavailable(str(error)) from error

"""PostgreSQL, for several replicas: a connection pool, and a connection that listens for commits of the others."""

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
    ClockWatch,
    Duplicate,
    Row,
    StillReferenced,
    Transaction,
    Unavailable,
    Value,
)
from mainstay.control.store.engine.dialects import Batch, number_parameters
from mainstay.control.store.engine.migrations import HISTORY, Migration, pending
from mainstay.control.store.engine.postgresql_connections import connect

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

CHANNEL = "mainstay"
MIGRATION_LOCK = 0x6D61696E
POOL_SIZE = 10
# A payload is limited to 8,000 bytes; topics are short.
TOPICS_PER_NOTICE = 60
RECONNECT_SECONDS = 1.0
STATEMENT_SECONDS = 60
MIGRATION_SECONDS = 3600
# A generic plan ignores the values: for a caller without rows it would scan the rows of all other callers.
CUSTOM_PLANS = "SET LOCAL plan_cache_mode = force_custom_plan"
# Prepared once for each connection: planning it costs more than all other work at the start of a transaction.
CLOCK_CHECK = "PREPARE clock_check (bigint) AS SELECT 1 WHERE (SELECT coalesce(max(number), 0) FROM clock_steps) = $1"
KEY = re.compile(r"Key \((.*?)\)=")
GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
    # Deadlocks and serialization failures.
    asyncpg.TransactionRollbackError,
    # Out of disk space, memory or connections.
    asyncpg.InsufficientResourcesError,
    # Shutdown, startup, cancelled statements.
    asyncpg.OperatorInterventionError,
    # I/O errors.
    asyncpg.PostgresSystemError,
    # Another server has migrated the tables since this connection prepared the statement.
    asyncpg.InvalidCachedStatementError,
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
    """Skips the reset query: every transaction is closed and no session settings are changed."""

    _checks_clock = False

    def get_reset_query(self) -> str:
        return ""

    async def begin_at(self, clock_step: int) -> bool:
        """Begins a transaction; returns whether this is the last step of the clock. One round trip for both: the status of
        the last command contains how many rows it found."""
        if not self._checks_clock:
            # It exists if an earlier attempt was cancelled.
            with suppress(asyncpg.DuplicatePreparedStatementError):
                await self.execute(CLOCK_CHECK)
            self._checks_clock = True
        return await self.execute(f"BEGIN; EXECUTE clock_check ({int(clock_step)})") == "SELECT 1"


class PostgresqlTransaction:
    for_update = " FOR UPDATE"
    for_key_share = " FOR KEY SHARE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    asks_name_index = False
    json_items = "json_array_elements_text"
    as_json = "::json"

    def __init__(self, connection: PoolConnectionProxy[Any], *, custom_plans: bool = False) -> None:
        self._connection = connection
        self._custom_plans = custom_plans
        self._batch = Batch()
        self.topics: set[str] = set()

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        await self.flush()
        if slow and not self._custom_plans:
            self._custom_plans = True
            await self._connection.execute(CUSTOM_PLANS)
        text, names = number_parameters(statement)
        return await self._connection.fetch(text, *[parameters[name] for name in names])

    async def execute(self, statement: str, **parameters: Value) -> int:
        await self.flush()
        text, names = number_parameters(statement)
        status = await self._connection.execute(text, *[parameters[name] for name in names])
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def defer(self, statement: str, **parameters: Value) -> None:
        if not self._batch.takes(statement):
            await self.flush()
        self._batch.add(statement, parameters)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with _NamedErrors():
            await self.execute("SAVEPOINT part")
            try:
                yield
                await self.flush()
            except BaseException:
                # Queued writes of the part must not run after it.
                self._batch = Batch()
                await self._connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
                raise
            await self._connection.execute("RELEASE SAVEPOINT part")

    async def flush(self) -> None:
        """Executes the queued writes in one round trip."""
        if not self._batch.empty:
            batch, self._batch = self._batch, Batch()
            text, values = batch.together()
            await self._connection.execute(text, *values)

    async def lock(self, name: str) -> None:
        await self._connection.execute("SELECT pg_advisory_xact_lock($1)", zlib.crc32(name.encode()))

    async def try_lock(self, name: str) -> bool:
        return bool(
            await self._connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", zlib.crc32(name.encode()))
        )

    def announce(self, topic: str) -> None:
        self.topics.add(topic)


class PostgresqlStore:
    dialect = "postgresql"

    def __init__(self, url: str, *, pool_size: int = POOL_SIZE) -> None:
        self.bus = Bus()
        self.clock_watch = ClockWatch()
        self._url = url
        # Identifies our own notices: listeners of this process were already notified.
        self._name = secrets.token_hex(8)
        self._pool: asyncpg.Pool[Any] | None = None
        self._pool_size = pool_size
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: set[str] = set()
        self._has_unsent = asyncio.Event()

    async def open(self) -> None:
        with _NamedErrors():
            self._pool = await asyncpg.create_pool(  # type: ignore[call-overload]  # `connect` takes any options
                self._url,
                min_size=1,
                max_size=self._pool_size,
                connect=connect,
                connection_class=LeanConnection,
                command_timeout=STATEMENT_SECONDS,
                server_settings={"application_name": "mainstay", "timezone": "UTC"},
            )
        self._tasks = {asyncio.create_task(self._listen()), asyncio.create_task(self._send_notices())}

    @property
    def pool(self) -> asyncpg.Pool[Any]:
        if self._pool is None:
            raise Unavailable("the database is not open")
        return self._pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        with _NamedErrors():
            async with self.pool.acquire() as connection:
                is_current = await self._begin(connection)
                try:
                    transaction = PostgresqlTransaction(connection)
                    if self.clock_watch.follow is not None and not is_current:
                        await self.clock_watch.follow(transaction)
                    yield transaction
                    await transaction.flush()
                except BaseException:
                    with suppress(*GONE, TimeoutError):
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")
        if transaction.topics:
            # Sent after the commit: NOTIFY inside a transaction serializes commits.
            self.bus.publish(frozenset(transaction.topics))
            self._unsent |= transaction.topics
            self._has_unsent.set()

    async def _begin(self, connection: Any) -> bool:
        """Begins a transaction; returns whether this process has adopted the last step of the clock."""
        if self.clock_watch.follow is None:
            await connection.execute("BEGIN")
            return True
        return bool(await connection.begin_at(self.clock_watch.number))

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Transaction]:
        with _NamedErrors():
            async with self.pool.acquire() as connection:
                transaction = PostgresqlTransaction(connection)
                yield transaction
                await transaction.flush()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        with _NamedErrors():
            async with self.pool.acquire() as connection:
                # One round trip for both.
                await connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {CUSTOM_PLANS}")
                try:
                    transaction = PostgresqlTransaction(connection, custom_plans=True)
                    yield transaction
                    await transaction.flush()
                finally:
                    await connection.execute("ROLLBACK")

    async def is_new(self) -> bool:
        async with self.reading() as tx:
            return not await tx.fetch("SELECT 1 AS one WHERE to_regclass('migrations') IS NOT NULL")

    async def migrate(self) -> list[str]:
        with _NamedErrors():
            async with self.pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
                for statement in HISTORY:
                    await connection.execute(statement)
                applied = {row["name"]: row["checksum"] for row in await connection.fetch("SELECT * FROM migrations")}
                rows = await connection.fetch("SELECT name, since FROM compatible_migrations")
                return [
                    migration.name
                    for migration in pending(self.dialect, applied, {row["name"]: row["since"] for row in rows})
                    if await self._run(connection, migration)
                ]

    async def _run(self, connection: PoolConnectionProxy[Any], migration: Migration) -> bool:
        """Returns whether the migration was applied; only an optional one may be skipped."""
        try:
            async with connection.transaction():
                await connection.execute(migration.script, timeout=MIGRATION_SECONDS)
        except LACKING as error:
            if not migration.optional:
                raise
            log.warning("optional migration skipped", migration=migration.name, reason=str(error))
            return False
        await connection.execute(
            "INSERT INTO migrations VALUES ($1, $2, now()::text)", migration.name, migration.checksum
        )
        if migration.compatible_since is not None:
            await connection.execute(
                "INSERT INTO compatible_migrations VALUES ($1, $2)", migration.name, migration.compatible_since
            )
        return True

    def connection_counts(self) -> tuple[int, int, int]:
        idle = self.pool.get_idle_size()
        return self.pool.get_size() - idle, idle, self._pool_size

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            with suppress(*GONE, TimeoutError):
                await asyncio.wait_for(self._pool.close(), timeout=5)

    async def _listen(self) -> None:
        """Publishes the notices of other replicas. Wakes all listeners after a reconnect, since notices may be lost."""
        while True:
            with suppress(*GONE, asyncpg.PostgresError, TimeoutError):
                connection = await connect(self._url)
                try:
                    lost = asyncio.Event()
                    connection.add_termination_listener(lambda _connection, lost=lost: lost.set())
                    await connection.add_listener(CHANNEL, self._receive_notice)
                    self.bus.wake_all()
                    await lost.wait()
                finally:
                    with suppress(*GONE, TimeoutError):
                        await connection.close(timeout=2)
            await asyncio.sleep(RECONNECT_SECONDS)

    def _receive_notice(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split(",")
        if sender != self._name:
            self.bus.publish(frozenset(topics))

    async def _send_notices(self) -> None:
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            topics, self._unsent = sorted(self._unsent), set()
            # Listeners poll as well, so a lost notice only causes a delay.
            with suppress(*GONE, asyncpg.PostgresError, TimeoutError):
                for start in range(0, len(topics), TOPICS_PER_NOTICE):
                    payload = ",".join([self._name, *topics[start : start + TOPICS_PER_NOTICE]])
                    await self.pool.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)


class _NamedErrors:
    """Translates errors of asyncpg to those of the store contract."""

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

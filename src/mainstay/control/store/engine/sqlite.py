"""SQLite: one file, one writer at a time, concurrent readers.

Statements take microseconds and run on the event loop; a commit waits for the disk and runs in a thread. Transactions
that queue meanwhile share the next commit: each has its own savepoint and returns only after that commit."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

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
from mainstay.control.store.engine.migrations import HISTORY, pending

READERS = 4
BUSY_SECONDS = 10
STATEMENT_SECONDS = 60
# Virtual machine instructions between two checks of the time; a few milliseconds.
INSTRUCTIONS_BETWEEN_CHECKS = 1_000_000
ROLLED_BACK = "the database rolled back uncommitted changes"
# A pool value may be allocated before its service or agent is inserted. SQLite checks such a deferred foreign key only at
# the commit, which several transactions share. Triggers therefore note the affected owners, and each transaction checks
# its own before it ends.
DEFERRED_CHECKS = """
CREATE TEMP TABLE IF NOT EXISTS unchecked_owners (id TEXT PRIMARY KEY);
CREATE TEMP TRIGGER IF NOT EXISTS check_service_after_insert AFTER INSERT ON main.service_pool_values
WHEN new.service_id IS NOT NULL BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (new.service_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS check_service_after_update AFTER UPDATE OF service_id ON main.service_pool_values
WHEN new.service_id IS NOT NULL BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (new.service_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS check_service_after_delete AFTER DELETE ON main.services
BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (old.id); END;
CREATE TEMP TRIGGER IF NOT EXISTS check_agent_after_insert AFTER INSERT ON main.config_pool_values
WHEN new.agent_id IS NOT NULL BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (new.agent_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS check_agent_after_update AFTER UPDATE OF agent_id ON main.config_pool_values
WHEN new.agent_id IS NOT NULL BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (new.agent_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS check_agent_after_delete AFTER DELETE ON main.agents
BEGIN INSERT OR IGNORE INTO unchecked_owners VALUES (old.id); END;
"""
MISSING_OWNER = """
SELECT 1 FROM unchecked_owners AS owner
WHERE (EXISTS (SELECT 1 FROM service_pool_values WHERE service_id = owner.id)
  AND NOT EXISTS (SELECT 1 FROM services WHERE services.id = owner.id))
OR (EXISTS (SELECT 1 FROM config_pool_values WHERE agent_id = owner.id)
  AND NOT EXISTS (SELECT 1 FROM agents WHERE agents.id = owner.id)) LIMIT 1
"""
T = TypeVar("T")


class SqliteTransaction:
    for_update = ""
    for_key_share = ""
    skip_locked = ""
    asks_name_index = True
    json_items = "json_each"
    as_json = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.topics: set[str] = set()

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        def run() -> Sequence[Row]:
            return self._connection.execute(statement, parameters).fetchall()

        def run_with_timeout() -> Sequence[Row]:
            until = time.monotonic() + STATEMENT_SECONDS
            self._connection.set_progress_handler(lambda: time.monotonic() > until, INSTRUCTIONS_BETWEEN_CHECKS)
            try:
                return run()
            finally:
                self._connection.set_progress_handler(None, 0)

        with _NamedErrors():
            return await _finish_in_thread(run_with_timeout) if slow else run()

    async def execute(self, statement: str, **parameters: Value) -> int:
        with _NamedErrors():
            return self._connection.execute(statement, parameters).rowcount

    async def defer(self, statement: str, **parameters: Value) -> None:
        await self.execute(statement, **parameters)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        await self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            await self.execute("ROLLBACK TO part")
            raise
        finally:
            await self.execute("RELEASE part")

    async def lock(self, name: str) -> None:
        """Nothing to do: there is only one writer."""

    async def try_lock(self, name: str) -> bool:
        return True

    def announce(self, topic: str) -> None:
        self.topics.add(topic)


class CommitGroup:
    """Transactions that are committed together."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class SqliteStore:
    dialect = "sqlite"

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        self.path = path
        self.bus = Bus()
        self.clock_watch = ClockWatch()
        self._synchronous = synchronous
        self._writing = asyncio.Lock()
        self._group: CommitGroup | None = None
        self._has_deferred_checks = False
        self._committing: set[asyncio.Task[None]] = set()
        written = _logged_frames(path)
        self._writer = self._connect()
        # How many pages of the write-ahead log SQLite has left out, because the log is damaged.
        self.lost_pages = max(0, written - self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])
        self._readers: asyncio.LifoQueue[sqlite3.Connection] = asyncio.LifoQueue()
        for _ in range(READERS):
            reader = self._connect()
            reader.execute("PRAGMA query_only=ON")
            self._readers.put_nowait(reader)

    def _connect(self) -> sqlite3.Connection:
        # Readable by the owner only; the write-ahead log inherits the mode.
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        # A deleted secret must not stay readable in a free page.
        connection.execute("PRAGMA secure_delete=ON")
        return connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self._writing:
            group = self._join_group()
            transaction = SqliteTransaction(self._writer)
            self._writer.execute("SAVEPOINT own")
            try:
                if self.clock_watch.follow is not None and self._last_clock_step() != self.clock_watch.number:
                    await self.clock_watch.follow(transaction)
                yield transaction
                self._finish()
            except BaseException:
                self._undo(group)
                raise
            group.topics |= transaction.topics
        await asyncio.shield(group.committed)

    def _last_clock_step(self) -> int:
        return int(self._writer.execute("SELECT coalesce(max(number), 0) FROM clock_steps").fetchone()[0])

    def _join_group(self) -> CommitGroup:
        """The open group, or a new one. Its commit queues behind the transactions that already wait for the writer."""
        if self._group is None:
            with _NamedErrors():
                self._writer.execute("BEGIN IMMEDIATE")
            self._group = CommitGroup()
            task = asyncio.create_task(self._commit(self._group))
            self._committing.add(task)
            task.add_done_callback(self._committing.discard)
        return self._group

    def _finish(self) -> None:
        if not self._writer.in_transaction:
            raise Unavailable(ROLLED_BACK)
        with _NamedErrors():
            if (
                self._has_deferred_checks
                and self._writer.execute("SELECT 1 FROM unchecked_owners LIMIT 1").fetchone()
            ):
                if self._writer.execute(MISSING_OWNER).fetchone():
                    raise StillReferenced("a pool value refers to a service or agent that does not exist")
                self._writer.execute("DELETE FROM unchecked_owners")
            self._writer.execute("RELEASE own")

    def _undo(self, group: CommitGroup) -> None:
        # An error such as a full disk may already have rolled back the whole transaction, or does so now.
        with suppress(sqlite3.Error):
            self._writer.execute("ROLLBACK TO own")
            self._writer.execute("RELEASE own")
            return
        if self._writer.in_transaction:
            self._writer.rollback()
        if self._group is group:
            self._group = None
            _fail(group, Unavailable(ROLLED_BACK))

    async def _commit(self, group: CommitGroup) -> None:
        async with self._writing:
            if self._group is not group:
                return
            self._group = None
            try:
                with _NamedErrors():
                    await _finish_in_thread(self._writer.commit)
            except Exception as error:  # noqa: BLE001 - raised in every transaction of the group
                if self._writer.in_transaction:
                    self._writer.rollback()
                _fail(group, error)
                return
        group.committed.set_result(None)
        self.bus.publish(frozenset(group.topics))

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Transaction]:
        reader = await self._readers.get()
        try:
            yield SqliteTransaction(reader)
        finally:
            self._readers.put_nowait(reader)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        reader = await self._readers.get()
        try:
            reader.execute("BEGIN")
            try:
                yield SqliteTransaction(reader)
            finally:
                reader.rollback()
        finally:
            self._readers.put_nowait(reader)

    async def is_new(self) -> bool:
        async with self.reading() as tx:
            return not await tx.fetch("SELECT name FROM sqlite_master WHERE name = 'migrations'")

    async def migrate(self) -> list[str]:
        async with self._writing:
            return await _finish_in_thread(self._migrate)

    def _migrate(self) -> list[str]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for statement in HISTORY:
                self._writer.execute(statement)
            applied = {row["name"]: row["checksum"] for row in self._writer.execute("SELECT * FROM migrations")}
            rows = self._writer.execute("SELECT name, since FROM compatible_migrations")
            waiting = pending(self.dialect, applied, {row["name"]: row["since"] for row in rows})
            for migration in waiting:
                for statement in _statements(migration.script):
                    self._writer.execute(statement)
                self._writer.execute(
                    "INSERT INTO migrations VALUES (?, ?, datetime('now'))", (migration.name, migration.checksum)
                )
                if migration.compatible_since is not None:
                    self._writer.execute(
                        "INSERT INTO compatible_migrations VALUES (?, ?)",
                        (migration.name, migration.compatible_since),
                    )
            self._writer.commit()
        finally:
            if self._writer.in_transaction:
                self._writer.rollback()
        # A savepoint keeps the former content of changed pages, about 100 KiB for an order: more than SQLite keeps in
        # memory by default. Set after the migrations, which may sort the rows of large tables.
        self._writer.execute("PRAGMA temp_store=MEMORY")
        self._writer.executescript(DEFERRED_CHECKS)
        self._has_deferred_checks = True
        return [migration.name for migration in waiting]

    def connection_counts(self) -> tuple[int, int, int]:
        idle = self._readers.qsize() + (not self._writing.locked())
        return READERS + 1 - idle, idle, READERS + 1

    async def close(self) -> None:
        await asyncio.gather(*self._committing)
        async with self._writing:
            for _ in range(READERS):
                (await self._readers.get()).close()
            self._writer.close()


def _logged_frames(path: Path) -> int:
    """Pages that the write-ahead log holds up to its last commit, whether or not their checksums are right. Frames of an
    earlier use of the file have another salt."""
    log = path.with_name(f"{path.name}-wal")
    found = 0
    with suppress(FileNotFoundError), log.open("rb") as file:
        header = file.read(32)
        size = int.from_bytes(header[8:12], "big")
        number = 0
        while len(frame := file.read(24)) == 24 and frame[8:16] == header[16:24]:
            number += 1
            if frame[4:8] != bytes(4):
                found = number
            file.seek(size, os.SEEK_CUR)
    return found


def _fail(group: CommitGroup, error: Exception) -> None:
    group.committed.set_exception(error)
    # Marks the exception as retrieved: all waiting transactions may have been cancelled.
    group.committed.exception()


def _statements(script: str) -> list[str]:
    """Splits a script: `executescript` would commit the open transaction."""
    found: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


async def _finish_in_thread(work: Callable[[], T]) -> T:
    """Not cancellable: the connection must not be used by two threads at once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class _NamedErrors:
    """Translates errors of sqlite3 to those of the store contract."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            text = str(error)
            if match := re.fullmatch(r"UNIQUE constraint failed: (.*)", text):
                raise Duplicate(match.group(1)) from error
            if text.startswith("FOREIGN KEY"):
                raise StillReferenced(text) from error
        # The lowest byte is the primary error code, the others refine it.
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_INTERRUPT,
        ):
            raise Unavailable(str(error)) from error

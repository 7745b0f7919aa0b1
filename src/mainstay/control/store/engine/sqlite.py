"""The embedded database: one file, one writer at a time, readers beside it.

Statements take microseconds, so they run where they are called; a commit waits for the disk, and so does not. Whoever
queues meanwhile shares the next commit: each has a savepoint of its own, and none is told before the disk has it."""

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
# Of SQLite's own machine; some milliseconds.
INSTRUCTIONS_BETWEEN_LOOKS = 1_000_000
GIVEN_UP = "the database gave up what was not yet committed"
# A value may be taken for a service before that is there, and SQLite looks whether it came only at the commit, which many
# share. So whoever touches such a pair notes the service, and it is looked at before he is done.
PROMISES = """
CREATE TEMP TABLE IF NOT EXISTS promised (service_id TEXT PRIMARY KEY);
CREATE TEMP TRIGGER IF NOT EXISTS promise_by_insert AFTER INSERT ON main.service_pool_values
WHEN new.service_id IS NOT NULL BEGIN INSERT OR IGNORE INTO promised VALUES (new.service_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS promise_by_update AFTER UPDATE OF service_id ON main.service_pool_values
WHEN new.service_id IS NOT NULL BEGIN INSERT OR IGNORE INTO promised VALUES (new.service_id); END;
CREATE TEMP TRIGGER IF NOT EXISTS promise_by_delete AFTER DELETE ON main.services
BEGIN INSERT OR IGNORE INTO promised VALUES (old.id); END;
"""
BROKEN_PROMISE = """
SELECT 1 FROM promised JOIN service_pool_values USING (service_id)
WHERE NOT EXISTS (SELECT 1 FROM services WHERE services.id = promised.service_id) LIMIT 1
"""
T = TypeVar("T")


class SqliteTransaction:
    for_update = ""
    skip_locked = ""
    asks_name_index = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.topics: set[str] = set()

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        def run() -> Sequence[Row]:
            return self._connection.execute(statement, parameters).fetchall()

        def run_for_a_while() -> Sequence[Row]:
            until = time.monotonic() + STATEMENT_SECONDS
            self._connection.set_progress_handler(lambda: time.monotonic() > until, INSTRUCTIONS_BETWEEN_LOOKS)
            try:
                return run()
            finally:
                self._connection.set_progress_handler(None, 0)

        with _named_refusals():
            return await _finish_in_thread(run_for_a_while) if slow else run()

    async def execute(self, statement: str, **parameters: Value) -> int:
        with _named_refusals():
            return self._connection.execute(statement, parameters).rowcount

    async def later(self, statement: str, **parameters: Value) -> None:
        await self.execute(statement, **parameters)

    async def lock(self, name: str) -> None:
        """The one writer holds every lock there is."""

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
        self._synchronous = synchronous
        self._writing = asyncio.Lock()
        self._group: CommitGroup | None = None
        self._keeps_promises = False
        self._committing: set[asyncio.Task[None]] = set()
        self._writer = self._connect()
        self._readers: asyncio.LifoQueue[sqlite3.Connection] = asyncio.LifoQueue()
        for _ in range(READERS):
            reader = self._connect()
            reader.execute("PRAGMA query_only=ON")
            self._readers.put_nowait(reader)

    def _connect(self) -> sqlite3.Connection:
        # Nobody else may read the file, nor the log beside it, which inherits its mode.
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
            group = self._joined()
            transaction = SqliteTransaction(self._writer)
            self._writer.execute("SAVEPOINT own")
            try:
                yield transaction
                self._finish()
            except BaseException:
                self._undo(group)
                raise
            group.topics |= transaction.topics
        await asyncio.shield(group.committed)

    def _joined(self) -> CommitGroup:
        """The open group, or a new one; its commit waits in line behind those who already wait to write."""
        if self._group is None:
            with _named_refusals():
                self._writer.execute("BEGIN IMMEDIATE")
            self._group = CommitGroup()
            task = asyncio.create_task(self._commit(self._group))
            self._committing.add(task)
            task.add_done_callback(self._committing.discard)
        return self._group

    def _finish(self) -> None:
        if not self._writer.in_transaction:
            raise Unavailable(GIVEN_UP)
        with _named_refusals():
            if self._keeps_promises and self._writer.execute("SELECT 1 FROM promised LIMIT 1").fetchone():
                if self._writer.execute(BROKEN_PROMISE).fetchone():
                    raise StillReferenced("a pool value belongs to a service that is not there")
                self._writer.execute("DELETE FROM promised")
            self._writer.execute("RELEASE own")

    def _undo(self, group: CommitGroup) -> None:
        # A full disk and the like may have ended the whole transaction already, or do so now.
        with suppress(sqlite3.Error):
            self._writer.execute("ROLLBACK TO own")
            self._writer.execute("RELEASE own")
            return
        if self._writer.in_transaction:
            self._writer.rollback()
        if self._group is group:
            self._group = None
            _fail(group, Unavailable(GIVEN_UP))

    async def _commit(self, group: CommitGroup) -> None:
        async with self._writing:
            if self._group is not group:
                return
            self._group = None
            try:
                with _named_refusals():
                    await _finish_in_thread(self._writer.commit)
            except Exception as error:  # noqa: BLE001 - whoever waits for the commit is told
                if self._writer.in_transaction:
                    self._writer.rollback()
                _fail(group, error)
                return
        group.committed.set_result(None)
        self.bus.publish(frozenset(group.topics))

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Transaction]:
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

    async def migrate(self) -> list[str]:
        async with self._writing:
            return await _finish_in_thread(self._migrate)

    def _migrate(self) -> list[str]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            self._writer.execute(HISTORY)
            applied = {row["name"]: row["checksum"] for row in self._writer.execute("SELECT * FROM migrations")}
            waiting = pending(self.dialect, applied)
            for migration in waiting:
                for statement in _statements(migration.script):
                    self._writer.execute(statement)
                self._writer.execute(
                    "INSERT INTO migrations VALUES (?, ?, datetime('now'))", (migration.name, migration.checksum)
                )
            self._writer.commit()
        finally:
            if self._writer.in_transaction:
                self._writer.rollback()
        self._writer.executescript(PROMISES)
        self._keeps_promises = True
        return [migration.name for migration in waiting]

    async def close(self) -> None:
        await asyncio.gather(*self._committing)
        async with self._writing:
            for _ in range(READERS):
                (await self._readers.get()).close()
            self._writer.close()


def _fail(group: CommitGroup, error: Exception) -> None:
    group.committed.set_exception(error)
    # Nobody may be left to be told.
    group.committed.exception()


def _statements(script: str) -> list[str]:
    """One by one, because running a whole script would commit the transaction around it."""
    found: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


async def _finish_in_thread(work: Callable[[], T]) -> T:
    """Even who is told to stop waits for the end: the connection may not be used by two threads at once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class _named_refusals:  # noqa: N801 - reads as a word in `with`
    """The database's own errors, under the names the rest of the program knows."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            text = str(error)
            if match := re.fullmatch(r"UNIQUE constraint failed: (.*)", text):
                raise Duplicate(match.group(1)) from error
            if text.startswith("FOREIGN KEY"):
                raise StillReferenced(text) from error
        # The last byte is the kind of an error, what is before it tells more.
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_INTERRUPT,
        ):
            raise Unavailable(str(error)) from error

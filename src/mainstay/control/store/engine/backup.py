"""Backup and restore: all tables as JSON lines, read in one consistent snapshot. Both databases use one format.

Secrets stay sealed and tokens stay hashed: without the vault key a backup reveals neither."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction, Value
from mainstay.control.store.engine.migrations import migrations

FORMAT = "mainstay-backup-1"
BATCH = 1000
# Triggers fill these when the rows that they count are restored.
KEPT_BY_TRIGGERS = ("agent_loads",)
# Columns that the database computes from others and that no statement may write.
COMPUTED = ("in_sync",)
T = TypeVar("T")
_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n\)", re.DOTALL)
_OWN_KEY = re.compile(r"^\s*(\w+) [^,\n]*PRIMARY KEY", re.MULTILINE)
_COMMON_KEY = re.compile(r"^\s*PRIMARY KEY \(([^)]*)\)", re.MULTILINE)


class BadBackup(Exception):
    """The file is not a complete backup, or does not fit this database."""


class Header(msgspec.Struct, frozen=True):
    format: str
    migrations: list[str]


class TableHead(msgspec.Struct, frozen=True):
    table: str
    columns: list[str]


class End(msgspec.Struct, frozen=True):
    """The last line. Without it the file is truncated."""

    rows: int


@dataclass(frozen=True, slots=True)
class Keyed:
    name: str
    key: tuple[str, ...]


def _tables() -> tuple[Keyed, ...]:
    """Every table in the order of creation, so that a row follows the rows it references.

    From the PostgreSQL migrations: the extra tables of SQLite are an index that triggers maintain."""
    found = []
    for migration in migrations("postgresql"):
        for name, body in _TABLE.findall(migration.script):
            if name in KEPT_BY_TRIGGERS:
                continue
            own, common = _OWN_KEY.search(body), _COMMON_KEY.search(body)
            text = own.group(1) if own else common.group(1) if common else ""
            found.append(Keyed(name, tuple(part.strip() for part in text.split(","))))
    return tuple(found)


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _encode(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decode(value: object) -> Value:
    if isinstance(value, dict):
        return base64.b64decode(str(value["base64"]))
    return value  # type: ignore[return-value]


async def dump(tx: Transaction) -> AsyncIterator[bytes]:
    yield _line(Header(FORMAT, [migration.name for migration in migrations("sqlite")]))
    count = 0
    for table in _tables():
        columns: list[str] = []
        last: Row | None = None
        while True:
            rows = await _batch(tx, table, last)
            if rows and not columns:
                columns = [name for name in list(rows[0].keys()) if name not in COMPUTED]
                yield _line(TableHead(table.name, columns))
            for row in rows:
                yield _line([_encode(row[column]) for column in columns])
            count += len(rows)
            if len(rows) < BATCH:
                break
            last = rows[-1]
    yield _line(End(count))


async def _batch(tx: Transaction, table: Keyed, last: Row | None) -> Sequence[Row]:
    names = ", ".join(table.key)
    where = ""
    parameters: dict[str, Any] = {}
    if last is not None:
        marks = ", ".join(f":k_{column}" for column in table.key)
        where = f" WHERE ({names}) > ({marks})"
        parameters = {f"k_{column}": last[column] for column in table.key}
    statement = f"SELECT * FROM {table.name}{where} ORDER BY {names} LIMIT {BATCH}"
    return await tx.fetch(statement, slow=True, **parameters)


async def load(tx: Transaction, lines: Iterable[bytes]) -> int:
    """Loads a backup into empty tables and returns the number of rows. Raises `BadBackup`; the caller rolls back."""
    known = {table.name for table in _tables()}
    for name in known:
        if await tx.fetch(f"SELECT 1 AS found FROM {name} LIMIT 1"):
            raise BadBackup("the database is not empty; restore into a new one")
    remaining = iter(lines)
    header = _read(next(remaining, b""), Header)
    if header.format != FORMAT or header.migrations != [each.name for each in migrations("sqlite")]:
        raise BadBackup("the backup was made by another release; restore it with that release, then migrate")
    count = 0
    insert = ""
    columns: list[str] = []
    for line in remaining:
        if line.startswith(b"["):
            values = _read(line, list[object])
            named = {name: _decode(value) for name, value in zip(columns, values, strict=True)}
            await tx.execute(insert, **named)
            count += 1
        elif line.startswith(b'{"rows"'):
            if _read(line, End).rows != count or next(remaining, None) is not None:
                raise BadBackup("the backup does not contain the number of rows that it states")
            return count
        else:
            head = _read(line, TableHead)
            if head.table not in known or not all(re.fullmatch(r"[a-z_]+", name) for name in head.columns):
                raise BadBackup(f"the backup has a table {head.table[:50]} that this release does not know")
            columns = head.columns
            marks = ", ".join(f":{name}" for name in columns)
            insert = f"INSERT INTO {head.table} ({', '.join(columns)}) VALUES ({marks})"
    raise BadBackup("the backup is truncated")


def _read(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError:
        raise BadBackup("the file is not a backup, or is damaged") from None

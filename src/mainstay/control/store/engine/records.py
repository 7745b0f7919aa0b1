"""Maps structs to rows: the columns, filters and sort keys of a table derive from the fields of its struct."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction, Value, encode_json, fetch_column, placeholders

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Dependants of a row that a refusal names.
MAX_DEPENDANTS = 10


# The id of something that this server does not name: it need not be a uuid.
ForeignId = Annotated[str, "foreign"]


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    created_at: datetime
    updated_at: datetime


class ColumnKind(Enum):
    TEXT = "text"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TIME = "time"
    JSON = "json"


_KINDS: dict[object, ColumnKind] = {
    int: ColumnKind.INTEGER,
    float: ColumnKind.REAL,
    bool: ColumnKind.BOOLEAN,
    datetime: ColumnKind.TIME,
}


def to_microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def to_optional_microseconds(time: datetime | None) -> int | None:
    return None if time is None else to_microseconds(time)


def to_time(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def _kind_of(annotation: object) -> ColumnKind:
    inner = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind_of(inner[0]) if len(inner) == 1 else ColumnKind.JSON
    if get_origin(annotation) is Literal:
        return ColumnKind.TEXT
    if annotation in _KINDS:
        return _KINDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, str):
        return ColumnKind.TEXT
    return ColumnKind.JSON


def _kinds_of(record: type[msgspec.Struct]) -> Mapping[str, ColumnKind]:
    hints = get_type_hints(record)
    return {name: _kind_of(hints[name]) for name in record.__struct_fields__}


def _choices_of(record: type[msgspec.Struct]) -> Mapping[str, tuple[str, ...]]:
    """The values of the columns that have a fixed list of them."""
    hints = get_type_hints(record)
    found = {name: _literals(hints[name]) for name in record.__struct_fields__}
    return {name: values for name, values in found.items() if values}


def _literals(annotation: object) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return tuple(annotation)
    return ()


def _ids_of(record: type[msgspec.Struct]) -> frozenset[str]:
    """The columns that hold a uuid. An id that an agent chooses is a `ForeignId`."""
    hints = get_type_hints(record, include_extras=True)
    return frozenset(
        name
        for name in record.__struct_fields__
        if (name == "id" or name.endswith("_id")) and ForeignId not in (hints[name], *get_args(hints[name]))
    )


def wire_names(record: type[msgspec.Struct]) -> Mapping[str, str]:
    """JSON name → name of the field and of its column."""
    return dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))


# Text needs no encoder: an enum of texts is a text for both databases.
_ENCODERS: dict[ColumnKind, Callable[..., Value]] = {
    ColumnKind.TIME: to_microseconds,
    ColumnKind.JSON: encode_json,
    ColumnKind.BOOLEAN: int,
}
_DECODERS: dict[ColumnKind, Callable[..., object]] = {
    ColumnKind.TIME: to_time,
    ColumnKind.JSON: msgspec.json.decode,
    ColumnKind.BOOLEAN: bool,
}

R = TypeVar("R", bound=Record)


@lru_cache(maxsize=200)
def _insert_statement(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


class Table(Generic[R]):
    """The table of one noun. Statements contain only column names of its struct."""

    def __init__(
        self,
        name: str,
        noun: str,
        record: type[R],
        *,
        name_index: str | None = None,
        order: str = "created_at",
        owner_indexes: Iterable[str] = (),
        single_owner: Iterable[str] = (),
    ) -> None:
        self.name = name
        # The name in error messages and in the access table.
        self.noun = noun
        self.record = record
        self.kinds = _kinds_of(record)
        self.choices = _choices_of(record)
        self.ids = _ids_of(record)
        self.columns = tuple(self.kinds)
        self.searched = "name" in self.kinds
        # The trigram index of names, for tables too large to scan.
        self.name_index = name_index
        # The column that orders rows by age.
        self.order = order
        # "OWNER COLUMN" for each index that begins with both columns, besides the owner and `order`.
        self.owner_indexes = frozenset(owner_indexes)
        # Columns whose values have one owner each, as a rule: their index leads to rows of that owner.
        self.single_owner = frozenset(single_owner)
        self._selected = ", ".join(self.columns)
        self._decoders = tuple((name, _DECODERS.get(kind)) for name, kind in self.kinds.items())
        self._encoders = tuple((name, _ENCODERS[kind]) for name, kind in self.kinds.items() if kind in _ENCODERS)

    def is_ordered(self, owner: str, column: str) -> bool:
        """Whether the index of the owner continues with the column. `owner` "": the rows have no such index."""
        if owner in self.single_owner:
            return f"{owner} {column}" in self.owner_indexes
        return owner != "" and column == self.order

    def decode(self, row: Row) -> R:
        values: dict[str, object] = {}
        for name, decoder in self._decoders:
            value = row[name]
            values[name] = value if decoder is None or value is None else decoder(value)
        return self.record(**values)  # type: ignore[arg-type]

    def encode(self, record: R) -> dict[str, Value]:
        row = msgspec.structs.asdict(record)
        for name, encoder in self._encoders:
            if row[name] is not None:
                row[name] = encoder(row[name])
        if self.searched:
            row["name_folded"] = fold(str(row["name"]))
        return row

    def select(self, alias: str = "") -> str:
        return ", ".join(f"{alias}.{column}" for column in self.columns) if alias else self._selected

    async def insert(self, tx: Transaction, record: R, **hidden: Value) -> None:
        row = self.encode(record) | hidden
        await tx.defer(_insert_statement(self.name, tuple(row)), **row)

    async def update(self, tx: Transaction, record: R, **hidden: Value) -> None:
        row = self.encode(record) | hidden
        sets = ", ".join(f"{name} = :{name}" for name in row if name != "id")
        await tx.defer(f"UPDATE {self.name} SET {sets} WHERE id = :id", **row)

    async def delete(self, tx: Transaction, record_id: str) -> bool:
        return await tx.execute(f"DELETE FROM {self.name} WHERE id = :id", id=record_id) > 0

    async def find(self, tx: Transaction, record_id: str, *, lock: bool = False) -> R | None:
        return await self.find_by(tx, "id", record_id, lock=lock)

    async def require(self, tx: Transaction, record_id: str, *, lock: bool = False) -> R:
        """A row that exists: a foreign key says so."""
        found = await self.find(tx, record_id, lock=lock)
        if found is None:
            raise RuntimeError(f"there is no {self.noun} {record_id}")
        return found

    async def find_by(self, tx: Transaction, column: str, value: Value, *, lock: bool = False) -> R | None:
        found = await self.all_by(tx, column, value, lock=lock)
        return found[0] if found else None

    async def many(self, tx: Transaction, ids: Iterable[str]) -> dict[str, R]:
        """The rows with these ids, in one query."""
        listed, parameters = placeholders(sorted(set(ids)))
        found = await self.where(tx, f"id IN {listed}", **parameters) if parameters else []
        return {record.id: record for record in found}

    async def all_by(
        self, tx: Transaction, column: str, value: Value, *, lock: bool = False, limit: int = 1000
    ) -> list[R]:
        if column not in self.kinds:
            raise KeyError(column)
        ending = tx.for_update if lock else ""
        return await self.where(
            tx, f"{column} = :value ORDER BY created_at, id LIMIT {int(limit)}{ending}", value=value
        )

    async def where(self, tx: Transaction, condition: str, *, slow: bool = False, **parameters: Value) -> list[R]:
        """The rows that satisfy a condition, which may end with an order, a limit and a lock."""
        rows = await tx.fetch(f"SELECT {self._selected} FROM {self.name} WHERE {condition}", slow=slow, **parameters)
        return [self.decode(row) for row in rows]

    async def first(self, tx: Transaction, condition: str, **parameters: Any) -> R | None:
        """The first of the rows that satisfy a condition. None: there is none."""
        found = await self.where(tx, condition, **parameters)
        return found[0] if found else None


async def referring_ids(tx: Transaction, table: str, column: str, record_id: str) -> list[str]:
    """The oldest rows whose column holds this id; `table` and `column` are literals of this program."""
    return await fetch_column(
        tx, f"SELECT id FROM {table} WHERE {column} = :id ORDER BY created_at LIMIT {MAX_DEPENDANTS}", id=record_id
    )


def fold(name: str) -> str:
    """Case-folds a name for searches. Done here, because the databases fold differently."""
    return name.casefold()

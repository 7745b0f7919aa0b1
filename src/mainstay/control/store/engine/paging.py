"""Lists: filters, sorting and pages over any table. SQL contains only column names that the table declares."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Generic, Literal, TypeVar

import msgspec

from mainstay.control.access import Caller, Relation
from mainstay.control.domain.old_clients import OLD_VALUES
from mainstay.control.domain.values import is_uuid
from mainstay.control.store.engine import trigrams
from mainstay.control.store.engine.contract import Row, Transaction, Value, fetch_number, placeholders
from mainstay.control.store.engine.records import ColumnKind, Record, Table, fold, to_microseconds, wire_names
from mainstay.foundation.numbers import parse_count
from mainstay.foundation.suggestions import did_you_mean

MAX_PAGE_SIZE = 100
DEFAULT_PAGE_SIZE = 10
MAX_VALUES = 100
# A larger offset would read the whole table; `after` has no such limit.
MAX_PAGE = 1_000_000
# Far from both limits of `datetime`, so that adding or subtracting a duration cannot overflow.
YEARS = range(1000, 9000)
MAX_WALKED = 1000
# A total stops here: an exact one would read every row.
MAX_TOTAL = 10_000
MAX_INTEGER = 2**63 - 1

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class BadQuery(Exception):
    """A query parameter of a list is unknown or invalid; the message names it."""


class Page(msgspec.Struct, Generic[T], rename="camel"):
    items: list[T]
    total_items: int
    total_pages: int
    current_page: int
    has_next: bool
    has_prev: bool
    # Present if there are more than MAX_TOTAL rows.
    total_is_bounded: Literal[True] | msgspec.UnsetType = msgspec.UNSET


class CursorPage(msgspec.Struct, Generic[T], rename="camel"):
    """A page after a cursor. It has no total, so its cost does not grow with the table. `next` None: last page."""

    items: list[T]
    has_next: bool
    next: str | None = None


@dataclass(frozen=True, slots=True)
class SqlCondition:
    sql: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    # The same condition as a disjunction: each alternative may have its own index.
    alternatives: tuple[str, ...] = ()
    # Case-folded substrings of the name; a row must contain one of them.
    name_parts: tuple[str, ...] = ()
    # The column that a filter compares with values; "": none.
    column: str = ""
    # The same condition in a form that no index fits, for lists that start from the caller's own rows. "": it needs none.
    unindexed: str = ""
    # Whether each alternative names an owner, by whose index a list finds its rows.
    finds_rows: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A validated list request. `by_cursor` with `after` None is the first page by cursor."""

    conditions: tuple[SqlCondition, ...]
    sort: str
    descending: bool
    page: int
    page_size: int
    after: tuple[Value, str] | None = None
    by_cursor: bool = False


# The fields that lists match by substring, unless they declare others.
NAME_ONLY = frozenset({"name"})
PAGING = frozenset({"page", "pageSize", "sort", "after"})


def parse_listing(
    table: Table[R],
    query: Sequence[tuple[str, str]],
    *,
    aliases: Mapping[str, str] | None = None,
    substrings: frozenset[str] = NAME_ONLY,
) -> Listing:
    """`aliases` are additional names of fields; `substrings` are fields matched by substring instead of equality."""
    names = {**wire_names(table.record), **(aliases or {})}
    single: dict[str, str] = {}
    filters: dict[str, list[str]] = {}
    for key, value in query:
        if key in PAGING:
            single[key] = value
        elif not value and key in names:
            # An empty value means not given.
            continue
        elif key in names and table.kinds[names[key]] is not ColumnKind.JSON:
            filters.setdefault(key, []).append(value)
        else:
            raise BadQuery(f"unknown query parameter '{key}'")
    conditions = tuple(
        _condition(table, key, names[key], values, substring=names[key] in substrings)
        for key, values in filters.items()
    )
    sort, descending = _sort(table, names, single.get("sort", ""))
    return Listing(
        conditions,
        sort,
        descending,
        page=_number(single, "page", 1, 1, MAX_PAGE),
        page_size=_number(single, "pageSize", DEFAULT_PAGE_SIZE, 1, MAX_PAGE_SIZE),
        after=_cursor(table, sort, single["after"]) if single.get("after") else None,
        by_cursor="after" in single,
    )


def _number(single: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = single.get(key)
    if not text:
        return default
    number = parse_count(text, least, most)
    if number is None:
        raise BadQuery(f"{key} must be an integer from {least} to {most}")
    return number


def _sort(table: Table[R], names: Mapping[str, str], text: str) -> tuple[str, bool]:
    if not text:
        return table.order, False
    # A plus sign in a URL decodes to a space.
    wanted = text.lstrip("+- ")
    column = names.get(wanted)
    if column is None or table.kinds[column] is ColumnKind.JSON:
        raise BadQuery(f"cannot sort by '{wanted}'")
    return table.order if column == "created_at" else column, text.startswith("-")


def _condition(table: Table[R], key: str, column: str, values: list[str], *, substring: bool) -> SqlCondition:
    if len(values) > MAX_VALUES:
        raise BadQuery(f"{key} is given more than {MAX_VALUES} times")
    if any("\0" in value for value in values):
        raise BadQuery(f"{key} contains a zero byte")
    if substring:
        # Of other texts only ASCII letters match in any case: that is what both databases can fold.
        searched = "name_folded" if column == "name" else f"lower({column})"
        parts = [fold(value) if column == "name" else _ascii_lower(value) for value in values]
        _, parameters = placeholders([f"%{escape_like(part)}%" for part in parts], f"f_{column}")
        return SqlCondition(
            _like(searched, parameters),
            parameters,
            name_parts=tuple(parts) if column == "name" else (),
            unindexed=_like(f"({searched} || '')", parameters),
        )
    _refuse_impossible(table, key, column, values)
    listed, given = placeholders([_parse_value(table, column, key, value) for value in values], f"f_{column}")
    return SqlCondition(
        f"{column} IN {listed}", given, column=column, unindexed=f"{_unindexed(table, column)} IN {listed}"
    )


def _like(searched: str, marks: Iterable[str]) -> str:
    return _either([f"{searched} LIKE :{mark} ESCAPE '!'" for mark in marks])


def _unindexed(table: Table[R], column: str) -> str:
    """The value of a column as an expression that no index fits."""
    return f"({column} || '')" if table.kinds[column] is ColumnKind.TEXT else f"({column} + 0)"


def _refuse_impossible(table: Table[R], key: str, column: str, values: list[str]) -> None:
    """A value that no row can have is a mistake, and an empty list would hide it."""
    choices = table.choices.get(column)
    old = OLD_VALUES.get((table.name, column), frozenset())
    for value in values:
        if choices is not None and value not in choices and value not in old:
            raise BadQuery(f"{key} must be one of {', '.join(choices)}{did_you_mean(value, choices)}")
        if column in table.ids and not is_uuid(value):
            raise BadQuery(f"{key} must be a uuid")


def _ascii_lower(text: str) -> str:
    return text.encode().lower().decode()


def escape_like(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _parse_value(table: Table[R], column: str, key: str, text: str) -> Value:
    kind = table.kinds[column]
    try:
        if kind is ColumnKind.TIME:
            return to_microseconds(parse_time(text))
        if kind is ColumnKind.INTEGER:
            number = int(text)
            if abs(number) > MAX_INTEGER:
                raise ValueError
            return number
        if kind is ColumnKind.REAL:
            return float(text)
    except (ValueError, OverflowError):
        raise BadQuery(f"{key} has the value '{text[:100]}', which is not {_IN_WORDS[kind]}") from None
    if kind is ColumnKind.BOOLEAN:
        if text not in ("true", "false"):
            raise BadQuery(f"{key} must be true or false")
        return int(text == "true")
    # Ids are stored in lower case.
    return text.lower() if column in table.ids else text


_IN_WORDS = {ColumnKind.TIME: "a time", ColumnKind.INTEGER: "an integer", ColumnKind.REAL: "a number"}


def parse_time(text: str) -> datetime:
    # The plus sign of a time zone may have been decoded to a space.
    time = datetime.fromisoformat(text.replace(" ", "+"))
    if time.year not in YEARS:
        raise ValueError("year out of range")
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _cursor(table: Table[R], sort: str, text: str) -> tuple[Value, str]:
    try:
        column, value, record_id = msgspec.json.decode(
            base64.urlsafe_b64decode(text.encode()), type=tuple[str, str | int | float | None, str]
        )
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BadQuery("after is not a cursor of this list") from None
    expected = str if table.kinds[sort] is ColumnKind.TEXT else int | float
    if column != sort or "\0" in record_id or not isinstance(value, expected) or "\0" in str(value):
        raise BadQuery("after is not a cursor of this list in this order")
    # Only a column of real numbers holds them, and none that is not finite.
    fits = abs(value) <= MAX_INTEGER if isinstance(value, int) else table.kinds[sort] is ColumnKind.REAL
    if not isinstance(value, str) and not (fits and isfinite(value)):
        raise BadQuery("after is not a cursor of this list in this order")
    return value, record_id


def _make_cursor(sort: str, row: Row) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((sort, row[sort], row["id"]))).decode()


def owned_by(relation: Relation, caller: Caller, offered_to_caller: str = "1 = 0") -> list[SqlCondition]:
    """The condition for the rows that a relation allows to the caller; `offered_to_caller` is the one of `offered`."""
    if relation.everything:
        return []
    parts: list[str] = []
    unindexed: list[str] = []
    parameters: dict[str, Value] = {}
    for column, whose in relation.owners:
        wanted = caller.id_of(whose)
        if wanted is not None:
            parameters[f"own_{whose}"] = wanted
            parts.append(f"{column} = :own_{whose}")
            unindexed.append(f"({column} || '') = :own_{whose}")
    if relation.offered is not None and caller.participant_id is not None:
        parameters["own_participant"] = caller.participant_id
        parts.append(f"({relation.offered} = 1 AND {offered_to_caller})")
        unindexed.append(parts[-1])
    if not parts:
        return [SqlCondition("1 = 0")]
    return [SqlCondition(_either(parts), parameters, tuple(parts), unindexed=_either(unindexed), finds_rows=True)]


def _either(parts: Sequence[str]) -> str:
    return f"({' OR '.join(parts)})"


def joined_conditions(conditions: Iterable[SqlCondition], *more: str) -> tuple[str, dict[str, Any]]:
    """All conditions as one, never empty, and their parameters. `more` are conditions without parameters."""
    given = list(conditions)
    parameters: dict[str, Value] = {}
    for condition in given:
        parameters |= condition.parameters
    return " AND ".join([*(condition.sql for condition in given), *more]) or "1 = 1", parameters


async def list_page(
    tx: Transaction,
    table: Table[R],
    listing: Listing,
    scope: Sequence[SqlCondition],
    *,
    source: str | None = None,
) -> Page[R] | CursorPage[R]:
    """One page of the rows that satisfy the scope and the filters. `source`: where to find them, instead of the table
    or its name index.

    The rows of a caller with a scope are found by the indexes of their owners: no list reads rows of others."""
    conditions = [*scope, *listing.conditions]
    _, parameters = joined_conditions(conditions)
    if source is None:
        source, conditions = await _source(tx, table, conditions, parameters)
    order = _order(listing)
    if listing.by_cursor:
        if listing.after is not None:
            parameters["after_value"], parameters["after_id"] = listing.after
        found = _walked(table, source, conditions, listing, listing.page_size + 1)
        rows = await tx.fetch(f"{found} {order} LIMIT {listing.page_size + 1}", slow=True, **parameters)
        return _cursor_page(table, listing, rows)
    total = await fetch_number(tx, _count(own_rows(table, source, conditions, "id")), slow=True, **parameters)
    start = (listing.page - 1) * listing.page_size
    # One row more than the page tells whether another page follows.
    ending = f"{order} LIMIT {listing.page_size + 1} OFFSET {start}"
    end = start + listing.page_size + 1
    if end <= MAX_WALKED:
        statement = f"SELECT * FROM ({_walked(table, source, conditions, listing, end)}) AS walked {ending}"
    else:
        ids = _walked(table, source, conditions, listing, end, columns=", ".join({"id": "", listing.sort: ""}))
        statement = (
            f"SELECT {table.select()} FROM {table.name} WHERE id IN"
            f" (SELECT id FROM ({ids}) AS walked {ending})"
            f" {_order(listing, _unindexed(table, listing.sort))}"
        )
    rows = await tx.fetch(statement, slow=True, **parameters)
    return page_of([table.decode(row) for row in rows], total, listing.page, listing.page_size)


def _count(found: str) -> str:
    return f"SELECT count(*) FROM (SELECT * FROM ({found}) AS found LIMIT {MAX_TOTAL + 1}) AS counted"


def page_of(found: list[T], total: int, page: int, page_size: int) -> Page[T]:
    """`found` has an item more than the page if another page follows; `total` is counted up to MAX_TOTAL + 1."""
    shown = min(total, MAX_TOTAL)
    return Page(
        found[:page_size],
        shown,
        -(-shown // page_size),
        page,
        has_next=len(found) > page_size,
        has_prev=page > 1 and total > 0,
        total_is_bounded=True if total > shown else msgspec.UNSET,
    )


async def _source(
    tx: Transaction, table: Table[R], conditions: list[SqlCondition], parameters: dict[str, Value]
) -> tuple[str, list[SqlCondition]]:
    """Where to find the rows, and the conditions on them."""
    scope = next((condition for condition in conditions if condition.finds_rows), None)
    for chosen in conditions:
        if chosen.column in table.single_owner and (
            scope is None or await _is_own(tx, table, chosen, scope, parameters)
        ):
            # Each value is read along its own index, like the rows of an owner.
            values = tuple(f"{chosen.column} = :{mark}" for mark in chosen.parameters)
            others = [SqlCondition(each.unindexed or each.sql) for each in conditions if each is not chosen]
            return table.name, [SqlCondition(chosen.sql, alternatives=values, finds_rows=True), *others]
    if scope is not None:
        return table.name, conditions
    return await _named_source(tx, table, conditions, parameters), conditions


async def _is_own(
    tx: Transaction,
    table: Table[R],
    condition: SqlCondition,
    scope: SqlCondition,
    parameters: Mapping[str, Value],
) -> bool:
    """Whether the caller owns the first row of each value of a filter, so that its index leads to own rows."""
    first = " UNION ALL ".join(
        f"SELECT * FROM (SELECT * FROM {table.name} WHERE {condition.column} = :{mark} LIMIT 1) AS first_{mark}"
        for mark in condition.parameters
    )
    used = {name: parameters[name] for name in (*condition.parameters, *scope.parameters)}
    foreign = f"SELECT count(*) - count(CASE WHEN {scope.sql} THEN 1 END) FROM ({first}) AS {table.name}"
    return not await fetch_number(tx, foreign, **used)  # type: ignore[arg-type]


async def _named_source(
    tx: Transaction, table: Table[R], conditions: Sequence[SqlCondition], parameters: dict[str, Value]
) -> str:
    """For a caller who may read every row: the table, or the rows that the name index finds, if these are few.

    If many names match, reading the table row by row finds a page sooner."""
    named = next((condition for condition in conditions if condition.name_parts), None)
    if named is None or not tx.asks_name_index or table.name_index is None:
        return table.name
    wanted = trigrams.expression(named.name_parts)
    if wanted is None:
        return table.name
    found = await trigrams.find(tx, table.name_index, wanted, named.sql, named.parameters)
    if found is None:
        return table.name
    # The index is queried once; count and page both use the result.
    parameters["found_by_name"] = found
    return (
        f"(SELECT {table.name}.* FROM json_each(:found_by_name) AS found CROSS JOIN {table.name}"
        f" ON {table.name}.id = found.value) AS {table.name}"
    )


def walk(
    table: Table[R], source: str, conditions: Sequence[SqlCondition], position: str, ending: str, *, columns: str = ""
) -> str:
    """Rows from a position on, unordered. Each alternative of a condition is read along its own index up to the limit
    in `ending`; UNION combines the results. `columns` "": all of the table."""
    selected = columns or table.select()
    ways: list[list[str]] = [[position]]
    for condition in conditions:
        ways = [[*way, each] for way in ways for each in condition.alternatives or (condition.sql,)]
    parts = [
        f"SELECT * FROM (SELECT {selected} FROM {source} WHERE {' AND '.join(way)} {ending}) AS part_{number}"
        for number, way in enumerate(ways)
    ]
    return " UNION ".join(parts)


def _ways(table: Table[R], conditions: Sequence[SqlCondition]) -> list[tuple[str | None, str]]:
    """The conditions once for each owner: (column of the owner, condition). None: for a caller who may read every row;
    "": the rows are found through other tables. An index of the owner and the column of a filter may be used."""
    ways: list[tuple[str | None, list[str]]] = [(None, [])]
    # The condition that finds rows is the first one.
    for condition in conditions:
        if condition.finds_rows:
            ways = [(_owner(each), [*way, each]) for _, way in ways for each in condition.alternatives]
        elif condition.alternatives and ways[0][0] is None:
            ways = [(None, [*way, each]) for _, way in ways for each in condition.alternatives]
        else:
            for owner, way in ways:
                indexed = owner is None or f"{owner} {condition.column}" in table.owner_indexes
                way.append(condition.sql if indexed else condition.unindexed or condition.sql)
    return [(owner, " AND ".join(way) or "1 = 1") for owner, way in ways]


def _owner(alternative: str) -> str:
    column, _, value = alternative.partition(" = :")
    return column if value.isidentifier() else ""


def own_rows(
    table: Table[R], source: str, conditions: Sequence[SqlCondition], columns: str, ending: str | None = None
) -> str:
    """Distinct values of these columns, found for each owner. `ending`: order and limit of each of these queries; None:
    up to one row more than a total may be."""
    parts = []
    for number, (owner, where) in enumerate(_ways(table, conditions)):
        # In the order of the index of the owner, so that statistics do not make the databases prefer another one.
        order = f"ORDER BY {table.order} " if owner is not None and table.is_ordered(owner, table.order) else ""
        counted = f"{order}LIMIT {MAX_TOTAL + 1}" if ending is None else ending
        parts.append(f"SELECT * FROM (SELECT {columns} FROM {source} WHERE {where} {counted}) AS part_{number}")
    return " UNION ".join(parts)


def _walked(
    table: Table[R],
    source: str,
    conditions: Sequence[SqlCondition],
    listing: Listing,
    limit: int,
    *,
    columns: str = "",
) -> str:
    """The first rows of each owner in the order of the list, unordered. `columns` "": all of the table."""
    parts = []
    for number, (owner, where) in enumerate(_ways(table, conditions)):
        # Any other order must not select an index of all rows.
        key = (
            listing.sort
            if owner is None or table.is_ordered(owner, listing.sort)
            else _unindexed(table, listing.sort)
        )
        position = f"{_position(listing, key)} AND " if listing.by_cursor else ""
        parts.append(
            f"SELECT * FROM (SELECT {columns or table.select()} FROM {source} WHERE {position}{where}"
            f" {_order(listing, key)} LIMIT {limit}) AS part_{number}"
        )
    return " UNION ".join(parts)


def _position(listing: Listing, key: str) -> str:
    # A row without a value has no position for a cursor.
    position = f"{listing.sort} IS NOT NULL"
    if listing.after is None:
        return position
    return f"{position} AND ({key}, id) {'<' if listing.descending else '>'} (:after_value, :after_id)"


# `sequence_number`: lists of events contain numbered ones only.
_NEVER_NULL = ("created_at", "id", "name", "status", "sequence_number")


def _order(listing: Listing, key: str = "") -> str:
    """`key`: the expression to sort by; "": the column."""
    direction = "DESC" if listing.descending else "ASC"
    # By default the databases sort NULL to different ends; by a cursor there are none.
    nullable = not listing.by_cursor and listing.sort not in _NEVER_NULL
    return (
        f"ORDER BY {f'{listing.sort} IS NULL, ' if nullable else ''}{key or listing.sort} {direction}, id {direction}"
    )


def _cursor_page(table: Table[R], listing: Listing, rows: Sequence[Row]) -> CursorPage[R]:
    shown = rows[: listing.page_size]
    more = len(rows) > len(shown)
    return CursorPage(
        [table.decode(row) for row in shown],
        has_next=more,
        next=_make_cursor(listing.sort, shown[-1]) if more else None,
    )

"""Metric types, metric entries and aggregates over a series."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mainstay.control.store.engine.contract import Transaction, Value, fetch_number
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.paging import MAX_TOTAL, SqlCondition, joined_conditions, own_rows
from mainstay.control.store.engine.records import ForeignId, Record, Table, to_microseconds, to_time
from mainstay.nouns.metric_types import NOUN

Aggregate = Literal["min", "max", "sum", "avg", "diff"]
MICROSECONDS = 1_000_000


@row_of(NOUN)
class MetricType(Record, frozen=True, kw_only=True):
    name: str
    entity_type: str


class MetricEntry(Record, frozen=True, kw_only=True):
    resource_id: ForeignId
    value: float
    type_id: str
    agent_id: str
    service_id: str
    provider_id: str
    consumer_id: str


METRIC_TYPES = Table("metric_types", "metric_type", MetricType)
METRIC_ENTRIES = Table("metric_entries", "metric_entry", MetricEntry, single_owner=("service_id", "agent_id"))

SERIES = (
    "service_id = :service_id AND resource_id = :resource_id AND type_id = :type_id"
    " AND created_at >= :start AND created_at < :end"
)


async def aggregate(
    tx: Transaction,
    series: tuple[str, str, str],
    kind: Aggregate,
    start: datetime,
    end: datetime,
    seconds: int | None,
) -> list[tuple[int, float]]:
    """(bucket number since 1970, value). Without `seconds` the whole range is bucket 0."""
    bucket = "0" if seconds is None else f"created_at / {seconds * MICROSECONDS}"
    service_id, resource_id, type_id = series
    parameters: dict[str, Value] = {
        "service_id": service_id,
        "resource_id": resource_id,
        "type_id": type_id,
        "start": to_microseconds(start),
        "end": to_microseconds(end),
    }
    if kind == "diff":
        # The last value minus the first, by time.
        statement = (
            "SELECT DISTINCT bucket, last_value - first_value AS value FROM (SELECT bucket,"
            " first_value(value) OVER (PARTITION BY bucket ORDER BY created_at, id) AS first_value,"
            " first_value(value) OVER (PARTITION BY bucket ORDER BY created_at DESC, id DESC) AS last_value"
            f" FROM (SELECT {bucket} AS bucket, value, created_at, id FROM metric_entries WHERE {SERIES}) AS entries"
            ") AS ends ORDER BY bucket"
        )
    else:
        statement = (
            f"SELECT {bucket} AS bucket, {kind}(value) AS value FROM metric_entries WHERE {SERIES}"
            " GROUP BY 1 ORDER BY 1"
        )
    rows = await tx.fetch(statement, slow=True, **parameters)
    return [(row["bucket"], row["value"]) for row in rows]


class RecentSeries(msgspec.Struct, frozen=True):
    resource_id: str
    type_name: str
    # (start of the interval, average)
    points: list[tuple[datetime, float]]


# The distinct series of a service, each found by one step along the index. A uuid has 36 characters.
_SERIES_OF_SERVICE = (
    "WITH RECURSIVE found (key, number) AS (SELECT (SELECT resource_id || '/' || type_id FROM metric_entries"
    " WHERE service_id = :service_id ORDER BY resource_id, type_id LIMIT 1), 1"
    " UNION ALL SELECT (SELECT resource_id || '/' || type_id FROM metric_entries WHERE service_id = :service_id"
    " AND (resource_id, type_id) > (substr(key, 1, length(key) - 37), substr(key, length(key) - 35))"
    " ORDER BY resource_id, type_id LIMIT 1), number + 1 FROM found WHERE key IS NOT NULL AND number < {limit}),"
    " series AS (SELECT substr(key, 1, length(key) - 37) AS resource_id, substr(key, length(key) - 35) AS type_id"
    " FROM found WHERE key IS NOT NULL)"
)


async def read_recent_series(
    tx: Transaction, service_id: str, since: datetime, seconds: int, limit: int
) -> list[RecentSeries]:
    """The first series of a service with entries since a time, averaged over intervals of `seconds`."""
    length = seconds * MICROSECONDS
    rows = await tx.fetch(
        f"{_SERIES_OF_SERVICE.format(limit=int(limit))} SELECT series.resource_id, metric_types.name AS type_name,"
        f" metric_entries.created_at / {length} AS interval_number, avg(metric_entries.value) AS value FROM series"
        " JOIN metric_types ON metric_types.id = series.type_id"
        " JOIN metric_entries ON metric_entries.service_id = :service_id"
        " AND metric_entries.resource_id = series.resource_id AND metric_entries.type_id = series.type_id"
        " AND metric_entries.created_at >= :since GROUP BY 1, 2, 3 ORDER BY 2, 1, 3",
        service_id=service_id,
        since=to_microseconds(since),
    )
    found: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
    for row in rows:
        point = to_time(row["interval_number"] * length), row["value"]
        found.setdefault((row["resource_id"], row["type_name"]), []).append(point)
    return [RecentSeries(resource_id, type_name, points) for (resource_id, type_name), points in found.items()]


async def resource_ids(tx: Transaction, scope: list[SqlCondition], limit: int, offset: int) -> tuple[list[str], int]:
    """`limit` of them, and how many there are, up to MAX_TOTAL + 1."""
    _, parameters = joined_conditions(scope)
    table, columns = METRIC_ENTRIES, "DISTINCT resource_id"
    counted = own_rows(table, table.name, scope, columns, f"LIMIT {MAX_TOTAL + 1}")
    total = await fetch_number(tx, f"SELECT count(*) FROM ({counted}) AS counted", slow=True, **parameters)
    found = own_rows(table, table.name, scope, columns, f"ORDER BY resource_id LIMIT {int(limit) + int(offset)}")
    rows = await tx.fetch(
        f"{found} ORDER BY resource_id LIMIT {int(limit)} OFFSET {int(offset)}", slow=True, **parameters
    )
    return [row["resource_id"] for row in rows], total

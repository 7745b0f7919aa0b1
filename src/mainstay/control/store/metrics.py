"""Metric types, metric entries and aggregates over a series."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mainstay.control.store.engine.contract import Transaction, Value
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import ForeignId, Record, Table, to_microseconds

EntityType = Literal["Agent", "Service", "Resource"]
Aggregate = Literal["min", "max", "sum", "avg", "diff"]
MICROSECONDS = 1_000_000


class MetricType(Record, frozen=True, kw_only=True):
    name: str
    entity_type: EntityType


class MetricEntry(Record, frozen=True, kw_only=True):
    resource_id: ForeignId
    value: float
    type_id: str
    agent_id: str
    service_id: str
    provider_id: str
    consumer_id: str


METRIC_TYPES = Table("metric_types", "metric_type", MetricType)
METRIC_ENTRIES = Table("metric_entries", "metric_entry", MetricEntry)

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
    return [(int(str(row["bucket"])), float(str(row["value"]))) for row in rows]


async def resource_ids(tx: Transaction, scope: list[SqlCondition], limit: int, offset: int) -> tuple[list[str], int]:
    parameters: dict[str, Value] = {}
    for condition in scope:
        parameters |= condition.parameters
    where = " AND ".join(condition.sql for condition in scope) or "1 = 1"
    counted = await tx.fetch(
        f"SELECT count(DISTINCT resource_id) AS total FROM metric_entries WHERE {where}",
        slow=True,
        **parameters,
    )
    rows = await tx.fetch(
        f"SELECT DISTINCT resource_id FROM metric_entries WHERE {where} ORDER BY resource_id"
        f" LIMIT {int(limit)} OFFSET {int(offset)}",
        slow=True,
        **parameters,
    )
    return [str(row["resource_id"]) for row in rows], int(str(counted[0]["total"]))

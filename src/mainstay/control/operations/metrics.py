"""Metrics: reported by agents for their services, read as entries or aggregated over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from mainstay.control.operations.machinery.bodies import AgentProtocolBody, Id, ShortText
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.plain_nouns import PlainNoun
from mainstay.control.operations.machinery.refusals import BadInput, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store import metrics as store
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.paging import Page, SqlCondition, page_of
from mainstay.control.store.metrics import METRIC_ENTRIES, METRIC_TYPES, Aggregate, MetricEntry
from mainstay.control.store.services import SERVICES, ServiceRow, find_instance
from mainstay.nouns.metric_types import NOUN

# A sum over a series must stay a finite number, even a sum of squares, which a database may compute.
MAX_VALUE = 1e140
Bucket = Literal["minute", "hour", "day", "month"]
SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
RANGES = {
    "minute": timedelta(hours=24),
    "hour": timedelta(days=7),
    "day": timedelta(days=90),
    "month": timedelta(days=366),
}
RANGE_WORDS = {"minute": "24 hours", "hour": "7 days", "day": "90 days", "month": "a year"}


class NewMetricEntry(AgentProtocolBody, frozen=True, kw_only=True):
    resource_id: ShortText
    type_name: ShortText
    value: float
    service_id: Id | None = None
    agent_instance_id: ShortText | None = None


class Series(msgspec.Struct, frozen=True):
    data: list[tuple[datetime, float]]
    aggregate: Aggregate
    bucket: Bucket
    start: datetime
    end: datetime


class MetricEntryView(MetricEntry, frozen=True, kw_only=True):
    agent: Named | None
    service: Named | None
    type: Named | None


ENTRY_NAMES = EmbeddedNames(
    METRIC_ENTRIES,
    MetricEntryView,
    {
        "agent": RelatedRow("agent_id", AGENTS),
        "service": RelatedRow("service_id", SERVICES),
        "type": RelatedRow("type_id", METRIC_TYPES),
    },
)
TYPES = PlainNoun(NOUN, METRIC_TYPES, {"metricEntries": ("metric_entries", "type_id")})


async def add(work: UnitOfWork, wanted: NewMetricEntry) -> MetricEntry:
    service = await _service(work, wanted)
    metric_type = await METRIC_TYPES.find_by(work.tx, "name", wanted.type_name)
    if metric_type is None:
        raise BadInput(f"there is no metric type {wanted.type_name}")
    if not abs(wanted.value) <= MAX_VALUE:
        raise BadInput(f"value must be a number from -{MAX_VALUE:g} to {MAX_VALUE:g}")
    entry = MetricEntry(
        **work.new_record(),
        resource_id=wanted.resource_id,
        value=wanted.value,
        type_id=metric_type.id,
        agent_id=service.agent_id,
        service_id=service.id,
        provider_id=service.provider_id,
        consumer_id=service.consumer_id,
    )
    # No event: the entry itself is the record.
    await METRIC_ENTRIES.insert(work.tx, entry)
    return entry


async def _service(work: UnitOfWork, wanted: NewMetricEntry) -> ServiceRow:
    agent_id = str(work.required_caller.agent_id)
    if wanted.service_id is not None:
        service = await SERVICES.find(work.tx, wanted.service_id.lower())
        if service is None or service.agent_id != agent_id:
            raise NotPermitted("the service must be served by you")
        return service
    if wanted.agent_instance_id is None:
        raise BadInput("serviceId or agentInstanceId is required")
    service = await find_instance(work.tx, agent_id, wanted.agent_instance_id)
    if service is None:
        raise BadInput(f"you have no service with the instance id {wanted.agent_instance_id}")
    return service


async def resource_ids(work: UnitOfWork, page: int, page_size: int, filters: list[SqlCondition]) -> Page[str]:
    scope = [*work.scope("metric_entry"), *filters]
    items, total = await store.resource_ids(work.tx, scope, page_size + 1, (page - 1) * page_size)
    return page_of(items, total, page, page_size)


async def aggregate(
    work: UnitOfWork,
    series: tuple[str, str, str],
    kind: Aggregate,
    bucket: Bucket,
    start: datetime | None,
    end: datetime | None,
) -> Series:
    end = end or work.now
    start = start or end - RANGES[bucket]
    if start >= end:
        raise BadInput("start must be before end", code="bad_query")
    if end - start > RANGES[bucket]:
        raise BadInput(
            f"with bucket={bucket} the time from start to end must not exceed {RANGE_WORDS[bucket]}", code="bad_query"
        )
    found: list[tuple[datetime, float]] = []
    if bucket == "month":
        for first, following in _months(start, end):
            values = await store.aggregate(work.tx, series, kind, max(first, start), min(following, end), None)
            found += [(first, value) for _, value in values]
    else:
        length = SECONDS[bucket]
        for number, value in await store.aggregate(work.tx, series, kind, start, end, length):
            found.append((datetime.fromtimestamp(number * length, UTC), value))
    return Series(found, kind, bucket, start, end)


def _months(start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    first = start.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = []
    while first < end:
        following = (first + timedelta(days=32)).replace(day=1)
        found.append((first, following))
        first = following
    return found

"""Metric types, metric entries and their aggregates."""

from __future__ import annotations

from typing import get_args

from mainstay.control.api.contract import TIME, Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.nouns import create_endpoint, list_endpoint, plain_endpoints
from mainstay.control.operations import metrics
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.metrics import Bucket, NewMetricEntry, Series
from mainstay.control.store.engine.paging import Page, parse_listing
from mainstay.control.store.metrics import METRIC_ENTRIES, Aggregate

PATH = "/api/v1/metric-entries"
SUBSTRINGS = frozenset({"resource_id"})


async def _list_resource_ids(call: Call) -> Answer:
    listing = parse_listing(METRIC_ENTRIES, call.query, substrings=SUBSTRINGS)
    async with call.reading() as work:
        return Answer(await metrics.resource_ids(work, listing.page, listing.page_size, list(listing.conditions)))


def _choice(call: Call, name: str, choices: tuple[str, ...], default: str) -> str:
    value = call.last(name) or default
    if value not in choices:
        raise BadInput(f"{name} must be one of {', '.join(choices)}", code="bad_query")
    return value


async def _aggregate(call: Call) -> Answer:
    from mainstay.control.store.services import SERVICES

    kind = _choice(call, "aggregateType", get_args(Aggregate), "min")
    bucket = _choice(call, "bucket", get_args(Bucket), "hour")
    start, end = call.time("start"), call.time("end")
    async with call.reading() as work:
        service = await work.find(SERVICES, call.path["serviceId"])
        series = (service.id, call.path["resourceId"], call.path["typeId"].lower())
        return Answer(await metrics.aggregate(work, series, kind, bucket, start, end))  # type: ignore[arg-type]


ENDPOINTS = (
    *plain_endpoints(metrics.TYPES),
    list_endpoint(PATH, METRIC_ENTRIES, plural="metric entries", substrings=SUBSTRINGS, names=metrics.ENTRY_NAMES),
    create_endpoint(PATH, METRIC_ENTRIES, NewMetricEntry, metrics.add, names=metrics.ENTRY_NAMES),
    Endpoint(
        method="GET",
        path=f"{PATH}/resource-ids",
        act=_list_resource_ids,
        access=("metric_entry", "read"),
        summary="List the resource ids of metric entries",
        answer=Page[str],
        query=tuple(
            QueryParameter(name, "Filters or pages the list")
            for name in ("page", "pageSize", "serviceId", "agentId", "typeId", "resourceId")
        ),
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/aggregate/{{serviceId}}/{{resourceId}}/{{typeId}}",
        act=_aggregate,
        access=("metric_entry", "read"),
        summary="Aggregate a series over time",
        answer=Series,
        query=(
            QueryParameter("aggregateType", "Aggregate function", {"enum": list(get_args(Aggregate))}),
            QueryParameter("bucket", "Length of a bucket", {"enum": list(get_args(Bucket))}),
            QueryParameter("start", "Start, inclusive", TIME),
            QueryParameter("end", "End, exclusive", TIME),
        ),
        refusals=(400, 404),
    ),
)

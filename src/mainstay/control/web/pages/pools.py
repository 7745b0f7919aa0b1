"""Pools: a picture of free and used values, the holder of each value, and values to add and remove."""

from __future__ import annotations

from typing import Any

from mainstay.control.operations.machinery.pool_allocation import capacity, parse_subnet
from mainstay.control.store.service_pools import ServicePoolValue, count_many, values_with_holders
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.declared_pages import declared_pages, form_fields
from mainstay.control.web.drawings.numbers import MAX_CELLS
from mainstay.control.web.noun_pages import NounField, Row, may, noun_pages
from mainstay.control.web.pool_pages import PoolPages, ShownPool
from mainstay.control.web.views.pools import HeldValue, PoolPicture, list_cells, picture_of, subnet_cells, value_text
from mainstay.nouns.service_pools import NOUN

API = "/api/v1/service-pools"
VALUES = "/api/v1/service-pool-values"
PAGE_SIZE = "12"
# Cells of a pool in the list; the page of a pool draws more.
LISTED_CELLS = 256
FOUND = "20"
SHOWN_VALUES = "50"


def _held(value: ServicePoolValue, holder: str) -> HeldValue:
    href = f"/services/{value.service_id}" if value.service_id else ""
    return HeldValue(value.id, value_text(value.value), holder, href)


async def _pictures(call: PageCall, pools: list[Any], most_cells: int, ringed: str | None) -> dict[str, PoolPicture]:
    async with call.reading() as work:
        counts = await count_many(work.tx, [pool["id"] for pool in pools])
        drawn = [pool["id"] for pool in pools if _size(pool, counts)[0] <= most_cells]
        rows = await values_with_holders(work.tx, drawn, most_cells * max(1, len(drawn)))
    held: dict[str, list[HeldValue]] = {}
    for value, holder in rows:
        held.setdefault(value.service_pool_id, []).append(_held(value, holder))
    pictures = {}
    for pool in pools:
        cells = None
        if pool["id"] in drawn:
            values = held.get(pool["id"], [])
            is_subnet = pool["generatorType"] == "subnet"
            cells = subnet_cells(parse_subnet(pool["generatorConfig"]), values) if is_subnet else list_cells(values)
        pictures[pool["id"]] = picture_of(pool["name"], *_size(pool, counts), cells, ringed=ringed)
    return pictures


def _size(pool: Row, counts: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """(total, used)"""
    stored, used = counts.get(pool["id"], (0, 0))
    return capacity(pool["generatorType"], pool["generatorConfig"], stored), used


async def _list(call: PageCall) -> PageAnswer:
    wanted, after, value = call.asked("set"), call.asked("after"), call.asked("value").strip()
    query = [("servicePoolSetId", wanted), ("sort", "name"), ("pageSize", PAGE_SIZE), ("after", after)]
    page = await call.api("GET", API, query=query)
    found = None
    if value:
        found = (await call.api("GET", VALUES, query=[("name", value), ("pageSize", FOUND), ("after", "")]))["items"]
    values = {
        "pools": page["items"],
        "pictures": await _pictures(call, page["items"], LISTED_CELLS, value or None),
        "older": page.get("next"),
        "after": after,
        "set": wanted,
        "value": value,
        "found": found,
        "value_text": value_text,
        "may_create": may(call, "service_pool"),
    }
    return PageAnswer("pools.html", values)


async def _read(call: PageCall, pool: Row) -> ShownPool:
    query = [("servicePoolId", pool["id"]), ("sort", "createdAt"), ("pageSize", SHOWN_VALUES)]
    page = await call.api("GET", VALUES, query=[*query, ("after", call.asked("after"))])
    values = [
        HeldValue(
            each["id"],
            value_text(each["value"]),
            each["service"]["name"] if each["service"] else "",
            f"/services/{each['serviceId']}",
            each.get("propertyName"),
            each.get("allocatedAt"),
        )
        for each in page["items"]
    ]
    pictures = await _pictures(call, [pool], MAX_CELLS, call.asked("value") or None)
    scope = ("Set", pool.get("servicePoolSetName") or "", f"/pools?set={pool['servicePoolSetId']}")
    return ShownPool(pictures[pool["id"]], scope, values, page.get("next"))


async def _fields(call: PageCall, row: Row | None) -> list[NounField]:
    fields = await form_fields(NOUN, call, row)
    has_configuration = row is None or row["generatorType"] == "subnet"
    return [each for each in fields if has_configuration or each.name != "generatorConfig"]


def _effects(row: Row) -> list[str]:
    return [f"{row['name']} and its free values are deleted. While a service has a value of it, this is refused."]


_PAGES = declared_pages(
    NOUN,
    "/pools",
    explanation="",
    fields=_fields,
    effects=_effects,
    detail=True,
    new_explanation="Values are added on the page of the pool.",
)
PAGES = (
    *(page for page in noun_pages(_PAGES) if page.path != "/pools"),
    WebPage(
        method="GET",
        path="/pools",
        act=_list,
        access=("service_pool", "read"),
        navigation=NavigationEntry("Pools", "i-pool", 2, "Estate", "provider"),
    ),
    *PoolPages(_PAGES, "service", _read).pages(),
)

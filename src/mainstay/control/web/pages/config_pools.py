"""Config pools: values that agents get for their configuration. Global ones are the admins'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstay.control.store.config_pools import count_values, values_with_holders
from mainstay.control.web.contract import PageCall
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.drawings.numbers import MAX_CELLS
from mainstay.control.web.noun_pages import Row, TableColumn, noun_pages, own_member
from mainstay.control.web.pool_pages import PoolPages, ShownPool
from mainstay.control.web.views.pools import HeldValue, list_cells, picture_of, value_text
from mainstay.nouns.config_pools import NOUN


async def _read(call: PageCall, pool: Row) -> ShownPool:
    async with call.reading() as work:
        total, used = await count_values(work.tx, pool["id"])
        stored = await values_with_holders(work.tx, pool["id"], MAX_CELLS)
    values = [
        HeldValue(
            value.id,
            value_text(value.value),
            holder,
            f"/agents/{value.agent_id}" if holder else "",
            value.property_name,
            value.allocated_at,
        )
        for value, holder in stored
    ]
    picture = picture_of(pool["name"], total, used, list_cells(values) if total <= MAX_CELLS else None)
    return ShownPool(picture, ("Owner", "global" if pool.get("participantId") is None else "participant", ""), values)


def _fixed(call: PageCall) -> Mapping[str, Any]:
    return {"generatorType": "list", **own_member(call, "participantId")}


_PAGES = declared_pages(
    NOUN,
    "/config-pools",
    explanation="Values that each agent gets once for its configuration, such as ports or node numbers.",
    columns={
        "participantId": TableColumn(
            "Owner", lambda row: "global" if row.get("participantId") is None else "participant"
        )
    },
    effects=lambda row: [
        f"{row['name']} and its free values are deleted. While an agent has a value of it, this is refused."
    ],
    detail=True,
    fixed=_fixed,
    related=(("/pools", "Pools"),),
)
PAGES = (*noun_pages(_PAGES), *PoolPages(_PAGES, "agent", _read).pages())

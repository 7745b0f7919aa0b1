"""Config pools: values that agents get for their configuration. Global ones are the admins'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstay.control.store.config_pools import count_values, values_with_holders
from mainstay.control.web.contract import PageAnswer, PageCall, WebPage
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.drawings.pool_cells import MAX_CELLS
from mainstay.control.web.noun_pages import (
    Confirmation,
    ConfirmedRequest,
    TableColumn,
    confirmed_pages,
    may_row,
    noun_pages,
    own_member,
)
from mainstay.control.web.views.pools import AddedValues, HeldValue, add_values, list_cells, picture_of, value_text
from mainstay.nouns.config_pools import NOUN

API = "/api/v1/config-pools"
VALUES = "/api/v1/config-pool-values"


async def _page(call: PageCall, added: AddedValues | None = None) -> PageAnswer:
    pool = await call.api("GET", f"{API}/{call.path['id']}")
    async with call.reading() as work:
        total, used = await count_values(work.tx, pool["id"])
        rows = await values_with_holders(work.tx, pool["id"], MAX_CELLS)
    held = [
        HeldValue(value.id, value_text(value.value), holder, f"/agents/{value.agent_id}" if holder else "")
        for value, holder in rows
    ]
    may_write = may_row(call, "config_pool", pool)
    values = {
        "pool": pool,
        "picture": picture_of(pool["name"], total, used, list_cells(held) if total <= MAX_CELLS else None),
        "scope": ("Owner", "global" if pool.get("participantId") is None else "participant", ""),
        "rows": [
            {
                "id": value.id,
                "text": each.text,
                "holder": each.holder,
                "href": each.href,
                "property": value.property_name,
                "since": value.allocated_at,
            }
            for (value, _), each in zip(rows, held, strict=True)
        ],
        "holder_word": "Agent",
        "older": None,
        "after": "",
        "base": f"/config-pools/{pool['id']}",
        "values_base": "/config-pool-values",
        "crumbs": [("/config-pools", "Config pools")],
        "is_list": True,
        "may_write": may_write,
        "may_add": may_write,
        "added": added,
        "topics": "config_pool config_pool_value agent",
    }
    return PageAnswer("pool.html", values, status=400 if added is not None and added.refused else 200)


async def _add(call: PageCall) -> PageAnswer:
    pool = await call.api("GET", f"{API}/{call.path['id']}")
    added = await add_values(call, VALUES, pool, "configPoolId")
    if added.refused:
        return await _page(call, added)
    return PageAnswer(
        redirect=f"/config-pools/{pool['id']}", notice=f"{added.added} values are added to {pool['name']}"
    )


async def _confirm_removal(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    value = await call.api("GET", f"{VALUES}/{call.path['id']}")
    effects = [f"{value['name']} leaves its pool. While an agent has it, this is refused."]
    page = f"/config-pools/{value['configPoolId']}"
    crumbs = [("/config-pools", "Config pools"), (page, "Pool")]
    request = ConfirmedRequest("DELETE", f"{VALUES}/{value['id']}", page, f"{value['name']} is removed")
    return Confirmation(f"Remove {value['name']}", "Remove the value", effects, crumbs), request


def _fixed(call: PageCall) -> Mapping[str, Any]:
    return {"generatorType": "list", **own_member(call, "participantId")}


WRITE = ("config_pool_value", "write")
PAGES = (
    *noun_pages(
        declared_pages(
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
    ),
    WebPage(method="GET", path="/config-pools/{id}", act=_page, access=("config_pool", "read")),
    WebPage(method="POST", path="/config-pools/{id}", act=_add, access=WRITE),
    *confirmed_pages("/config-pool-values/{id}/delete", WRITE, _confirm_removal),
)

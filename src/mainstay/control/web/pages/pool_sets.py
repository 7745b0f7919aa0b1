"""Pool sets: the pools that an agent takes values from."""

from __future__ import annotations

from mainstay.control.web.contract import PageCall
from mainstay.control.web.noun_pages import (
    NounField,
    NounPages,
    Row,
    TableColumn,
    noun_pages,
    own_member,
    owner_field,
)


async def _fields(call: PageCall, row: Row | None) -> list[NounField]:
    fields = [NounField("name", "Name", required=True)]
    if row is None:
        fields += await owner_field(call, "providerId", "Provider")
    return fields


def _effects(row: Row) -> list[str]:
    return [f"{row['name']} is deleted. While it has pools, or an agent uses it, this is refused."]


PAGES = noun_pages(
    NounPages(
        noun="service_pool_set",
        word="pool set",
        plural="pool sets",
        path="/pool-sets",
        api="/api/v1/service-pool-sets",
        explanation="Each agent takes values from the pools of one set.",
        columns=(
            TableColumn("Name", lambda row: row["name"]),
            TableColumn("Pools", lambda row: (f"/pools?set={row['id']}", "Show"), "link", "tight"),
            TableColumn("Provider", lambda row: (row["provider"] or {}).get("name"), style="c2"),
            TableColumn("Created", lambda row: row["createdAt"], "time", "c-narrow-hide"),
        ),
        fields=_fields,
        effects=_effects,
        topics="service_pool_set",
        fixed=lambda call: own_member(call, "providerId"),
        related=(("/pools", "Pools"),),
    )
)

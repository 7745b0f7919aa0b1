"""Service groups: how a consumer groups its services. Jobs of one group run one after the other on an agent."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry, PageCall
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
        fields += await owner_field(call, "consumerId", "Consumer")
    return fields


def _effects(row: Row) -> list[str]:
    return [
        f"{row['name']} is deleted, with its services that have ended.",
        "While a service in it lives, or a clean-up of one is owed, this is refused.",
    ]


PAGES = noun_pages(
    NounPages(
        noun="service_group",
        word="group",
        plural="groups",
        path="/groups",
        api="/api/v1/service-groups",
        explanation="Services of a consumer that belong together. On an agent their jobs run one after the other.",
        columns=(
            TableColumn("Name", lambda row: row["name"]),
            TableColumn("Services", lambda row: (f"/services?groupId={row['id']}", "Show"), "link", "tight"),
            TableColumn("Consumer", lambda row: (row["consumer"] or {}).get("name"), style="c2"),
            TableColumn("Created", lambda row: row["createdAt"], "time", "c-narrow-hide"),
        ),
        fields=_fields,
        effects=_effects,
        navigation=NavigationEntry("Groups", "i-box", 3, "Access"),
        topics="service_group",
        fixed=lambda call: own_member(call, "consumerId"),
        filters=("consumerId",),
    )
)

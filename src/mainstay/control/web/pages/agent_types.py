"""Agent types: which service types an agent can serve, which providers serve others, and how agents are configured."""

from __future__ import annotations

from typing import Any

from mainstay.control.store.agent_types import served_names
from mainstay.control.web.contract import PageCall
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import TableColumn, noun_pages
from mainstay.nouns.agent_types import NOUN


async def _complete(call: PageCall, rows: list[Any]) -> list[Any]:
    async with call.reading() as work:
        names = await served_names(work.tx, [row["id"] for row in rows])
    return [{**row, "serves": names.get(row["id"], [])} for row in rows]


PAGES = noun_pages(
    declared_pages(
        NOUN,
        "/agent-types",
        explanation="What an agent of a type serves, and which providers may serve other participants with it.",
        columns={
            "serviceTypeIds": TableColumn("Serves", lambda row: row["serves"][:8], "chips"),
            "providerIds": TableColumn("Providers", lambda row: len(row["providerIds"]), "number", "c2"),
        },
        effects=lambda row: [f"{row['name']} is deleted. While an agent has this type, this is refused."],
        topics="agent_type service_type",
        complete=_complete,
        related=(("/agents", "Agents"),),
    )
)

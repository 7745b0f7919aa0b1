"""Agent types: which service types an agent can serve, which providers serve others, and how agents are configured."""

from __future__ import annotations

from typing import Any

from mainstay.control.store.agent_types import served_names
from mainstay.control.web.contract import PageCall
from mainstay.control.web.noun_pages import NounField, NounPages, Row, TableColumn, choices_field, noun_pages


async def _fields(call: PageCall, _row: Row | None) -> list[NounField]:
    serves = await choices_field(call, "serviceTypeIds", "Serves", "/api/v1/service-types")
    providers = await choices_field(
        call,
        "providerIds",
        "Providers that may serve other participants",
        "/api/v1/participants",
        "Agents of other providers serve their own participant only.",
    )
    return [
        NounField("name", "Name", required=True),
        serves,
        providers,
        NounField(
            "configurationSchema", "Schema of the configuration", "document", "JSON or YAML, as a property schema."
        ),
        NounField(
            "cmdTemplate",
            "Template of the install command",
            "long",
            "For agents that are not Mainstay’s. Contains {{.configUrl}} and {{.authToken}}.",
            lines=2,
        ),
        NounField("configTemplate", "Template of the configuration file", "long"),
        NounField("configContentType", "Content type of the configuration file", "code", "Such as application/yaml."),
    ]


def _effects(row: Row) -> list[str]:
    return [f"{row['name']} is deleted. While an agent has this type, this is refused."]


async def _complete(call: PageCall, rows: list[Any]) -> list[Any]:
    async with call.reading() as work:
        names = await served_names(work.tx, [row["id"] for row in rows])
    return [{**row, "serves": names.get(row["id"], [])} for row in rows]


PAGES = noun_pages(
    NounPages(
        noun="agent_type",
        word="agent type",
        plural="agent types",
        path="/agent-types",
        api="/api/v1/agent-types",
        explanation="What an agent of a type serves, and which providers may serve other participants with it.",
        columns=(
            TableColumn("Name", lambda row: row["name"]),
            TableColumn("Serves", lambda row: row["serves"][:8], "chips"),
            TableColumn("Providers", lambda row: len(row["providerIds"]), "number", "c2"),
            TableColumn("Created", lambda row: row["createdAt"], "time", "c-narrow-hide"),
        ),
        fields=_fields,
        effects=_effects,
        topics="agent_type service_type",
        complete=_complete,
        related=(("/agents", "Agents"),),
    )
)

"""Metric types: the kinds of measurements that agents report."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry, PageCall
from mainstay.control.web.noun_pages import NounField, NounPages, Row, TableColumn, noun_pages

ENTITY = NounField(
    "entityType",
    "Measures",
    "choice",
    required=True,
    choices=(("Service", "a service"), ("Agent", "an agent"), ("Resource", "a resource of a service")),
)


async def _fields(_call: PageCall, row: Row | None) -> list[NounField]:
    name = NounField("name", "Name", hint="Agents report measurements by this name.", required=True)
    return [name, ENTITY] if row is None else [name]


def _effects(row: Row) -> list[str]:
    return [f"{row['name']} is deleted. While measurements of it are stored, this is refused."]


PAGES = noun_pages(
    NounPages(
        noun="metric_type",
        word="metric type",
        plural="metric types",
        path="/metric-types",
        api="/api/v1/metric-types",
        explanation="The kinds of measurements that agents report about services.",
        columns=(
            TableColumn("Name", lambda row: row["name"]),
            TableColumn("Measures", lambda row: row["entityType"]),
            TableColumn("Created", lambda row: row["createdAt"], "time", "c-narrow-hide"),
        ),
        fields=_fields,
        effects=_effects,
        navigation=NavigationEntry("Metric types", "i-event", 4, "Catalogue"),
        topics="metric_type",
    )
)

"""Service options: an admin defines the types, each provider the values that consumers may choose."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.noun_pages import (
    NounField,
    NounPages,
    Row,
    TableColumn,
    may,
    may_row,
    names_of,
    noun_pages,
    own_member,
    owner_field,
    reference_field,
)
from mainstay.control.web.views.pools import value_text

TYPES = "/api/v1/service-option-types"
API = "/api/v1/service-options"
PAGE_SIZE = "100"


async def _type_fields(_call: PageCall, _row: Row | None) -> list[NounField]:
    return [
        NounField("name", "Name", required=True),
        NounField(
            "type", "Type", "code", "Letters, digits and underscores. Schemas name it: serviceOption.", required=True
        ),
        NounField("description", "Description", "long", lines=3),
    ]


def _type_effects(row: Row) -> list[str]:
    return [f"{row['name']} is deleted. While it has options, this is refused."]


async def _fields(call: PageCall, row: Row | None) -> list[NounField]:
    fields = [NounField("name", "Name", hint="What a consumer reads.", required=True)]
    if row is None:
        fields.append(await reference_field(call, "serviceOptionTypeId", "Option type", TYPES, required=True))
        fields += await owner_field(call, "providerId", "Provider")
    return [
        *fields,
        NounField("value", "Value", "document", "JSON or YAML: a text, a number, a map.", required=True, lines=2),
        NounField("displayOrder", "Position", "number", "Lower numbers come first.", default="0"),
        NounField("enabled", "Offered to consumers", "flag", default="true"),
    ]


def _effects(row: Row) -> list[str]:
    return [f"{row['name']} is no longer offered. Services that have it keep the value."]


async def _show_type(call: PageCall) -> PageAnswer:
    option_type = await call.api("GET", f"{TYPES}/{call.path['id']}")
    after = call.asked("after")
    query = [
        ("serviceOptionTypeId", option_type["id"]),
        ("sort", "displayOrder"),
        ("pageSize", PAGE_SIZE),
        ("after", after),
    ]
    page = await call.api("GET", API, query=query)
    # Others do not see the names of providers.
    names = await names_of(call, "/api/v1/participants", [row["providerId"] for row in page["items"]])
    options = [
        {
            **row,
            "text": value_text(row["value"]),
            "provider": names.get(row["providerId"], ""),
            "href": f"/options/{row['id']}/edit" if may_row(call, "service_option", row) else "",
        }
        for row in page["items"]
    ]
    values = {
        "option_type": option_type,
        "options": options,
        "older": page.get("next"),
        "after": after,
        "may_write_type": may(call, "service_option_type"),
        "may_create": may(call, "service_option"),
    }
    return PageAnswer("option_type.html", values)


PAGES = (
    *noun_pages(
        NounPages(
            noun="service_option_type",
            word="option type",
            plural="options",
            path="/option-types",
            api=TYPES,
            explanation="Values that providers offer for a property, such as sizes or regions, by type.",
            columns=(
                TableColumn("Option type", lambda row: row["name"]),
                TableColumn("Type", lambda row: row["type"], "code"),
                TableColumn("Description", lambda row: row["description"][:200], style="c2 soft"),
            ),
            fields=_type_fields,
            effects=_type_effects,
            navigation=NavigationEntry("Options", "i-opts", 2, "Catalogue"),
            topics="service_option_type",
            detail=True,
        )
    ),
    WebPage(method="GET", path="/option-types/{id}", act=_show_type, access=("service_option_type", "read")),
    *noun_pages(
        NounPages(
            noun="service_option",
            word="option",
            plural="all options",
            path="/options",
            api=API,
            explanation="The options of all types.",
            columns=(
                TableColumn("Name", lambda row: row["name"]),
                TableColumn("Value", lambda row: value_text(row["value"]), "code"),
                TableColumn(
                    "Offered", lambda row: ("up", "Offered") if row["enabled"] else ("rest", "Disabled"), "state"
                ),
            ),
            fields=_fields,
            effects=_effects,
            topics="service_option",
            home=lambda row: f"/option-types/{row['serviceOptionTypeId']}",
            fixed=lambda call: own_member(call, "providerId"),
            related=(("/option-types", "Option types"),),
        )
    ),
)

"""Service options: an admin defines the types, each provider the values that consumers may choose."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import TableColumn, may, may_row, names_of, noun_pages
from mainstay.control.web.views.pools import value_text
from mainstay.nouns import service_option_types, service_options

TYPES = "/api/v1/service-option-types"
API = "/api/v1/service-options"
PAGE_SIZE = "100"


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
        declared_pages(
            service_option_types.NOUN,
            "/option-types",
            plural="options",
            explanation="Values that providers offer for a property, such as sizes or regions, by type.",
            columns={"name": TableColumn("Option type", lambda row: row["name"])},
            effects=lambda row: [f"{row['name']} is deleted. While it has options, this is refused."],
            navigation=NavigationEntry("Options", "i-opts", 2, "Catalogue"),
            detail=True,
        )
    ),
    WebPage(method="GET", path="/option-types/{id}", act=_show_type, access=("service_option_type", "read")),
    *noun_pages(
        declared_pages(
            service_options.NOUN,
            "/options",
            plural="all options",
            explanation="The options of all types.",
            # Others do not see the names of providers.
            columns={"serviceOptionTypeId": None, "providerId": None},
            effects=lambda row: [f"{row['name']} is no longer offered. Services that have it keep the value."],
            home=lambda row: f"/option-types/{row['serviceOptionTypeId']}",
            related=(("/option-types", "Option types"),),
        )
    ),
)

"""The list of services: search, filters and pages by cursor, all in the URL."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage

PAGE_SIZE = "50"


async def _show(call: PageCall) -> PageAnswer:
    query = [
        ("name", call.asked("name")),
        ("after", call.asked("after")),
        ("sort", "-createdAt"),
        ("pageSize", PAGE_SIZE),
    ]
    page = await call.api("GET", "/api/v1/services", query=query)
    return PageAnswer("services.html", {"page": page, "name": call.asked("name"), "after": call.asked("after")})


PAGES = (
    WebPage(
        method="GET",
        path="/services",
        act=_show,
        access=("service", "read"),
        navigation=NavigationEntry("Services", "i-box", 2),
    ),
)

"""The overview: what needs attention, what is going on, everything else. Programs get the addresses of the API."""

from __future__ import annotations

from mainstay import __version__
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage


async def _show(call: PageCall) -> PageAnswer:
    services = await call.api("GET", "/api/v1/services", query=[("pageSize", "1"), ("living", "true")])
    return PageAnswer("overview.html", {"living": services["totalItems"]})


async def _describe(_call: PageCall) -> PageAnswer:
    document = {"name": "mainstay", "version": __version__, "api": "/api/v1", "docs": "/docs"}
    return PageAnswer(document=document)


PAGES = (
    WebPage(
        method="GET",
        path="/",
        act=_show,
        access=("service", "read"),
        navigation=NavigationEntry("Overview", "i-home", 1),
        as_json=_describe,
    ),
)

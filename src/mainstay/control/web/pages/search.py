"""Finds services, agents and types by part of their name. The palette shows the same results."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.web.contract import PageAnswer, PageCall, WebPage

FOUND_AT_ONCE = 8
MAX_TEXT = 200
# What a person calls it, the list of the API, the page.
SOURCES = (
    ("service", "/api/v1/services", "/services"),
    ("agent", "/api/v1/agents", "/agents"),
    ("type", "/api/v1/service-types", "/service-types"),
)


@dataclass(frozen=True, slots=True)
class SearchResult:
    kind: str
    name: str
    href: str


async def _show(call: PageCall) -> PageAnswer:
    text = call.asked("q").strip()[:MAX_TEXT]
    found: list[SearchResult] = []
    for kind, path, page in SOURCES if text else ():
        # Pages by cursor count nothing.
        query = [("name", text), ("after", ""), ("pageSize", str(FOUND_AT_ONCE))]
        rows = await call.api("GET", path, query=query)
        found += [SearchResult(kind, row["name"], f"{page}/{row['id']}") for row in rows["items"]]
    found.sort(key=lambda result: _distance(text, result.name))
    return PageAnswer("search.html", {"q": text, "results": found})


def _distance(text: str, name: str) -> tuple[int, str]:
    """The same name first, then names that begin with the text."""
    wanted, folded = text.casefold(), name.casefold()
    return (0 if folded == wanted else 1 if folded.startswith(wanted) else 2, folded)


PAGES = (WebPage(method="GET", path="/search", act=_show, access=("service", "read")),)

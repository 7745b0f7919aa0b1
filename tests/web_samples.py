"""Sample addresses for every page of the registry. A page with a new parameter needs a line in one of these tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mainstay.control.web.contract import WebPage
from mainstay.control.web.pages import all_pages
from sample_rows import SampleRows

# By the part of the path before `{id}`: the key of `SampleRows.ids`.
NOUNS = {
    "agents": "agents",
    "agent-types": "agent-types",
    "config-pools": "config-pools",
    "enrolment-codes": "enrolment-codes",
    "groups": "service-groups",
    "jobs": "jobs",
    "metrics": "metric-types",
    "metric-types": "metric-types",
    "options": "service-options",
    "option-types": "service-option-types",
    "order": "service-types",
    "orphans": "orphans",
    "participants": "participants",
    "pools": "service-pools",
    "pool-sets": "service-pool-sets",
    "pool-values": "service-pool-values",
    "config-pool-values": "config-pool-values",
    "rollouts": "rollouts",
    "services": "services",
    "service-types": "service-types",
    "tokens": "tokens",
    "types": "service-types",
}
# By the name of a parameter that is not `{id}`.
PARAMETERS = {
    "action": "start",
    "agentId": "agents",
    "digest": "blueprints",
    "jobId": "jobs",
    "serviceId": "services",
    "typeId": "service-types",
}
# Values that are the same for all rows, by path and parameter.
CONSTANTS: dict[tuple[str, str], str] = {}
# Queries that show more of a page than its bare address; `{noun}` is the id of the sample row.
QUERIES: dict[str, tuple[str, ...]] = {"/search": ("q=e",)}
# Answers that never end.
STREAMS = {"/live"}


def sample_path(page: WebPage, rows: SampleRows) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: _value(page.path, match, rows), page.path)


def _value(path: str, match: re.Match[str], rows: SampleRows) -> str:
    name = match[1]
    before = path[: match.start()].rstrip("/").rpartition("/")[2]
    if (path, name) in CONSTANTS:
        return CONSTANTS[path, name]
    noun = NOUNS.get(before) if name == "id" else PARAMETERS.get(name)
    assert noun is not None, f"add a sample value for {{{name}}} of the page {path} to tests/web_samples.py"
    return str(rows.ids.get(noun, noun))


def sample_urls(page: WebPage, rows: SampleRows) -> Sequence[str]:
    """The address of the page, and the same with each of its queries."""
    path = sample_path(page, rows)
    return [path, *(f"{path}?{query.format_map(rows.ids)}" for query in QUERIES.get(page.path, ()))]


def readable_pages() -> list[WebPage]:
    """Pages that end."""
    return [page for page in all_pages() if page.method == "GET" and page.path not in STREAMS]


def form_posts() -> list[WebPage]:
    return [page for page in all_pages() if page.method == "POST"]


def page_name(page: WebPage) -> str:
    return f"{page.method} {page.path}"

"""Round trips to the database of each page of a noun: a page must not ask once for each row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_session import WebSession, signed_in
from control_plane import Cluster, running
from mainstay.control.web.contract import WebPage
from query_counter import CountingProxy, counting_proxy
from sample_rows import SampleRows
from web_samples import page_name, readable_pages, sample_path

# The session, the side bar and the page.
MAX_ROUND_TRIPS = 20
REPEATS = 10
NOUNS = (
    "agent-types",
    "agents",
    "blueprints",
    "config-pool-values",
    "config-pools",
    "events",
    "groups",
    "metric-types",
    "option-types",
    "options",
    "orphans",
    "participants",
    "pool-sets",
    "pool-values",
    "pools",
    "service-types",
    "tokens",
)
PAGES = [page for page in readable_pages() if page.path.split("/")[1] in NOUNS]


@pytest.fixture(scope="module")
def counted(
    postgresql: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[WebSession, SampleRows, CountingProxy]]:
    folder: Path = tmp_path_factory.mktemp("counted") / "data"
    with (
        counting_proxy(postgresql.new_database()) as (url, proxy),
        running(folder, database_url=url) as server,
    ):
        rows = SampleRows(server.admin)
        yield signed_in(server.url, str(server.admin.token)), rows, proxy


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_needs_few_round_trips(counted: tuple[WebSession, SampleRows, CountingProxy], page: WebPage) -> None:
    browser, rows, proxy = counted
    counts = []
    for _ in range(REPEATS):
        before = proxy.round_trips
        browser.get(sample_path(page, rows))
        counts.append(proxy.round_trips - before)
        # Background tasks can only raise the count.
        if counts[-1] <= MAX_ROUND_TRIPS:
            return
        time.sleep(0.1)
    raise AssertionError(counts)

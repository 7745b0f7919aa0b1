"""The pages of services and jobs need few database round trips, also with everything that they can show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_session import signed_in
from control_plane import Cluster, Server, running
from query_counter import CountingProxy, counting_proxy
from scenario import Scenario
from shown_service import LIFECYCLE, REPORT, SCHEMA

MAX_STATEMENTS = 20
REPEATS = 4


@pytest.fixture(scope="module")
def counted(postgresql: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, CountingProxy]]:
    data: Path = tmp_path_factory.mktemp("page-statements") / "data"
    key = {"VAULT_ENCRYPTION_KEY": "ab" * 32}
    with (
        counting_proxy(postgresql.new_database()) as (url, proxy),
        running(data, database_url=url, environment=key) as server,
    ):
        yield server, proxy


def test_each_page_and_region_needs_at_most_twenty_statements(counted: tuple[Server, CountingProxy]) -> None:
    server, proxy = counted
    scenario = Scenario(server.admin)
    service = scenario.order(scenario.service_type(SCHEMA, LIFECYCLE), {"password": "p", "allow": ["a"]})
    scenario.complete(service, properties={"url": "u"}, report=REPORT)
    scenario.order(scenario.service_type({"database": {"type": "reference"}}), {"database": service["id"]})
    kind = scenario.admin.post("/metric-types", {"name": "connections", "entityType": "Service"})
    entry = {"resourceId": "r", "typeName": kind["name"], "value": 1, "serviceId": service["id"]}
    scenario.agent.post("/metric-entries", entry)
    job = scenario.jobs(service)[0]
    for client in (server.admin, scenario.consumer):
        browser = signed_in(server.url, str(client.token))
        pages = (f"/services/{service['id']}", "/jobs", "/jobs?service=service", f"/jobs/{job['id']}")
        for address in pages:
            mark = "&" if "?" in address else "?"
            regions = re.findall(r'data-region="(\w+)"', browser.get(address).text)
            for url in (address, *(f"{address}{mark}fragment={region}" for region in regions)):
                counts = []
                for _ in range(REPEATS):
                    before = proxy.round_trips
                    browser.get(url)
                    counts.append(proxy.round_trips - before)
                # Other activity of the server can only raise the count.
                assert min(counts) <= MAX_STATEMENTS, f"{url}: {min(counts)} statements"

"""/metrics: every metric of the table, cheap and without noise; and the log of requests."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from control_plane import Client, Cluster, Server, running
from mainstay.control.api.prometheus import METRICS
from scenario import Scenario


def samples(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] != "#"}


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own: figures of the plane count everything."""
    url = None
    if request.param == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgresql")
        url = cluster.new_database()
    with running(
        tmp_path_factory.mktemp("plane") / "data", database_url=url, environment={"MAINSTAY_LOG_FORMAT": "json"}
    ) as server:
        yield server


def test_metrics_show_what_operators_alert_on(plane: Server) -> None:
    scenario = Scenario(plane.admin)
    kind = scenario.service_type()
    service = scenario.order(kind)
    plane.admin.post("/events/lease", {"subscriberId": "billing", "instanceId": "i"}, expect=200)
    type_name = kind["name"]
    # Figures that another test made the server read are a few seconds old.
    until = time.monotonic() + 60
    found: dict[str, float] = {}
    while not any(type_name in name for name in found):
        assert time.monotonic() < until, f"{type_name} is not in {found}"
        reply = plane.admin.call("GET", "/metrics", expect=200)
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = reply.body.decode()
        found = samples(text)
    assert found[f'mainstay_jobs{{service_type="{type_name}",status="Pending"}}'] == 1
    assert found[f'mainstay_services{{service_type="{type_name}",state="{service["status"]}"}}'] == 1
    assert found["mainstay_plane_up"] == 1
    assert agents_in(found) == len(plane.admin.get("/agents?pageSize=100")["items"])
    assert found['mainstay_event_lag{subscriber="billing"}'] > 0
    assert 'mainstay_background_last_success_timestamp_seconds{task="time_out_jobs"}' in found
    assert found["mainstay_vault_failures_total"] == 0
    assert found["mainstay_database_connections_max"] > 1
    assert "_created" not in text
    declared = {(kind, name) for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)}
    assert declared == {(each.kind, each.name) for each in METRICS}


def test_others_see_no_figures_of_the_plane(plane: Server) -> None:
    scenario = Scenario(plane.admin)
    text = Client(plane.url).call("GET", "/metrics", expect=200).body.decode()
    assert "mainstay_requests_total" in text
    assert not {each.name for each in METRICS if each.scope == "plane"} & set(re.findall(r"mainstay_\w+", text))
    scenario.consumer.call("GET", "/metrics", expect=403)
    Client(plane.url, "wrong").call("GET", "/metrics", expect=401)


def agents_in(found: dict[str, float]) -> float:
    return sum(number for name, number in found.items() if name.startswith("mainstay_agents{"))


def test_figures_are_read_once_in_a_while(plane: Server) -> None:
    """At least one of several new agents is not counted at once. On a slow machine the next reading may be due."""
    scenario = Scenario(plane.admin)
    for _ in range(10):
        before = agents_in(samples(plane.admin.call("GET", "/metrics").body.decode()))
        scenario.new_agent()
        if agents_in(samples(plane.admin.call("GET", "/metrics").body.decode())) == before:
            return
    pytest.fail("each request reads the figures anew")


def test_a_request_is_logged_with_its_caller_and_without_its_query(plane: Server) -> None:
    scenario = Scenario(plane.admin)
    scenario.consumer.get("/services", query={"name": "canary-query"}, headers={"X-Request-Id": "req-1"})
    scenario.consumer.call("GET", "/api/v1/doctor", headers={"X-Request-Id": "req-2"}, expect=403)
    text = plane.log.read_text()
    parsed = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    lines = {each["id"]: each for each in parsed if "method" in each}
    token = scenario.consumer.get("/tokens/me")
    assert lines["req-1"] | {"role": "participant", "route": "/api/v1/services", "status": 200} == lines["req-1"]
    assert lines["req-1"]["caller"].startswith("consumer")
    assert lines["req-1"]["token"] == token["id"]
    assert lines["req-2"]["status"] == 403
    assert lines["req-2"]["role"] == "participant"
    assert "canary-query" not in text

"""Plans: forecasts that change nothing, and orders that are executed as planned or refused."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import seed_text
from control_plane import Client, Cluster, Reply, Server, running, wait_until_hashed
from planning_agent import ANSWER, DIGEST, all_rows, with_agent
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
CANARY = "canary-Kq77-secret"
SCHEMA = {
    "size": {"type": "integer", "default": 1},
    "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
    "serial": {"type": "string", "generator": {"type": "uuid"}},
    "host": {"type": "string", "generator": {"type": "hostname", "config": {"prefix": "h"}}},
    "made": {"type": "string", "generator": {"type": "timestamp"}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "token": {"type": "string", "secret": {"type": "ephemeral"}, "generator": {"type": "uuid"}},
}


class Planner:
    """A consumer and the agent that answers its plan requests."""

    def __init__(self, scenario: Scenario, schema: object = None) -> None:
        self.scenario = scenario
        made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
        body = {"name": "p", "type": "ip", "propertyType": "string", "generatorType": "subnet"}
        config = {"generatorConfig": {"cidr": "10.0.0.0/24"}, "servicePoolSetId": made["id"]}
        scenario.provider.post("/service-pools", {**body, **config})
        self.kind = scenario.service_type(schema or SCHEMA, SIMPLE)
        self.body = {
            "serviceTypeId": self.kind["id"],
            "name": unique("service"),
            "properties": {"key": CANARY, "size": 3},
            "groupId": scenario.group_id,
            "agentId": scenario.agent_id,
        }
        # The first request of the agent changes its status; that must not happen during the test.
        scenario.agent.get("/jobs/pending")

    def call(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        return self.scenario.consumer.call(method, f"/api/v1/services{path}", body, **more)

    def plan(self, method: str = "POST", path: str = "", body: object = None, answer: object = None) -> Any:
        body = self.body if method == "POST" and not path else body
        reply, self.question = with_agent(
            self.scenario.agent, lambda: self.call(method, f"{path}?plan=true&dryRun=true", body), answer
        )
        assert reply.status == 200, reply.body
        return reply.body

    def order(self, plan: Any, answer: object = None, *, expect: int = 201, **more: Any) -> Any:
        """Places the planned order."""
        body = {**self.body, **more, "planDigest": plan["planDigest"]}
        reply, _ = with_agent(self.scenario.agent, lambda: self.call("POST", "", body), answer)
        assert reply.status == expect, reply.body
        return reply.body

    def refused(self, plan: Any, changed: str, **more: Any) -> None:
        """The order is refused without a plan request to the agent."""
        reply = self.call("POST", "", {**self.body, "planDigest": plan["planDigest"], **more})
        assert (reply.status, reply.body["code"], reply.body["changed"]) == (409, "plan_outdated", changed)


@pytest.fixture
def planner(scenario: Scenario) -> Planner:
    return Planner(scenario)


@pytest.fixture(params=["sqlite", "postgresql"])
def separate_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, str | None]]:
    """A server that no other test uses."""
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    key = {"VAULT_ENCRYPTION_KEY": "56" * 32}
    with running(tmp_path / "data", database_url=url, environment=key) as server:
        yield server, url


def test_a_plan_changes_nothing_in_the_database(separate_server: tuple[Server, str | None], tmp_path: Path) -> None:
    server, url = separate_server
    planner = Planner(Scenario(server.admin))
    service = planner.scenario.order(planner.kind, {"key": "first-Zq1-key"})
    planner.scenario.complete(service)
    # The first request for plans is recorded with the agent.
    planner.scenario.agent.get("/plans/pending")
    wait_until_hashed(server)
    *before, _ = all_rows(server.data_dir, url, tmp_path / "before")
    assert CANARY not in str(before)
    plan = planner.plan()
    planner.plan("PATCH", f"/{service['id']}", {"properties": {"key": CANARY, "size": 9}})
    planner.plan("DELETE", f"/{service['id']}")
    planner.plan("POST", f"/{service['id']}/start")
    silent = planner.call("POST", "?plan=true&planWait=1", planner.body)
    assert (silent.status, silent.body["code"]) == (504, "agent_silent")
    assert "did not answer within 1 s" in silent.body["error"]
    # The last line is the number of rows.
    *after, _ = all_rows(server.data_dir, url, tmp_path / "after")
    # Only the readings of secrets are recorded.
    recorded = [row for row in after if row not in before]
    assert recorded
    assert [row for row in recorded if "vault.read" not in row] == []
    assert [row for row in after if row in before] == before
    assert plan["poolValues"] == [{"path": "ip", "value": "10.0.0.1"}]
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(CANARY.encode() in content for content in kept)
    if url is not None:
        dumped = subprocess.run(["pg_dump", url], check=True, capture_output=True).stdout
        assert CANARY.encode() not in dumped


def test_a_plan_request_contains_the_job_and_its_secrets(planner: Planner) -> None:
    plan = planner.plan()
    job, opened = planner.question["job"], planner.question["secrets"]
    assert plan["host"] == {name: ANSWER[name] for name in ("manifest", "events", "summary")}
    assert plan["path"] == ["New", "Stopped"] or plan["path"][0] == "New"
    assert (job["action"], job["step"], job["attempt"]) == ("create", 1, 1)
    assert opened[job["params"]["key"]] == CANARY
    assert set(opened) == {job["params"]["key"], job["params"]["token"]}
    assert plan["properties"] == {**job["params"], "key": "vault://dry-run", "token": "vault://dry-run"}
    assert job["params"]["host"] == f"h-{job['serviceId']}"
    # Delivered once.
    assert planner.scenario.agent.get("/plans/pending") == []


def test_an_order_is_executed_as_planned(planner: Planner) -> None:
    plan = planner.plan()
    planned = planner.question
    time.sleep(1.1)  # the timestamp must be that of the plan
    service = planner.order(plan)
    assert service["id"] == planned["job"]["serviceId"]
    secret = ("key", "token")
    assert {k: v for k, v in service["properties"].items() if k not in secret} == {
        k: v for k, v in plan["properties"].items() if k not in secret
    }
    (job,) = planner.scenario.jobs(service)
    assert job["planDigest"] == DIGEST
    opened = planner.scenario.agent.get(f"/vault/secrets/{service['properties']['token'].removeprefix('vault://')}")
    assert opened["value"] == planned["secrets"][planned["job"]["params"]["token"]]
    assert opened["value"] not in str(plan)


def test_generated_values_differ_between_plans(planner: Planner) -> None:
    planner.plan()
    planned = planner.question["job"]["params"]["serial"]
    planner.plan()
    assert planner.question["job"]["params"]["serial"] != planned


def test_every_request_on_a_service_can_be_planned_and_executed(planner: Planner) -> None:
    scenario = planner.scenario
    service = scenario.order(planner.kind, {"key": "k1"})
    scenario.complete(service)
    path = f"/{service['id']}"

    def do(method: str, where: str, body: Any) -> None:
        plan = planner.plan(method, where, body)
        digest = plan["planDigest"]
        query = {"planDigest": digest} if method == "DELETE" else None
        sent = None if method == "DELETE" else {**(body or {}), "planDigest": digest}
        reply, question = with_agent(scenario.agent, lambda: planner.call(method, where, sent, query=query))
        assert reply.status in (200, 204), reply.body
        assert question["job"]["params"] == planner.question["job"]["params"] or method == "PATCH"
        again = planner.call(method, where, sent, query=query)
        assert again.status == 409, again.body
        assert scenario.jobs(service)[-1]["planDigest"] == DIGEST
        scenario.complete(service)
        late = planner.call(method, where, sent, query=query)
        assert late.status == 409, late.body

    do("PATCH", path, {"properties": {"size": 7, "key": CANARY}})
    assert scenario.service(service["id"])["properties"]["size"] == 7
    do("POST", f"{path}/start", None)
    do("POST", f"{path}/stop", None)
    do("DELETE", path, None)


def test_a_change_without_a_job_is_planned_without_the_agent(planner: Planner) -> None:
    service = planner.scenario.order(planner.kind)
    planner.scenario.complete(service)
    path = f"/{service['id']}"
    plan = planner.call("PATCH", f"{path}?plan=true", {"name": "renamed"}, expect=200).body
    assert plan["host"] == {"manifest": None, "events": [], "summary": {}}
    assert planner.scenario.service(service["id"])["name"] == service["name"]
    planner.call("PATCH", path, {"name": "another", "planDigest": plan["planDigest"]}, expect=409)
    planner.call("PATCH", path, {"name": "renamed", "planDigest": plan["planDigest"]}, expect=200)
    assert planner.scenario.service(service["id"])["name"] == "renamed"
    forced = planner.scenario.admin.delete(f"/services{path}?force=true&plan=true", expect=200)
    assert forced["host"] == plan["host"]
    assert planner.scenario.service(service["id"])["status"] != "Deleted"


def test_changed_inputs_outdate_a_plan(planner: Planner) -> None:
    plan = planner.plan()
    planner.refused(plan, "inputs", name="another")
    planner.refused(plan, "inputs", properties={"key": "another", "size": 3})
    # Another order allocates the address.
    planner.scenario.order(planner.kind)
    planner.refused(plan, "inputs")
    plan = planner.plan()
    time.sleep(0.002)
    planner.scenario.admin.patch(f"/service-types/{planner.kind['id']}", {"name": unique("renamed")})
    planner.refused(plan, "inputs")


def test_a_plan_is_not_executed_by_an_agent_that_may_no_longer_serve(planner: Planner) -> None:
    scenario, plan = planner.scenario, planner.plan()
    path = f"/agent-types/{scenario.agent_type_id}"
    scenario.admin.patch(path, {"providerIds": []})
    reply = planner.call("POST", "", {**planner.body, "planDigest": plan["planDigest"]})
    assert (reply.status, reply.body["code"]) == (400, "agent_not_available")
    scenario.admin.patch(path, {"providerIds": [scenario.provider_id]})
    planner.order(plan)


def test_a_drift_report_does_not_outdate_a_plan(planner: Planner) -> None:
    service = planner.scenario.order(planner.kind)
    planner.scenario.complete(service)
    where = f"/{service['id']}/start"
    plan = planner.plan("POST", where)
    condition = [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "x"}]
    planner.scenario.agent.put(f"/services/{service['id']}/conditions", condition)
    body = {"planDigest": plan["planDigest"]}
    reply, _ = with_agent(planner.scenario.agent, lambda: planner.call("POST", where, body))
    assert reply.status == 200


def test_a_changed_host_forecast_outdates_a_plan(planner: Planner) -> None:
    plan = planner.plan()
    refusal = planner.order(plan, {**ANSWER, "digest": "cd" * 32}, expect=409)
    assert (refusal["code"], refusal["changed"]) == ("plan_outdated", "host")
    assert planner.order(plan)["status"] == "New"


def test_a_plan_expires(planner: Planner) -> None:
    plan = planner.plan()
    nonce, seconds, inputs, host = plan["planDigest"].split(".")
    assert plan["expiresAt"].endswith("Z")
    for shift in (-601, 3600):
        forged = {"planDigest": ".".join((nonce, str(int(seconds) + shift), inputs, host))}
        planner.refused(forged, "expired")
    planner.refused({"planDigest": ".".join((nonce, str(int(seconds) - 1), inputs, host))}, "inputs")
    planner.refused({"planDigest": ".".join(("a" * 16, seconds, inputs, host))}, "inputs")
    for bad in ("", "x", plan["planDigest"] + "0"):
        reply = planner.call("POST", "", {**planner.body, "planDigest": bad})
        assert (reply.status, reply.body["code"]) == (400, "bad_plan_digest")


def test_a_plan_cannot_be_executed_by_another_caller(planner: Planner) -> None:
    plan = planner.plan()
    reply = planner.scenario.admin.call(
        "POST", "/api/v1/services", {**planner.body, "planDigest": plan["planDigest"]}
    )
    assert (reply.status, reply.body["code"]) == (409, "plan_outdated")


def test_a_plan_is_executed_only_once(planner: Planner) -> None:
    plan = planner.plan()
    body = {**planner.body, "planDigest": plan["planDigest"]}
    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(planner.call, "POST", "", body) for _ in range(4)]
        while not all(reply.done() for reply in replies):
            for question in planner.scenario.agent.get("/plans/pending?limit=10&wait=1"):
                planner.scenario.agent.post(f"/plans/{question['id']}/answer", ANSWER, expect=204)
    assert sorted(reply.result().status for reply in replies) == [201, 409, 409, 409]
    refused = [reply.result().body for reply in replies if reply.result().status == 409]
    assert {each["code"] for each in refused} == {"plan_outdated"}, refused


def test_a_planned_order_repeated_with_its_idempotency_key_is_placed_once(planner: Planner) -> None:
    plan = planner.plan()
    body = {**planner.body, "planDigest": plan["planDigest"]}
    key = {"Idempotency-Key": uuid4().hex}
    first, _ = with_agent(planner.scenario.agent, lambda: planner.call("POST", "", body, headers=key))
    again = planner.call("POST", "", body, headers=key)
    assert (first.status, again.status) == (201, 201)
    assert again.body["id"] == first.body["id"]
    assert planner.call("POST", "?dryRun=true", body, headers=key, expect=200).body["path"]


def test_a_plan_that_fails_on_the_agent_reports_the_reason(planner: Planner) -> None:
    reply, _ = with_agent(
        planner.scenario.agent,
        lambda: planner.call("POST", "?plan=true", planner.body),
        {"error": "there is no blueprint"},
    )
    assert (reply.status, reply.body["code"]) == (409, "plan_failed")
    assert "there is no blueprint" in reply.body["error"]


def test_the_answer_of_an_agent_that_compares_new_secrets_is_withheld(scenario: Scenario) -> None:
    """Agents of earlier releases do not know `secretsHidden`. Their forecast would confirm a guess of a secret."""
    planner = Planner(scenario, {name: SCHEMA[name] for name in ("size", "key")})
    old = {name: value for name, value in ANSWER.items() if name != "secretsHidden"}
    service = planner.scenario.order(planner.kind, {"key": "first-Zq1-key"})
    planner.scenario.complete(service)
    path = f"/{service['id']}"
    guesses: list[tuple[str, str, Any]] = [
        ("POST", "", planner.body),
        ("PATCH", path, {"properties": {"key": "guess"}}),
        ("PATCH", path, {"properties": {"key": None}}),
        ("POST", f"{path}/update", {"properties": {"key": "guess"}}),
    ]
    for method, where, body in guesses:

        def ask(method: str = method, where: str = where, body: Any = body) -> Reply:
            return planner.call(method, f"{where}?plan=true", body)

        for answer in (old, {**old, "secretsHidden": False}):
            reply, _ = with_agent(planner.scenario.agent, ask, answer)
            assert (reply.status, reply.body["code"]) == (409, "plan_failed"), (method, where)
            assert "upgrade the agent" in reply.body["error"]
            assert "host" not in reply.body
    planner.plan("PATCH", path, {"properties": {"size": 9}}, old)
    planner.plan("POST", f"{path}/start", None, old)


def test_an_invalid_request_is_refused_without_a_plan_request(planner: Planner) -> None:
    planner.call("POST", "?plan=true", {**planner.body, "properties": {"size": "x"}}, expect=400)
    service = planner.scenario.order(planner.kind)
    planner.scenario.complete(service)
    planner.scenario.do(service, "start")
    active = planner.call("DELETE", f"/{service['id']}?plan=true")
    assert (active.status, active.body["code"]) == (409, "active_job")
    planner.call("POST", "?plan=true&planWait=61", planner.body, expect=400)
    assert planner.scenario.agent.get("/plans/pending") == []


def test_another_agent_can_neither_read_nor_answer_a_plan_request(planner: Planner) -> None:
    other = Scenario(planner.scenario.admin).agent
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(planner.call, "POST", "?plan=true", planner.body)
        (question,) = planner.scenario.agent.get("/plans/pending?wait=30")
        assert other.get("/plans/pending") == []
        path = f"/plans/{question['id']}/answer"
        other.post(path, {**ANSWER, "manifest": "wrong"}, expect=404)
        planner.scenario.agent.post(path, {}, expect=400)
        planner.scenario.agent.post(path, ANSWER, expect=204)
        assert reply.result().body["host"]["manifest"] == ANSWER["manifest"]
    planner.scenario.agent.post(path, ANSWER, expect=404)


def test_the_agent_may_answer_through_another_replica(postgresql: Cluster, tmp_path: Path) -> None:
    url = postgresql.new_database()
    key = {"VAULT_ENCRYPTION_KEY": "34" * 32}
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(running(tmp_path / name, database_url=url, environment=key)) for name in ("a", "b")
        )
        planner = Planner(Scenario(one.admin))
        there = Client(two.url, planner.scenario.agent.token)
        reply, _ = with_agent(there, lambda: planner.call("POST", "?plan=true", planner.body))
        assert reply.status == 200
        body = {**planner.body, "planDigest": reply.body["planDigest"]}
        mine = Client(two.url, planner.scenario.consumer.token)
        made, _ = with_agent(planner.scenario.agent, lambda: mine.call("POST", "/api/v1/services", body))
        assert made.status == 201


def test_an_agent_that_is_not_connected_is_not_waited_for(scenario: Scenario) -> None:
    late = scenario.new_agent(name="late")
    body = {
        "serviceTypeId": scenario.service_type()["id"],
        "name": "x",
        "groupId": scenario.group_id,
        "agentId": late["id"],
    }
    started = time.monotonic()
    refused = scenario.consumer.call("POST", "/api/v1/services?plan=true", body, expect=504).body
    assert time.monotonic() - started < 10
    assert refused["code"] == "agent_silent"
    assert "agent late is not connected" in refused["error"]
    assert "make a dry run" in refused["error"]


def test_an_agent_that_has_never_asked_for_plans_is_waited_for_only_briefly(scenario: Scenario) -> None:
    kind = scenario.service_type()
    # An agent of another program: it takes jobs only.
    scenario.agent.get("/jobs/pending")
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    started = time.monotonic()
    refused = scenario.consumer.call("POST", "/api/v1/services?plan=true", body, expect=504).body
    assert time.monotonic() - started < 20
    assert "has never asked for plans" in refused["error"]

"""Errors of PostgreSQL, at a write or at the commit, become the right refusal and leave no changes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from control_plane import Client, Cluster, Server, running
from scenario import Scenario, unique

# SQLSTATE of an error → status and code of the response.
FAULTS = {
    "23505": (409, "duplicate"),
    "23503": (409, "in_use"),
    "40001": (503, "unavailable"),
    "40P01": (503, "unavailable"),
    "53100": (503, "unavailable"),
    "57014": (503, "unavailable"),
    "57P01": (503, "unavailable"),
    "58030": (503, "unavailable"),
}
# Every change records an event, so a fault in that table reaches every endpoint that writes: among queued writes, or
# as a deferred constraint at the commit.
FAULTY = """
CREATE TABLE faults (code TEXT, at_commit BOOLEAN);
CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted TEXT := (SELECT code FROM faults WHERE at_commit = (TG_WHEN = 'AFTER'));
BEGIN
  IF wanted IS NOT NULL THEN RAISE EXCEPTION 'fault' USING ERRCODE = wanted; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fault_at_write BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fault();
CREATE CONSTRAINT TRIGGER fault_at_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION fault();
"""


@dataclass
class Faulty:
    server: Server
    scenario: Scenario
    url: str

    def run(self, statement: str) -> str:
        command = ["psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def counts(self) -> str:
        """Row counts of all tables that an endpoint writes to."""
        tables = ("participants", "services", "jobs", "runs", "events", "tokens", "service_pool_values", "agents")
        return self.run(" UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables))


@pytest.fixture(scope="module")
def faulty(postgresql: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    url = postgresql.new_database()
    data: Path = tmp_path_factory.mktemp("faults") / "data"
    with running(data, database_url=url, environment={"VAULT_ENCRYPTION_KEY": "ab" * 32}) as server:
        made = Faulty(server, Scenario(server.admin), url)
        _ = (made.scenario.agent, made.scenario.consumer, made.scenario.group_id)
        made.scenario.agent.get("/jobs/pending")
        made.run(FAULTY)
        yield made
        assert server.stop() == 0
        assert " bug " not in server.log.read_text()


Act = tuple[Client, str, str, object]


def changes(scenario: Scenario) -> list[Act]:
    """A valid call of every endpoint that writes."""
    admin, consumer, agent, provider = scenario.admin, scenario.consumer, scenario.agent, scenario.provider
    kind = scenario.service_type({"size": {"type": "integer"}}, None)
    option = admin.post("/service-option-types", {"name": "o", "type": unique("o").replace("-", "_")})
    pool_set = provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    listed = {"name": "p", "type": "t", "propertyType": "string", "generatorType": "list"}
    pool = provider.post("/service-pools", {**listed, "servicePoolSetId": pool_set["id"]})
    metric = admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
    spare = scenario.participant()
    fresh, claimed, cancelled, failed, released, forced, done = [
        scenario.order(kind, groupId=new_group(scenario)) for _ in range(7)
    ]
    jobs = {service["id"]: service["activeJob"]["id"] for service in (fresh, claimed, cancelled, failed, released)}
    for service in (claimed, failed, released):
        agent.post(f"/jobs/{jobs[service['id']]}/claim", expect=204)
    scenario.complete(done)
    order = {"serviceTypeId": kind["id"], "name": "n", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    body: dict[str, Any] = {"name": unique("n")}
    owned = {**body, "providerId": scenario.provider_id}
    return [
        (admin, "POST", "/participants", body),
        (admin, "PATCH", f"/participants/{spare}", body),
        (admin, "DELETE", f"/participants/{spare}", None),
        (admin, "POST", "/service-types", body),
        (admin, "PATCH", f"/service-types/{kind['id']}", body),
        (admin, "POST", "/agent-types", body),
        (admin, "POST", "/agents", {**owned, "agentTypeId": scenario.agent_type_id}),
        (admin, "PATCH", f"/agents/{scenario.agent_id}", {"name": unique("a")}),
        (admin, "POST", "/tokens", {**body, "role": "admin"}),
        (admin, "POST", "/service-groups", {**body, "consumerId": scenario.consumer_id}),
        (admin, "POST", "/service-option-types", {**body, "type": unique("t").replace("-", "_")}),
        (provider, "POST", "/service-options", {**owned, "serviceOptionTypeId": option["id"], "value": 1}),
        (provider, "POST", "/service-pool-sets", owned),
        (provider, "POST", "/service-pools", {**listed, "type": "u", "servicePoolSetId": pool_set["id"]}),
        (provider, "POST", "/service-pool-values", {**body, "value": "v", "servicePoolId": pool["id"]}),
        (admin, "POST", "/metric-types", {**body, "entityType": "Service"}),
        (admin, "DELETE", f"/metric-types/{metric['id']}", None),
        (consumer, "POST", "/services", order),
        (consumer, "PATCH", f"/services/{done['id']}", {"name": "other"}),
        (consumer, "PATCH", f"/services/{done['id']}", {"properties": {"size": 3}}),
        (consumer, "POST", f"/services/{done['id']}/start", None),
        (admin, "DELETE", f"/services/{forced['id']}?force=true", None),
        (agent, "PUT", f"/services/{done['id']}/conditions", [{"type": "Ready", "status": "True"}]),
        (agent, "POST", f"/jobs/{jobs[fresh['id']]}/claim", None),
        (agent, "POST", f"/jobs/{jobs[fresh['id']]}/claim", {"leaseSeconds": 60}),
        (agent, "POST", f"/jobs/{jobs[claimed['id']]}/complete", {"agentInstanceId": unique("i")}),
        (agent, "POST", f"/jobs/{jobs[failed['id']]}/fail", {"errorMessage": "x"}),
        (agent, "POST", f"/jobs/{jobs[released['id']]}/release", None),
        (consumer, "POST", f"/jobs/{jobs[cancelled['id']]}/cancel", None),
    ]


def new_group(scenario: Scenario) -> str:
    """An agent runs one job of a group at a time."""
    return str(scenario.admin.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})["id"])


def test_every_database_error_in_every_endpoint_is_named_and_leaves_no_changes(faulty: Faulty) -> None:
    acts = changes(faulty.scenario)
    before = faulty.counts()
    for code, wanted in FAULTS.items():
        for at_commit in (False, True):
            faulty.run(f"DELETE FROM faults; INSERT INTO faults VALUES ('{code}', {at_commit})")
            for client, method, path, body in acts:
                reply = client.call(method, f"/api/v1{path}", body)
                found = (reply.status, reply.body.get("code")) if reply.body else (reply.status, None)
                assert found == wanted, (code, at_commit, method, path, reply.body)
                assert ("retry-after" in reply.headers) == (wanted[0] == 503)
    faulty.run("DELETE FROM faults")
    assert faulty.counts() == before
    # Without a fault each call succeeds, or conflicts with an earlier call of the list.
    for client, method, path, body in acts:
        assert client.call(method, f"/api/v1{path}", body).status in (200, 201, 204, 409), (method, path)


def concurrently(*acts: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(acts)) as threads:
        return [each.result() for each in [threads.submit(act) for act in acts]]


def test_concurrent_requests_for_the_same_value_conflict_except_one(faulty: Faulty) -> None:
    """Unique constraints decide; the error is raised among the queued writes."""
    scenario = faulty.scenario
    pool_set = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    listed = {"name": "p", "propertyType": "string", "generatorType": "list", "servicePoolSetId": pool_set["id"]}
    pool = scenario.provider.post("/service-pools", {**listed, "type": "first"})
    kind = scenario.service_type({"size": {"type": "integer"}}, None)
    services = [scenario.order(kind, groupId=new_group(scenario)) for _ in range(8)]
    for service in services:
        scenario.agent.post(f"/jobs/{service['activeJob']['id']}/claim", expect=204)
    stopped = scenario.order(kind)
    scenario.complete(stopped)
    same = unique("same")
    cases: dict[str, list[Act]] = {
        "a name": [(scenario.admin, "POST", "/service-types", {"name": same})] * 8,
        "a pool of a type": [(scenario.provider, "POST", "/service-pools", {**listed, "type": "second"})] * 8,
        "a value": [
            (
                scenario.provider,
                "POST",
                "/service-pool-values",
                {"name": "v", "value": "1", "servicePoolId": pool["id"]},
            )
        ]
        * 8,
        "an active job": [
            (scenario.consumer, "PATCH", f"/services/{stopped['id']}", {"properties": {"size": number}})
            for number in range(8)
        ],
        "an instance": [
            (scenario.agent, "POST", f"/jobs/{service['activeJob']['id']}/complete", {"agentInstanceId": same})
            for service in services
        ],
    }
    for name, acts in cases.items():
        replies = concurrently(*(lambda act=act: act[0].call(act[1], f"/api/v1{act[2]}", act[3]) for act in acts))
        statuses = sorted(reply.status for reply in replies)
        assert statuses[0] in (200, 201, 204), (name, statuses)
        assert statuses[1:] == [409] * 7, (name, [reply.body for reply in replies])


def test_a_concurrent_deletion_and_use_refuse_exactly_one(faulty: Faulty) -> None:
    scenario = faulty.scenario
    for _ in range(10):
        group = new_group(scenario)
        kind = scenario.service_type({}, None)
        order = {"serviceTypeId": kind["id"], "name": "n", "groupId": group, "agentId": scenario.agent_id}
        made, deleted = concurrently(
            lambda order=order: scenario.consumer.call("POST", "/api/v1/services", order),  # type: ignore[misc]
            lambda group=group: scenario.admin.call("DELETE", f"/api/v1/service-groups/{group}"),  # type: ignore[misc]
        )
        assert (made.status, deleted.status) in {(201, 409), (400, 204), (403, 204), (409, 204)}, (
            made.body,
            deleted.body,
        )

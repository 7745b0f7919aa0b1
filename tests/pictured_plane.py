"""A control plane with fixed names and a plausible past, for the pictures of the documentation."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

from control_plane import Client, Server, wait_until_hashed
from database_rows import run_sql
from order_samples import ANSWER, rule, schema_of

PLAN_SECONDS = 20
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LIFECYCLE: Any = {
    "states": [{"name": name} for name in ("New", "Stopped", "Starting", "Started", "Failed", "Deleted")],
    "initialState": "New",
    "terminalStates": ["Deleted"],
    "runningStates": ["Started"],
    "actions": [
        {
            "name": "create",
            "requestSchemaType": "properties",
            "transitions": [{"from": "New", "to": "Stopped"}, {"from": "New", "to": "Failed", "onError": True}],
        },
        {
            "name": "start",
            "transitions": [
                {"from": "Stopped", "to": "Starting"},
                {"from": "Starting", "to": "Started"},
                {"from": "Starting", "to": "Failed", "onError": True},
            ],
        },
        {"name": "stop", "transitions": [{"from": "Started", "to": "Stopped"}]},
        {
            "name": "update",
            "requestSchemaType": "properties",
            "transitions": [{"from": "Started", "to": "Started"}, {"from": "Stopped", "to": "Stopped"}],
        },
        {
            "name": "delete",
            "transitions": [{"from": state, "to": "Deleted"} for state in ("Stopped", "Started", "Failed")],
        },
    ],
}
ADDRESS = {
    "type": "string",
    "generator": rule("pool", poolType="ipv4"),
    "authorizers": [rule("actor", actors=["system"])],
}
WEB_APP = {"domain": {"type": "string", "required": True}, "address": ADDRESS}
REDIS = {"memory": {"type": "string", "default": "512 MB"}}
DATABASE = {
    "database": "orders",
    "user": "orders_app",
    "password": "an invented password",
    "tier": "standard",
    "backup": {"keepDays": 7},
    "allow": ["10.20.0.0/16", "fd12:3456::/48"],
}
AGENTS = ("edge-fra-07", "edge-fra-03", "edge-nyc-04", "edge-dxb-01", "edge-gru-02")
SILENT_AGENT = "edge-gru-02"
MAIN, FAILED, DRIFTED, QUEUED = "checkout-db", "reporting-warehouse", "sessions", "preview-4417"
# Name, type, consumer, agent, days since the order. The first is the service of the pictures.
SERVICES = (
    (MAIN, "postgresql", "shop-team", "edge-fra-07", 64),
    ("checkout-web", "web-app", "shop-team", "edge-fra-07", 61),
    (DRIFTED, "redis", "shop-team", "edge-fra-03", 58),
    ("catalogue-search", "web-app", "shop-team", "edge-fra-03", 40),
    ("invoices-db", "postgresql", "finance-reporting", "edge-nyc-04", 37),
    (FAILED, "postgresql", "finance-reporting", "edge-dxb-01", 1),
    ("invoices-web", "web-app", "finance-reporting", "edge-nyc-04", 36),
    ("mail-queue", "redis", "shop-team", "edge-gru-02", 22),
    ("متجر-الصور", "web-app", "shop-team", "edge-dxb-01", 20),
    ("analytics-db", "postgresql", "finance-reporting", "edge-nyc-04", 18),
    ("analytics-cache", "redis", "finance-reporting", "edge-nyc-04", 18),
    ("landing-page", "web-app", "shop-team", "edge-gru-02", 9),
    ("preview-4402", "web-app", "shop-team", "edge-fra-03", 3),
    (QUEUED, "redis", "shop-team", "edge-fra-07", 0),
)
STOPPED = {"analytics-cache", "preview-4402"}
# Name, type, form of a value, first number, count, how many are used.
POOLS = (
    ("public-ipv4", "ipv4", "203.0.113.{}", 10, 48, 45),
    ("redis-port", "redis_port", "64{}", 10, 40, 17),
)
FAILURE = "exec#initdb: exit code 1\ncould not write to /srv/reporting-warehouse: no space left on device"
DIFF = (
    "--- before\n+++ after\n@@ -1,4 +1,4 @@\n # Written by mainstay.\n listen_addresses = '*'\n"
    "-max_connections = 50\n+max_connections = 200\n port = 5432\n"
)
REPORT = {
    "manifest": "manifests/present.yaml",
    "events": [
        {"type": "package", "name": "postgresql-16", "outcome": "stable", "duration_seconds": 0.1},
        {
            "type": "file",
            "name": "/srv/checkout-db/settings.conf",
            "outcome": "changed",
            "diff": DIFF,
            "own": True,
            "duration_seconds": 0.02,
        },
        {"type": "service", "name": "postgresql-checkout", "outcome": "refreshed", "duration_seconds": 1.4},
    ],
    "summary": {"total": 14, "stable": 12, "changed": 1, "refreshed": 1},
}
DRIFT = (
    "file#/srv/sessions/redis.conf: content differs\n--- before\n+++ after\n@@ -2,2 +2,2 @@\n port 6379\n"
    "-maxmemory 512mb\n+maxmemory 2gb\n"
)
PROGRESS = (
    (14, "2 of 14: package#postgresql-16"),
    (36, "5 of 14: file#/srv/checkout-db/pg_hba.conf"),
    (57, "8 of 14: file#/srv/checkout-db/settings.conf"),
    (64, "9 of 14: service#postgresql-checkout"),
)


class PicturedPlane:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = server.admin
        self.participants = {
            name: self._participant(name) for name in ("nordhafen", "shop-team", "finance-reporting")
        }
        self.types = self._service_types()
        self.agents = self._agents()
        self.services = {service[0]: self._order(*service[:4]) for service in SERVICES}
        for name in self.services:
            self._walk(name)
        self._report_drift()
        self._use_pools()
        self._age()
        self._start_update()

    def _participant(self, name: str) -> str:
        found: str = self.admin.post("/participants", {"name": name})["id"]
        return found

    @cached_property
    def operator(self) -> Client:
        return self.admin.as_token(self.admin.post("/tokens", {"name": "Lena Okafor", "role": "admin"})["value"])

    @cached_property
    def consumer(self) -> Client:
        body = {"name": "shop-team", "role": "participant", "scopeId": self.participants["shop-team"]}
        return self.admin.as_token(self.admin.post("/tokens", body)["value"])

    def _service_types(self) -> dict[str, str]:
        option_type = self.admin.post("/service-option-types", {"name": "Tier", "type": "postgresql_tier"})["id"]
        for value in ("small", "standard", "large"):
            body = {"providerId": self.participants["nordhafen"], "serviceOptionTypeId": option_type}
            self.admin.post("/service-options", {**body, "name": value.capitalize(), "value": value})
        schemas = {"postgresql": schema_of("postgresql_tier"), "web-app": WEB_APP, "redis": REDIS}
        return {
            name: self.admin.post(
                "/service-types", {"name": name, "propertySchema": schema, "lifecycleSchema": LIFECYCLE}
            )["id"]
            for name, schema in schemas.items()
        }

    def _agents(self) -> dict[str, tuple[str, Client]]:
        agent_type = self.admin.post("/agent-types", {"name": "linux-host", "serviceTypeIds": [*self.types.values()]})
        pool_set = {"name": "frankfurt", "providerId": self.participants["nordhafen"]}
        self.pool_set_id = self.admin.post("/service-pool-sets", pool_set)["id"]
        for pool in POOLS:
            self._pool(*pool[:5])
        found = {}
        for name in AGENTS:
            body = {
                "name": name,
                "providerId": self.participants["nordhafen"],
                "agentTypeId": agent_type["id"],
                "servicePoolSetId": self.pool_set_id,
                "tags": ["linux", name.split("-")[1]],
            }
            agent_id = self.admin.post("/agents", body)["id"]
            token = self.admin.post("/tokens", {"name": name, "role": "agent", "scopeId": agent_id})["value"]
            found[name] = (agent_id, self.admin.as_token(token))
            found[name][1].put("/agents/me/status", {"status": "Connected"})
        return found

    def _pool(self, name: str, kind: str, value: str, first: int, count: int) -> None:
        body = {"name": name, "type": kind, "propertyType": "string", "generatorType": "list"}
        pool_id = self.admin.post("/service-pools", {**body, "servicePoolSetId": self.pool_set_id})["id"]
        for number in range(first, first + count):
            text = value.format(number)
            self.admin.post("/service-pool-values", {"servicePoolId": pool_id, "name": text, "value": text})

    def _use_pools(self) -> None:
        """More values are in use than the services of the plane take."""
        for name, _, value, first, _, used in POOLS:
            last = value.format(first + used - 1)
            self._run(
                "UPDATE service_pool_values SET property_name = 'address', allocated_at = created_at,"
                f" service_id = '{self.services['checkout-web']}' WHERE service_id IS NULL AND name <= '{last}'"
                f" AND service_pool_id = (SELECT id FROM service_pools WHERE name = '{name}')"
            )

    def _order(self, name: str, kind: str, consumer: str, agent: str) -> str:
        properties = {"postgresql": DATABASE, "web-app": {"domain": f"{name}.example.org"}, "redis": {}}[kind]
        body = {
            "name": name,
            "serviceTypeId": self.types[kind],
            "consumerId": self.participants[consumer],
            "agentId": self.agents[agent][0],
            "properties": properties,
        }
        found: str = self.admin.post("/services", body)["id"]
        return found

    def agent_of(self, name: str) -> Client:
        agent = next(service[3] for service in SERVICES if service[0] == name)
        return self.agents[agent][1]

    def _walk(self, name: str) -> None:
        """Brings the service to the state that the pictures show."""
        if name == QUEUED:
            return
        if name == FAILED:
            self._finish(name, "fail", {"errorMessage": FAILURE})
            return
        self._finish(name, "complete", {})
        if name in STOPPED:
            return
        self.admin.post(f"/services/{self.services[name]}/start", expect=200)
        self._finish(name, "complete", {})
        self._finish(name, "complete", {"report": REPORT} if name == MAIN else {})

    def _claim(self, name: str) -> tuple[str, str]:
        """The path of the next job of the service and its lease."""
        agent = self.agent_of(name)
        (job,) = agent.get(f"/jobs/pending?serviceId={self.services[name]}")
        path = f"/jobs/{job['id']}"
        return path, agent.post(f"{path}/claim", {"leaseSeconds": 600}, expect=200)["leaseToken"]

    def _finish(self, name: str, end: str, result: dict[str, Any]) -> None:
        path, lease = self._claim(name)
        self.agent_of(name).post(f"{path}/{end}", {"leaseToken": lease, **result}, expect=204)

    def _report_drift(self) -> None:
        for name, service_id in self.services.items():
            condition = {"type": "InSync", "status": "True", "reason": "Checked", "message": ""}
            if name == DRIFTED:
                condition = {"type": "InSync", "status": "False", "reason": "Drifted", "message": DRIFT}
            if name not in (FAILED, QUEUED):
                self.agent_of(name).put(f"/services/{service_id}/conditions", [condition])

    def _start_update(self) -> None:
        self.operator.patch(f"/services/{self.services[MAIN]}", {"properties": {"maxConnections": 200}})
        path, lease = self._claim(MAIN)
        for percent, text in PROGRESS:
            body = {"leaseToken": lease, "leaseSeconds": 600, "progress": {"percent": percent, "text": text}}
            self.agent_of(MAIN).post(f"{path}/renew", body, expect=200)

    def _age(self) -> None:
        """Moves the past back in time. The events then no longer fit their hashes, which no page shows."""
        for number, (name, _, _, _, days) in enumerate(SERVICES):
            service_id, seconds = self.services[name], days * DAY + 7 * MINUTE * number
            since = min(seconds, (13 * number + 4) * MINUTE)
            self._move("services", "updated_at", since, f"id = '{service_id}'")
            self._move("services", "created_at", seconds, f"id = '{service_id}'")
            self._move("service_states", "entered_at", seconds, f"service_id = '{service_id}'")
            self._move("jobs", "created_at", since, f"service_id = '{service_id}'")
            for column, after in (("claimed_at", 2), ("completed_at", 9 + 3 * number)):
                where = f"service_id = '{service_id}' AND {column} IS NOT NULL"
                self._run(f"UPDATE jobs SET {column} = created_at + {after * 1_000_000} WHERE {where}")
        wait_until_hashed(self.server)
        self._run(
            "UPDATE events SET created_at = created_at"
            " - ((SELECT max(sequence_number) FROM events) - sequence_number) * 17000000"
        )
        silent = f"id = '{self.agents[SILENT_AGENT][0]}'"
        self._run(f"UPDATE agents SET status = 'Disconnected' WHERE {silent}")
        self._move("agents", "last_status_update", 3 * HOUR, silent)

    def _move(self, table: str, column: str, seconds: int, where: str) -> None:
        self._run(f"UPDATE {table} SET {column} = {column} - {seconds * 1_000_000} WHERE {where}")

    def _run(self, statement: str) -> None:
        run_sql(self.server.data_dir, None, statement)

    def answer_plan(self) -> None:
        """As the agent that the server asks for a plan."""
        until = time.monotonic() + PLAN_SECONDS
        while time.monotonic() < until:
            for _, agent in self.agents.values():
                for request in agent.get("/plans/pending"):
                    agent.post(f"/plans/{request['id']}/answer", ANSWER, expect=204)
                    return
            time.sleep(0.05)
        raise AssertionError("the server asks no agent for a plan")

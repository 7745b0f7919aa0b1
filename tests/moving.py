"""Services that move in tests: a movable blueprint with pools and a secret, and agents played by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from blueprint_samples import LIFECYCLE, blueprint, push
from control_plane import Client
from scenario import Scenario, unique

SCHEMA: Any = {
    "size": {"type": "integer"},
    "address": {
        "type": "string",
        "immutable": True,
        "generator": {"type": "pool", "config": {"poolType": "address"}},
        "authorizers": [{"type": "actor", "config": {"actors": ["system"]}}],
    },
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "unit": {
        "type": "string",
        "immutable": True,
        "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}],
    },
}


@dataclass
class PlayedAgent:
    """An agent of ours as far as the server can tell: it asks for orphans."""

    id: str
    client: Client
    pool: Any

    def claim(self, service: Any) -> Any:
        (job,) = self.client.get(f"/jobs/pending?serviceId={service['id']}")
        self.client.post(f"/jobs/{job['id']}/claim", expect=204)
        return job

    def complete(self, service: Any, **report: Any) -> Any:
        job = self.claim(service)
        self.client.post(f"/jobs/{job['id']}/complete", report, expect=204)
        return job

    def fail(self, service: Any, message: str = "no") -> Any:
        job = self.claim(service)
        self.client.post(f"/jobs/{job['id']}/fail", {"errorMessage": message}, expect=204)
        return job

    def orphans(self) -> list[Any]:
        found: list[Any] = self.client.get("/orphans")["items"]
        return found

    def confirm(self) -> None:
        for orphan in self.orphans():
            self.client.post(f"/orphans/{orphan['id']}/confirm", expect=204)

    def allocated(self) -> list[Any]:
        """The values of the agent's pool that are not free."""
        found = self.client.get(f"/service-pool-values?servicePoolId={self.pool['id']}&pageSize=100")["items"]
        return [each["value"] for each in found if each.get("serviceId") is not None]


@dataclass
class MovingScenario:
    scenario: Scenario
    movable: bool = True
    schema: Any = field(default_factory=lambda: SCHEMA)
    # Of the blueprint, beside its actions `create`, `start` and `stop`.
    more: Any = field(default_factory=dict)

    @cached_property
    def kind(self) -> Any:
        """The service type; its agent type is the one of the scenario."""
        files = blueprint(unique("web"), movable=self.movable, schema=self.schema, lifecycle=LIFECYCLE, **self.more)
        pushed = push(self.scenario.admin, files)
        type_id = pushed["serviceType"]["id"]
        self.scenario.admin.patch(f"/agent-types/{self.scenario.agent_type_id}", {"serviceTypeIds": [type_id]})
        return self.scenario.admin.get(f"/service-types/{type_id}")

    def agent(self, *values: str, asks: bool = True, **more: Any) -> PlayedAgent:
        """With a pool set of its own that holds these addresses."""
        assert self.kind
        admin = self.scenario.admin
        provider_id = more.get("providerId", self.scenario.provider_id)
        pool_set = admin.post("/service-pool-sets", {"name": unique("set"), "providerId": provider_id})
        pool = admin.post(
            "/service-pools",
            {
                "name": unique("pool"),
                "type": "address",
                "propertyType": "string",
                "generatorType": "list",
                "servicePoolSetId": pool_set["id"],
            },
        )
        for value in values:
            admin.post("/service-pool-values", {"name": value, "value": value, "servicePoolId": pool["id"]})
        made = self.scenario.new_agent(**{"servicePoolSetId": pool_set["id"], **more})
        client = self.scenario.token("agent", made["id"])
        if asks:
            client.get("/orphans")
        return PlayedAgent(made["id"], client, pool)

    def order(self, agent: PlayedAgent, instance: str | None = "one", **more: Any) -> Any:
        """A service that the agent has created."""
        ordered = self.scenario.order(self.kind, {"size": 1, "password": "s3cret"}, agentId=agent.id, **more)
        agent.complete(
            ordered,
            properties={"unit": f"unit-{agent.id}"},
            agentInstanceId=instance,
            agentInstanceData={"on": "old"},
        )
        return self.scenario.service(ordered["id"])

    def move(
        self, service: Any, to: PlayedAgent, *, client: Client | None = None, force: bool = False, **more: Any
    ) -> Any:
        sender = client or self.scenario.consumer
        return sender.put(f"/services/{service['id']}/agent", {"agentId": to.id, "force": force}, **more)

    def read_secret(self, agent: PlayedAgent, reference: str, expect: int = 200) -> Any:
        found = agent.client.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)
        return found.get("value")

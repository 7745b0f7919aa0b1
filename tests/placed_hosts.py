"""Agents of one provider, each with a pool of ports, and a type whose services take one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from control_plane import Client
from scenario import Scenario, unique

SCHEMA: Any = {
    "port": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": "kvPort"}}},
}


@dataclass
class Hosts:
    """Agents of one provider with a pool set each, and a type whose services take a port."""

    scenario: Scenario
    schema: Any = None

    @cached_property
    def kind(self) -> Any:
        return self.scenario.service_type(self.schema or SCHEMA)

    def add(self, name: str, ports: range | None = None, *, connected: bool = True, **more: Any) -> Any:
        """`ports` None: without a pool set."""
        assert self.kind
        provider = self.scenario.provider
        if ports is not None:
            body = {"name": unique("set"), "providerId": self.scenario.provider_id}
            pool_set = provider.post("/service-pool-sets", body)
            self.pool(pool_set["id"], ports)
            more = {"servicePoolSetId": pool_set["id"], **more}
        agent = self.scenario.new_agent(name=name, **more)
        if connected:
            self.scenario.token("agent", agent["id"]).get("/agents/me")
        return agent

    def pool(self, set_id: str, ports: range, **more: Any) -> None:
        body = {"name": unique("pool"), "type": "kvPort", "propertyType": "integer", "generatorType": "list"}
        made = self.scenario.provider.post("/service-pools", {**body, "servicePoolSetId": set_id, **more})
        for port in ports:
            value = {"name": str(port), "value": port, "servicePoolId": made["id"]}
            self.scenario.provider.post("/service-pool-values", value)

    def order(self, *, client: Client | None = None, expect: int = 201, query: str = "", **more: Any) -> Any:
        body = {"name": unique("kv"), "serviceTypeId": self.kind["id"], "groupId": self.scenario.group_id, **more}
        return (client or self.scenario.consumer).post(f"/services{query}", body, expect=expect)

    def order_in_parallel(self, number: int) -> tuple[list[Any], list[Any]]:
        """The services and the refusals."""
        body = {"serviceTypeId": self.kind["id"], "groupId": self.scenario.group_id, "name": "kv"}
        consumer = self.scenario.consumer
        with ThreadPoolExecutor(number) as pool:
            replies = list(pool.map(lambda _: consumer.call("POST", "/api/v1/services", body), range(number)))
        assert {each.status for each in replies} <= {201, 400}
        return tuple([each.body for each in replies if each.status == status] for status in (201, 400))  # type: ignore[return-value]

"""A test scenario: a provider with an agent, a consumer with a group, and a token for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

from control_plane import Client


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


@dataclass
class Scenario:
    admin: Client

    def participant(self, name: str = "participant") -> str:
        found: str = self.admin.post("/participants", {"name": unique(name)})["id"]
        return found

    def token(self, role: str, scope_id: str) -> Client:
        token = self.admin.post("/tokens", {"name": unique(role), "role": role, "scopeId": scope_id})
        return self.admin.as_token(token["value"])

    @cached_property
    def provider_id(self) -> str:
        return self.participant("provider")

    @cached_property
    def consumer_id(self) -> str:
        return self.participant("consumer")

    @cached_property
    def provider(self) -> Client:
        return self.token("participant", self.provider_id)

    @cached_property
    def consumer(self) -> Client:
        return self.token("participant", self.consumer_id)

    @cached_property
    def stranger(self) -> Client:
        return self.token("participant", self.participant("stranger"))

    @cached_property
    def agent_type_id(self) -> str:
        return self.agent_type()["id"]  # type: ignore[no-any-return]

    def agent_type(self, **more: Any) -> Any:
        return self.admin.post("/agent-types", {"name": unique("agent-type"), **more})

    @cached_property
    def agent_id(self) -> str:
        return self.new_agent()["id"]  # type: ignore[no-any-return]

    def new_agent(self, **more: Any) -> Any:
        body = {"name": unique("agent"), "providerId": self.provider_id, "agentTypeId": self.agent_type_id, **more}
        return self.admin.post("/agents", body)

    @cached_property
    def agent(self) -> Client:
        return self.token("agent", self.agent_id)

    @cached_property
    def group_id(self) -> str:
        return self.admin.post("/service-groups", {"name": unique("group"), "consumerId": self.consumer_id})["id"]  # type: ignore[no-any-return]

    def order(self, service_type: Any, properties: object = None, **more: Any) -> Any:
        body = {
            "serviceTypeId": service_type["id"],
            "name": unique("service"),
            "properties": properties or {},
            "groupId": self.group_id,
            "agentId": self.agent_id,
        }
        return self.consumer.post("/services", {**body, **more})

    def service(self, service_id: str) -> Any:
        return self.consumer.get(f"/services/{service_id}")

    def next_job_seen(self, service: Any) -> Any:
        """The pending job of the service, not claimed."""
        (job,) = self.agent.get(f"/jobs/pending?serviceId={service['id']}")
        return job

    def next_job(self, service: Any) -> Any:
        """The pending job of the service, claimed without a lease."""
        job = self.next_job_seen(service)
        self.agent.post(f"/jobs/{job['id']}/claim", expect=204)
        return job

    def complete(self, service: Any, **report: Any) -> Any:
        """Completes the next job of the service and returns the service."""
        job = self.next_job(service)
        self.agent.post(f"/jobs/{job['id']}/complete", report, expect=204)
        return self.service(service["id"])

    def fail(self, service: Any, message: str) -> Any:
        job = self.next_job(service)
        self.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": message}, expect=204)
        return self.service(service["id"])

    def do(self, service: Any, action: str, body: object = None, *, expect: int = 200) -> Any:
        return self.consumer.post(f"/services/{service['id']}/{action}", body, expect=expect)

    def jobs(self, service: Any) -> list[Any]:
        found: list[Any] = self.consumer.get(f"/jobs?serviceId={service['id']}&pageSize=100")["items"]
        return found

    def service_type(self, property_schema: object = None, lifecycle_schema: object = None, **more: Any) -> Any:
        body = {"name": unique("type"), "propertySchema": property_schema, "lifecycleSchema": lifecycle_schema}
        created = self.admin.post("/service-types", {**body, **more})
        known = self.admin.get(f"/agent-types/{self.agent_type_id}")["serviceTypeIds"]
        self.admin.patch(f"/agent-types/{self.agent_type_id}", {"serviceTypeIds": [*known, created["id"]]})
        return created

"""One row of each noun and a client for each kind of caller, for tests over all endpoints."""

from __future__ import annotations

import re
from typing import Any

import seed_text
from blueprint_samples import blueprint, push
from control_plane import Client
from mainstay.control.api.contract import Endpoint
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


class SampleRows:
    """One row of each noun that belongs to a provider and a consumer, and a client for each kind of caller."""

    def __init__(self, admin: Client) -> None:
        scenario = Scenario(admin)
        kind = scenario.service_type({"key": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        service = scenario.order(kind, {"key": "k"})
        job = scenario.next_job(service)
        scenario.agent.post(f"/jobs/{job['id']}/complete", {"report": {"changed": 1}}, expect=204)
        pool_set = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        pool = scenario.provider.post(
            "/service-pools",
            {
                "name": "p",
                "type": "t",
                "propertyType": "string",
                "generatorType": "list",
                "servicePoolSetId": pool_set["id"],
            },
        )
        value = scenario.provider.post(
            "/service-pool-values", {"servicePoolId": pool["id"], "name": "v", "value": "v"}
        )
        option_type = scenario.admin.post(
            "/service-option-types", {"name": "o", "type": unique("o").replace("-", "_")}
        )
        option = scenario.provider.post(
            "/service-options",
            {
                "providerId": scenario.provider_id,
                "serviceOptionTypeId": option_type["id"],
                "name": "o",
                "value": 1,
                "enabled": False,
            },
        )
        removed = scenario.order(kind, {"key": "k"})
        scenario.complete(removed)
        admin.delete(f"/services/{removed['id']}?force=true")
        (orphan,) = scenario.agent.get("/orphans")["items"]
        failure = {"errorMessage": "x", "report": {"changed": 0}}
        scenario.agent.post(f"/orphans/{orphan['id']}/fail", failure, expect=204)
        config_pool = scenario.provider.post(
            "/config-pools",
            {
                "name": "c",
                "type": unique("c"),
                "propertyType": "string",
                "generatorType": "list",
                "participantId": scenario.provider_id,
            },
        )
        config_value = scenario.provider.post(
            "/config-pool-values", {"configPoolId": config_pool["id"], "name": "v", "value": "v"}
        )
        templates = {"configTemplate": "c", "cmdTemplate": "{{.configUrl}} {{.authToken}}"}
        admin.patch(f"/agent-types/{scenario.agent_type_id}", templates)
        installed = admin.post(f"/agents/{scenario.agent_id}/install-command")
        enrolment_code = scenario.provider.post(
            "/enrolment-codes",
            {"agentTypeId": scenario.agent_type_id, "providerId": scenario.provider_id, "count": 3},
        )
        rollout = admin.post(
            "/rollouts",
            {"serviceTypeId": kind["id"], "action": "start", "batch": 1, "maxFailures": 1, "status": "Paused"},
        )
        metric = scenario.admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
        other = Scenario(admin)
        self.clients = {
            "admin": admin,
            "provider": scenario.provider,
            "consumer": scenario.consumer,
            "agent": scenario.agent,
            "foreign participant": scenario.stranger,
            "foreign agent": other.agent,
        }
        self.ids = {
            "participants": scenario.consumer_id,
            "tokens": scenario.provider.get("/tokens")["items"][0]["id"],
            "agent-types": scenario.agent_type_id,
            "service-types": kind["id"],
            "agents": scenario.agent_id,
            "service-groups": scenario.group_id,
            "services": service["id"],
            "jobs": job["id"],
            "service-option-types": option_type["id"],
            "service-options": option["id"],
            "service-pool-sets": pool_set["id"],
            "service-pools": pool["id"],
            "service-pool-values": value["id"],
            "config-pools": config_pool["id"],
            "config-pool-values": config_value["id"],
            "metric-types": metric["id"],
            "orphans": orphan["id"],
            "enrolment-codes": enrolment_code["id"],
            "rollouts": rollout["id"],
            "blueprints": push(admin, blueprint(unique("sample")))["digest"],
        }
        # Values for references to other rows, in bodies and filters.
        self.named = {
            "providerId": scenario.provider_id,
            "consumerId": scenario.consumer_id,
            "participantId": scenario.consumer_id,
            "scopeId": scenario.agent_id,
            "agentId": scenario.agent_id,
            "agentTypeId": scenario.agent_type_id,
            "serviceTypeId": kind["id"],
            "serviceTypeIds": [kind["id"]],
            "groupId": scenario.group_id,
            "serviceId": service["id"],
            "entityId": service["id"],
            "servicePoolSetId": pool_set["id"],
            "servicePoolId": pool["id"],
            "configPoolId": config_pool["id"],
            "serviceOptionTypeId": option_type["id"],
            "typeId": metric["id"],
            "typeName": metric["name"],
            "agentInstanceId": "i-1",
        }
        self.install_token = installed["url"].split("/")[-2]
        self.reference = service["properties"]["key"].removeprefix("vault://")

    def path(self, endpoint: Endpoint) -> str:
        values = self.values(endpoint)
        return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], endpoint.path)

    def values(self, endpoint: Endpoint) -> dict[str, str]:
        """The value of each parameter in the path."""
        noun = endpoint.path.split("/")[3]
        return {
            "id": self.ids.get(noun, ""),
            "action": "fly",
            "token": self.install_token,
            "reference": self.reference,
            "digest": "sha256:0",
            "planId": self.ids["services"],
            "serviceId": self.ids["services"],
            "resourceId": "r",
            "typeId": self.ids["metric-types"],
        }

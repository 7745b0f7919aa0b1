"""Service types: definitions, exports, validation of orders, and changes."""

from __future__ import annotations

from typing import Any

import seed_text
from scenario import Scenario, unique

VM: Any = seed_text.block("VM Service Type with Mixed Authorizers")


def test_a_definition_is_returned_as_written(scenario: Scenario) -> None:
    lifecycle = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
    made = scenario.service_type(VM, lifecycle)
    assert made["propertySchema"] == VM
    assert list(made["propertySchema"]) == list(VM)
    assert made["lifecycleSchema"] == lifecycle
    assert scenario.consumer.get(f"/service-types/{made['id']}") == made
    scenario.provider.post("/service-types", {"name": unique("t")}, expect=403)


def test_a_bad_definition_is_refused_with_all_its_faults(scenario: Scenario) -> None:
    body = {
        "name": unique("t"),
        "propertySchema": {
            "cpu": {"type": "number", "validators": [{"type": "min", "config": {"value": "x"}}]},
            "y": {"type": "?"},
        },
        "lifecycleSchema": {"states": [{"name": "New"}], "actions": [], "initialState": "Old"},
    }
    refused = scenario.admin.post("/service-types", body, expect=400)
    assert refused["status"] == "Validation failed"
    paths = [fault["path"] for fault in refused["errors"]]
    assert "cpu.validators[0].config.value" in paths
    assert any(path.startswith("lifecycleSchema") for path in paths)


def test_a_definition_is_exported_as_json_schema_report_and_svg(scenario: Scenario) -> None:
    made = scenario.service_type(VM, seed_text.block("Example 2: Advanced Lifecycle with Error Handling"))
    schema = scenario.consumer.get(f"/service-types/{made['id']}/json-schema")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "cpu" in schema["properties"]
    report = scenario.agent.get(f"/service-types/{made['id']}/lifecycle-report")
    assert "no-error-path" in {finding["code"] for finding in report["findings"]}
    picture = scenario.consumer.call("GET", f"/api/v1/service-types/{made['id']}/lifecycle.svg", expect=200)
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert b"Provisioning" in picture.body


def test_an_order_can_be_validated_without_placing_it(scenario: Scenario) -> None:
    made = scenario.service_type(VM)
    path = f"/service-types/{made['id']}/validate"
    good = {"instanceName": "vm-1", "region": "us-east-1", "cpu": 4, "memory": 8, "diskSize": 50, "imageId": "i"}
    assert scenario.consumer.post(path, {"properties": good}, expect=200) == {"valid": True, "errors": []}
    bad = scenario.consumer.post(path, {"properties": {**good, "cpu": 3, "hostname": "h", "x": 1}}, expect=200)
    assert bad["valid"] is False
    assert {fault["path"]: fault["message"] for fault in bad["errors"]} == {
        "x": "unknown property",
        "cpu": "value is not in allowed enum values",
        "hostname": "hostname: property can only be set by: [agent]",
    }
    with_agent = scenario.consumer.post(path, {"properties": good, "agentId": scenario.agent_id}, expect=200)
    assert with_agent["errors"] == [{"path": "publicIp", "message": "agent does not have a pool set configured"}]
    scenario.stranger.post(path, {"properties": good, "groupId": scenario.group_id}, expect=403)
    scenario.consumer.post(path, {"properties": good, "agentId": scenario.group_id}, expect=400)


def test_options_are_checked_against_the_provider(scenario: Scenario) -> None:
    scenario.new_agent()
    kind = unique("os").replace("-", "_")
    rule = {"type": "string", "validators": [{"type": "serviceOption", "config": {"value": kind}}]}
    made = scenario.service_type({"os": rule})
    path = f"/service-types/{made['id']}/validate"

    def messages(**more: Any) -> list[str]:
        reply = scenario.consumer.post(path, {"properties": {"os": "ubuntu"}, **more}, expect=200)
        return [fault["message"] for fault in reply["errors"]]

    assert messages() == ["service option validation requires provider ID in context"]
    assert messages(providerId=scenario.provider_id) == [f"service option type '{kind}' not found"]
    option_type = scenario.admin.post("/service-option-types", {"name": "OS", "type": kind})
    missing = ["service option with value 'ubuntu' not found or not enabled for provider"]
    assert messages(agentId=scenario.agent_id) == missing
    option = {
        "providerId": scenario.provider_id,
        "serviceOptionTypeId": option_type["id"],
        "name": "U",
        "value": "ubuntu",
    }
    scenario.provider.post("/service-options", option)
    assert messages(agentId=scenario.agent_id) == []
    assert messages(providerId=scenario.consumer_id) == missing


def test_a_type_is_renamed_and_deleted(scenario: Scenario) -> None:
    made = scenario.admin.post("/service-types", {"name": unique("t")})
    changed = scenario.admin.patch(f"/service-types/{made['id']}", {"name": unique("u"), "propertySchema": {}})
    assert changed["propertySchema"] == {}
    assert scenario.admin.patch(f"/service-types/{made['id']}", {"propertySchema": {"x": {"type": "?"}}}, expect=400)
    scenario.admin.delete(f"/service-types/{made['id']}")
    scenario.admin.get(f"/service-types/{made['id']}", expect=404)

"""Responses and services are bounded: the number of listed faults, and the size of properties and reports."""

from __future__ import annotations

from typing import Any

import pytest

import seed_text
from control_plane import Server
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
KIB = 1024


@pytest.fixture
def scenario(embedded: Server) -> Scenario:
    return Scenario(embedded.admin)


def order(scenario: Scenario, kind: Any, properties: Any) -> Any:
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    return scenario.consumer.post("/services", {**body, "properties": properties}, expect=400)


def too_large(reply: Any, what: str, limit: int) -> bool:
    (fault,) = reply["errors"]
    assert fault["path"] == ""
    return str(fault["message"]).startswith(what) and f"exceed the maximum of {limit}" in fault["message"]


def test_the_first_faults_are_listed_and_the_rest_counted(scenario: Scenario) -> None:
    kind = scenario.service_type({"p": {"type": "string"}}, SIMPLE)
    unknown = {f"k{number}": 1 for number in range(5000)}
    listed = [{"path": f"k{number}", "message": "unknown property"} for number in range(100)]
    expected = [*listed, {"path": "", "message": "and 4900 more"}]
    assert order(scenario, kind, unknown)["errors"] == expected
    path = f"/service-types/{kind['id']}/validate"
    assert scenario.consumer.post(path, {"properties": unknown}, expect=200) == {"valid": False, "errors": expected}
    exactly = dict(list(unknown.items())[:100])
    assert order(scenario, kind, exactly)["errors"] == listed


def test_faults_of_definitions_have_the_same_limit(scenario: Scenario) -> None:
    body = {"name": unique("t"), "propertySchema": {f"k{number}": {} for number in range(300)}}
    found = scenario.admin.post("/service-types", body, expect=400)["errors"]
    assert (len(found), found[-1]) == (101, {"path": "", "message": "and 200 more"})
    many = {"name": unique("t"), "propertySchema": {f"k{number}": {"type": "json"} for number in range(10_001)}}
    (fault,) = scenario.admin.post("/service-types", many, expect=400)["errors"]
    assert fault["message"] == "the schema has more than 10000 definitions"


@pytest.mark.parametrize(
    ("schema", "properties"),
    [
        ({"a": {"type": "string"}}, {f"k{number}": 1 for number in range(20_000)}),
        ({"a": {"type": "array", "items": {"type": "string"}}}, {"a": [1_000_000] * 40_000}),
        (None, {"a": "x" * (160 * KIB)}),
    ],
    ids=["unknown properties", "wrong items", "free form"],
)
def test_properties_beyond_the_limit_are_one_fault(scenario: Scenario, schema: Any, properties: Any) -> None:
    kind = scenario.service_type(schema, SIMPLE)
    assert too_large(order(scenario, kind, properties), "properties of ", 160 * KIB)
    path = f"/service-types/{kind['id']}/validate"
    assert too_large(
        scenario.consumer.post(path, {"properties": properties}, expect=200), "properties of ", 160 * KIB
    )


def test_properties_cannot_exceed_the_limit_step_by_step(scenario: Scenario) -> None:
    half = "x" * (90 * KIB)
    service = scenario.order(scenario.service_type(None, SIMPLE), {"a": half})
    job = scenario.next_job(service)
    path = f"/jobs/{job['id']}/complete"
    assert too_large(scenario.agent.post(path, {"properties": {"b": half}}, expect=400), "properties of ", 160 * KIB)
    scenario.agent.post(path, {"properties": {"b": 1}}, expect=204)
    change = f"/services/{service['id']}"
    assert too_large(
        scenario.consumer.patch(change, {"properties": {"b": half}}, expect=400), "properties of ", 160 * KIB
    )
    scenario.consumer.patch(change, {"properties": {"a": None, "b": half}})
    assert scenario.complete(service)["properties"] == {"b": half}


def test_a_secret_counts_as_its_reference_once_it_is_sealed(scenario: Scenario) -> None:
    secret = {"type": "string", "secret": {"type": "persistent"}}
    service = scenario.order(scenario.service_type({"a": secret, "b": secret}, SIMPLE), {"a": "x" * (100 * KIB)})
    scenario.complete(service)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"b": "y" * (100 * KIB)}})
    assert scenario.complete(service)["properties"].keys() == {"a", "b"}


def test_reports_of_agents_about_a_service_are_bounded(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    job = scenario.next_job(service)
    path = f"/jobs/{job['id']}/complete"
    refused = scenario.agent.post(path, {"agentInstanceData": ["x" * (32 * KIB)]}, expect=400)
    assert too_large(refused, "agentInstanceData of ", 32 * KIB)
    assert refused["code"] == "too_large"
    scenario.agent.post(path, {"agentInstanceData": ["x" * (31 * KIB)]}, expect=204)
    condition = {"type": "a", "status": "True", "message": "x" * (40 * KIB)}
    path = f"/services/{service['id']}/conditions"
    refused = scenario.agent.put(path, [condition, {**condition, "type": "b"}], expect=400)
    assert too_large(refused, "conditions of ", 64 * KIB)
    scenario.agent.put(path, [condition])


def test_the_configuration_of_an_agent_is_bounded(scenario: Scenario) -> None:
    body = {"configuration": {"a": "x" * (160 * KIB)}}
    (fault,) = scenario.provider.patch(f"/agents/{scenario.agent_id}", body, expect=400)["errors"]
    assert fault["path"] == "configuration"


def test_values_of_pools_and_options_and_definitions_are_bounded(scenario: Scenario) -> None:
    """Rows are read by the page, a hundred at once."""
    large = "x" * (32 * KIB)
    pool_set = scenario.provider.post("/service-pool-sets", {"name": unique("s"), "providerId": scenario.provider_id})
    pool = scenario.provider.post(
        "/service-pools",
        {
            "name": "p",
            "type": "t",
            "servicePoolSetId": pool_set["id"],
            "generatorType": "list",
            "propertyType": "string",
        },
    )
    value = {"name": "v", "value": large, "servicePoolId": pool["id"]}
    assert too_large(scenario.provider.post("/service-pool-values", value, expect=400), "value of ", 32 * KIB)
    option_type = scenario.admin.post("/service-option-types", {"name": unique("o"), "type": "o_s"})
    option = {"name": "p", "value": large, "serviceOptionTypeId": option_type["id"]}
    option["providerId"] = scenario.provider_id
    assert too_large(scenario.provider.post("/service-options", option, expect=400), "value of ", 32 * KIB)
    kept = scenario.provider.post("/service-options", {**option, "value": "x"})
    refused = scenario.provider.patch(f"/service-options/{kept['id']}", {"value": [large]}, expect=400)
    assert too_large(refused, "value of ", 32 * KIB)
    schema = {"a": {"type": "string", "label": "x" * (512 * KIB)}}
    for path, name in (
        ("/agent-types", "configurationSchema"),
        ("/service-types", "propertySchema"),
        ("/service-types", "lifecycleSchema"),
    ):
        refused = scenario.admin.post(path, {"name": unique("t"), name: schema}, expect=400)
        assert too_large(refused, f"{name} of ", 512 * KIB)
        created = scenario.admin.post(path, {"name": unique("t")})
        refused = scenario.admin.patch(f"{path}/{created['id']}", {name: schema}, expect=400)
        assert too_large(refused, f"{name} of ", 512 * KIB)


def test_the_name_of_an_option_type_has_no_line_feed(scenario: Scenario) -> None:
    (fault,) = scenario.admin.post("/service-option-types", {"name": "x", "type": "x\n"}, expect=400)["errors"]
    assert fault["path"] == "type"

"""The chapters of the seed over HTTP: its types as written, its orders, its stated errors and results."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

import seed_text
from control_plane import Client
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
ADVANCED: Any = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
DATABASE: Any = seed_text.block("Example 3: Database Lifecycle with Maintenance States")
VM: Any = seed_text.block("VM Service Type with Mixed Authorizers")
MIXED: Any = seed_text.block("Property Secrets", "**Mixed Example:**")
GOOD_VM = {"instanceName": "web-01", "region": "us-east-1", "cpu": 4, "memory": 8, "diskSize": 50, "imageId": "ami-1"}


def blocks(*headings: str) -> Any:
    """The properties of all blocks under these headings, merged."""
    found: dict[str, Any] = {}
    for each in seed_text.json_blocks():
        if each.heading in headings:
            found |= each.parse()  # type: ignore[call-overload]
    return found


def send(client: Client, request: seed_text.Request, expect: int) -> Any:
    return client.call(request.method, f"/api/v1{request.path}", request.body, expect=expect).body


def faults(reply: Any) -> dict[str, str]:
    return {fault["path"]: fault["message"] for fault in reply["errors"]}


def refused_order(scenario: Scenario, kind: Any, properties: Any, **more: Any) -> dict[str, str]:
    body = {
        "serviceTypeId": kind["id"],
        "name": "x",
        "groupId": scenario.group_id,
        "agentId": scenario.agent_id,
        **more,
    }
    return faults(scenario.consumer.post("/services", {**body, "properties": properties}, expect=400))


def validation_faults(scenario: Scenario, kind: Any, properties: Any, **more: Any) -> dict[str, str]:
    body = {"properties": properties, "agentId": scenario.agent_id, "groupId": scenario.group_id, **more}
    verdict = scenario.consumer.post(f"/service-types/{kind['id']}/validate", body, expect=200)
    assert verdict["valid"] is not bool(verdict["errors"])
    return faults(verdict)


def patch(scenario: Scenario, service: Any, properties: Any, *, expect: int = 200) -> Any:
    return scenario.consumer.patch(f"/services/{service['id']}", {"properties": properties}, expect=expect)


def remove(scenario: Scenario, service: Any) -> Any:
    scenario.consumer.delete(f"/services/{service['id']}")
    return scenario.complete(service)


def refused_report(scenario: Scenario, service: Any, properties: Any) -> dict[str, str]:
    """The faults of a refused completion; the job is released afterwards."""
    job = scenario.next_job(service)
    reply = scenario.agent.post(f"/jobs/{job['id']}/complete", {"properties": properties}, expect=400)
    scenario.agent.post(f"/jobs/{job['id']}/release", expect=204)
    return faults(reply)


def type_named(scenario: Scenario, name: str) -> Any:
    """The service type with this name, created if missing: names are unique, and tests share the server."""
    found = [
        each for each in scenario.admin.get("/service-types", query={"name": name})["items"] if each["name"] == name
    ]
    if not found:
        return scenario.service_type(name=name)
    known = scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["serviceTypeIds"]
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": [*known, found[0]["id"]]})
    return found[0]


def option_type(scenario: Scenario, kind: str) -> Any:
    found: list[Any] = scenario.admin.get("/service-option-types", query={"type": kind})["items"]
    return found[0] if found else scenario.admin.post("/service-option-types", {"name": kind, "type": kind})


def pool_set(scenario: Scenario) -> str:
    """Steps 1 and 4 of the pool setup in the seed."""
    (new_set,) = seed_text.requests("Property Pool Allocation", "1. ", participant_uuid=scenario.provider_id)
    set_id: str = send(scenario.provider, new_set, 201)["id"]
    (configure,) = seed_text.requests("Property Pool Allocation", "4. ", pool_set_uuid=set_id)
    scenario.provider.patch(f"/agents/{scenario.agent_id}", configure.body)
    return set_id


def public_pool(scenario: Scenario, set_id: str) -> Any:
    """Steps 2 and 3: a list with one address."""
    (new_pool,) = seed_text.requests("Property Pool Allocation", "2. ", pool_set_uuid=set_id)
    pool = send(scenario.provider, new_pool, 201)
    (new_value,) = seed_text.requests("Property Pool Allocation", "3. ", pool_uuid=pool["id"])
    send(scenario.provider, new_value, 201)
    return pool


def free(scenario: Scenario, pool: Any) -> int:
    return int(scenario.provider.get(f"/service-pools/{pool['id']}/usage")["free"])


def reveal(scenario: Scenario, reference: str, expect: int = 200) -> Any:
    reply = scenario.agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)
    return reply.get("value")


# Property types


TYPES = blocks("String", "Integer", "Number (Float)", "Boolean", "JSON", "Object", "Array")


def test_each_property_type_is_accepted_with_its_defaults(scenario: Scenario) -> None:
    kind = scenario.service_type(TYPES)
    shown = scenario.consumer.get(f"/service-types/{kind['id']}")
    assert shown["propertySchema"] == TYPES
    given = {
        "name": "n",
        "cpu": 2,
        "metadata": {"owner": "o", "tags": ["a"]},
        "ports": [1, 65535],
        "customData": [None],
    }
    service = scenario.order(kind, given)
    defaults = {"price": 0.0, "enabled": True, "metadata": {"owner": "o", "tags": ["a"], "version": 1.0}}
    assert service["properties"] == {**given, **defaults}


@pytest.mark.parametrize("value", ["text", 1.5, {"a": [None]}, [1, "2"], False, None])
def test_a_json_property_accepts_any_value(scenario: Scenario, value: object) -> None:
    assert validation_faults(scenario, scenario.service_type(blocks("JSON")), {"customData": value}) == {}


def test_each_property_type_refuses_values_of_other_types(scenario: Scenario) -> None:
    wrong = {"name": 1, "cpu": 1.5, "price": "1", "enabled": 0, "metadata": [], "ports": [0, "x", 65536]}
    assert refused_order(scenario, scenario.service_type(TYPES), wrong) == {
        "name": "expected string, got integer",
        "cpu": "expected integer, got number",
        "price": "expected number, got string",
        "enabled": "expected boolean, got integer",
        "metadata": "expected object, got array",
        "ports[0]": "value 0 is less than minimum 1",
        "ports[1]": "expected integer, got string",
        "ports[2]": "value 65536 exceeds maximum 65535",
    }
    nested = {"name": "n", "cpu": 1, "metadata": {"tags": ["a", 2], "x": 1}, "ports": []}
    assert validation_faults(scenario, scenario.service_type(TYPES), nested) == {
        "metadata.x": "unknown property",
        "metadata.owner": "required field is missing",
        "metadata.tags[1]": "expected string, got integer",
        "ports": "array length 0 is less than minimum 1",
    }
    many = {"name": "n", "cpu": 1, "ports": list(range(1, 12))}
    assert validation_faults(scenario, scenario.service_type(TYPES), many) == {
        "ports": "array length 11 exceeds maximum 10"
    }


# Authorizers


def test_each_actor_may_set_its_own_properties_only(scenario: Scenario) -> None:
    schema = {
        name: rule
        for each in seed_text.json_blocks()
        if each.heading == "Actor Authorizer" and each.lead.startswith("**Example")
        for name, rule in each.parse().items()  # type: ignore[attr-defined]
    }
    assert schema.keys() == {"instanceName", "ipAddress", "publicIp", "hostname"}
    kind = scenario.service_type(schema)
    public_pool(scenario, pool_set(scenario))
    assert refused_order(scenario, kind, {"instanceName": "n", "ipAddress": "10.0.0.1", "publicIp": "1.2.3.4"}) == {
        "ipAddress": "ipAddress: property can only be set by: [agent]",
        "publicIp": "publicIp: property can only be set by: [system]",
    }
    service = scenario.order(kind, {"instanceName": "n", "hostname": "from-user"})
    assert refused_report(scenario, service, {"instanceName": "m", "publicIp": "1.2.3.4"}) == {
        "instanceName": "instanceName: property can only be set by: [user]",
        "publicIp": "publicIp: property can only be set by: [system]",
    }
    done = scenario.complete(service, properties={"ipAddress": "10.0.0.1", "hostname": "from-agent"})
    assert done["properties"] == {
        "instanceName": "n",
        "ipAddress": "10.0.0.1",
        "publicIp": "185.123.45.10",
        "hostname": "from-agent",
    }


def test_a_property_changes_in_allowed_states_only_and_an_immutable_one_once(scenario: Scenario) -> None:
    schema = {
        **blocks("Combining Authorizers"),
        **seed_text.block("State Authorizer", "**Example - Update Only"),  # type: ignore[dict-item]
        **seed_text.block("State Authorizer", "**Example - Hot"),  # type: ignore[dict-item]
    }
    assert schema.keys() == {"cpu", "instanceId", "diskSize", "maxConnections"}
    service = scenario.order(scenario.service_type(schema), {"cpu": 1, "diskSize": 10, "maxConnections": 5})
    scenario.complete(service, properties={"instanceId": "i-1"})
    patch(scenario, service, {"cpu": 2, "diskSize": 20})
    assert refused_report(scenario, service, {"instanceId": "i-2"}) == {
        "instanceId": "instanceId: property is immutable and cannot be changed"
    }
    assert scenario.complete(service)["properties"]["diskSize"] == 20
    scenario.do(service, "start")
    scenario.complete(service)
    changes = {"cpu": 4, "diskSize": 40, "maxConnections": 50}
    assert faults(patch(scenario, service, changes, expect=400)) == {
        "cpu": "cpu: property cannot be updated in state 'Started'",
        "diskSize": "diskSize: property cannot be updated in state 'Started'",
    }
    patch(scenario, service, {"maxConnections": 50})
    assert scenario.complete(service)["properties"]["maxConnections"] == 50


# Validators


def validated(kind: str, heading: str, number: int = 0) -> Any:
    found = [each for each in seed_text.json_blocks() if each.heading == heading and '"validators": [' in each.text]
    return {"type": kind, **found[number].parse()}  # type: ignore[dict-item]


def test_every_validator_of_the_seed_reports_its_message(scenario: Scenario) -> None:
    schema = {
        "minLength": validated("string", "minLength"),
        "maxLength": validated("string", "maxLength"),
        "pattern": validated("string", "pattern"),
        "stringEnum": validated("string", "enum", 0),
        "min": validated("number", "min"),
        "max": validated("integer", "max"),
        "numberEnum": validated("integer", "enum", 1),
        "minItems": validated("array", "minItems"),
        "maxItems": validated("array", "maxItems"),
        "uniqueItems": validated("array", "uniqueItems"),
    }
    good = {
        "minLength": "äöü", "maxLength": "x" * 50, "pattern": "a_B-9", "stringEnum": "staging", "min": 1, "max": 100,
        "numberEnum": 32, "minItems": [0], "maxItems": [0] * 10, "uniqueItems": [1, True, "1"],
    }  # fmt: skip
    kind = scenario.service_type(schema)
    assert scenario.order(kind, good)["properties"] == good
    bad = {
        "minLength": "äö", "maxLength": "x" * 51, "pattern": "a b", "stringEnum": "test", "min": 0.5, "max": 101,
        "numberEnum": 3, "minItems": [], "maxItems": [0] * 11, "uniqueItems": [{"a": 1}, {"a": 1.0}],
    }  # fmt: skip
    assert refused_order(scenario, kind, bad) == {
        "minLength": "string length 2 is less than minimum 3",
        "maxLength": "string length 51 exceeds maximum 50",
        "pattern": "string does not match pattern ^[a-zA-Z0-9_-]+$",
        "stringEnum": "value is not in allowed enum values",
        "min": "value 0.5 is less than minimum 1",
        "max": "value 101 exceeds maximum 100",
        "numberEnum": "value is not in allowed enum values",
        "minItems": "array length 0 is less than minimum 1",
        "maxItems": "array length 11 exceeds maximum 10",
        "uniqueItems": "array contains duplicate items",
    }


def test_a_referenced_service_must_be_of_an_allowed_type(scenario: Scenario) -> None:
    kind = scenario.service_type(blocks("serviceType"))
    mysql, mongo, redis = (scenario.order(type_named(scenario, name)) for name in ("MySQL", "MongoDB", "Redis"))
    order = {"database_service": mysql["id"], "storage_service": mongo["id"]}
    assert scenario.order(kind, order)["properties"] == order
    wrong = "referenced service is not of the allowed service type"
    assert refused_order(scenario, kind, {"database_service": mongo["id"], "storage_service": redis["id"]}) == {
        "database_service": wrong,
        "storage_service": wrong,
    }
    assert refused_order(scenario, kind, {"database_service": "db-1", "storage_service": str(uuid4())}) == {
        "database_service": "invalid service ID format",
        "storage_service": "referenced service does not exist",
    }


def test_a_referenced_service_must_have_the_same_origin(scenario: Scenario) -> None:
    api = type_named(scenario, "Python-API")
    kind = scenario.service_type(blocks("sameOrigin"))
    other_group = scenario.consumer.post("/service-groups", {"name": "o", "consumerId": scenario.consumer_id})["id"]
    near, far = scenario.order(api), scenario.order(api, groupId=other_group)
    order = {"related_service": far["id"], "dependent_service": near["id"], "backend_service": far["id"]}
    assert scenario.order(kind, order)["properties"] == order
    assert refused_order(scenario, kind, {**order, "dependent_service": far["id"]}) == {
        "dependent_service": "referenced service must belong to the same service group"
    }
    # An admin may read every service, so it gets the reason; for others a foreign service does not exist.
    foreign = scenario.admin.post(
        "/services",
        {"serviceTypeId": api["id"], "name": "f", "consumerId": scenario.provider_id, "agentId": scenario.agent_id},
    )
    body = {"properties": {**order, "backend_service": foreign["id"]}, "groupId": scenario.group_id}
    path = f"/service-types/{kind['id']}/validate"
    assert faults(scenario.admin.post(path, body, expect=200)) == {
        "backend_service": "referenced service must belong to the same consumer"
    }
    assert faults(scenario.consumer.post(path, body, expect=200)) == {
        "backend_service": "referenced service does not exist"
    }


def test_only_enabled_options_of_the_provider_can_be_ordered(scenario: Scenario) -> None:
    written: Any = seed_text.block("serviceOption", "Service type schema:")
    kind = scenario.service_type(**{**written, "name": unique(written["name"])})
    (new_type,) = seed_text.requests("serviceOption", "Administrators manage")
    if not scenario.admin.get("/service-option-types", query={"type": "os"})["items"]:
        send(scenario.admin, new_type, 201)
    option_type(scenario, "machine_type")
    region = option_type(scenario, "region")
    order: Any = seed_text.block("serviceOption", "Valid service creation:")
    missing = "service option with value '{}' not found or not enabled for provider"
    given = order["properties"]
    assert refused_order(scenario, kind, given) == {name: missing.format(value) for name, value in given.items()}
    options: Any = seed_text.block("serviceOption", "Provider's service options:")
    made = [
        scenario.provider.post("/service-options", {**each, "providerId": scenario.provider_id}) for each in options
    ]
    names = {"participant_uuid": scenario.provider_id, "option_type_uuid": region["id"]}
    (new_option,) = seed_text.requests("serviceOption", "Providers manage", **names)
    assert isinstance(new_option.body, dict)
    scenario.provider.post("/service-options", {**new_option.body, "name": "East", "value": "us-east-1"})
    service = scenario.order(kind, given, name=order["name"])
    assert (service["name"], service["properties"]) == (order["name"], given)
    scenario.provider.patch(f"/service-options/{made[0]['id']}", {"enabled": False})
    assert refused_order(scenario, kind, given) == {"operatingSystem": missing.format("ubuntu-22.04")}
    scenario.order(kind, {**given, "operatingSystem": "ubuntu-24.04"})


def test_an_option_of_any_type_is_compared_as_json(scenario: Scenario) -> None:
    kind = scenario.service_type(seed_text.block("serviceOption", "Disk type with complex value:"))
    disks = option_type(scenario, "disk_type")
    option = {"providerId": scenario.provider_id, "serviceOptionTypeId": disks["id"], "name": "ssd"}
    scenario.provider.post("/service-options", {**option, "value": {"type": "ssd", "size": 100}})
    scenario.order(kind, {"diskConfig": {"size": 100.0, "type": "ssd"}})
    for wrong in ({"type": "ssd"}, {"type": "ssd", "size": "100"}, {"type": "ssd", "size": 100, "x": 1}):
        (message,) = refused_order(scenario, kind, {"diskConfig": wrong}).values()
        assert message.endswith("not found or not enabled for provider")
    system: Any = seed_text.block("serviceOption", "**Basic Usage:**")
    zones = {**system["operatingSystem"], "type": "array", "items": {"type": "string"}}
    listed = scenario.service_type({"zones": zones})
    os_type = option_type(scenario, "os")
    scenario.provider.post(
        "/service-options",
        {**option, "serviceOptionTypeId": os_type["id"], "value": ["us-east-1a", "us-east-1b"]},
    )
    scenario.order(listed, {"zones": ["us-east-1a", "us-east-1b"]})
    assert refused_order(scenario, listed, {"zones": ["us-east-1b", "us-east-1a"]}).keys() == {"zones"}


# Pools and generators


def test_the_complete_pool_example_allocates_and_releases(scenario: Scenario) -> None:
    chapter = "Property Pool Allocation"
    written: Any = seed_text.block(chapter, "Service type schema:")
    kind = scenario.service_type(**{**written, "name": unique(written["name"])})
    assert set(refused_order(scenario, kind, {}).values()) == {"agent does not have a pool set configured"}
    set_id = pool_set(scenario)
    assert refused_order(scenario, kind, {})["publicIp"] == "no pool found with type public_ip in pool set"
    public = public_pool(scenario, set_id)
    (subnet,) = seed_text.requests(chapter, "Pool setup (subnet pool)", pool_set_uuid=set_id)
    private = send(scenario.provider, subnet, 201)
    new_pool, _ = seed_text.requests(chapter, "Pool setup (complex JSON", pool_set_uuid=set_id)
    hostnames = send(scenario.provider, new_pool, 201)
    _, new_value = seed_text.requests(chapter, "Pool setup (complex JSON", hostname_pool_uuid=hostnames["id"])
    send(scenario.provider, new_value, 201)
    order: Any = seed_text.block(chapter, "Service creation (automatic allocation):")
    service = scenario.order(kind, order["properties"], name=order["name"])
    after: Any = seed_text.block(chapter, "After service creation")
    assert service["properties"] == after["properties"]
    (view,) = seed_text.requests(chapter, "View allocation status", public_ip_pool_uuid=public["id"])
    (shown,) = send(scenario.provider, view, 200)["items"]
    answer: Any = seed_text.block(chapter, "Response shows allocated status:")
    (expected,) = answer["items"]
    assert shown.keys() >= expected.keys()
    assert [shown[name] for name in ("name", "value", "propertyName", "serviceId")] == [
        expected["name"],
        expected["value"],
        expected["propertyName"],
        service["id"],
    ]
    assert refused_order(scenario, kind, {}) == {
        "publicIp": "failed to allocate from pool public_ip",
        "hostname": "failed to allocate from pool hostname",
    }
    assert (free(scenario, public), free(scenario, private), free(scenario, hostnames)) == (0, 253, 0)
    scenario.complete(service)
    remove(scenario, service)
    assert (free(scenario, public), free(scenario, private), free(scenario, hostnames)) == (1, 254, 1)
    assert scenario.order(kind)["properties"] == after["properties"]


def test_a_pool_of_integers_fits_integer_properties_only(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    (written,) = seed_text.requests("Property Pool Allocation", "2. ", pool_set_uuid=set_id)
    assert isinstance(written.body, dict)
    pool = scenario.provider.post("/service-pools", {**written.body, "type": "port", "propertyType": "integer"})
    for port in (8080, 8081):
        scenario.provider.post("/service-pool-values", {"servicePoolId": pool["id"], "name": "p", "value": port})
    rule: Any = seed_text.block("Property Pool Allocation", "**Basic Usage:**")
    port_rule = {**rule["publicIp"], "type": "integer", "generator": {"type": "pool", "config": {"poolType": "port"}}}
    kind = scenario.service_type({"port": port_rule})
    assert [scenario.order(kind)["properties"]["port"] for _ in range(2)] == [8080, 8081]
    text = scenario.service_type({"port": {**port_rule, "type": "string"}})
    assert refused_order(scenario, text, {}) == {
        "port": "property port has type string but pool port provides type integer"
    }


def test_generators_in_both_spellings_generate_values(scenario: Scenario) -> None:
    public_pool(scenario, pool_set(scenario))
    schema: Any = {
        **seed_text.block("Generators", "**Example: Pool Generator"),  # type: ignore[dict-item]
        **seed_text.block("Generators", "Generators would be configured"),  # type: ignore[dict-item]
    }
    kind = scenario.service_type(schema)
    assert refused_order(scenario, kind, {"publicIp": "1.2.3.4", "hostname": "h"}) == {
        "publicIp": "publicIp: property can only be set by: [system]",
        "hostname": "hostname: property can only be set by: [system]",
    }
    service = scenario.order(kind)
    assert service["properties"] == {"publicIp": "185.123.45.10", "hostname": f"server-{service['id']}"}


# Secrets


def test_the_web_application_of_the_seed_keeps_each_secret_for_its_lifetime(scenario: Scenario) -> None:
    written: Any = seed_text.block("Property Secrets", "Service type with secrets:")
    order: Any = seed_text.block("Property Secrets", "Service creation request:")
    kept: Any = seed_text.block("Property Secrets", "Stored service properties")
    kind = scenario.service_type(**{**written, "name": unique(written["name"])})
    service = scenario.order(kind, order["properties"], name=order["name"])
    found, given = service["properties"], order["properties"]
    assert found.keys() == kept.keys()
    assert found["databaseConfig"].keys() == kept["databaseConfig"].keys()
    references = [found["apiKey"], found["initialPassword"], found["databaseConfig"]["password"]]
    plain = [given["apiKey"], given["initialPassword"], given["databaseConfig"]["password"]]
    assert [reveal(scenario, each) for each in references] == plain
    after = scenario.complete(service)["properties"]
    assert after == {name: value for name, value in found.items() if name != "initialPassword"}
    reveal(scenario, references[1], expect=404)
    assert [reveal(scenario, references[0]), reveal(scenario, references[2])] == [plain[0], plain[2]]
    remove(scenario, service)
    for reference in references:
        reveal(scenario, reference, expect=404)


def test_nested_secrets_of_both_kinds_are_deleted_at_the_end_of_their_lifetime(scenario: Scenario) -> None:
    kind = scenario.service_type(seed_text.block("Property Secrets", "However, objects can contain"))
    users = [{"username": name, "password": f"p-{name}"} for name in "ab"]
    service = scenario.order(kind, {"database": {"host": "h", "password": "p-db"}, "users": users})
    persistent = service["properties"]["database"]["password"]
    ephemeral = [user["password"] for user in service["properties"]["users"]]
    assert [reveal(scenario, each) for each in (persistent, *ephemeral)] == ["p-db", "p-a", "p-b"]
    done = scenario.complete(service)
    assert done["properties"] == {
        "database": {"host": "h", "password": persistent},
        "users": [{"username": "a"}, {"username": "b"}],
    }
    for reference in ephemeral:
        reveal(scenario, reference, expect=404)
    patch(scenario, service, {"users": [{"username": "c", "password": "p-c"}]})
    (params,) = [job["params"] for job in scenario.jobs(service) if job["status"] == "Pending"]
    assert reveal(scenario, params["users"][0]["password"]) == "p-c"
    scenario.fail(service, "no")
    reveal(scenario, params["users"][0]["password"], expect=404)
    assert reveal(scenario, persistent) == "p-db"
    assert remove(scenario, service)["properties"]["database"] == {"host": "h"}
    reveal(scenario, persistent, expect=404)


def test_each_job_has_its_own_ephemeral_secrets(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(MIXED), {"apiKey": "k", "setupPassword": "one"})
    key, first = service["properties"]["apiKey"], service["properties"]["setupPassword"]
    scenario.complete(service)
    reveal(scenario, first, expect=404)
    patch(scenario, service, {"setupPassword": "two"})
    second = scenario.next_job_seen(service)["params"]["setupPassword"]
    assert (second != first, reveal(scenario, second)) == (True, "two")
    assert scenario.complete(service)["properties"] == {"apiKey": key}
    reveal(scenario, second, expect=404)
    assert reveal(scenario, key) == "k"


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (
            {"type": "object", "secret": {"type": "persistent"}},
            "only primitive types (string, integer, number, boolean, json) can be secrets",
        ),
        ({"type": "string", "secret": {"type": "eternal"}}, "secret type must be 'persistent' or 'ephemeral'"),
        ({"type": "string", "secret": {}}, "secret configuration must include 'type' field"),
        ({"type": "string", "generator": {"type": "pool"}}, "pool generator config missing 'poolType'"),
        (
            {"type": "string", "generator": {"type": "pool", "config": {"poolType": 1}}},
            "pool generator config 'poolType' must be a string",
        ),
        (
            {"type": "string", "generator": {"type": "pool", "config": {"poolType": ""}}},
            "pool generator config 'poolType' cannot be empty",
        ),
        (
            {"type": "reference", "validators": [{"type": "serviceType", "config": {"value": 5}}]},
            "serviceType validator value must be a string or array of strings",
        ),
        (
            {"type": "string", "validators": [{"type": "serviceOption", "config": {"value": 5}}]},
            "serviceOption validator value must be a string (serviceOptionType)",
        ),
    ],
)
def test_an_invalid_definition_is_refused_with_the_message_of_the_seed(
    scenario: Scenario, definition: Any, message: str
) -> None:
    assert message in seed_text.listed_messages()
    body = {"name": unique("t"), "propertySchema": {"p": definition}}
    reply = scenario.admin.post("/service-types", body, expect=400)
    assert list(faults(reply).values()) == [message]


# The complete examples and the API's usage


def test_the_vm_of_the_seed_passes_through_its_whole_lifecycle(scenario: Scenario) -> None:
    kind = scenario.service_type(VM, SIMPLE)
    pool = public_pool(scenario, pool_set(scenario))
    service = scenario.order(kind, {**GOOD_VM, "tags": {"environment": "prod"}})
    assert service["properties"]["publicIp"] == "185.123.45.10"
    reported = {"instanceId": "i-1", "ipAddress": "10.0.0.5", "hostname": "web-01.internal"}
    scenario.complete(service, properties=reported)
    wrong = {"instanceName": "a b", "region": "us-west-2", "cpu": 3, "diskSize": 1001, "tags": {"environment": "x"}}
    assert faults(patch(scenario, service, {**wrong, "publicIp": "1.1.1.1", "hostname": "h"}, expect=400)) == {
        "instanceName": "string does not match pattern ^[a-zA-Z0-9-]+$",
        "region": "region: property is immutable and cannot be changed",
        "cpu": "value is not in allowed enum values",
        "diskSize": "value 1001 exceeds maximum 1000",
        "publicIp": "publicIp: property can only be set by: [system]",
        "hostname": "hostname: property can only be set by: [agent]",
        "tags.environment": "value is not in allowed enum values",
    }
    patch(scenario, service, {"cpu": 8, "tags": {"owner": "me"}})
    done = scenario.complete(service)["properties"]
    assert done == {
        **GOOD_VM,
        **reported,
        "cpu": 8,
        "publicIp": "185.123.45.10",
        "tags": {"environment": "prod", "owner": "me"},
    }
    scenario.do(service, "start")
    scenario.complete(service)
    assert faults(patch(scenario, service, {"memory": 16}, expect=400)) == {
        "memory": "memory: property cannot be updated in state 'Started'"
    }
    assert remove(scenario, service)["status"] == "Deleted"
    assert free(scenario, pool) == 1


def test_the_disk_of_the_seed_is_resized_by_the_user_and_reported_by_the_agent(scenario: Scenario) -> None:
    kind = scenario.service_type(seed_text.block("Disk Service Type"))
    assert refused_order(scenario, kind, {"name": "d", "sizeGb": 16385, "type": "tape"}) == {
        "sizeGb": "value 16385 exceeds maximum 16384",
        "type": "value is not in allowed enum values",
    }
    service = scenario.order(kind, {"name": "d", "sizeGb": 10, "type": "nvme"})
    scenario.complete(service, properties={"diskId": "d-1", "actualSizeGb": 10, "devicePath": "/dev/a"})
    patch(scenario, service, {"sizeGb": 20})
    assert refused_report(scenario, service, {"devicePath": "/dev/b"}) == {
        "devicePath": "devicePath: property is immutable and cannot be changed"
    }
    grown = scenario.complete(service, properties={"actualSizeGb": 20})["properties"]
    assert (grown["sizeGb"], grown["actualSizeGb"], grown["diskId"]) == (20, 20, "d-1")
    assert faults(patch(scenario, service, {"type": "ssd"}, expect=400)) == {
        "type": "type: property is immutable and cannot be changed"
    }


def test_the_validate_endpoint_answers_as_in_the_seed(scenario: Scenario) -> None:
    schema = {
        "cpu": {"type": "integer", "required": True},
        "memory": {"type": "integer", "validators": [{"type": "enum", "config": {"values": [2048]}}]},
        "image_name": {"type": "string"},
        "environment": {"type": "string"},
    }
    kind = scenario.service_type(schema)
    (request,) = seed_text.requests("Validating Properties")
    right = scenario.consumer.post(f"/service-types/{kind['id']}/validate", request.body, expect=200)
    assert right == seed_text.block("Validating Properties", "Response:")
    wrong = scenario.consumer.post(f"/service-types/{kind['id']}/validate", {"properties": {"memory": 1}}, expect=200)
    assert wrong == seed_text.block("Validating Properties", "Or with validation errors:")
    assert scenario.consumer.get("/services")["totalItems"] == 0


# Lifecycles


def test_the_type_created_in_the_seed_starts_and_refuses_unknown_actions(scenario: Scenario) -> None:
    (request,) = seed_text.requests("Creating a ServiceType with Lifecycle")
    assert isinstance(request.body, dict)
    kind = scenario.service_type(**{**request.body, "name": unique("VM Instance")})
    service = scenario.order(kind)
    assert scenario.complete(service)["availableActions"] == ["start"]
    (start, restart) = (
        seed_text.requests("Performing Lifecycle Actions", lead)[0]
        for lead in ("Start a service", "Restart a service")
    )
    made_up = start.path.split("/")[2]
    scenario.consumer.post(start.path.replace(made_up, service["id"]), start.body, expect=200)
    assert scenario.complete(service)["status"] == "Started"
    unknown = scenario.consumer.post(restart.path.replace(made_up, service["id"]), expect=400)
    assert unknown["code"] == "unknown_action"
    refused = scenario.do(service, "start", expect=409)
    assert refused["error"] == "action 'start' cannot be performed in state 'Started'; it starts from: Stopped"


def test_an_action_accepts_properties_only_if_it_declares_them(scenario: Scenario) -> None:
    (request,) = seed_text.requests("Performing Lifecycle Actions", "Backup with parameters")
    given = request.body["properties"]  # type: ignore[index]
    schema = {"backupName": {"type": "string"}, "compressionLevel": {"type": "integer"}}

    def started(lifecycle: Any) -> Any:
        service = scenario.order(scenario.service_type(schema, lifecycle))
        run_action(scenario, service, "create")
        run_action(scenario, service, "start")
        return service

    silent = started(DATABASE)
    assert scenario.do(silent, "backup", request.body, expect=400)["error"] == "action 'backup' takes no properties"
    actions = [
        {**action, "requestSchemaType": "properties"} if action["name"] == "backup" else action
        for action in DATABASE["actions"]
    ]
    service = started({**DATABASE, "actions": actions})
    scenario.do(service, "backup", request.body)
    for state in ("Backup", "Started"):
        assert scenario.next_job_seen(service)["params"] == given
        assert scenario.complete(service)["status"] == state
    assert scenario.service(service["id"])["properties"] == given


def run_action(scenario: Scenario, service: Any, action: str) -> list[str]:
    """Runs an action to its end and returns the states it passed."""
    if action == "delete":
        scenario.consumer.delete(f"/services/{service['id']}")
    elif action != "create":
        scenario.do(service, action)
    states: list[str] = []
    while not states or scenario.service(service["id"])["activeJob"]:
        states.append(scenario.complete(service)["status"])
    return states


@pytest.mark.parametrize(
    ("lifecycle", "actions"),
    [
        (SIMPLE, ["create Stopped", "start Started", "stop Stopped", "start Started", "delete Deleted"]),
        (
            ADVANCED,
            [
                "create Provisioning Stopped",
                "start Starting Started",
                "restart Stopping Starting Started",
                "stop Stopping Stopped",
                "delete Deleted",
            ],
        ),
        (
            DATABASE,
            [
                "create Stopped",
                "maintenance Maintenance Stopped",
                "start Started",
                "backup Backup Started",
                "stop Stopped",
                "delete Deleted",
            ],
        ),
    ],
    ids=["simple", "advanced", "database"],
)
def test_a_lifecycle_of_the_seed_runs_from_create_to_delete(
    scenario: Scenario, lifecycle: Any, actions: list[str]
) -> None:
    kind = scenario.service_type(None, lifecycle)
    assert kind["lifecycleSchema"] == lifecycle
    service = scenario.order(kind)
    for each in actions:
        action, *states = each.split()
        assert run_action(scenario, service, action) == states, action
    refused = scenario.do(service, "start", expect=409)
    assert refused["error"] == "cannot perform action on service in terminal state: Deleted"
    assert scenario.service(service["id"])["availableActions"] == []


@pytest.mark.parametrize(
    ("actions", "failing"), [("create", "create"), ("create start", "start"), ("create start stop", "stop")]
)
def test_a_failure_in_the_second_step_of_the_advanced_lifecycle_leads_to_failed(
    scenario: Scenario, actions: str, failing: str
) -> None:
    service = scenario.order(scenario.service_type(None, ADVANCED))
    for action in actions.split()[:-1]:
        run_action(scenario, service, action)
    if failing != "create":
        scenario.do(service, failing)
    scenario.complete(service)
    assert scenario.fail(service, "quota is exceeded")["status"] == "Failed"
    assert run_action(scenario, service, "delete") == ["Deleted"]


def with_actions(*actions: Any, states: str = "") -> Any:
    """The simple lifecycle with these actions added; an action of the same name is replaced."""
    names = {action["name"] for action in actions}
    known = [each["name"] for each in SIMPLE["states"]]
    more = [{"name": name} for name in states.split() if name not in known]
    kept = [action for action in SIMPLE["actions"] if action["name"] not in names]
    return {**SIMPLE, "states": [*SIMPLE["states"], *more], "actions": [*kept, *actions]}


@pytest.mark.parametrize(
    ("message", "state"),
    [("quota was exceeded", "QuotaExceeded"), ("Quota exceeded", "Failed"), ("disk full", "Failed"), ("", "Failed")],
)
def test_the_first_error_transition_that_matches_decides(scenario: Scenario, message: str, state: str) -> None:
    lifecycle = with_actions(seed_text.block("Error Regexp Matching"), states="QuotaExceeded Failed")
    service = scenario.order(scenario.service_type(None, lifecycle))
    run_action(scenario, service, "create")
    scenario.do(service, "start")
    assert scenario.fail(service, message)["status"] == state
    assert scenario.jobs(service)[-1]["errorMessage"] == message


def test_progressive_actions_pass_through_an_intermediate_state(scenario: Scenario) -> None:
    heading = "Pattern 1: Immediate vs Progressive Actions"
    for lead, states in (("**Immediate**", ["Started"]), ("**Progressive**", ["Starting", "Started"])):
        lifecycle = with_actions(seed_text.block(heading, lead), states="Starting")
        service = scenario.order(scenario.service_type(None, lifecycle))
        run_action(scenario, service, "create")
        assert run_action(scenario, service, "start") == states


def test_a_restart_is_an_action_of_three_steps(scenario: Scenario) -> None:
    restart = seed_text.block("Pattern 2: Restart as Compound Action")
    service = scenario.order(scenario.service_type(None, with_actions(restart, states="Stopping Starting")))
    run_action(scenario, service, "create")
    run_action(scenario, service, "start")
    assert run_action(scenario, service, "restart") == ["Stopping", "Starting", "Started"]


@pytest.mark.parametrize(("message", "state"), [("a minor network error", "Started"), ("major error", "Failed")])
def test_minor_errors_degrade_and_a_failed_service_recovers(scenario: Scenario, message: str, state: str) -> None:
    upgrade = seed_text.block("Pattern 3: Graceful Degradation")
    recover = seed_text.block("Pattern 4: Recovery Actions")
    service = scenario.order(scenario.service_type(None, with_actions(upgrade, recover, states="Upgrading Failed")))
    run_action(scenario, service, "create")
    run_action(scenario, service, "start")
    scenario.do(service, "upgrade")
    assert scenario.complete(service)["status"] == "Upgrading"
    failed = scenario.fail(service, message)
    assert (failed["status"], failed["activeJob"]) == (state, None)
    if state == "Failed":
        assert failed["availableActions"] == ["recover"]
        assert run_action(scenario, service, "recover") == ["Stopped"]
    else:
        scenario.do(service, "recover", expect=409)


def test_the_old_keys_restrict_a_property_to_states(scenario: Scenario) -> None:
    written: Any = seed_text.block("Lifecycle vs Property Schema Interaction")
    service = scenario.order(scenario.service_type(written["propertySchema"], SIMPLE), {"diskSize": 1})
    run_action(scenario, service, "create")
    patch(scenario, service, {"diskSize": 2})
    scenario.complete(service)
    run_action(scenario, service, "start")
    assert faults(patch(scenario, service, {"diskSize": 3}, expect=400)) == {
        "diskSize": "diskSize: property cannot be updated in state 'Started'"
    }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"initialState": "Z"}, "lifecycleSchema.initialState"),
        ({"terminalStates": ["Z"]}, "lifecycleSchema.terminalStates[0]"),
        ({"runningStates": ["Z"]}, "lifecycleSchema.runningStates[0]"),
        (
            {"actions": [*SIMPLE["actions"], {"name": "go", "transitions": [{"from": "Stopped", "to": "Z"}]}]},
            "lifecycleSchema.actions[5].transitions[0].to",
        ),
        (
            {
                "actions": [
                    *SIMPLE["actions"],
                    {
                        "name": "go",
                        "transitions": [{"from": "New", "to": "Stopped"}, {"from": "New", "to": "Started"}],
                    },
                ]
            },
            "lifecycleSchema.actions[5].transitions[1]",
        ),
        (
            {"actions": [*SIMPLE["actions"], {"name": "go", "transitions": [{"from": "Deleted", "to": "New"}]}]},
            "lifecycleSchema.actions[5].transitions[0].from",
        ),
    ],
    ids=["initial", "terminal", "running", "transition", "two successes", "from a terminal state"],
)
def test_an_invalid_lifecycle_is_refused(scenario: Scenario, change: Any, path: str) -> None:
    body = {"name": unique("t"), "lifecycleSchema": {**SIMPLE, **change}}
    assert path in faults(scenario.admin.post("/service-types", body, expect=400))


# Terminal states


ENDINGS = with_actions(
    {
        "name": "retire",
        "timeoutSeconds": 1,
        "transitions": [{"from": "Stopped", "to": "Deleted"}, {"from": "Stopped", "to": "Deleted", "onError": True}],
    },
    {
        "name": "wait",
        "pendingTimeoutSeconds": 1,
        "transitions": [{"from": "Stopped", "to": "Deleted"}, {"from": "Stopped", "to": "Deleted", "onError": True}],
    },
)


def end_by(scenario: Scenario, service: Any, path: str) -> str:
    """Ends the service this way and returns the status of its last job."""
    if path == "force":
        scenario.consumer.delete(f"/services/{service['id']}")
        scenario.admin.delete(f"/services/{service['id']}?force=true")
        # An agent had claimed a job, so the service holds everything until the clean-up is confirmed.
        (orphan,) = scenario.agent.get(f"/orphans?serviceId={service['id']}")["items"]
        scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
        return "Cancelled"
    if path == "complete":
        remove(scenario, service)
        return "Completed"
    scenario.do(service, "wait" if path == "unclaimed" else "retire")
    if path == "unclaimed":
        return "Failed"
    job = scenario.next_job(service)
    if path == "timeout":
        return "Failed"
    if path == "cancel":
        scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "gone"}, expect=204)
    return "Cancelled" if path == "cancel" else "Failed"


@pytest.mark.parametrize("path", ["complete", "fail", "timeout", "unclaimed", "cancel", "force"])
def test_every_way_to_end_a_service_releases_what_it_held(scenario: Scenario, path: str) -> None:
    pooled: Any = seed_text.block("Property Pool Allocation", "**Basic Usage:**")
    schema = {**MIXED, **pooled, "n": {"type": "integer"}}
    kind = scenario.service_type(schema, ENDINGS)
    pool = public_pool(scenario, pool_set(scenario))
    service = scenario.order(kind, {"apiKey": "k", "setupPassword": "s", "n": 1})
    scenario.complete(service, agentInstanceId="instance-1", agentInstanceData={"a": 1})
    key = service["properties"]["apiKey"]
    assert (free(scenario, pool), reveal(scenario, key)) == (0, "k")
    outcome = end_by(scenario, service, path)
    ended = scenario.consumer.wait_for(f"/services/{service['id']}", {"status": "Deleted"})
    assert (ended["properties"]["n"], ended["agentInstanceId"], ended["activeJob"]) == (1, None, None)
    assert ended["properties"].keys().isdisjoint(MIXED)
    assert ended["availableActions"] == []
    assert scenario.jobs(service)[-1]["status"] == outcome
    assert free(scenario, pool) == 1
    reveal(scenario, key, expect=404)
    # Pool value and instance id are available to the next service.
    successor = scenario.order(kind, {"apiKey": "k", "setupPassword": "s"})
    assert successor["properties"]["publicIp"] == "185.123.45.10"
    assert scenario.complete(successor, agentInstanceId="instance-1")["agentInstanceId"] == "instance-1"

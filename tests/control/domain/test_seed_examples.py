"""Every JSON example of the seed behaves as the seed describes. The examples are read from its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

import property_requests
from mainstay.control.domain.properties.contract import Actor, Operation, ReferencedService, SecretKind
from mainstay.control.domain.properties.engine import Accepted
from mainstay.control.domain.properties.traversal import secrets_in, without_secrets
from seed_text import Block, block, json_blocks

# Schematic blocks with dots or remarks instead of values; they are not JSON.
SHAPES = 5


def test_the_seed_has_the_known_number_of_schematic_blocks() -> None:
    assert sum(not each.is_json for each in json_blocks()) == SHAPES
    assert len(json_blocks()) == 79


def is_definition(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def property_schemas() -> list[object]:
    """Blocks that are property schemas, and schemas inside of other blocks."""
    found: list[object] = []
    for each in json_blocks():
        if not each.is_json:
            continue
        document = each.parse()
        if not isinstance(document, dict) or each.heading.startswith("API"):
            continue
        if isinstance(document.get("propertySchema"), dict):
            found.append(pytest.param(document["propertySchema"], id=f"line {each.line}"))
        elif document and all(map(is_definition, document.values())):
            found.append(pytest.param(document, id=f"line {each.line}"))
    return found


@pytest.mark.parametrize("document", property_schemas())
def test_a_property_schema_of_the_seed_is_accepted(document: object) -> None:
    assert property_requests.schema_faults(document) == {}


def validator_blocks() -> list[Block]:
    return [each for each in json_blocks() if each.text.startswith('{\n  "validators"')]


FITTING = {
    "minLength": "string", "maxLength": "string", "pattern": "string", "enum": "string",
    "min": "integer", "max": "integer", "minItems": "array", "maxItems": "array", "uniqueItems": "array",
}  # fmt: skip


@pytest.mark.parametrize("each", validator_blocks(), ids=lambda each: f"line {each.line}")
def test_a_validator_of_the_seed_is_accepted_on_its_type(each: Block) -> None:
    document = json.loads(each.text)
    name = document["validators"][0]["type"]
    assert property_requests.schema_faults({"value": {"type": FITTING[name], **document}}) == {}
    wrong = "boolean" if name != "enum" else "string"
    refused = property_requests.schema_faults({"value": {"type": wrong, **document}})
    assert bool(refused) == (name != "enum")


def test_the_vm_is_created_with_its_public_address() -> None:
    vm = block("VM Service Type with Mixed Authorizers")
    lookups = property_requests.StubLookups(pools={"public_ip": ("string", ["185.123.45.10"])})
    given = {
        "instanceName": "web-01",
        "region": "us-east-1",
        "cpu": 4,
        "memory": 8,
        "diskSize": 50,
        "imageId": "ami-1",
    }
    stored = property_requests.create(vm, given, lookups)
    assert stored == {**given, "publicIp": "185.123.45.10"}


def test_the_vm_refuses_properties_of_other_actors() -> None:
    vm = block("VM Service Type with Mixed Authorizers")
    found = property_requests.faults(
        vm, {"publicIp": "1.2.3.4", "instanceId": "i-1", "tags": {"environment": "test"}}
    )
    assert found["publicIp"] == "publicIp: property can only be set by: [system]"
    assert found["instanceId"] == "instanceId: property can only be set by: [agent]"
    assert found["tags.environment"] == "value is not in allowed enum values"
    assert found["region"] == "required field is missing"


def test_the_vm_can_be_resized_only_while_stopped() -> None:
    vm = block("VM Service Type with Mixed Authorizers")
    stored: dict[str, object] = {
        "instanceName": "web-01",
        "region": "us-east-1",
        "cpu": 4,
        "memory": 8,
        "diskSize": 50,
    }
    stored |= {"imageId": "ami-1", "publicIp": "185.123.45.10"}
    assert property_requests.faults(vm, {"cpu": 8}, stored, state="Started") == {
        "cpu": "cpu: property cannot be updated in state 'Started'"
    }
    assert property_requests.update(vm, {"cpu": 8}, stored, state="Stopped").properties == {**stored, "cpu": 8}
    assert property_requests.faults(vm, {"region": "us-west-2"}, stored, state="Stopped") == {
        "region": "region: property is immutable and cannot be changed"
    }


def test_the_agent_sets_the_id_of_the_disk_once() -> None:
    disk = block("Disk Service Type")
    stored = property_requests.create(disk, {"name": "data", "sizeGb": 100, "type": "ssd"})
    report: dict[str, Any] = {
        "operation": Operation.REPORT,
        "actor": Actor.AGENT,
        "state": "New",
        "in_create_chain": True,
    }
    learned = property_requests.update(disk, {"diskId": "d-1", "actualSizeGb": 100}, stored, **report).properties
    assert learned["diskId"] == "d-1"
    later: dict[str, Any] = {"operation": Operation.REPORT, "actor": Actor.AGENT, "state": "Stopped"}
    assert property_requests.update(disk, {"actualSizeGb": 101}, learned, **later).properties["actualSizeGb"] == 101
    assert property_requests.faults(disk, {"diskId": "d-2"}, learned, **later) == {
        "diskId": "diskId: property is immutable and cannot be changed"
    }


def test_only_enabled_options_of_the_provider_are_accepted() -> None:
    document, options, order = (
        block("serviceOption", lead)
        for lead in ("Service type schema:", "Provider's service options:", "Valid service")
    )
    assert isinstance(document, dict)
    assert isinstance(options, list)
    assert isinstance(order, dict)
    offered: dict[str, tuple[object, ...]] = {"region": ("us-east-1",)}
    for option in options:
        offered[option["serviceOptionType"]] = (*offered.get(option["serviceOptionType"], ()), option["value"])
    lookups = property_requests.StubLookups(options=offered)
    assert property_requests.create(document["propertySchema"], order["properties"], lookups) == order["properties"]
    found = property_requests.faults(
        document["propertySchema"], {**order["properties"], "operatingSystem": "beos"}, lookups=lookups
    )
    assert found == {"operatingSystem": "service option with value 'beos' not found or not enabled for provider"}


def test_an_option_may_be_any_json_value_and_matches_as_json() -> None:
    disk = block("serviceOption", "Disk type with complex value:")
    lookups = property_requests.StubLookups(options={"disk_type": ({"type": "ssd", "size": 100},)})
    assert property_requests.create(disk, {"diskConfig": {"size": 100.0, "type": "ssd"}}, lookups)
    assert property_requests.faults(disk, {"diskConfig": {"type": "ssd", "size": 101}}, lookups=lookups) == {
        "diskConfig": 'service option with value \'{"type": "ssd", "size": 101}\' not found or not enabled for provider'
    }


def test_pools_of_all_three_types_provide_values() -> None:
    document = block("Property Pool Allocation", "Service type schema:")
    order = block("Property Pool Allocation", "Service creation (automatic allocation):")
    expected = block("Property Pool Allocation", "After service creation")
    assert isinstance(document, dict)
    assert isinstance(order, dict)
    assert isinstance(expected, dict)
    values = expected["properties"]
    lookups = property_requests.StubLookups(
        pools={
            "public_ip": ("string", [values["publicIp"]]),
            "private_ip": ("string", [values["privateIp"]]),
            "hostname": ("json", [values["hostname"]]),
        }
    )
    assert property_requests.create(document["propertySchema"], order["properties"], lookups) == values
    assert property_requests.faults(document["propertySchema"], {}, lookups=lookups) == {
        "publicIp": "failed to allocate from pool public_ip",
        "privateIp": "failed to allocate from pool private_ip",
        "hostname": "failed to allocate from pool hostname",
    }


def test_the_old_key_of_a_pool_property_is_equal_to_the_generator() -> None:
    old = block("Generators", "**Example: Pool Generator")
    lookups = property_requests.StubLookups(pools={"public_ip": ("string", ["185.123.45.10"])})
    assert property_requests.create(old, {}, lookups) == {"publicIp": "185.123.45.10"}
    assert property_requests.faults(old, {"publicIp": "9.9.9.9"}, lookups=lookups) == {
        "publicIp": "publicIp: property can only be set by: [system]"
    }


def test_the_hostname_consists_of_the_prefix_and_the_service_id() -> None:
    document = block("Generators", "Generators would be configured")
    assert property_requests.create(document, {}) == {"hostname": f"server-{property_requests.SERVICE_ID}"}
    assert property_requests.schema_faults({"h": {"type": "string", "generator": {"type": "hostname"}}}) == {
        "h.generator.config.prefix": "prefix is required"
    }


def test_secrets_are_sealed_at_every_path() -> None:
    document = block("Property Secrets", "Service type with secrets:")
    order = block("Property Secrets", "Service creation request:")
    assert isinstance(document, dict)
    assert isinstance(order, dict)
    lookups = property_requests.StubLookups()
    schema = property_requests.schema_of(document["propertySchema"])
    outcome = lookups.ask(schema, order["properties"], property_requests.evaluation_context())
    assert isinstance(outcome, Accepted)
    assert [(slot.path, slot.kind) for slot in outcome.secrets] == [
        ("apiKey", SecretKind.PERSISTENT),
        ("initialPassword", SecretKind.EPHEMERAL),
        ("databaseConfig.password", SecretKind.PERSISTENT),
    ]
    assert "sk_live" not in repr(outcome)
    stored = lookups.keep(outcome)
    assert stored == {
        "appName": "MyApp",
        "apiKey": "vault://00000000",
        "initialPassword": "vault://00000001",
        "databaseConfig": {"host": "db.example.com", "port": 5432, "password": "vault://00000002"},
    }
    after_the_job = without_secrets(schema, stored, SecretKind.EPHEMERAL)
    assert after_the_job == {name: value for name, value in stored.items() if name != "initialPassword"}
    assert [place.reference for place in secrets_in(schema, after_the_job)] == [
        "vault://00000000",
        "vault://00000002",
    ]


def test_secrets_inside_arrays_of_objects_are_sealed_one_by_one() -> None:
    document = block("Property Secrets", "However, objects can contain")
    stored = property_requests.create(
        document, {"users": [{"username": "a", "password": "pa"}, {"username": "b", "password": "pb"}]}
    )
    assert stored == {
        "users": [
            {"username": "a", "password": "vault://00000000"},
            {"username": "b", "password": "vault://00000001"},
        ]
    }
    schema = property_requests.schema_of(document)
    assert {place.schema_path for place in secrets_in(schema, stored)} == {"users[].password"}


@pytest.mark.parametrize("lead", ["Single service type:", "Multiple allowed service types:"])
def test_a_reference_must_be_of_an_allowed_service_type(lead: str) -> None:
    document = block("serviceType", lead)
    assert isinstance(document, dict)
    (name,) = document
    mine = ReferencedService("33333333-3333-4333-8333-333333333333", "MySQL", "consumer", "group")
    other = ReferencedService("44444444-4444-4444-8444-444444444444", "Redis", "consumer", "group")
    lookups = property_requests.StubLookups(services=[mine, other])
    assert property_requests.create(document, {name: mine.id.upper()}, lookups) == {name: mine.id.upper()}
    assert property_requests.faults(document, {name: other.id}, lookups=lookups) == {
        name: "referenced service is not of the allowed service type"
    }
    assert property_requests.faults(document, {name: property_requests.SERVICE_ID}, lookups=lookups) == {
        name: "referenced service does not exist"
    }


def test_the_validation_response_of_the_seed_is_reproduced() -> None:
    answer = block("Validating Properties", "Or with validation errors:")
    assert isinstance(answer, dict)
    document = {
        "cpu": {"type": "integer", "required": True},
        "memory": {"type": "integer", "validators": [{"type": "enum", "values": [1024]}]},
    }
    found = property_requests.faults(document, {"memory": 2048})
    assert [{"path": path, "message": message} for path, message in found.items()] == answer["errors"]


def test_states_in_old_keys_are_checked_against_the_lifecycle() -> None:
    document = block("Lifecycle vs Property Schema Interaction")
    assert isinstance(document, dict)
    states = frozenset(state["name"] for state in document["lifecycleSchema"]["states"])
    assert property_requests.schema_faults(document["propertySchema"], states=states) == {}
    assert property_requests.faults(
        document["propertySchema"], {"diskSize": 2}, {"diskSize": 1}, state="Started"
    ) == {"diskSize": "diskSize: property cannot be updated in state 'Started'"}
    assert property_requests.schema_faults(document["propertySchema"], states=states - {"Stopped"}) == {
        "diskSize.updatableIn[0]": "state 'Stopped' is not in the lifecycle; there are Started"
    }

"""Bodies are strict: unknown fields and duplicate keys are refused by every endpoint, except for agents' extra fields."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import seed_text
from control_plane import Client, Server
from mainstay.control.api.bodies import parse_body
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.operations.machinery.bodies import PATTERN_FAULTS, AgentProtocolBody
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.operations.services import NewService
from mainstay.control.serve import collect_garbage_rarely
from sample_rows import SampleRows
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
# Agents of this API family send more to these than the contract has.
AGENT_PROTOCOL = ("/api/v1/jobs/", "/api/v1/agents/me", "/api/v1/metric-entries", "/api/v1/events/")
# A list of conditions, and bytes.
OTHER_BODIES = {"/api/v1/services/{id}/conditions", "/api/v1/blueprints"}
WRITES = [
    endpoint
    for endpoint in all_endpoints()
    if endpoint.method in ("POST", "PATCH", "PUT") and endpoint.path not in OTHER_BODIES
]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.fixture(scope="module")
def rows(embedded: Server) -> SampleRows:
    return SampleRows(embedded.admin)


def sender(rows: SampleRows, endpoint: Endpoint) -> Client:
    """A client whose role may call the endpoint on the sample row."""
    if endpoint.access is None:
        return Client(rows.clients["admin"].url)
    agents_only = endpoint.access[1] in ("work", "be") or endpoint.access == ("metric_entry", "write")
    return rows.clients["agent" if agents_only else "admin"]


@pytest.mark.parametrize("endpoint", WRITES, ids=named)
def test_every_endpoint_refuses_a_body_of_unknown_fields(rows: SampleRows, endpoint: Endpoint) -> None:
    reply = sender(rows, endpoint).call(endpoint.method, rows.path(endpoint), {"colour": "blue"})
    if "{planId}" in endpoint.path:
        assert reply.status == 404
        return
    assert (reply.status, reply.body["code"]) == (400, "invalid_body"), reply.body
    (fault,) = [fault for fault in reply.body["errors"] if fault["path"] == "colour"]
    assert fault["message"].startswith("unknown field")


@pytest.mark.parametrize("endpoint", [each for each in WRITES if each.body is not None], ids=named)
def test_unknown_fields_beside_known_ones_are_ignored_in_the_agent_protocol_only(
    rows: SampleRows, endpoint: Endpoint
) -> None:
    assert endpoint.body is not None
    known = endpoint.body.__struct_encode_fields__[0]
    # The known field is null, so that nothing changes.
    body = {known: None, f"{known}x": "blue"}
    reply = sender(rows, endpoint).call(endpoint.method, rows.path(endpoint), body)
    faults = {} if reply.body in (b"", None) else {f["path"]: f["message"] for f in reply.body.get("errors", [])}
    if endpoint.path.startswith(AGENT_PROTOCOL):
        assert issubclass(endpoint.body, AgentProtocolBody)
        assert f"{known}x" not in faults
    elif "{planId}" not in endpoint.path:
        assert faults[f"{known}x"] == f"unknown field (did you mean {known!r}?)"


@pytest.mark.parametrize("endpoint", WRITES, ids=named)
@pytest.mark.parametrize("raw", [b'{"name": "a", "name": "b"}', b'{"properties": {"a": [{"b": 1, "b": 1}]}}'])
def test_every_endpoint_refuses_duplicate_keys_at_any_depth(rows: SampleRows, endpoint: Endpoint, raw: bytes) -> None:
    if "{planId}" in endpoint.path:
        return
    reply = sender(rows, endpoint).call(endpoint.method, rows.path(endpoint), raw=raw)
    assert (reply.status, reply.body["code"]) == (400, "duplicate_key"), reply.body


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        b'{"name":"x","\\u0061":1,"a":2}',
        # As many colons as without the duplicate.
        b'{"a":1,"a":2,"name":"\\u003a"}',
        b'{"a":1,"a":2,"name":"\\u003A"}',
        b'{"a":":","a":":","name":":"}',
        b'{"name":"x","properties":{"":1,"":{"x":":"}}}',
        b'[{"type":"t","type":"t"}]',
    ],
)
def test_duplicate_keys_are_found_however_they_are_written(scenario: Scenario, raw: bytes) -> None:
    reply = scenario.admin.call("POST", "/api/v1/participants", raw=raw, expect=400)
    assert reply.body["code"] == "duplicate_key"
    service = scenario.order(scenario.service_type(None, SIMPLE))
    reply = scenario.agent.call("PUT", f"/api/v1/services/{service['id']}/conditions", raw=raw, expect=400)
    assert reply.body["code"] == "duplicate_key"


@pytest.mark.parametrize("name", ["::::", 'a":"b', "\\:", "\\u003a", 'x":1,"x":2', "\u00e9:\U0001f701:"])
def test_colons_and_escapes_in_texts_are_not_duplicate_keys(scenario: Scenario, name: str) -> None:
    for ascii_only in (True, False):
        raw = json.dumps({"name": name}, ensure_ascii=ascii_only).encode()
        assert scenario.admin.call("POST", "/api/v1/participants", raw=raw, expect=201).body["name"] == name
    escaped = b'{"name":"' + b"\\u003a" * 3 + b'"}'
    assert scenario.admin.call("POST", "/api/v1/participants", raw=escaped, expect=201).body["name"] == ":::"


def test_a_misspelt_field_is_named_with_its_correction(scenario: Scenario) -> None:
    path = f"/participants/{scenario.consumer_id}"
    refused = scenario.admin.patch(path, {"staus": "Disabled"}, expect=400)
    assert refused["errors"] == [{"path": "staus", "message": "unknown field (did you mean 'status'?)"}]
    assert scenario.admin.get(path)["status"] == "Enabled"
    service = scenario.order(scenario.service_type(None, SIMPLE))
    job = scenario.next_job(service)
    refused = scenario.agent.post(f"/jobs/{job['id']}/fail", {"error": "disk full"}, expect=400)
    (fault,) = refused["errors"]
    assert fault["path"] == "error"
    assert "errorMessage" in fault["message"]
    assert scenario.agent.get(f"/jobs/{job['id']}")["status"] == "Processing"
    more = {"errorMessage": "disk full", "error": "ENOSPC"}
    scenario.agent.post(f"/jobs/{job['id']}/fail", more, expect=204)


def test_many_unknown_fields_are_refused_quickly(scenario: Scenario) -> None:
    unknown = {f"nam{number}": 1 for number in range(100_000)}
    refused = scenario.admin.post("/participants", {"name": "x", **unknown}, expect=400)
    assert (len(refused["errors"]), refused["errors"][-1]["message"]) == (101, "and 99900 more")


NOUNS = [endpoint for endpoint in all_endpoints() if endpoint.method == "PATCH"]


@pytest.mark.parametrize("endpoint", NOUNS, ids=named)
def test_a_change_may_repeat_what_was_read(rows: SampleRows, endpoint: Endpoint) -> None:
    """A client may read a noun, change a member and send the whole back."""
    admin = rows.clients["admin"]
    path = rows.path(endpoint)
    read = admin.call("GET", path, expect=200).body
    changed = admin.call("PATCH", path, {**read, "name": read["name"]}, expect=200).body
    assert {**changed, "updatedAt": ""} == {**read, "updatedAt": ""}


@pytest.mark.parametrize("endpoint", NOUNS, ids=named)
def test_a_change_refuses_another_value_of_a_member_that_cannot_be_written(
    rows: SampleRows, endpoint: Endpoint
) -> None:
    assert endpoint.body is not None
    admin = rows.clients["admin"]
    path = rows.path(endpoint)
    read = admin.call("GET", path, expect=200).body
    for name in sorted(read.keys() - set(endpoint.body.__struct_encode_fields__)):
        reply = admin.call("PATCH", path, {"name": unique("n"), name: ["another"]}, expect=400)
        assert reply.body["errors"] == [{"path": name, "message": "cannot be changed; leave it out"}]
        admin.call("PATCH", path, {name: None}, expect=200)
    assert admin.call("GET", path).body["name"] == read["name"]


def test_a_time_may_be_repeated_in_another_form(scenario: Scenario) -> None:
    path = f"/participants/{scenario.consumer_id}"
    read = scenario.admin.get(path)
    other = read["createdAt"].replace("Z", "+00:00")
    scenario.admin.patch(path, {"createdAt": other})
    scenario.admin.patch(path, {"createdAt": "2020-01-01T00:00:00Z"}, expect=400)
    scenario.admin.patch(path, {"createdAt": "yesterday"}, expect=400)
    scenario.admin.patch(path, {"createdAt": read["createdAt"].removesuffix("Z")}, expect=400)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"name": "\\ud800"}', "half a surrogate pair"),
        (b'{"name": "\\udc00x"}', "half a surrogate pair"),
        (b'{"name": "\\ud83d\\ud83d"}', "half a surrogate pair"),
        (b'{"name": 1e400}', "number that is out of range"),
        (b'{"name": -1' + b"0" * 5000 + b"}", "number that is out of range"),
        (b'{"name": "\xff"}', "the body is not JSON"),
        (b'{"name": "\\ud83d\\udd11"', "the body is not JSON: Input data was truncated"),
    ],
)
def test_a_body_that_is_not_json_is_refused_with_its_reason(embedded: Server, raw: bytes, text: str) -> None:
    reply = embedded.admin.call("POST", "/api/v1/participants", raw=raw, expect=400)
    assert reply.body["code"] == "invalid_json"
    assert text in reply.body["error"]


def patterns(kind: Any) -> set[str]:
    """The patterns in an annotation, at any depth."""
    found = {each.pattern for each in getattr(kind, "__metadata__", ()) if getattr(each, "pattern", None)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return found.union(*(patterns(each) for each in get_type_hints(kind, include_extras=True).values()))
    return found.union(*(patterns(each) for each in get_args(kind)))


@pytest.mark.parametrize("endpoint", [each for each in WRITES if each.body is not None], ids=named)
def test_every_pattern_of_a_body_has_a_message(endpoint: Endpoint) -> None:
    assert patterns(endpoint.body) <= set(PATTERN_FAULTS)


@pytest.fixture
def default_collector() -> Iterator[None]:
    """The server process tunes the collector; the tests of this process keep their own settings."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def parsing_seconds(raw: bytes) -> float:
    before = time.process_time()
    with pytest.raises(InvalidProperties):
        parse_body(raw, NewService)
    return time.process_time() - before


@pytest.mark.usefixtures("default_collector")
def test_many_unknown_fields_cost_little_more_than_reading_them() -> None:
    raw = json.dumps({f"field{number}": 1 for number in range(200_000)}).encode()
    before = time.process_time()
    msgspec.json.decode(raw)
    reading = time.process_time() - before
    assert parsing_seconds(raw) < 5 * reading


@pytest.mark.usefixtures("default_collector")
def test_a_body_of_a_million_lists_is_parsed_without_frequent_garbage_collection() -> None:
    raw = b'{"a":[' + b"[]," * 1_000_000 + b"0]}"
    slow = parsing_seconds(raw)
    collect_garbage_rarely()
    assert parsing_seconds(raw) < slow / 2

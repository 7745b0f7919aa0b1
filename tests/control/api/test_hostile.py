"""What a participant or an agent with bad intentions tries; the server answers clearly and gives nothing away."""

from __future__ import annotations

from typing import Any

import pytest

import seed
from world import World, unique

SIMPLE: Any = seed.block("Example 1: Simple VM Lifecycle")
NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "path",
    [
        "services/%00",
        "services/%ff%fe",
        "jobs/%00/report",
        "jobs/pending?serviceId=%00",
        "jobs/pending?%00=1",
        "vault/secrets/%00",
        "blueprints/%00",
        "service-types/%00/json-schema",
        "services?sort=%00",
        "services?after=%00",
        "services?name=%00",
        "services?sort=name;drop",
        "services?sort=(select%201)",
        "services?providerId)%20OR%20(1=1",
    ],
)
def test_odd_addresses_are_refused_clearly(world: World, path: str) -> None:
    assert world.agent.call("GET", f"/api/v1/{path}").status in (400, 404)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"])
def test_times_at_the_ends_of_the_calendar_are_refused(world: World, when: str) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    for end in ("start", "end"):
        world.consumer.get(f"/services/{service['id']}/uptime?{end}={when}", expect=400)
        for bucket in ("minute", "month"):
            series = f"/metric-entries/aggregate/{service['id']}/r/{NOWHERE}?bucket={bucket}&{end}={when}"
            world.consumer.get(series, expect=400)
    world.consumer.get(f"/services?createdAt={when}", expect=400)


def test_metrics_never_leave_the_range_of_numbers(world: World) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    metric = world.admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
    entry = {"serviceId": service["id"], "resourceId": "r", "typeName": metric["name"]}
    world.agent.post("/metric-entries", {**entry, "value": 1e308}, expect=400)
    for value in (1e140, 1e140, -1e140, 1e140):
        world.agent.post("/metric-entries", {**entry, "value": value})
    series = f"/metric-entries/aggregate/{service['id']}/r/{metric['id']}?bucket=minute"
    for kind in ("min", "max", "sum", "avg", "diff"):
        found = world.consumer.get(f"{series}&aggregateType={kind}")["data"]
        assert all(isinstance(value, float) for _, value in found)


def test_a_body_of_open_strings_is_read_in_linear_time(world: World) -> None:
    """Tried anew from each quote, a body of this size would keep the server busy for hours."""
    raw = b"[" * 65 + b'"\\' * 1_500_000
    assert world.consumer.call("POST", "/api/v1/services", raw=raw, expect=400).body["code"] == "too_deep"
    raw = b"[" * 60 + b'"[' * 7 + b'"\\' * 1_500_000
    assert world.consumer.call("POST", "/api/v1/services", raw=raw, expect=400).body["code"] == "invalid_json"


def test_a_lifecycle_too_large_for_a_picture_is_not_drawn(world: World) -> None:
    count = 300
    first = [{"from": f"s{state}", "to": f"s{state + 1}"} for state in range(count - 1)]
    across = [
        {
            "name": f"a{number}",
            "transitions": [{"from": f"s{s}", "to": f"s{(s * 7 + number) % count}"} for s in range(count)],
        }
        for number in range(10)
    ]
    kind = world.service_type(
        None,
        {
            "states": [{"name": f"s{state}"} for state in range(count)],
            "actions": [{"name": "create", "requestSchemaType": "properties", "transitions": first}, *across],
            "initialState": "s0",
        },
    )
    path = f"/service-types/{kind['id']}"
    assert world.stranger.get(f"{path}/lifecycle.svg", expect=400)["code"] == "too_large_to_draw"
    assert world.stranger.get(f"{path}/lifecycle-report")["findings"]


def test_patterns_that_would_explode_elsewhere_are_searched_in_linear_time(world: World) -> None:
    rule = {"type": "pattern", "pattern": "^(a+)+$"}
    kind = world.service_type({"p": {"type": "string", "validators": [rule]}}, SIMPLE)
    body = {"properties": {"p": "a" * 200_000 + "!"}}
    assert world.stranger.post(f"/service-types/{kind['id']}/validate", body, expect=200)["valid"] is False
    huge = {"type": "pattern", "pattern": "((a{1,100}){1,100}){1,100}"}
    refused = {"name": unique("t"), "propertySchema": {"p": {"type": "string", "validators": [huge]}}}
    assert world.admin.post("/service-types", refused, expect=400)["code"] == "invalid_definition"

"""Microseconds per document for the VM of the specification with fifteen properties: this engine beside its peers.

Run it with `python benchmarks/properties.py`. The peers get the JSON Schema that the engine exports (pydantic: a model
written by hand). All but fastjsonschema collect every fault; fastjsonschema stops at the first, and is the floor."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import fastjsonschema
import jsonschema
import jsonschema_rs
import pydantic
from pydantic import ConfigDict, Field

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from mainstay.control.domain.patterns import compile_pattern
from mainstay.control.domain.properties.contract import Actor, Operation, Situation
from mainstay.control.domain.properties.engine import Accepted, Rejected, decide
from mainstay.control.domain.properties.json_schema import export_json_schema
from mainstay.control.domain.properties.parse import parse_property_schema
from mainstay.control.rulebook import installed_rulebook
from seed import block

ROUNDS = 60
SECONDS_PER_ROUND = 0.005

VALID: dict[str, Any] = {
    "instanceName": "web-server-01",
    "region": "us-east-1",
    "cpu": 4,
    "memory": 16,
    "diskSize": 200,
    "imageId": "ami-0abcdef1234567890",
    "tags": {"environment": "prod", "owner": "platform"},
    "price": 0.25,
    "enabled": True,
    "ports": [80, 443, 8080],
    "customData": {"motd": "hello", "retries": 3},
}
TEN_FAULTS: dict[str, Any] = {
    "instanceName": "a!",  # too short, and no match
    "region": "mars",
    "cpu": 3,
    "memory": "16",
    "diskSize": 5,
    "tags": {"environment": "test", "owner": 7},
    "price": "free",
    "enabled": "yes",
    "ports": [80],
    "customData": {},
}  # and imageId is missing


def schema_document() -> dict[str, Any]:
    """The VM, and four properties from the chapters on types, so that every kind of value is there."""
    document: Any = block("VM Service Type with Mixed Authorizers")
    for heading in ("Number (Float)", "Boolean", "Array", "JSON"):
        more: Any = block(heading)
        document |= more
    assert len(document) == 15
    return dict(document)


class Tags(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    environment: Literal["dev", "staging", "prod"] | None = None
    owner: str | None = None


class VirtualMachine(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    instanceName: Annotated[str, Field(min_length=3, max_length=50, pattern=r"^[a-zA-Z0-9-]+$")]  # noqa: N815
    region: Literal["us-east-1", "us-west-2", "eu-west-1"]
    cpu: Literal[1, 2, 4, 8, 16, 32]
    memory: Literal[1, 2, 4, 8, 16, 32, 64]
    diskSize: Annotated[int, Field(ge=10, le=1000)]  # noqa: N815
    imageId: str  # noqa: N815
    publicIp: str | None = None  # noqa: N815
    instanceId: str | None = None  # noqa: N815
    ipAddress: str | None = None  # noqa: N815
    hostname: str | None = None
    tags: Tags | None = None
    price: float = 0.0
    enabled: bool = True
    ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1, max_length=10)] | None = None
    customData: Any = None  # noqa: N815


def contenders() -> dict[str, Callable[[dict[str, Any]], int]]:
    """Each takes a document and says how many faults it found."""
    document = schema_document()
    schema = parse_property_schema(document, installed_rulebook())
    exported = export_json_schema(schema)
    asked_in = Situation(
        operation=Operation.CREATE, actor=Actor.USER, now=datetime.now(UTC), entropy=b"benchmark", dry=True
    )
    fast = fastjsonschema.compile({**exported, "$schema": "http://json-schema.org/draft-07/schema#"})
    rust = jsonschema_rs.Draft202012Validator(exported)
    plain = jsonschema.Draft202012Validator(exported)

    def mainstay(given: dict[str, Any]) -> int:
        outcome = decide(schema, given, asked_in)
        if isinstance(outcome, Accepted):
            return 0
        assert isinstance(outcome, Rejected)
        return len(outcome.faults)

    def with_fastjsonschema(given: dict[str, Any]) -> int:
        try:
            fast(given)
        except fastjsonschema.JsonSchemaException:
            return 1
        return 0

    def with_pydantic(given: dict[str, Any]) -> int:
        try:
            VirtualMachine.model_validate(given)
        except pydantic.ValidationError as error:
            return len(error.errors())
        return 0

    return {
        "mainstay": mainstay,
        "fastjsonschema": with_fastjsonschema,
        "jsonschema-rs": lambda given: sum(1 for _ in rust.iter_errors(given)),
        "pydantic": with_pydantic,
        "jsonschema": lambda given: sum(1 for _ in plain.iter_errors(given)),
    }


def measure(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds per call, the best of many short rounds taken in turn, so that all see the same machine."""
    repeats = {name: repeats_for(call) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeats[name] * 1e6)
    return best


def repeats_for(call: Callable[[], object]) -> int:
    start = time.perf_counter()
    call()
    return max(1, int(SECONDS_PER_ROUND / max(time.perf_counter() - start, 1e-7)))


def attack_ratios() -> dict[str, float]:
    """How much longer a text of ten times the length takes; 10 is linear, 100 quadratic."""
    return {pattern: attack_ratio(pattern) for pattern in (r"^(a+)+$", r"^(a|aa)+$", r"(.*a){12}b", r"^(\w+\s?)*$")}


def attack_ratio(pattern: str) -> float:
    search = compile_pattern(pattern)
    short, long = "a" * 10_000 + "!", "a" * 100_000 + "!"
    best = measure({"long": lambda: search(long), "short": lambda: search(short)})
    return best["long"] / best["short"]


def main() -> None:
    judges = contenders()
    for name, judge in judges.items():
        assert judge(VALID) == 0, name
    valid = measure({name: partial(judge, VALID) for name, judge in judges.items()})
    faulty = measure({name: partial(judge, TEN_FAULTS) for name, judge in judges.items()})
    print(f"{'':16}{'valid µs':>10}{'faulty µs':>11}{'faults':>8}{'valid ratio':>13}{'faulty ratio':>14}")
    for name, judge in judges.items():
        ratios = f"{valid[name] / valid['mainstay']:13.2f}{faulty[name] / faulty['mainstay']:14.2f}"
        print(f"{name:16}{valid[name]:10.1f}{faulty[name]:11.1f}{judge(TEN_FAULTS):8}{ratios}")
    print("A ratio above 1 means that mainstay is faster.")
    print("\nattack patterns: time for 100,000 characters over time for 10,000")
    for pattern, ratio in attack_ratios().items():
        print(f"  {pattern:16}{ratio:6.1f}")


if __name__ == "__main__":
    main()

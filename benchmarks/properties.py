"""Compares this property engine with its peers: microseconds per document, for the specification's VM with 15 properties.

Run it with `python benchmarks/properties.py`. Every contender gets the same parsed document and must return the same: for a
valid document plain data with defaults, for an invalid one a path and a message per fault.

- This engine evaluates a dry creation, like the server's validation; it also checks the authorizers.
- pydantic uses a hand-written model with the same rules; it validates and dumps, or returns its errors. The second row
  omits links, inputs and contexts from the errors; the third also skips the dump, which is less work.
- The JSON Schema tools get the schema that this engine exports. They fill in no defaults and copy nothing, which is less
  work. fastjsonschema stops at the first fault."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import fastjsonschema
import jsonschema
import jsonschema_rs
import pydantic
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from mainstay.control.domain.patterns import compile_pattern
from mainstay.control.domain.properties.contract import Actor, EvaluationContext, Operation
from mainstay.control.domain.properties.engine import Accepted, Rejected, decide
from mainstay.control.domain.properties.json_schema import export_json_schema
from mainstay.control.domain.properties.parse import parse_property_schema
from mainstay.control.rulebook import installed_rulebook
from seed_text import block

# Short rounds, so that some run without interruption on a shared machine.
ROUNDS = 300
SECONDS_PER_ROUND = 0.001

# Arguments of pydantic's `errors()`.
WHOLE: Mapping[str, Any] = {}
TRIMMED: Mapping[str, Any] = {"include_url": False, "include_context": False, "include_input": False}

# A path and a message; pydantic's paths are tuples.
Faults = Sequence[tuple[object, str]]

VALID: dict[str, Any] = {
    "instanceName": "web-server-01",
    "region": "us-east-1",
    "cpu": 4,
    "memory": 16,
    "diskSize": 200,
    "imageId": "ami-0abcdef1234567890",
    "tags": {"environment": "prod", "owner": "platform"},
    "price": 0.25,
    "ports": [80, 443, 8080],
    "customData": {"motd": "hello", "retries": 3},
}  # and enabled has its default
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
    """The VM and four properties from the chapters on types, so that every kind of value is included."""
    document: Any = block("VM Service Type with Mixed Authorizers")
    for heading in ("Number (Float)", "Boolean", "Array", "JSON"):
        more: Any = block(heading)
        document |= more
    assert len(document) == 15
    return dict(document)


class WholeNumber:
    """An integer enum: pydantic's `Literal` alone accepts true for 1 and 4.0 for 4."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.chain_schema([core_schema.int_schema(strict=True), handler(source)])


class Tags(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    environment: Literal["dev", "staging", "prod"] | None = None
    owner: str | None = None


class VirtualMachine(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    instanceName: Annotated[str, Field(min_length=3, max_length=50, pattern=r"^[a-zA-Z0-9-]+$")]  # noqa: N815  # name in the API
    region: Literal["us-east-1", "us-west-2", "eu-west-1"]
    cpu: Annotated[Literal[1, 2, 4, 8, 16, 32], WholeNumber()]
    memory: Annotated[Literal[1, 2, 4, 8, 16, 32, 64], WholeNumber()]
    diskSize: Annotated[int, Field(ge=10, le=1000)]  # noqa: N815  # name in the API
    imageId: str  # noqa: N815  # name in the API
    publicIp: str | None = None  # noqa: N815  # name in the API
    instanceId: str | None = None  # noqa: N815  # name in the API
    ipAddress: str | None = None  # noqa: N815  # name in the API
    hostname: str | None = None
    tags: Tags | None = None
    price: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    enabled: bool = True
    ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1, max_length=10)] | None = None
    customData: JsonValue = None  # noqa: N815  # name in the API


# Returns the faults, or if there are none the accepted document.
Judge = Callable[[dict[str, Any]], tuple[Faults, object]]


def contenders() -> dict[str, Judge]:
    exported = export_json_schema(parse_property_schema(schema_document(), installed_rulebook()))
    return {
        "mainstay": with_mainstay(),
        "fastjsonschema": with_fastjsonschema({**exported, "$schema": "http://json-schema.org/draft-07/schema#"}),
        "jsonschema-rs": with_jsonschema_rs(exported),
        "pydantic": with_pydantic,
        "pydantic trimmed": partial(with_pydantic, details=TRIMMED),
        "pydantic no dump": partial(with_pydantic, details=TRIMMED, dump=False),
        "jsonschema": with_jsonschema(exported),
    }


def with_mainstay() -> Judge:
    schema = parse_property_schema(schema_document(), installed_rulebook())
    asked_in = EvaluationContext(
        operation=Operation.CREATE, actor=Actor.USER, now=datetime.now(UTC), entropy=b"benchmark", dry=True
    )

    def judge(given: dict[str, Any]) -> tuple[Faults, object]:
        outcome = decide(schema, given, asked_in)
        if isinstance(outcome, Rejected):
            return outcome.faults, None
        assert isinstance(outcome, Accepted)
        return [], outcome.properties

    return judge


def with_fastjsonschema(exported: dict[str, Any]) -> Judge:
    validate = fastjsonschema.compile(exported)

    def judge(given: dict[str, Any]) -> tuple[Faults, object]:
        try:
            return [], validate(given)
        except fastjsonschema.JsonSchemaValueException as error:
            return [(error.path, error.message)], None

    return judge


def with_jsonschema_rs(exported: dict[str, Any]) -> Judge:
    validator = jsonschema_rs.Draft202012Validator(exported)

    def judge(given: dict[str, Any]) -> tuple[Faults, object]:
        return [(error.instance_path, error.message) for error in validator.iter_errors(given)], given

    return judge


def with_jsonschema(exported: dict[str, Any]) -> Judge:
    validator = jsonschema.Draft202012Validator(exported)

    def judge(given: dict[str, Any]) -> tuple[Faults, object]:
        return [(error.absolute_path, error.message) for error in validator.iter_errors(given)], given

    return judge


def with_pydantic(
    given: dict[str, Any], *, details: Mapping[str, Any] = WHOLE, dump: bool = True
) -> tuple[Faults, object]:
    try:
        machine = VirtualMachine.model_validate(given)
    except pydantic.ValidationError as error:
        return [(each["loc"], each["msg"]) for each in error.errors(**details)], None
    return [], machine.model_dump(exclude_none=True) if dump else machine


def measure(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds per call: the best of many short rounds, run alternately so that all see the same load."""
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
    """How many warm calls fit into a round."""
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return max(1, int(SECONDS_PER_ROUND / max(best, 1e-7)))


def attack_ratios() -> dict[str, float]:
    """Time ratio for a text of ten times the length; 10 is linear, 100 quadratic."""
    return {pattern: attack_ratio(pattern) for pattern in (r"^(a+)+$", r"^(a|aa)+$", r"(.*a){12}b", r"^(\w+\s?)*$")}


def attack_ratio(pattern: str) -> float:
    search = compile_pattern(pattern)
    short, long = "a" * 10_000 + "!", "a" * 100_000 + "!"
    best = measure({"long": lambda: search(long), "short": lambda: search(short)})
    return best["long"] / best["short"]


def check_equal_work(judges: dict[str, Judge]) -> None:
    """Asserts that all contenders accept the valid document, and that those with defaults return the same document."""
    accepted = {name: judge(VALID) for name, judge in judges.items()}
    assert all(not faults for faults, _ in accepted.values()), accepted
    assert accepted["mainstay"][1] == accepted["pydantic"][1] == {**VALID, "enabled": True}
    for name, odd in (("cpu", True), ("diskSize", True), ("price", "1"), ("ports", [True]), ("price", float("nan"))):
        for contender in ("mainstay", "pydantic"):
            assert judges[contender]({**VALID, name: odd})[0], (contender, name, odd)


def main() -> None:
    judges = contenders()
    check_equal_work(judges)
    valid = measure({name: partial(judge, VALID) for name, judge in judges.items()})
    faulty = measure({name: partial(judge, TEN_FAULTS) for name, judge in judges.items()})
    print(f"{'':18}{'valid µs':>10}{'faulty µs':>11}{'faults':>8}{'valid ratio':>13}{'faulty ratio':>14}")
    for name, judge in judges.items():
        ratios = f"{valid[name] / valid['mainstay']:13.2f}{faulty[name] / faulty['mainstay']:14.2f}"
        print(f"{name:18}{valid[name]:10.1f}{faulty[name]:11.1f}{len(judge(TEN_FAULTS)[0]):8}{ratios}")
    print("A ratio above 1 means that mainstay is faster.")
    print("\nattack patterns: time for 100,000 characters over time for 10,000")
    for pattern, ratio in attack_ratios().items():
        print(f"  {pattern:16}{ratio:6.1f}")


if __name__ == "__main__":
    main()

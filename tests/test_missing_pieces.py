"""A change of CONTRIBUTING's table that lacks a piece fails here: the message names the file and what to write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import inspect

from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.operations.machinery.bodies import PATTERN_FAULTS, Body, Name
from mainstay.control.operations.services import ServiceCondition


def report(offences: list[str]) -> None:
    assert not offences, "\n" + "\n".join(offences)


# ---- request bodies ----
# Documents without a fixed form, with what bounds them in control/operations/. `agents`, `services` and `orders` bound
# properties and configurations by `machinery/property_decisions.py`.
DOCUMENTS = {
    "ActionRequest.properties": "MAX_PROPERTIES_BYTES",
    "AgentChange.configuration": "MAX_PROPERTIES_BYTES",
    "AgentTypeChange.configurationSchema": "MAX_DEFINITION_BYTES",
    "Completion.agentInstanceData": "MAX_INSTANCE_DATA_BYTES",
    "Completion.properties": "MAX_PROPERTIES_BYTES",
    "Completion.report": "the size of the request",
    "FailureReport.report": "the size of the request",
    "NewAgent.configuration": "MAX_PROPERTIES_BYTES",
    "NewAgentType.configurationSchema": "MAX_DEFINITION_BYTES",
    "NewPool.generatorConfig": "parse_subnet, which refuses unknown keys",
    "NewPoolValue.value": "MAX_VALUE_BYTES",
    "NewService.properties": "MAX_PROPERTIES_BYTES",
    "NewServiceOption.value": "MAX_VALUE_BYTES",
    "NewServiceType.lifecycleSchema": "MAX_DEFINITION_BYTES",
    "NewServiceType.propertySchema": "MAX_DEFINITION_BYTES",
    "OrderCheck.properties": "MAX_PROPERTIES_BYTES",
    "PlanAnswer.events[]": "the size of the request",
    "PlanAnswer.summary": "the size of the request",
    "PoolChange.generatorConfig": "parse_subnet, which refuses unknown keys",
    "ServiceChange.properties": "MAX_PROPERTIES_BYTES",
    "ServiceOptionChange.value": "MAX_VALUE_BYTES",
    "ServiceTypeChange.lifecycleSchema": "MAX_DEFINITION_BYTES",
    "ServiceTypeChange.propertySchema": "MAX_DEFINITION_BYTES",
}
# Only classes of characters, none of them inverted: such a pattern cannot match NUL.
CLASSES = re.compile(r"\^(\[[A-Za-z0-9_-]+\](\+|\{\d+\})?|-)+\$(\(\?!\[\\s\\S\]\))?")


def bodies() -> dict[str, type]:
    """Structs of requests by name; the endpoint of conditions reads a list."""
    found: dict[str, type] = {endpoint.body.__name__: endpoint.body for endpoint in all_endpoints() if endpoint.body}
    return {**found, "ServiceCondition": ServiceCondition}


def members(path: str, kind: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Every type within a type, with its path; a document without a fixed form has no members."""
    yield path, kind
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from members(f"{path}.{field.encode_name}", field.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from members(path, each)
    elif isinstance(kind, inspect.ListType | inspect.SetType | inspect.VarTupleType):
        yield from members(f"{path}[]", kind.item_type)
    elif isinstance(kind, inspect.DictType) and not is_document(kind):
        yield from members(f"{path}.*", kind.value_type)
        yield from members(f"{path} (its names)", kind.key_type)


def is_document(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.DictType):
        return is_document(kind.value_type)
    return isinstance(kind, inspect.AnyType) or (isinstance(kind, inspect.CustomType) and kind.cls is object)


def unbounded(name: str, body: type) -> Iterator[str]:
    place = f"{name} in control/operations/{body.__module__.rpartition('.')[2]}.py"
    for path, kind in members(name, inspect.type_info(body)):
        if isinstance(kind, inspect.StrType):
            if kind.max_length is None:
                yield f"{place}: {path} has no max_length; use Name, Tag or Text of operations/machinery/bodies.py"
            if kind.pattern not in PATTERN_FAULTS and not CLASSES.fullmatch(kind.pattern or ""):
                yield f"{place}: {path} accepts NUL, which PostgreSQL cannot store; add pattern=NO_ZERO or PLAIN_NAME to its Meta"
        elif isinstance(kind, inspect.ListType) and kind.max_length is None:
            yield f"{place}: {path} has no max_length; annotate the list with msgspec.Meta(max_length=…)"
        elif is_document(kind) and path not in DOCUMENTS:
            yield f"{place}: call refuse_large() for {path} in the operation, then add it to DOCUMENTS of this test"


def test_every_text_list_and_document_of_a_request_is_bounded() -> None:
    report([offence for name, body in bodies().items() for offence in unbounded(name, body)])


def test_the_table_of_documents_has_no_row_without_a_field() -> None:
    found = {path for name, body in bodies().items() for path, _ in members(name, inspect.type_info(body))}
    report([f"DOCUMENTS: remove {path}, no request has it" for path in DOCUMENTS if path not in found])


class Inner(msgspec.Struct):
    text: str


class Unbounded(Body, frozen=True, kw_only=True):
    plain: str
    optional: str | None = None
    listed: Annotated[list[str], msgspec.Meta(max_length=3)] = []
    endless: list[Name] = []
    nested: Inner | None = None
    mapped: dict[str, Name] = {}
    free: object = None
    inverted: Annotated[str, msgspec.Meta(max_length=3, pattern="^[^a]+$")] = ""


def test_the_rule_about_bodies_finds_each_form() -> None:
    found = [offence.partition(": ")[2].split(";")[0] for offence in unbounded("Unbounded", Unbounded)]
    texts = ("plain", "optional", "listed[]", "nested.text", "mapped (its names)")
    assert sorted(found) == sorted(
        [
            *(f"Unbounded.{path} has no max_length" for path in (*texts, "endless")),
            *(f"Unbounded.{path} accepts NUL, which PostgreSQL cannot store" for path in (*texts, "inverted")),
            "call refuse_large() for Unbounded.free in the operation, then add it to DOCUMENTS of this test",
        ]
    )

"""Refusals of the server as faults of the files: the place of each, and what its author may have meant. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay.cli.plane.difference import PlaneStep
from mainstay.cli.plane.entries import Entry, PlaneFault
from mainstay.cli.plane.files import PlaneContent
from mainstay.cli.plane.kinds import VALUE_COLLECTIONS
from mainstay.cli.plane.pool_ranges import index_of
from mainstay.cli.plane.requests import PlaneRequests
from mainstay.cli.plane.snapshot import Snapshot
from mainstay.cli.remote.service_types import Definition, Members, allowed_text, find_definition, is_reference
from mainstay.foundation.suggestions import did_you_mean

Steps = tuple[str | int, ...]


MISSING_REFERENCE, INVALID_PROPERTIES = "missing_reference", "validation_failed"
VALUES = "values"
# `databaseConfig.port`, `ports[2]`, `tags["a.b"]`.
STEP = re.compile(r'\.?([^.\[\]]+)|\[([0-9]{1,9})\]|\[("(?:[^"\\]|\\.)*")\]')
# Attributes of an order that a refusal without a path is about.
PLACES_OF_CODES = {"no_agent": "tags", "agent_not_available": "agent", "provider_not_available": "provider"}
NO_POOL = re.compile(r"no pool found with type (\S+) in pool set")


def _path_steps(path: str) -> Steps:
    """The steps of a path in a refusal."""
    return tuple(name or (int(index) if index else json.loads(quoted)) for name, index, quoted in STEP.findall(path))


def find_server_faults(
    built: PlaneRequests,
    results: Sequence[Mapping[str, Any]],
    content: PlaneContent,
    snapshot: Snapshot,
    known: Sequence[PlaneFault],
) -> list[PlaneFault]:
    """The refusals of a dry run, without those that `known` faults explain."""
    refused = [
        (step, request, result["error"])
        for step, request, result in zip(built.steps, built.requests, results, strict=True)
        if result.get("error")
    ]
    # What needs a refused request, or one that could not be made, is refused too; the first refusal is the cause.
    causes = [each for each in refused if each[2].get("code") != MISSING_REFERENCE]
    if not causes and not known:
        causes = refused
    found: list[PlaneFault] = []
    # Orders last: what is refused in other kinds explains refusals of orders, too.
    for are_orders in (False, True):
        reader = _Refusals(content, snapshot, [*known, *found])
        chosen = [each for each in causes if (each[0].entry.kind.name == "orders") is are_orders]
        found += [fault for each in chosen for fault in reader.faults_of(*each)]
    # The values of a range are refused one by one.
    places = [(each.message, each.source and (each.source.file, each.source.path)) for each in found]
    return list(dict(zip(places, found, strict=True)).values())


class _Refusals:
    def __init__(self, content: PlaneContent, snapshot: Snapshot, known: Sequence[PlaneFault]) -> None:
        self._content = content
        self._snapshot = snapshot
        self._places = {(each.source.file, each.source.path) for each in known if each.source is not None}
        # Kinds with faults outside of orders: orders take agents, options and pool values from them.
        self._others_are_faulty = any(each.source is None or each.source.path[0] != "orders" for each in known)

    def faults_of(
        self, step: PlaneStep, request: Mapping[str, Any], refusal: Mapping[str, Any]
    ) -> Iterator[PlaneFault]:
        entry = step.entry
        if entry.kind.name == "orders" and self._has_faulty_type(step):
            return
        for path, message in _faults_in(refusal):
            code = str(refusal.get("code"))
            steps = _place(step, request, code, _path_steps(path or _path_in(entry, message)))
            source = None if entry.source is None else entry.source.below(*steps)
            if source is not None and (source.file, source.path) in self._places:
                continue
            if self._others_are_faulty and entry.kind.name == "orders" and _depends_on_others(entry, path):
                continue
            yield PlaneFault(source, self._text(entry, path, message))

    def _has_faulty_type(self, step: PlaneStep) -> bool:
        """Whether the type of an order is not known as the files mean it."""
        name = str(_attribute(step, "type"))
        row = self._snapshot.rows.get(("serviceTypes", self._snapshot.ids.get(("serviceTypes", (name,)), "")), {})
        # Which type a blueprint with faults has is not known.
        outer = [("serviceTypes", name), *([("blueprints",)] if row.get("blueprintDigest") else [])]
        return any(path[: len(each)] == each for _, path in self._places for each in outer)

    def _text(self, entry: Entry, path: str, message: str) -> str:
        if not path:
            return f"{entry.kind.noun} {' / '.join(entry.path)}: {message}"
        # Some messages repeat the path.
        return f"{path}: {message.removeprefix(f'{path}: ')}{self._hint(entry, path, message)}"

    def _hint(self, entry: Entry, path: str, message: str) -> str:
        names = [each for each in _path_steps(path) if isinstance(each, str)]
        definition = find_definition(entry.members, names)
        if message.startswith("unknown"):
            around = _members_at(entry.members, names[:-1])
            return did_you_mean(names[-1], around) if names else ""
        if "enum" in message and definition is not None:
            return f": {allowed_text(definition)}"
        without_pool = NO_POOL.match(message)
        if without_pool:
            return did_you_mean(without_pool[1], self._pool_types())
        return ""

    def _pool_types(self) -> list[str]:
        entries = (*self._content.entries.values(), *self._snapshot.entries.values())
        return list(dict.fromkeys(str(each.attributes.get("type")) for each in entries if each.kind.name == "pools"))


def _faults_in(refusal: Mapping[str, Any]) -> list[tuple[str, str]]:
    errors = refusal.get("errors")
    if not errors:
        return [("", str(refusal.get("error")))]
    return [(str(each.get("path") or ""), str(each.get("message"))) for each in errors]


def _path_in(entry: Entry, message: str) -> str:
    """The path that a message names. Members in camel case are no words of a sentence."""
    members = {each.member for each in entry.kind.attributes.values() if any(map(str.isupper, each.member))}
    found = re.search(rf"\b(?:{'|'.join(members)})(?:\.\w+)*", message) if members else None
    return found[0] if found else ""


def _attribute(step: PlaneStep, name: str) -> Any:
    """As the file gives it, or else as the server has it."""
    actual = {} if step.actual is None else step.actual.attributes
    return step.entry.attributes.get(name, actual.get(name))


def _place(step: PlaneStep, request: Mapping[str, Any], code: str, steps: Steps) -> Steps:
    """Where the entry of a step has what the path of a refusal names."""
    entry, kind, attributes = step.entry, step.entry.kind, step.entry.kind.attributes
    if kind.name == "blueprints":
        return ("directory",)
    if kind.name in VALUE_COLLECTIONS and request["path"].startswith(VALUE_COLLECTIONS[kind.name][0]):
        return (VALUES, *_value_index(step, request))
    if kind.name == "orders" and code == INVALID_PROPERTIES:
        return ("properties", *steps)
    if kind.name == "orders" and code in PLACES_OF_CODES:
        return (PLACES_OF_CODES[code],)
    members = {attribute.member: name for name, attribute in attributes.items() if attribute.member}
    if steps and steps[0] in members:
        return (members[str(steps[0])], *steps[1:])
    if kind.name == "serviceTypes" and steps:
        schema = entry.attributes.get("propertySchema") or {}
        # Both forms of a schema have the same paths.
        outer = ("properties",) if steps[0] not in schema and "properties" in schema else ()
        return ("propertySchema", *outer, *steps)
    return ()


def _value_index(step: PlaneStep, request: Mapping[str, Any]) -> Steps:
    """Of the value that the request adds to a pool."""
    body = request.get("body") or {}
    if "value" not in body:
        return ()
    index = index_of(step.entry.attributes[VALUES], body["value"], str(_attribute(step, "propertyType")))
    return () if index is None else (index,)


def _depends_on_others(entry: Entry, path: str) -> bool:
    """Whether a property gets its value, or its allowed values, from another entry; so do agent and provider."""
    names = [each for each in _path_steps(path) if isinstance(each, str)]
    definition: Definition | None = find_definition(entry.members, names)
    if definition is None:
        return not names
    validators = definition.get("validators") or ()
    return (
        is_reference(definition)
        or bool(definition.get("generator") or definition.get("servicePoolType"))
        or any(each.get("type") == "serviceOption" for each in validators)
    )


def _members_at(members: Members | None, names: list[str]) -> list[str]:
    """The names of the properties below a path."""
    if not names:
        return list(members or ())
    definition = find_definition(members, names) or {}
    return list(definition.get("properties") or (definition.get("items") or {}).get("properties") or ())

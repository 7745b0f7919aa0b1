"""Plausible values for everything that a manifest can look up, so that `check` can load it without an order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mainstay.blueprints.checked_manifest import CheckedManifest
from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.converge.host.sources import read_bytes
from mainstay.converge.manifest.manifest_warnings import texts_in
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.text import Tainted
from mainstay.foundation.yaml.document import decode, parse

SAMPLE_ID = "00000000-0000-4000-8000-000000000000"


def sample_roots(checked: CheckedManifest, instance: set[str]) -> dict[str, Any]:
    properties = {} if checked.members is None else {each.name: _sample(each) for each in checked.members}
    return {
        "service": {
            "id": SAMPLE_ID,
            "name": "sample",
            "status": "New",
            "root": "",
            "type": checked.blueprint.type_name,
        },
        "properties": properties if checked.members is not None else _free_form(checked),
        "job": {"action": next(iter(checked.served), None), "attempt": 1, "params": properties},
        "instance": dict.fromkeys(sorted(instance), "sample"),
    }


def _free_form(checked: CheckedManifest) -> dict[str, Any]:
    """Properties without a schema may have any name, so every name in a lookup gets a sample value."""
    found: dict[str, Any] = {}
    for node in (checked.node, *_documents_in(checked.blueprint.directory)):
        for text in texts_in(node):
            for use in checked.reader.uses(text.text, is_bare=text.is_bare):
                if use.path[0] == "properties" and len(use.path) > 1:
                    _nest(found, use.path[1:])
    return found


def _documents_in(directory: str) -> Iterator[Any]:
    """All YAML documents of a blueprint: one of its manifests may apply any of them."""
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            if name.endswith((".yaml", ".yml")):
                path = os.path.join(folder, name)
                with suppress(DoesNotLoad):
                    yield parse(decode(read_bytes(path), path), path)


def _nest(found: dict[str, Any], path: tuple[str, ...]) -> None:
    *above, last = path
    for name in above:
        inner = found.setdefault(name, {})
        if not isinstance(inner, dict):
            found[name] = inner = {}
        found = inner
    found.setdefault(last, "sample")


def _sample(declared: PropertyDeclaration) -> Any:
    """A plausible value for a property, from its declaration."""
    if declared.secret is not None:
        return Tainted("sample secret")
    if declared.default is not None and not (declared.default == [] and declared.items is not None):
        # An empty list would leave a resource with `for_each` unchecked.
        return declared.default
    choices = declared.keywords.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    if declared.members is not None:
        return {each.name: _sample(each) for each in declared.members}
    if declared.items is not None:
        return [_sample(declared.items)]
    least = declared.keywords.get("minimum")
    return {
        PropertyType.INTEGER: least or 1,
        PropertyType.NUMBER: least or 1,
        PropertyType.BOOLEAN: True,
        PropertyType.OBJECT: {},
        PropertyType.ARRAY: [],
        PropertyType.JSON: {},
        PropertyType.REFERENCE: SAMPLE_ID,
        PropertyType.UUID: SAMPLE_ID,
    }.get(declared.type, "sample")

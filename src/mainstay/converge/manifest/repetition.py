"""Reads `for_each`: the items for which a resource is repeated. Loaded by manifests that use it."""

from __future__ import annotations

from collections.abc import Mapping

from mainstay.converge.contract import Property, Resource
from mainstay.converge.failures import Failure
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.scope import BadExpression, TemplateScope, Unresolved
from mainstay.converge.manifest.values import ValueReader, holds_template, render_tree
from mainstay.converge.value_kinds import describe
from mainstay.foundation import Any
from mainstay.foundation.faults import DocumentPath
from mainstay.foundation.text import Tainted, shorten
from mainstay.foundation.yaml.scalars import Node, leaves, to_value

MOST_ITEMS = 100_000
# After this number of faults, mostly the same fault of each item, the remaining items are not read.
MOST_FAULTS = 50


def read_items(
    node: Node, path: DocumentPath, prefix: str, values: ValueReader, scope: TemplateScope
) -> list[tuple[Any, Any]]:
    """Returns key and value of each item; reports what is neither a list nor a map, and too many items."""
    faults = values.faults
    try:
        found = render_tree(values.compiled(node), scope) if holds_template(node) else to_value(node)
    except (BadExpression, Unresolved, Failure) as error:
        faults.add(path, f"{prefix}for_each: {values.shown(error)}")
        return []
    if isinstance(found, dict):
        items = list(found.items())
    elif isinstance(found, list):
        items = list(enumerate(found))
    else:
        got = "a hidden value" if values.private else describe(found)
        roots = tuple(f"{name}." for name in ("data", "facts", *scope.sources))
        is_bare = isinstance(found, str) and found.startswith((*roots, "lookup(")) and not values.private
        advice = f'; for an expression write "{{{{ {shorten(str(found))} }}}}"' if is_bare else ""
        faults.add(path, f"{prefix}for_each must be a list or a map, got {got}{advice}")
        return []
    if len(items) > MOST_ITEMS:
        faults.add(path, f"{prefix}for_each has {len(items):,} items; at most {MOST_ITEMS:,} are possible")
        return []
    return items


def check_unused(
    properties: Mapping[str, Node],
    table: Mapping[str, Property],
    structured: Mapping[str, str],
    path: DocumentPath,
    prefix: str,
    values: ValueReader,
) -> None:
    """Checks keys and the syntax of templates of a resource that has no items and is never read."""
    for key, node in properties.items():
        if key not in table and key not in structured:
            of_type = prefix.partition("#")[0]
            values.faults.unknown_key(key, (*path, key), (*table, *structured), prefix, of_type=of_type)
        for place, text in leaves(node, (*path, key)):
            if not isinstance(text, str) or "{{" not in text:
                continue
            try:
                Template(text)
            except BadExpression as error:
                values.faults.add(place, f"{prefix}{key}: {values.shown(error)}")


def shown_item(resource: Resource) -> str:
    """Names the item of a repeated resource in a fault."""
    key = (resource.each or {}).get("key")
    if isinstance(key, int):
        return f"item {key} of `for_each`"
    hidden = isinstance(key, Tainted) or resource.sensitive
    return "an item of `for_each`" if hidden else f"item {shorten(str(key))!r} of `for_each`"

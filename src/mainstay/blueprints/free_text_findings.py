"""Free text of the customer where a shell would run it, or where it adds lines to a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstay.blueprints.checked_manifest import CheckedManifest, below
from mainstay.blueprints.expressions import FlowReader, Use
from mainstay.blueprints.free_text import allows_only_lines, allows_only_words, scripts_in, shell_places
from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.converge.command_words import split_template
from mainstay.converge.contract import Resource
from mainstay.converge.manifest.expressions import Expression, split
from mainstay.converge.manifest.manifest_warnings import Text, texts_in
from mainstay.converge.manifest.scope import EACH, BadExpression
from mainstay.converge.value_kinds import COMMAND, Unfit
from mainstay.foundation.faults import DocumentPath

Restriction = Callable[[object], bool]
# Limit for values of `data` that are computed from other values.
DEEPEST_DATA = 10
# What commands and earlier runs reported: it may repeat what a consumer wrote.
INDIRECT = ("instance", "result")


def find_unsafe_text(checked: CheckedManifest, resource: Resource) -> None:
    for name, entry in checked.properties_of(resource).items():
        if entry.kind.name == COMMAND.name:
            _check_command(checked, resource, checked.text_of(resource, name), (*resource.place, name))
    _check_command(checked, resource, resource.name_template, resource.place)
    if resource.type == "file":
        _check_content(checked, resource)
    for place, _, _ in checked.health_check_commands(resource):
        _check_command(checked, resource, checked.written(place), place, is_split=True)


def _check_command(
    checked: CheckedManifest, resource: Resource, text: str, path: DocumentPath, *, is_split: bool = False
) -> None:
    """Refuses free text where a shell would run it. Without a shell a value is one argument."""
    if "{{" not in text or checked.manifest is None:
        return
    try:
        parts = split(text)
        scripts: list[list[Any]] = [parts]
        if is_split or checked.manifest.types[resource.type].splits_commands(resource):
            scripts = list(scripts_in(split_template(parts, text)))
    except (BadExpression, Unfit):
        # Reported when the manifest is loaded.
        return
    for script in scripts:
        for expression, place in shell_places(script):
            _check_shell_expression(checked, resource, path, expression, place)


def _check_shell_expression(
    checked: CheckedManifest, resource: Resource, path: DocumentPath, expression: Expression, place: str | None
) -> None:
    for flow in FlowReader(checked.reader).flows(expression.source):
        is_indirect = flow.use.path[0] in INDIRECT
        if not is_indirect and not _is_free_text(checked, flow.use, allows_only_words):
            continue
        verb = "may contain" if is_indirect else "is"
        shown = (
            f"{resource.id}: {'.'.join(flow.use.path)} {verb} free text of the order, and a shell would run it here"
        )
        if flow.escape != "quote":
            checked.file_findings.fault(
                path,
                f"{shown}; end the expression with `| quote`, or give the property an enum or a pattern of plain"
                " characters",
            )
        elif place is not None:
            checked.file_findings.fault(
                path, f"{shown}: `| quote` does not protect inside {place}; write the expression outside"
            )


def _check_content(checked: CheckedManifest, resource: Resource) -> None:
    """Warns about free text that may add lines to a file. A file that is only this text has no other lines."""
    text = checked.text_of(resource, "content") or checked.text_of(resource, "contents")
    try:
        parts = split(text)
    except BadExpression:
        return
    for part in parts:
        if not isinstance(part, Expression):
            continue
        for flow in FlowReader(checked.reader).flows(part.source):
            is_whole = len(parts) == 1 and flow.use.template is None
            is_named = flow.use.path == ("service", "name")
            if is_whole or flow.escape or is_named or not _is_free_text(checked, flow.use, allows_only_lines):
                continue
            checked.add(
                Text((*resource.place, "content"), text),
                flow.use,
                f"{resource.id}: {'.'.join(flow.use.path)} is free text of the order and may contain line breaks,"
                " which add lines to the file; end the expression with `| line`, `| quote` or `| tojson`",
                is_warning=True,
            )


def _is_free_text(checked: CheckedManifest, use: Use, is_restricted: Restriction, depth: int = 0) -> bool:
    """Whether the consumer chooses the text and no enum or pattern restricts its characters."""
    root, *rest = use.path
    if root == "service":
        return rest in ([], ["name"])
    if root in ("data", EACH):
        uses = checked.uses_in_data(rest) if root == "data" else checked.uses_in_items(rest)
        return depth < DEEPEST_DATA and (
            any(_is_free_text(checked, each, is_restricted, depth + 1) for each in uses)
            or (root == "data" and _is_free_text_of_entry(checked, rest, is_restricted, depth + 1))
        )
    if root == "job" and rest[:1] in ([], ["params"]):
        rest = rest[1:]
    elif root != "properties":
        return False
    return checked.members is None or _is_free_property(checked.members, rest, is_restricted)


def _is_free_property(members: tuple[PropertyDeclaration, ...], path: list[str], is_restricted: Restriction) -> bool:
    if not path:
        return any(_is_free(each, is_restricted) for each in members)
    declared: PropertyDeclaration | None = None
    for part in path:
        inner = members if declared is None else declared.members or ()
        items = None if declared is None else declared.items
        declared = next((each for each in inner if each.name == part), items if part.isdigit() else None)
        if declared is None:
            return True
    return declared is None or _is_free(declared, is_restricted)


def _is_free_text_of_entry(checked: CheckedManifest, path: list[str], is_restricted: Restriction, depth: int) -> bool:
    """Whether the manifest that applies this one passes free text at a path of `data`."""
    if checked.applied_by is None:
        return False
    outer, entry = checked.applied_by
    given = outer.node_at((*entry.place, "data"))
    node = below(outer.default_of(entry, "data") if given is None else given, path)
    outer.resource = entry
    uses = [use for text in texts_in(node) for use in outer.reader.uses(text.text)]
    return any(_is_free_text(outer, use, is_restricted, depth) for use in uses)


def _is_free(declared: PropertyDeclaration, is_restricted: Restriction) -> bool:
    """Whether the consumer can put text with any characters into a property or below it."""
    if Actor.USER not in declared.actors or "enum" in declared.keywords:
        return False
    if declared.members is not None:
        return any(_is_free(each, is_restricted) for each in declared.members)
    if declared.items is not None:
        return _is_free(declared.items, is_restricted)
    if declared.type is PropertyType.STRING:
        return not is_restricted(declared.keywords.get("pattern"))
    return declared.type in (PropertyType.JSON, PropertyType.ARRAY, PropertyType.OBJECT)

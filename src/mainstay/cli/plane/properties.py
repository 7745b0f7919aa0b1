"""Properties in plane files: what a user may set, secrets as directives, references to services by name. Pure.

A secret is never exported and never compared: `{keep: true}` leaves it alone, `{file: F}` and `{env: NAME}` give its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mainstay.cli.plane.entries import same
from mainstay.cli.remote.service_types import (
    SECRET,
    Definition,
    Members,
    hide_secret_value,
    inner_members,
    is_reference,
    is_secret,
    set_by,
)
from mainstay.foundation import Struct

Steps = tuple[str | int, ...]


KEEP, FILE, ENVIRONMENT = "keep", "file", "env"


class SecretValue(Struct):
    """A secret to send: its directive, and the reference of the stored value to send back for `keep`."""

    directive: Mapping[str, Any]
    stored: Any

    def __repr__(self) -> str:
        return SECRET


def exported(
    properties: Mapping[str, Any], members: Members | None, name_of: Callable[[str], str | None]
) -> dict[str, Any]:
    """What a user may set. `name_of` gives the name of a referenced service; None: only the id identifies it."""
    if members is None:
        return dict(properties)
    return {
        name: _exported(value, members[name], name_of)
        for name, value in properties.items()
        if name in members and value is not None and "user" in set_by(members[name])
    }


def _exported(value: Any, definition: Definition, name_of: Callable[[str], str | None]) -> Any:
    if is_secret(definition):
        return {KEEP: True}
    if isinstance(value, dict) and definition.get("properties"):
        return exported(value, definition["properties"], name_of)
    if isinstance(value, list) and definition.get("items"):
        return [_exported(each, definition["items"], name_of) for each in value]
    if isinstance(value, str) and is_reference(definition):
        return name_of(value) or value
    return value


def secret_faults(value: Any, definition: Definition | None) -> Iterator[tuple[Steps, str]]:
    """(path, message) of each secret that is not a directive."""
    for path, each, known in _leaves(value, definition):
        if is_secret(known) and each is not None and not is_directive(each):
            yield path, "is a secret: write {keep: true}, {file: FILE} or {env: NAME}, never the value itself"


def _leaves(value: Any, definition: Definition | None) -> list[tuple[Steps, Any, Definition]]:
    found: list[tuple[Steps, Any, Definition]] = []
    replaced(value, definition, lambda *leaf: found.append(leaf))
    return found


def replaced(
    value: Any, definition: Definition | None, replace: Callable[[Steps, Any, Definition], Any], path: Steps = ()
) -> Any:
    """The value with every leaf replaced: secrets, and values that are no map or list. A map that is a secret is one leaf."""
    if definition is None:
        return value
    if isinstance(value, dict) and not is_secret(definition):
        members = inner_members(definition)
        return {name: replaced(each, members.get(name), replace, (*path, name)) for name, each in value.items()}
    if isinstance(value, list) and not is_secret(definition):
        items = definition.get("items")
        return [replaced(each, items, replace, (*path, number)) for number, each in enumerate(value)]
    return replace(path, value, definition)


def is_directive(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((name, given),) = value.items()
    return given is True if name == KEEP else name in (FILE, ENVIRONMENT) and isinstance(given, str) and bool(given)


def _has_value(directive: Any) -> bool:
    return is_directive(directive) and KEEP not in directive


def is_named_service(value: Any, definition: Definition) -> bool:
    return isinstance(value, str) and is_reference(definition)


def with_references(value: Any, definition: Definition | None, translate: Callable[[Steps, str], str]) -> Any:
    """The value with every reference to a service translated; `translate` gets its path and text."""
    return replaced(
        value, definition, lambda path, each, known: translate(path, each) if is_named_service(each, known) else each
    )


def references_in(value: Any, definition: Definition | None) -> Iterator[str]:
    """The name of each service that the value refers to."""
    return (each for _, each, known in _leaves(value, definition) if is_named_service(each, known))


def changed_properties(
    wanted: Mapping[str, Any],
    actual: Mapping[str, Any],
    stored: Mapping[str, Any],
    members: Members | None,
    *,
    set_secrets: bool,
) -> tuple[dict[str, Any], list[tuple[str, Any, Any]]]:
    """The properties to send, and (path, old, new) of each change. `actual` is the export, `stored` the properties.

    An update merges objects, so only what differs is sent; lists and free values are replaced whole."""
    sent: dict[str, Any] = {}
    shown: list[tuple[str, Any, Any]] = []
    for name, value in wanted.items():
        definition = None if members is None else members.get(name)
        old, kept = actual.get(name), stored.get(name)
        if definition is not None and is_secret(definition):
            # A secret that cannot be stored longer than its job is not missing.
            if set_secrets and _has_value(value):
                sent[name] = SecretValue(value, kept)
                shown.append((name, SECRET if kept is not None else None, SECRET))
        elif (
            isinstance(value, dict)
            and isinstance(old, dict)
            and definition is not None
            and definition.get("properties")
        ):
            inner, lines = changed_properties(
                value, old, kept if isinstance(kept, dict) else {}, definition["properties"], set_secrets=set_secrets
            )
            if inner:
                sent[name] = inner
                shown += [(f"{name}.{path}", before, after) for path, before, after in lines]
        elif not _same_without_secrets(value, old, definition, set_secrets=set_secrets):
            sent[name] = complete_value(value, kept, definition)
            shown.append((name, hide_secret_value(old, definition), hide_secret_value(value, definition)))
    return sent, shown


def _same_without_secrets(wanted: Any, actual: Any, definition: Definition | None, *, set_secrets: bool) -> bool:
    """Secrets are never compared; one that is to be sent is always a difference."""

    def hide(_path: Steps, each: Any, known: Definition) -> Any:
        if each is None or not is_secret(known):
            return each
        return object() if set_secrets and _has_value(each) else SECRET

    return same(replaced(wanted, definition, hide), hide_secret_value(actual, definition))


def complete_value(value: Any, stored: Any, definition: Definition | None) -> Any:
    """The value with its secrets as `SecretValue`, each with what is stored in the same place."""

    def replace(path: Steps, each: Any, known: Definition) -> Any:
        return SecretValue(each, _value_at(stored, path)) if is_secret(known) and each is not None else each

    return replaced(value, definition, replace)


def _value_at(value: Any, path: Steps) -> Any:
    """None if there is no such place."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value

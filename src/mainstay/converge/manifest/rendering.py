"""Renders a resolved manifest as a document for `mainstay render`, with hidden values redacted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mainstay.converge.command_words import join_words
from mainstay.converge.contract import HealthCheck, Property, Resource
from mainstay.converge.manifest import Manifest
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.scope import EACH
from mainstay.converge.redaction import Redactor, secret_values
from mainstay.converge.value_kinds import COMMAND, DURATION_SECONDS, MODE_BITS, to_text
from mainstay.foundation import Any
from mainstay.foundation.text import REDACTED, Tainted
from mainstay.foundation.yaml.scalars import with_leaves

INTERNAL = frozenset(
    (
        *("type", "name", "id", "place", "deferred", "control_if", "control_unless", "name_template", "secrets"),
        *("each", "declared_in", "parent", "within", "child"),
    )
)


def render_manifest(manifest: Manifest) -> dict[str, Any]:
    """The manifest itself; `render_applied` renders the manifests that it applies."""
    document: dict[str, Any] = {}
    if manifest.data:
        document["data"] = _shown(manifest.data)
    if manifest.fail_on_error:
        document["fail_on_error"] = True
    for key in ("pre_message", "post_message", "outputs"):
        value = getattr(manifest, key)
        if value is not None:
            document[key] = _shown(value)
    document["resources"] = [
        {resource.type: [{_as_text(resource.name): _rendered(resource, manifest.types[resource.type].properties)}]}
        for resource in manifest.resources
        if (resource.declared_in or manifest) is manifest
    ]
    # A secret property may take its value from `data`.
    redactor = Redactor(secret_values([resource.__dict__ for resource in manifest.resources]))
    if not redactor.secrets:
        return document
    cleaned: dict[str, Any] = with_leaves(
        document, lambda leaf: redactor.clean(leaf) if isinstance(leaf, str) else leaf, keys=True
    )
    return cleaned


def render_applied(manifest: Manifest) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yields each `apply` resource with the document of its manifest, in the order of the run."""
    for resource in manifest.resources:
        if resource.child is not None:
            yield resource, render_manifest(resource.child)


def _rendered(resource: Resource, properties: Mapping[str, Property]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in {**resource.__dict__, **(resource.deferred or {})}.items():
        if key in INTERNAL:
            continue
        entry = properties.get(key)
        if entry is not None:
            found[key] = _shown_property(value, entry, sensitive=resource.sensitive)
        elif key == "health_checks":
            found[key] = [_health_check(check, sensitive=resource.sensitive) for check in value]
        else:
            found[key] = _shown(value)
    control = {
        key: getattr(resource, f"control_{key}").source
        for key in ("if", "unless")
        if getattr(resource, f"control_{key}") is not None
    }
    if control:
        found["control"] = control
    if resource.each is not None and any(EACH in text for text in _unrendered(resource, control)):
        found["for_each"] = _item(resource)
    return found


def _unrendered(resource: Resource, control: Mapping[str, str]) -> Iterator[str]:
    yield from control.values()
    for tree in (resource.deferred or {}).values():
        yield str(_shown(tree))


def _item(resource: Resource) -> dict[str, Any]:
    """The item of a repeated resource, for its templates that are rendered in the run."""
    each = resource.each or {}
    return {to_text(_shown(each["key"])): REDACTED if resource.sensitive else _shown(each["value"])}


def _health_check(check: HealthCheck, *, sensitive: bool) -> dict[str, Any]:
    found = {
        name: _shown_property(value, check.kind.properties[name], sensitive=sensitive)
        for name, value in check.values.items()
    }
    main = check.values[check.kind.name]
    if check.name != (join_words(main) if isinstance(main, tuple) else main):
        found["name"] = _shown(check.name)
    found["tries"] = check.tries
    found["try_sleep"] = _duration(check.try_sleep_seconds)
    if check.timeout_seconds is not None:
        found["timeout"] = _duration(check.timeout_seconds)
    return found


def _shown_property(value: Any, entry: Property, *, sensitive: bool) -> Any:
    if entry.is_hidden(sensitive=sensitive):
        return REDACTED
    if entry.hidden_parts is not None and not isinstance(value, Template):
        shown = _shown(value)
        for part in entry.hidden_parts(value):
            shown = shown.replace(_shown(part), REDACTED)
        return shown
    if entry.kind is MODE_BITS:
        return f"{value:04o}"
    if entry.kind.name == COMMAND.name and isinstance(value, tuple):
        return _shown(join_words(value))
    return _duration(value) if entry.kind is DURATION_SECONDS else _shown(value)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    milliseconds = round((seconds - whole) * 1000)
    return "".join(f"{amount}{unit}" for amount, unit in ((whole, "s"), (milliseconds, "ms")) if amount) or "0s"


def _shown(value: Any) -> Any:
    """Converts values to what a manifest would contain; templates become their text."""

    def shown(leaf: Any) -> Any:
        if isinstance(leaf, Template):
            return leaf.text
        if isinstance(leaf, Tainted):
            return REDACTED
        return _as_text(leaf) if isinstance(leaf, str) else leaf

    return with_leaves(value, shown)


def _as_text(text: str) -> str:
    """Escapes text, so that it renders to itself as a template."""
    return text.replace("{{", "{{ '{{' }}")

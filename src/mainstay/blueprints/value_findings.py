"""Values where they do not belong: secrets that other users can read, a `control` that is no truth value, and outputs
without a receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstay.agent.job_documents import OUTPUT_KEYS
from mainstay.blueprints.checked_manifest import CheckedManifest
from mainstay.blueprints.expressions import Use
from mainstay.control.domain.properties.contract import Actor
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.converge.contract import Property, Resource
from mainstay.converge.failures import Failure
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.scope import EACH, Unresolved, holds_secret, step
from mainstay.converge.value_kinds import COMMAND, describe
from mainstay.foundation.faults import DocumentPath
from mainstay.foundation.suggestions import did_you_mean

READABLE_BY_OTHERS, READABLE_BY_GROUP = 0o004, 0o040


def find_exposed_secrets(checked: CheckedManifest, resource: Resource) -> None:
    if resource.type == "file" and resource.ensure == "present" and _has_secret(checked, resource, "content"):
        _check_mode(checked, resource, getattr(resource, "mode", None) or 0)
    for name, entry in checked.properties_of(resource).items():
        if _has_secret(checked, resource, name):
            _check_property(checked, resource, name, entry)
    for place, check, name in checked.health_check_commands(resource):
        if _carries_secret(checked, check.values.get(name)):
            checked.file_findings.warn(
                place,
                f"{resource.id}: the health check carries a secret, and every user of the host can see command"
                " lines; let the check read it from a file",
            )


def _check_mode(checked: CheckedManifest, resource: Resource, mode: int) -> None:
    path = (*resource.place, "mode")
    if mode & READABLE_BY_OTHERS:
        checked.file_findings.fault(
            path, f"{resource.id}: it contains a secret and every user can read it ({mode:04o}); use mode 0600"
        )
    elif mode & READABLE_BY_GROUP:
        checked.file_findings.warn(
            path, f"{resource.id}: it contains a secret and its group can read it ({mode:04o})"
        )


def _check_property(checked: CheckedManifest, resource: Resource, name: str, entry: Property) -> None:
    """Warns if a secret is in a property that other users can see."""
    if entry.kind.name == COMMAND.name:
        problem = "and every user of the host can see command lines; let the command read it from a file"
    elif resource.type == "exec" and name == "environment":
        problem = "and every child process of the command sees it; let the command read it from a file"
    elif not entry.secret and not entry.private:
        problem = "but is neither a secret nor a private property; other users of the host may see it"
    else:
        return
    checked.file_findings.warn((*resource.place, name), f"{resource.id}: {name} carries a secret, {problem}")


def _has_secret(checked: CheckedManifest, resource: Resource, name: str) -> bool:
    deferred = resource.deferred or {}
    return _carries_secret(checked, deferred[name] if name in deferred else getattr(resource, name, None))


def _carries_secret(checked: CheckedManifest, value: Any) -> bool:
    if isinstance(value, Template):
        return any(_is_secret(checked, use) for use in checked.reader.uses(value.text))
    if isinstance(value, dict):
        return any(_carries_secret(checked, child) for child in value.values())
    if isinstance(value, (list, tuple)):
        return any(_carries_secret(checked, child) for child in value)
    return holds_secret(value)


def _is_secret(checked: CheckedManifest, use: Use) -> bool:
    root, *rest = use.path
    if root in ("data", EACH):
        value: Any = None
        if root == "data" and checked.manifest is not None:
            value = checked.manifest.data
        elif root == EACH and checked.resource is not None:
            value = checked.resource.each
        for name in rest:
            value = step(value, name)
        return holds_secret(value)
    if root == "job" and rest[:1] == ["params"]:
        rest = rest[1:]
    elif root != "properties":
        return False
    path = tuple("[]" if name.isdigit() else name for name in rest)
    return any(path[: len(secret)] == secret or secret[: len(path)] == path for secret in checked.secret_paths)


def find_wrong_control(checked: CheckedManifest, resource: Resource) -> None:
    """`control` must evaluate to true or false, which is only known after evaluation."""
    if checked.manifest is None:
        return
    for key in ("if", "unless"):
        expression = getattr(resource, f"control_{key}")
        if expression is None:
            continue
        checked.manifest.scope.each = resource.each
        try:
            value = expression.evaluate(checked.manifest.scope)
        except (Unresolved, Failure):
            # It depends on results of earlier resources.
            continue
        if not isinstance(value, bool):
            path = (*resource.place, "control", key)
            checked.file_findings.fault(
                path, f"{resource.id}: control.{key} must be true or false, got {describe(value)}"
            )


def find_wrong_outputs(checked: CheckedManifest, outputs: Any) -> None:
    if not isinstance(outputs, dict):
        return
    for key, value in outputs.items():
        if key not in OUTPUT_KEYS:
            close = did_you_mean(key, OUTPUT_KEYS)
            checked.file_findings.fault(("outputs", key), f"outputs: unknown key {key!r}{close}", at_key=True)
        elif key != "properties" and _carries_secret(checked, value):
            checked.file_findings.fault(
                ("outputs", key),
                f"outputs.{key} carries a secret, and every user who may see the service would see it",
            )
    properties = outputs.get("properties")
    if isinstance(properties, dict) and checked.members is not None:
        _check_reported(checked, properties, checked.members, ("outputs", "properties"))


def _check_reported(
    checked: CheckedManifest, given: Mapping[str, Any], members: tuple[PropertyDeclaration, ...], path: DocumentPath
) -> None:
    for name, value in given.items():
        at = (*path, name)
        shown = ".".join(str(part) for part in at)
        declared = next((each for each in members if each.name == name), None)
        if declared is None:
            close = did_you_mean(name, [each.name for each in members])
            checked.file_findings.fault(at, f"{shown}: there is no such property{close}", at_key=True)
        elif isinstance(value, dict) and declared.members is not None:
            _check_reported(checked, value, declared.members, at)
        elif Actor.AGENT not in declared.actors:
            checked.file_findings.fault(
                at,
                f"{shown}: the agent may not set it; add the authorizer `actor` with `agent` to the property",
                at_key=True,
            )
        elif declared.secret is None and _carries_secret(checked, value):
            checked.file_findings.fault(
                at, f"{shown} carries a secret; declare that property as `secret`", at_key=True
            )

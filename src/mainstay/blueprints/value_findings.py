"""Values with a wrong type or without a receiver: `control` that is no truth value, and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstay.agent.job_documents import OUTPUT_KEYS
from mainstay.blueprints.checked_manifest import CheckedManifest
from mainstay.blueprints.secret_findings import carries_secret
from mainstay.control.domain.properties.contract import Actor
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.converge.contract import Resource
from mainstay.converge.failures import Failure
from mainstay.converge.manifest.scope import Unresolved
from mainstay.converge.value_kinds import describe
from mainstay.foundation.faults import DocumentPath
from mainstay.foundation.suggestions import did_you_mean


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
        elif key != "properties" and carries_secret(checked, value):
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
        elif declared.secret is None and carries_secret(checked, value):
            checked.file_findings.fault(
                at, f"{shown} carries a secret; declare that property as `secret`", at_key=True
            )

"""Checks a blueprint without a host and without a server, and reports all faults with their lines.

Imports the control plane, which defines what a service type may contain. Checks of resources are in `*_findings.py`."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from mainstay.agent.blueprint import DEFINITION, SERVICE_TYPE, Blueprint, read_blueprint
from mainstay.blueprints.bundle import pack
from mainstay.blueprints.checked_manifest import CheckedManifest
from mainstay.blueprints.example_orders import FOLDER, read_orders
from mainstay.blueprints.findings import FileFindings, Findings, document_path
from mainstay.blueprints.free_text_findings import find_unsafe_text
from mainstay.blueprints.lookup_findings import find_unknown_lookups
from mainstay.blueprints.sample_values import sample_roots
from mainstay.blueprints.value_findings import find_exposed_secrets, find_wrong_control, find_wrong_outputs
from mainstay.control.domain.blueprints import undeclared_names
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.properties.contract import ASSUMED, Actor, EvaluationContext, Operation
from mainstay.control.domain.properties.engine import Rejected, decide
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.domain.service_types import ServiceTypeDefinition, parse_service_type
from mainstay.control.rulebook import installed_rulebook
from mainstay.converge.host.sources import read_bytes
from mainstay.converge.run import RunRequest, load
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.yaml.document import decode


def check_blueprint(directory: str) -> tuple[Blueprint | None, Findings]:
    findings = Findings()
    definition = _check_type(directory, findings)
    try:
        blueprint = read_blueprint(directory)
        pack(directory)
    except DoesNotLoad as refusal:
        findings.add_faults(refusal)
        findings.sort()
        return None, findings
    if definition is not None:
        _check_names(blueprint, definition, findings)
        instance: set[str] = set()
        manifests = [CheckedManifest(blueprint, name, definition, findings) for name in _manifests_of(blueprint)]
        for checked in manifests:
            instance |= checked.instance_names()
        for checked in manifests:
            _check_manifest(checked, instance)
        _check_orders(directory, definition, findings)
    findings.sort()
    return blueprint, findings


def _manifests_of(blueprint: Blueprint) -> list[str]:
    served = [entry.manifest for entry in blueprint.actions.values()]
    return list(dict.fromkeys([*served, *blueprint.keeps.values()]))


def _check_type(directory: str, findings: Findings) -> ServiceTypeDefinition | None:
    """The service type, or None if it does not load."""
    file = os.path.join(directory, SERVICE_TYPE)
    try:
        text = decode(read_bytes(file), file)
        document = read_yaml(text, file)
    except DoesNotLoad as refusal:
        findings.add_faults(refusal)
        return None
    if not isinstance(document, dict):
        return None
    file_findings = FileFindings(file, text, findings)
    try:
        return parse_service_type(
            document.get("propertySchema"), document.get("lifecycleSchema"), installed_rulebook()
        )
    except InvalidDefinition as refusal:
        for fault in refusal.faults:
            steps = document_path(fault.path)
            if steps[:1] != ("lifecycleSchema",):
                steps = ("propertySchema", *steps)
            file_findings.fault(steps, str(fault))
        return None


def _check_names(blueprint: Blueprint, definition: ServiceTypeDefinition, findings: Findings) -> None:
    file = os.path.join(blueprint.directory, DEFINITION)
    file_findings = FileFindings(file, decode(read_bytes(file), file), findings)
    lifecycle = definition.lifecycle
    for fault in undeclared_names(lifecycle, blueprint.actions, blueprint.keeps):
        kind, name = document_path(fault.path)[1:]
        known = lifecycle.actions if kind == "actions" else lifecycle.states
        file_findings.fault((kind, name), f"{fault.message}{did_you_mean(str(name), known)}", at_key=True)
    for name, action in lifecycle.actions.items():
        entry = blueprint.actions.get(name)
        if entry is None:
            file_findings.fault(("actions",), f"the lifecycle's action {name} has no manifest", at_key=True)
        elif entry.timeout_seconds is not None and entry.timeout_seconds > action.timeout_seconds:
            file_findings.warn(
                ("actions", name, "timeout"),
                f"{name} may take {entry.timeout_seconds:g}s here, but its job times out after {action.timeout_seconds}s:"
                " raise timeoutSeconds in the lifecycle",
            )
    for path in blueprint.old_keys:
        file_findings.warn(path, f"`{path[-1]}` is the old name of `upgrades`; rename the key", at_key=True)
    if blueprint.movable:
        _check_moves(blueprint, lifecycle, file_findings)


def _check_moves(blueprint: Blueprint, lifecycle: Lifecycle, file_findings: FileFindings) -> None:
    """A move runs the manifest of `create`, then the one that describes the state of the service."""
    fixed = {lifecycle.initial_state, *lifecycle.terminal_states, *blueprint.keeps}
    left = [state for state in lifecycle.states if state not in fixed]
    if left:
        file_findings.warn(
            ("movable",),
            f"`keeps` has no manifest for {', '.join(left)}: a move in such a state leaves the host as `create` does",
        )


def _check_orders(directory: str, definition: ServiceTypeDefinition, findings: Findings) -> None:
    try:
        orders = read_orders(directory)
    except DoesNotLoad as refusal:
        findings.add_faults(refusal)
        return
    if not orders:
        folder = os.path.join(directory, FOLDER)
        findings.warnings.append(
            Fault(folder, None, None, "there is no example order, so `blueprint test` has nothing to test")
        )
    now = datetime.now(UTC)
    context = EvaluationContext(
        operation=Operation.CREATE, actor=Actor.USER, now=now, entropy=bytes(16), dry=True, provider_id="any"
    )
    for order in orders:
        decision = decide(definition.properties, order.properties, context, answers=ASSUMED)
        if isinstance(decision, Rejected):
            file_findings = FileFindings(order.path, decode(read_bytes(order.path), order.path), findings)
            for fault in decision.faults:
                file_findings.fault(("properties", *document_path(fault.path)), str(fault))


def _check_manifest(checked: CheckedManifest, instance: set[str]) -> None:
    if not checked.file_findings.text:
        return
    find_unknown_lookups(checked, instance)
    reported = {(fault.line, fault.file) for fault in checked.findings.faults}
    try:
        _, manifest = load(
            RunRequest(checked.file, roots=sample_roots(checked, instance), bundle=checked.blueprint.directory)
        )
    except DoesNotLoad as refusal:
        # Unknown names are already reported, with better messages.
        fresh = [
            fault
            for fault in refusal.faults
            if "is not defined" not in fault.message or (fault.line, fault.file) not in reported
        ]
        checked.findings.add_faults(DoesNotLoad(fresh))
        return
    checked.manifest = manifest
    for warning in manifest.warnings:
        checked.findings.warnings.append(Fault(checked.file, None, None, warning))
    _check_resources(checked)
    find_wrong_outputs(checked, manifest.outputs)
    for applied in checked.applied():
        find_unknown_lookups(applied, instance)
        _check_resources(applied)


def _check_resources(checked: CheckedManifest) -> None:
    for resource in checked.own_resources():
        checked.resource = resource
        find_wrong_control(checked, resource)
        find_exposed_secrets(checked, resource)
        find_unsafe_text(checked, resource)

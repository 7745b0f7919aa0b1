"""Checks a blueprint without a host and without a server, and reports all faults with their lines.

Imports the control plane, which defines what a service type may contain."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainstay.agent.blueprint import DEFINITION, SERVICE_TYPE, read_blueprint
from mainstay.agent.job_documents import OUTPUT_KEYS
from mainstay.blueprints.bundle import pack
from mainstay.blueprints.example_orders import FOLDER, read_orders
from mainstay.blueprints.expressions import FlowReader, Reader, Text, texts_in
from mainstay.blueprints.free_text import allows_only_lines, allows_only_words, scripts_in, shell_places
from mainstay.control.domain.blueprints import undeclared_names
from mainstay.control.domain.properties.contract import (
    ASSUMED,
    Actor,
    EvaluationContext,
    Operation,
    PropertyType,
    SecretKind,
)
from mainstay.control.domain.properties.engine import Rejected, decide
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.domain.service_types import parse_service_type
from mainstay.control.rulebook import installed_rulebook
from mainstay.converge.command_words import split_template
from mainstay.converge.contract import Failure
from mainstay.converge.host.sources import read_bytes
from mainstay.converge.manifest.expressions import (
    EACH,
    BadExpression,
    Expression,
    Template,
    Unresolved,
    holds_secret,
    split,
    step,
)
from mainstay.converge.run import RunRequest, load
from mainstay.converge.value_kinds import COMMAND, Unfit, describe
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import Tainted
from mainstay.foundation.yaml.document import decode, locate, nearest_place, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from mainstay.agent.blueprint import Blueprint
    from mainstay.blueprints.expressions import Use
    from mainstay.control.domain.lifecycle.schema import Lifecycle
    from mainstay.control.domain.properties.declaration import PropertyDeclaration
    from mainstay.control.domain.service_types import ServiceTypeDefinition
    from mainstay.converge.contract import Property, Resource
    from mainstay.converge.manifest.resolve import Manifest
    from mainstay.foundation.faults import DocumentPath

STEP = re.compile(r'([^.\[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
# Names below `service` and `job`. Names below `instance` come from the outputs of the manifests.
SERVICE_NAMES = ("id", "name", "status", "root", "type")
JOB_NAMES = ("action", "attempt", "params")
SAMPLE_ID = "00000000-0000-4000-8000-000000000000"
READABLE_BY_OTHERS, READABLE_BY_GROUP = 0o004, 0o040
# Limit for values of `data` that are computed from other values.
DEEPEST_DATA = 10
# What commands and earlier runs reported: it may repeat what a consumer wrote.
INDIRECT = ("instance", "result")


class Findings:
    """Faults make a blueprint unusable; warnings are probably not intended."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []

    def add_faults(self, refusal: DoesNotLoad) -> None:
        known = {str(fault) for fault in self.faults}
        self.faults += [fault for fault in refusal.faults if str(fault) not in known]

    def lines(self) -> Iterator[str]:
        yield from (str(fault) for fault in self.faults)
        for found in self.warnings:
            yield str(Fault(found.file, found.line, found.column, f"warning: {found.message}"))

    def sort(self) -> None:
        for found in (self.faults, self.warnings):
            found.sort(key=lambda fault: (fault.file, fault.line or 0, fault.column or 0))


class FileFindings:
    """Adds findings in one file, with the line and column of a path in it."""

    def __init__(self, file: str, text: str, findings: Findings) -> None:
        self.file = file
        self.text = text
        self.findings = findings

    def fault(self, path: DocumentPath, message: str, **where: Any) -> None:
        self._add(self.findings.faults, path, message, **where)

    def warn(self, path: DocumentPath, message: str, **where: Any) -> None:
        self._add(self.findings.warnings, path, message, **where)

    def _add(self, to: list[Fault], path: DocumentPath, message: str, *, at_key: bool = False, line: int = 0) -> None:
        places = locate(self.text, [path])
        row, column = nearest_place(places, path, at_key=at_key)
        written = self.text.splitlines()[row - 1 : row]
        is_block = bool(written) and written[0][column - 1 : column] in ("|", ">")
        if is_block and (line or not at_key):
            # The text of a block scalar starts in the line below `|` or `>`.
            row, column = row + 1 + line, 1
        if all((fault.line, fault.message) != (row, message) or fault.file != self.file for fault in to):
            to.append(Fault(self.file, row, column, message))


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
        checks = [ManifestCheck(blueprint, name, definition, findings) for name in _manifests_of(blueprint)]
        for check in checks:
            instance |= check.instance_names()
        for check in checks:
            check.run(instance)
        _check_orders(directory, definition, findings)
    findings.sort()
    return blueprint, findings


def _manifests_of(blueprint: Blueprint) -> list[str]:
    served = [entry.manifest for entry in blueprint.actions.values()]
    return list(dict.fromkeys([*served, *blueprint.keeps.values()]))


# ---- blueprint.yaml and service-type.yaml ----
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
            steps = _document_path(fault.path)
            if steps[:1] != ("lifecycleSchema",):
                steps = ("propertySchema", *steps)
            file_findings.fault(steps, str(fault))
        return None


def _document_path(text: str) -> DocumentPath:
    """`actions[0].name` as ("actions", 0, "name")."""
    return tuple(
        int(index) if index else name or quoted.replace('\\"', '"') for name, index, quoted in STEP.findall(text)
    )


def _check_names(blueprint: Blueprint, definition: ServiceTypeDefinition, findings: Findings) -> None:
    file = os.path.join(blueprint.directory, DEFINITION)
    file_findings = FileFindings(file, decode(read_bytes(file), file), findings)
    lifecycle = definition.lifecycle
    for fault in undeclared_names(lifecycle, blueprint.actions, blueprint.keeps):
        kind, name = _document_path(fault.path)[1:]
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
                file_findings.fault(("properties", *_document_path(fault.path)), str(fault))


# ---- manifests ----
class ManifestCheck:
    def __init__(
        self, blueprint: Blueprint, name: str, definition: ServiceTypeDefinition, findings: Findings
    ) -> None:
        self.blueprint = blueprint
        self.name = name
        self.members = definition.properties.members
        self.file = blueprint.manifest_path(name)
        self.findings = findings
        self.secret_paths = blueprint.secret_paths
        self.served = [action for action, entry in blueprint.actions.items() if entry.manifest == name]
        with_properties = {
            "create",
            *(each.name for each in definition.lifecycle.actions.values() if each.takes_properties),
        }
        # Short-lived secrets exist only during a job whose request contains them.
        self.lacks_ephemeral = name in blueprint.keeps.values() or not with_properties.issuperset(self.served)
        # After the creation an update may clear optional properties, and defaults are not applied again.
        self.after_updates = with_properties != {"create"} and (
            name in blueprint.keeps.values() or self.served != ["create"]
        )
        self.manifest: Manifest | None = None
        # The check of the manifest that applies this one, and its `apply` resource; None: an action or a state names it.
        self.applied_by: tuple[ManifestCheck, Resource] | None = None
        # The resource whose expressions are checked: `each` is its item.
        self.resource: Resource | None = None
        try:
            text = decode(read_bytes(self.file), self.file)
            self.node = parse(text, self.file)
        except DoesNotLoad as refusal:
            findings.add_faults(refusal)
            text, self.node = "", []
        self.file_findings = FileFindings(self.file, text, findings)
        self.reader = Reader(self._read_template)

    def instance_names(self) -> set[str]:
        outputs = self.node.get("outputs") if isinstance(self.node, dict) else None
        data = outputs.get("instance_data") if isinstance(outputs, dict) else None
        return set(data) if isinstance(data, dict) else set()

    def run(self, instance: set[str]) -> None:
        if not self.file_findings.text:
            return
        self._check_uses(instance)
        reported = {(fault.line, fault.file) for fault in self.findings.faults}
        try:
            _, manifest = load(
                RunRequest(self.file, roots=self._sample_roots(instance), bundle=self.blueprint.directory)
            )
        except DoesNotLoad as refusal:
            # Unknown names are already reported, with better messages.
            fresh = [
                fault
                for fault in refusal.faults
                if "is not defined" not in fault.message or (fault.line, fault.file) not in reported
            ]
            self.findings.add_faults(DoesNotLoad(fresh))
            return
        self.manifest = manifest
        for warning in manifest.warnings:
            self.findings.warnings.append(Fault(self.file, None, None, warning))
        self._check_resources()
        self._check_outputs(manifest.outputs)
        for check in self._applied_checks():
            check._check_uses(instance)
            check._check_resources()

    def _check_uses(self, instance: set[str]) -> None:
        for text in texts_in(self.node):
            for use in self.reader.uses(text.text, is_bare=text.is_bare):
                self._check_use(text, use, instance)

    def _check_resources(self) -> None:
        for resource in self._own_resources():
            self.resource = resource
            self._check_resource(resource)

    def _own_resources(self) -> list[Resource]:
        """The resources of this manifest, without those of the manifests that it applies."""
        manifest = self.manifest
        found = [] if manifest is None else manifest.resources
        return [each for each in found if each.declared_in is (None if self.applied_by is None else manifest)]

    def _applied_checks(self) -> Iterator[ManifestCheck]:
        """Yields a check of each manifest that this one applies, directly or through others."""
        for entry in self._own_resources():
            if entry.child is None:
                continue
            check = copy(self)
            check.applied_by, check.resource = (self, entry), None
            check.manifest, check.file = entry.child, entry.child.file
            check.node = parse(entry.child.text, check.file)
            check.file_findings = FileFindings(check.file, entry.child.text, self.findings)
            check.reader = Reader(check._read_template)
            yield check
            yield from check._applied_checks()

    def _read_template(self, name: str) -> str | None:
        path = name if name.startswith("/") else os.path.join(os.path.dirname(self.file), name)
        try:
            return read_bytes(path).decode("utf-8", "replace")
        except DoesNotLoad:
            return None

    # ---- lookups ----
    def _check_use(self, text: Text, use: Use, instance: set[str]) -> None:
        root, *rest = use.path
        if root == "job" and rest[:1] == ["params"] and len(rest) > 1:
            self._check_property(text, use, rest[1:])
        elif root == "properties":
            self._check_property(text, use, rest)
        elif root in ("service", "job", "instance") and rest:
            known = {"service": SERVICE_NAMES, "job": JOB_NAMES, "instance": sorted(instance)}[root]
            if rest[0] not in known and not use.has_default:
                reason = (
                    "no manifest sets it in outputs.instance_data" if root == "instance" else "there is no such name"
                )
                self._add(text, use, f"{root}.{rest[0]}: {reason}{did_you_mean(rest[0], known)}")

    def _check_property(self, text: Text, use: Use, names: list[str]) -> None:
        if self.members is None or not names:
            return
        shown = f"properties.{'.'.join(names)}"
        found: list[PropertyDeclaration] = []
        members = self.members
        for index, name in enumerate(names):
            declared = next((each for each in members if each.name == name), None)
            if declared is None and found and found[-1].items is not None and name.isdigit():
                declared = found[-1].items
            if declared is None:
                above = ".".join(["properties", *names[:index]])
                if found and found[-1].type not in (PropertyType.OBJECT, PropertyType.ARRAY, PropertyType.JSON):
                    self._add(text, use, f"{shown}: {above} is a {found[-1].type} and has no properties")
                else:
                    close = did_you_mean(name, [each.name for each in members])
                    self._add(text, use, f"{shown}: there is no such property{close}")
                return
            found.append(declared)
            if declared.type is PropertyType.JSON or (
                declared.type is PropertyType.OBJECT and declared.members is None
            ):
                break
            members = declared.members or ()
        absent = next((each for each in found if self._may_be_absent(each)), None)
        if absent is not None and not use.has_default:
            or_else = "" if absent.default is None else ", or make the property required beside its default"
            self._add(
                text,
                use,
                f"{shown} may be absent ({self._why_absent(absent)}): give the lookup a default{or_else}",
                is_warning=True,
            )

    def _may_be_absent(self, declared: PropertyDeclaration) -> bool:
        if declared.secret is SecretKind.EPHEMERAL and self.lacks_ephemeral:
            return True
        if declared.agent_only and "create" in self.served:
            return True
        if declared.required or declared.generate is not None:
            return False
        may_be_cleared = self.after_updates and not declared.immutable and Actor.USER in declared.actors
        return declared.default is None or may_be_cleared

    def _why_absent(self, declared: PropertyDeclaration) -> str:
        if declared.secret is SecretKind.EPHEMERAL and self.lacks_ephemeral:
            return "a short-lived secret is gone after its job"
        if declared.agent_only:
            return "only the agent sets it"
        if declared.default is None:
            return "it is optional and has no default"
        return "it is optional, so an update may clear it"

    def _add(self, text: Text, use: Use, message: str, *, is_warning: bool = False) -> None:
        if use.template is not None:
            file = os.path.normpath(os.path.join(os.path.dirname(self.file), use.template))
            to = self.findings.warnings if is_warning else self.findings.faults
            fault = Fault(file, use.line + 1, None, message)
            if str(fault) not in {str(each) for each in to}:
                to.append(fault)
            return
        add = self.file_findings.warn if is_warning else self.file_findings.fault
        add(text.path, message, at_key=text.at_key, line=use.line)

    # ---- secrets ----
    def _is_secret(self, use: Use) -> bool:
        root, *rest = use.path
        if root in ("data", EACH):
            value: Any = None
            if root == "data" and self.manifest is not None:
                value = self.manifest.data
            elif root == EACH and self.resource is not None:
                value = self.resource.each
            for name in rest:
                value = step(value, name)
            return holds_secret(value)
        if root == "job" and rest[:1] == ["params"]:
            rest = rest[1:]
        elif root != "properties":
            return False
        path = tuple("[]" if name.isdigit() else name for name in rest)
        return any(path[: len(secret)] == secret or secret[: len(path)] == path for secret in self.secret_paths)

    def _carries_secret(self, value: Any) -> bool:
        if isinstance(value, Template):
            return any(self._is_secret(use) for use in self.reader.uses(value.text))
        if isinstance(value, dict):
            return any(self._carries_secret(child) for child in value.values())
        if isinstance(value, (list, tuple)):
            return any(self._carries_secret(child) for child in value)
        return holds_secret(value)

    def _has_secret(self, resource: Resource, name: str) -> bool:
        deferred = resource.deferred or {}
        return self._carries_secret(deferred[name] if name in deferred else getattr(resource, name, None))

    def _check_resource(self, resource: Resource) -> None:
        if self.manifest is None:
            return
        self._check_control(resource)
        if resource.type == "file" and resource.ensure == "present" and self._has_secret(resource, "content"):
            self._check_mode(resource, getattr(resource, "mode", None) or 0)
        for name, entry in self.manifest.types[resource.type].properties.items():
            if self._has_secret(resource, name):
                self._check_secret(resource, name, entry)
            if entry.kind.name == COMMAND.name:
                self._check_command(resource, self._text_of(resource, name), (*resource.place, name))
        self._check_command(resource, resource.name_template, resource.place)
        if resource.type == "file":
            self._check_content(resource)
        for index, check in enumerate(resource.health_checks):
            for name, entry in check.kind.properties.items():
                if entry.kind.name != COMMAND.name:
                    continue
                place = (*resource.place, "health_checks", index, name)
                if self._carries_secret(check.values.get(name)):
                    self.file_findings.warn(
                        place,
                        f"{resource.id}: the health check carries a secret, and every user of the host can see command"
                        " lines; let the check read it from a file",
                    )
                self._check_command(resource, self._written(place), place, is_split=True)

    def _check_secret(self, resource: Resource, name: str, entry: Property) -> None:
        """Warns if a secret is in a property that other users can see."""
        if entry.kind.name == COMMAND.name:
            problem = "and every user of the host can see command lines; let the command read it from a file"
        elif resource.type == "exec" and name == "environment":
            problem = "and every child process of the command sees it; let the command read it from a file"
        elif not entry.secret and not entry.private:
            problem = "but is neither a secret nor a private property; other users of the host may see it"
        else:
            return
        self.file_findings.warn((*resource.place, name), f"{resource.id}: {name} carries a secret, {problem}")

    # ---- free text ----
    def _node_at(self, path: DocumentPath) -> Any:
        """The node at a path of the manifest; None if there is none."""
        node: Any = self.node
        for part in path:
            try:
                node = node[part]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    def _written(self, path: DocumentPath) -> str:
        """The text at a path of the manifest; empty if there is none."""
        node = self._node_at(path)
        return node if isinstance(node, str) else ""

    def _default_of(self, resource: Resource, name: str) -> Any:
        """What `defaults` of the list of a resource give for a property; None if nothing."""
        siblings = self._node_at(resource.place[:-2])
        if not isinstance(siblings, list):
            return None
        defaults = [item["defaults"] for item in siblings if isinstance(item, dict) and "defaults" in item]
        return defaults[0].get(name) if defaults and isinstance(defaults[0], dict) else None

    def _text_of(self, resource: Resource, name: str) -> str:
        """A property of a resource as written, also in `defaults`."""
        template = (resource.deferred or {}).get(name)
        if isinstance(template, Template):
            return template.text
        written = self._written((*resource.place, name))
        if written or getattr(resource, name, None) is None:
            return written
        found = self._default_of(resource, name)
        return found if isinstance(found, str) else ""

    def _check_command(self, resource: Resource, text: str, path: DocumentPath, *, is_split: bool = False) -> None:
        """Refuses free text where a shell would run it. Without a shell a value is one argument."""
        if "{{" not in text or self.manifest is None:
            return
        try:
            parts = split(text)
            scripts: list[list[Any]] = [parts]
            if is_split or self.manifest.types[resource.type].splits_commands(resource):
                scripts = list(scripts_in(split_template(parts, text)))
        except (BadExpression, Unfit):
            # Reported when the manifest is loaded.
            return
        for script in scripts:
            for expression, place in shell_places(script):
                self._check_shell_expression(resource, path, expression, place)

    def _check_shell_expression(
        self, resource: Resource, path: DocumentPath, expression: Expression, place: str | None
    ) -> None:
        for flow in FlowReader(self.reader).flows(expression.source):
            is_indirect = flow.use.path[0] in INDIRECT
            if not is_indirect and not self._is_free_text(flow.use, allows_only_words):
                continue
            verb = "may contain" if is_indirect else "is"
            shown = f"{resource.id}: {'.'.join(flow.use.path)} {verb} free text of the order, and a shell would run it here"
            if flow.escape != "quote":
                self.file_findings.fault(
                    path,
                    f"{shown}; end the expression with `| quote`, or give the property an enum or a pattern of plain"
                    " characters",
                )
            elif place is not None:
                self.file_findings.fault(
                    path, f"{shown}: `| quote` does not protect inside {place}; write the expression outside"
                )

    def _check_content(self, resource: Resource) -> None:
        """Warns about free text that may add lines to a file. A file that is only this text has no other lines."""
        text = self._text_of(resource, "content") or self._text_of(resource, "contents")
        try:
            parts = split(text)
        except BadExpression:
            return
        for part in parts:
            if not isinstance(part, Expression):
                continue
            for flow in FlowReader(self.reader).flows(part.source):
                is_whole = len(parts) == 1 and flow.use.template is None
                is_named = flow.use.path == ("service", "name")
                if is_whole or flow.escape or is_named or not self._is_free_text(flow.use, allows_only_lines):
                    continue
                self._add(
                    Text((*resource.place, "content"), text),
                    flow.use,
                    f"{resource.id}: {'.'.join(flow.use.path)} is free text of the order and may contain line breaks,"
                    " which add lines to the file; end the expression with `| line`, `| quote` or `| tojson`",
                    is_warning=True,
                )

    def _is_free_text(self, use: Use, is_restricted: Callable[[object], bool], depth: int = 0) -> bool:
        """Whether the consumer chooses the text and no enum or pattern restricts its characters."""
        root, *rest = use.path
        if root == "service":
            return rest in ([], ["name"])
        if root in ("data", EACH):
            behind = self._uses_in_data(rest) if root == "data" else self._uses_in_items(rest)
            return depth < DEEPEST_DATA and (
                any(self._is_free_text(below, is_restricted, depth + 1) for below in behind)
                or (root == "data" and self._is_free_text_of_entry(rest, is_restricted, depth + 1))
            )
        if root == "job" and rest[:1] in ([], ["params"]):
            rest = rest[1:]
        elif root != "properties":
            return False
        if self.members is None:
            return True
        declared: PropertyDeclaration | None = None
        for part in rest:
            below = self.members if declared is None else declared.members or ()
            items = None if declared is None else declared.items
            declared = next((each for each in below if each.name == part), items if part.isdigit() else None)
            if declared is None:
                return True
        if declared is None:
            return any(_is_free(each, is_restricted) for each in self.members)
        return _is_free(declared, is_restricted)

    def _is_free_text_of_entry(self, path: list[str], is_restricted: Callable[[object], bool], depth: int) -> bool:
        """Whether the manifest that applies this one passes free text at a path of `data`."""
        if self.applied_by is None:
            return False
        outer, entry = self.applied_by
        given = outer._node_at((*entry.place, "data"))
        node = _below(outer._default_of(entry, "data") if given is None else given, path)
        outer.resource = entry
        uses = [use for text in texts_in(node) for use in outer.reader.uses(text.text)]
        return any(outer._is_free_text(use, is_restricted, depth) for use in uses)

    def _uses_in_items(self, path: list[str]) -> Iterator[Use]:
        """The lookups behind `each.key` or `each.value` of the current resource."""
        node = None if self.resource is None else self._node_at((*self.resource.place, "for_each"))
        found = [node]
        if isinstance(node, (dict, list)):
            # Keys that are written in the manifest are no text of a consumer.
            items = list(node.values()) if isinstance(node, dict) else node
            found = [] if path[:1] == ["key"] else [_below(item, path[1:]) for item in items]
        for each in found:
            for text in texts_in(each or []):
                yield from self.reader.uses(text.text)

    def _uses_in_data(self, path: list[str]) -> Iterator[Use]:
        """The lookups behind a value of `data`, also in overrides."""
        root = self.node if isinstance(self.node, dict) else {}
        for section in (root, root.get("ccm")):
            if not isinstance(section, dict):
                continue
            overrides = section.get("overrides")
            values = list(overrides.values()) if isinstance(overrides, dict) else []
            for node in [section.get("data"), *values]:
                for text in texts_in(_below(node, path)):
                    yield from self.reader.uses(text.text)

    def _check_control(self, resource: Resource) -> None:
        """`control` must evaluate to true or false, which is only known after evaluation."""
        if self.manifest is None:
            return
        for key in ("if", "unless"):
            expression = getattr(resource, f"control_{key}")
            if expression is None:
                continue
            self.manifest.scope.each = resource.each
            try:
                value = expression.evaluate(self.manifest.scope)
            except (Unresolved, Failure):
                # It depends on results of earlier resources.
                continue
            if not isinstance(value, bool):
                path = (*resource.place, "control", key)
                self.file_findings.fault(
                    path, f"{resource.id}: control.{key} must be true or false, got {describe(value)}"
                )

    def _check_mode(self, resource: Resource, mode: int) -> None:
        path = (*resource.place, "mode")
        if mode & READABLE_BY_OTHERS:
            self.file_findings.fault(
                path, f"{resource.id}: it contains a secret and every user can read it ({mode:04o}); use mode 0600"
            )
        elif mode & READABLE_BY_GROUP:
            self.file_findings.warn(
                path, f"{resource.id}: it contains a secret and its group can read it ({mode:04o})"
            )

    # ---- outputs ----
    def _check_outputs(self, outputs: Any) -> None:
        if not isinstance(outputs, dict):
            return
        for key, value in outputs.items():
            if key not in OUTPUT_KEYS:
                close = did_you_mean(key, OUTPUT_KEYS)
                self.file_findings.fault(("outputs", key), f"outputs: unknown key {key!r}{close}", at_key=True)
            elif key != "properties" and self._carries_secret(value):
                self.file_findings.fault(
                    ("outputs", key),
                    f"outputs.{key} carries a secret, and every user who may see the service would see it",
                )
        properties = outputs.get("properties")
        if isinstance(properties, dict) and self.members is not None:
            self._check_reported(properties, self.members, ("outputs", "properties"))

    def _check_reported(
        self, given: Mapping[str, Any], members: tuple[PropertyDeclaration, ...], path: DocumentPath
    ) -> None:
        for name, value in given.items():
            at = (*path, name)
            shown = ".".join(str(part) for part in at)
            declared = next((each for each in members if each.name == name), None)
            if declared is None:
                close = did_you_mean(name, [each.name for each in members])
                self.file_findings.fault(at, f"{shown}: there is no such property{close}", at_key=True)
            elif isinstance(value, dict) and declared.members is not None:
                self._check_reported(value, declared.members, at)
            elif Actor.AGENT not in declared.actors:
                self.file_findings.fault(
                    at,
                    f"{shown}: the agent may not set it; add the authorizer `actor` with `agent` to the property",
                    at_key=True,
                )
            elif declared.secret is None and self._carries_secret(value):
                self.file_findings.fault(
                    at, f"{shown} carries a secret; declare that property as `secret`", at_key=True
                )

    # ---- sample values ----
    def _sample_roots(self, instance: set[str]) -> dict[str, Any]:
        properties = {} if self.members is None else {each.name: _sample(each) for each in self.members}
        return {
            "service": {
                "id": SAMPLE_ID,
                "name": "sample",
                "status": "New",
                "root": "",
                "type": self.blueprint.type_name,
            },
            "properties": properties if self.members is not None else self._free_form(),
            "job": {"action": next(iter(self.served), None), "attempt": 1, "params": properties},
            "instance": dict.fromkeys(sorted(instance), "sample"),
        }

    def _free_form(self) -> dict[str, Any]:
        """Properties without a schema may have any name, so every name in a lookup gets a sample value."""
        found: dict[str, Any] = {}
        for node in (self.node, *_documents_in(self.blueprint.directory)):
            for text in texts_in(node):
                for use in self.reader.uses(text.text, is_bare=text.is_bare):
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


def _below(node: Any, path: list[str]) -> Any:
    """The value at a path, or the text above it whose expression gives that value."""
    for part in path:
        if isinstance(node, str):
            return node
        node = node.get(part) if isinstance(node, dict) else node[int(part)] if _has_item(node, part) else None
    return node


def _has_item(node: Any, part: str) -> bool:
    return isinstance(node, list) and part.isdigit() and int(part) < len(node)


def _is_free(declared: PropertyDeclaration, is_restricted: Callable[[object], bool]) -> bool:
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

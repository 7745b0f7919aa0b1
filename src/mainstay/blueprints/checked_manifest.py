"""One manifest of a blueprint, as the checks read it: its nodes, its resources and where findings are added."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from mainstay.agent.blueprint import Blueprint
from mainstay.blueprints.expressions import Reader, Use
from mainstay.blueprints.findings import FileFindings, Findings
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.converge.contract import HealthCheck, Property, Resource
from mainstay.converge.host.sources import read_bytes
from mainstay.converge.manifest import Manifest
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.manifest_warnings import Text, texts_in
from mainstay.converge.value_kinds import COMMAND
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.yaml.document import decode, parse
from mainstay.foundation.yaml.scalars import node_at


class CheckedManifest:
    """A manifest with its text, its resources, and the service type whose properties it reads."""

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
        self.applied_by: tuple[CheckedManifest, Resource] | None = None
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

    def own_resources(self) -> list[Resource]:
        """The resources of this manifest, without those of the manifests that it applies."""
        manifest = self.manifest
        found = [] if manifest is None else manifest.resources
        return [each for each in found if each.declared_in is (None if self.applied_by is None else manifest)]

    def applied(self) -> Iterator[CheckedManifest]:
        """Yields each manifest that this one applies, directly or through others."""
        for entry in self.own_resources():
            if entry.child is None:
                continue
            check = copy(self)
            check.applied_by, check.resource = (self, entry), None
            check.manifest, check.file = entry.child, entry.child.file
            check.node = parse(entry.child.text, check.file)
            check.file_findings = FileFindings(check.file, entry.child.text, self.findings)
            check.reader = Reader(check._read_template)
            yield check
            yield from check.applied()

    def _read_template(self, name: str) -> str | None:
        path = name if name.startswith("/") else os.path.join(os.path.dirname(self.file), name)
        try:
            return read_bytes(path).decode("utf-8", "replace")
        except DoesNotLoad:
            return None

    def properties_of(self, resource: Resource) -> Mapping[str, Property]:
        return {} if self.manifest is None else self.manifest.types[resource.type].properties

    def health_check_commands(self, resource: Resource) -> Iterator[tuple[DocumentPath, HealthCheck, str]]:
        """The place, the health check and the property of each command."""
        for index, check in enumerate(resource.health_checks):
            for name, entry in check.kind.properties.items():
                if entry.kind.name == COMMAND.name:
                    yield (*resource.place, "health_checks", index, name), check, name

    def node_at(self, path: DocumentPath) -> Any:
        """The node at a path of the manifest; None if there is none."""
        return node_at(self.node, path)

    def written(self, path: DocumentPath) -> str:
        """The text at a path of the manifest; empty if there is none."""
        node = self.node_at(path)
        return node if isinstance(node, str) else ""

    def default_of(self, resource: Resource, name: str) -> Any:
        """What `defaults` of the list of a resource give for a property; None if nothing."""
        siblings = self.node_at(resource.place[:-2])
        if not isinstance(siblings, list):
            return None
        defaults = [item["defaults"] for item in siblings if isinstance(item, dict) and "defaults" in item]
        return defaults[0].get(name) if defaults and isinstance(defaults[0], dict) else None

    def text_of(self, resource: Resource, name: str) -> str:
        """A property of a resource as written, also in `defaults`."""
        template = (resource.deferred or {}).get(name)
        if isinstance(template, Template):
            return template.text
        written = self.written((*resource.place, name))
        if written or getattr(resource, name, None) is None:
            return written
        found = self.default_of(resource, name)
        return found if isinstance(found, str) else ""

    def uses_in_items(self, path: list[str]) -> Iterator[Use]:
        """The lookups behind `each.key` or `each.value` of the current resource."""
        node = None if self.resource is None else self.node_at((*self.resource.place, "for_each"))
        found = [node]
        if isinstance(node, (dict, list)):
            # Keys that are written in the manifest are no text of a consumer.
            items = list(node.values()) if isinstance(node, dict) else node
            found = [] if path[:1] == ["key"] else [below(item, path[1:]) for item in items]
        for each in found:
            for text in texts_in(each or []):
                yield from self.reader.uses(text.text)

    def uses_in_data(self, path: list[str]) -> Iterator[Use]:
        """The lookups behind a value of `data`, also in overrides."""
        root = self.node if isinstance(self.node, dict) else {}
        for section in (root, root.get("ccm")):
            if not isinstance(section, dict):
                continue
            overrides = section.get("overrides")
            values = list(overrides.values()) if isinstance(overrides, dict) else []
            for node in [section.get("data"), *values]:
                for text in texts_in(below(node, path)):
                    yield from self.reader.uses(text.text)

    def add(self, text: Text, use: Use, message: str, *, is_warning: bool = False) -> None:
        if use.template is not None:
            file = os.path.normpath(os.path.join(os.path.dirname(self.file), use.template))
            to = self.findings.warnings if is_warning else self.findings.faults
            fault = Fault(file, use.line + 1, None, message)
            if str(fault) not in {str(each) for each in to}:
                to.append(fault)
            return
        add = self.file_findings.warn if is_warning else self.file_findings.fault
        add(text.path, message, at_key=text.at_key, line=use.line)


def below(node: Any, path: list[str]) -> Any:
    """The value at a path, or the text above it whose expression gives that value."""
    for part in path:
        if isinstance(node, str):
            return node
        node = node.get(part) if isinstance(node, dict) else node[int(part)] if _has_item(node, part) else None
    return node


def _has_item(node: Any, part: str) -> bool:
    return isinstance(node, list) and part.isdigit() and int(part) < len(node)

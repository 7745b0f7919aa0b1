"""Resolves a manifest: its sections, data and settings. `entries.py` reads its resources.

Everything is checked before anything on the host is changed.
"""

from __future__ import annotations

from mainstay.converge.failures import Failure
from mainstay.converge.manifest import Manifest, Source
from mainstay.converge.manifest.entries import ResourceReader
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.faults import UNSUPPORTED_KEYS, Faults
from mainstay.converge.manifest.hierarchy import DEEP, FIRST, apply_hierarchy, overlay
from mainstay.converge.manifest.resource_reading import LONGEST_SHOWN_IDENTITY, ReadingContext, prefix_of
from mainstay.converge.manifest.scope import BadExpression, TemplateScope, UndefinedValue, Unresolved
from mainstay.converge.manifest.values import ValueReader
from mainstay.converge.value_kinds import BOOLEAN, TEXT, describe, to_text
from mainstay.foundation.faults import DocumentPath, DoesNotLoad
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.scalars import Node, PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.converge.contract import Resource, ResourceType
    from mainstay.converge.manifest.children import Composition

TOP_KEYS = (
    "data",
    "data_schema",
    "hierarchy",
    "overrides",
    "resources",
    "fail_on_error",
    "pre_message",
    "post_message",
    "outputs",
)


def resolve(root: Node, file: str, text: str, source: Source) -> Manifest:
    """Returns the manifest, or raises `DoesNotLoad` with all its faults and those of the manifests that it applies."""
    resolver = Resolver(file, text, source)
    manifest = resolver.manifest
    manifest.directory, manifest.chain = source.directory, (source.real_path,)
    resolver.read(root)
    composition = resolver.composition
    if composition is None:
        resolver.faults.raise_if_any()
        return manifest
    composition.find_duplicates(manifest)
    faults = [*resolver.faults.located(), *composition.faults]
    if faults:
        raise DoesNotLoad(faults)
    return manifest


class Resolver:
    """Reads one manifest. `parent` is the `apply` resource that applies it; `types` are those of the whole run."""

    def __init__(
        self,
        file: str,
        text: str,
        source: Source,
        composition: Composition | None = None,
        types: dict[str, ResourceType] | None = None,
        parent: Resource | None = None,
    ) -> None:
        self.source = source
        self.composition = composition
        self.parent = parent
        self.faults = Faults(file, text)
        self.values = ValueReader(self.faults)
        self.manifest = Manifest(file, text)
        if types is not None:
            self.manifest.types = types

    def read(self, root: Node, *, is_sensitive: bool = False) -> None:
        sections = self._sections(root)
        manifest = self.manifest
        self._read_data(sections)
        manifest.scope = TemplateScope({**self.source.roots, "data": lambda: manifest.data}, self.source.functions)
        context = ReadingContext(manifest, self.faults, self.source)
        if self.parent is not None:
            context.inherit(self.parent, is_sensitive=is_sensitive)
        self._read_settings(sections, context)
        reader = ResourceReader(context, self._add_child)
        if "resources" in sections:
            reader.read(*sections["resources"])
        elif not self.faults.found:
            self.faults.add((), "`resources` is missing; a manifest is a list of resources, or a map with that key")
        reader.check_references()
        self._check_edited_files()

    def _sections(self, root: Node) -> dict[str, tuple[Node, DocumentPath]]:
        """Key → (node, path), from a bare list, a map, or a map with `ccm`."""
        if isinstance(root, list):
            return {"resources": (root, ())}
        if not isinstance(root, dict):
            got = "an empty document" if isinstance(root, PlainScalar) and root.value is None else describe(root)
            self.faults.add((), f"a manifest is a list of resources or a map with `resources`, not {got}")
            return {}
        found: dict[str, tuple[Node, DocumentPath]] = {}
        for path, mapping in (((), root), (("ccm",), root.get("ccm"))):
            if mapping is None:
                continue
            if not isinstance(mapping, dict):
                self.faults.add(path, f"`ccm` must be a map, got {describe(mapping)}")
                continue
            for key, node in mapping.items():
                place: DocumentPath = (*path, key)
                if key == "ccm" and not path:
                    continue
                if key in found:
                    self.faults.add(
                        place, f"`{key}` is given at the top level and under `ccm`; keep one", at_key=True
                    )
                elif key in TOP_KEYS:
                    found[key] = (node, place)
                else:
                    self._refuse_top_key(key, place)
        return found

    def _refuse_top_key(self, key: str, place: DocumentPath) -> None:
        if key in UNSUPPORTED_KEYS:
            self.faults.unknown_key(key, place, TOP_KEYS)
            return
        from mainstay.converge.migration_hints import advice_on_top_key

        advice = advice_on_top_key(key, TOP_KEYS, self.source.type_names())
        self.faults.add(place, f"unknown key {shorten(key)!r}{advice}", at_key=True)

    def _read_data(self, sections: Mapping[str, tuple[Node, DocumentPath]]) -> None:
        scope = TemplateScope(self.source.roots, {})
        base = self._values_of(sections.get("data"), "data", scope)
        overrides = self._values_of(sections.get("overrides"), "overrides", scope)
        for key, value in overrides.items():
            if not isinstance(value, dict):
                self.faults.add((*sections["overrides"][1], key), f"override {key!r} must be a map of values")
                overrides[key] = {}
        order, merge = self._read_hierarchy(sections.get("hierarchy"))
        self.manifest.hierarchy.overrides, self.manifest.hierarchy.merge = overrides, merge
        data = apply_hierarchy(base, overrides, order, merge)
        for layer in self.source.data_layers:
            data = overlay(data, layer)
        self.manifest.data = data
        if "data_schema" in sections:
            from mainstay.converge.manifest.data_schema import DataCheck

            used = [key for key in order if key in overrides]
            check = DataCheck(self.faults, sections, used[:1] if merge == FIRST else used, self.source.data_layers)
            check.run(data)

    def _values_of(
        self, section: tuple[Node, DocumentPath] | None, name: str, scope: TemplateScope
    ) -> dict[str, Any]:
        if section is None or (isinstance(section[0], PlainScalar) and section[0].value is None):
            return {}
        node, path = section
        if not isinstance(node, dict):
            self.faults.add(path, f"`{name}` must be a map, got {describe(node)}")
            return {}
        values: dict[str, Any] = self.values.render_values(node, path, name, scope) or {}
        return values

    def _read_hierarchy(self, section: tuple[Node, DocumentPath] | None) -> tuple[list[str], str]:
        order, merge = ["default"], FIRST
        if section is None:
            return order, merge
        node, path = section
        if not isinstance(node, dict):
            self.faults.add(path, f"`hierarchy` must be a map, got {describe(node)}")
            return order, merge
        for key, child in node.items():
            place = (*path, key)
            if key == "order":
                order = self._read_order(child, place)
            elif key == "merge":
                merge = child if isinstance(child, str) else describe(child)
                if merge not in (FIRST, DEEP):
                    self.faults.add(place, f"hierarchy.merge must be `first` or `deep`, not {shorten(merge)!r}")
            else:
                self.faults.unknown_key(key, place, ("order", "merge"), "hierarchy: ")
        return order, merge

    def _read_order(self, node: Node, path: DocumentPath) -> list[str]:
        if not isinstance(node, list):
            self.faults.add(path, f"hierarchy.order must be a list, got {describe(node)}")
            return []
        scope = TemplateScope({"facts": self.source.roots["facts"]}, {})
        order = []
        for index, child in enumerate(node):
            text = child.text if isinstance(child, PlainScalar) else child
            if not isinstance(text, str):
                self.faults.add((*path, index), f"hierarchy.order must contain text, got {describe(child)}")
                continue
            level = self._read_level(text, (*path, index), scope)
            if level is not None:
                order.append(level)
            self.manifest.hierarchy.levels.append((text, level))
        return order

    def _read_level(self, text: str, path: DocumentPath, scope: TemplateScope) -> str | None:
        """An entry of `hierarchy.order`; None if it has a fault, or needs a fact that this host does not have."""
        if self.faults.refuse_foreign(text, path, "hierarchy.order: "):
            return None
        if "{{" not in text:
            return text
        from mainstay.converge.manifest.static_checks import StaticCheck

        try:
            template = Template(text)
            problems = StaticCheck(scope).problems(template)
            if problems and all(problem.is_undefined for problem in problems):
                raise UndefinedValue(problems[0].message)
            self.values.add_problems(problems, path, "hierarchy.order: ")
            value = None if problems else template.render(scope)
            if value is None and not problems:
                raise UndefinedValue("the expression gives null")
            return None if problems else to_text(value)
        except UndefinedValue as error:
            self.manifest.warnings.append(f"hierarchy.order: the level {shorten(text)!r} is skipped: {error}")
        except (BadExpression, Unresolved, Failure) as error:
            self.faults.add(path, f"hierarchy.order: {error}")
        return None

    def _read_settings(self, sections: Mapping[str, tuple[Node, DocumentPath]], context: ReadingContext) -> None:
        manifest = self.manifest
        if "fail_on_error" in sections:
            node, path = sections["fail_on_error"]
            manifest.fail_on_error = bool(self.values.typed(BOOLEAN, node, path, "fail_on_error: ", manifest.scope))
        if "pre_message" in sections:
            node, path = sections["pre_message"]
            manifest.pre_message = self.values.typed(TEXT, node, path, "pre_message: ", manifest.scope)
        for name in ("post_message", "outputs"):
            if name not in sections:
                continue
            node, path = sections[name]
            if name == "outputs" and not isinstance(node, dict):
                self.faults.add(path, f"`outputs` must be a map, got {describe(node)}")
                continue
            check = context.static_check(path, f"{name}: ")
            setattr(manifest, name, self.values.tree(node, path, f"{name}: ", check))

    def _add_child(self, resource: Any, path: DocumentPath, *, is_sensitive: bool) -> None:
        """Reads the manifest of an `apply` resource; its resources come before it. Our own scope stays as it is."""
        from mainstay.converge.manifest.children import ChildRefused, Composition, child_layer, open_child

        if self.composition is None:
            self.composition = Composition()
        composition, manifest, source = self.composition, self.manifest, self.source
        place = (*path, "manifest") if resource.manifest is not None else path
        try:
            opened = open_child(resource, manifest, source, composition)
        except ChildRefused as refusal:
            problem = f"{prefix_of(resource.id)}{refusal}"
            self.faults.add(place, problem, at_key=resource.manifest is None)
            return
        except DoesNotLoad as refusal:
            composition.add_faults(refusal.faults)
            return
        layer = child_layer(resource, manifest, is_sensitive=is_sensitive)
        resolver = Resolver(
            opened.file, opened.text, source.with_layer(layer), composition, manifest.types, parent=resource
        )
        child = resolver.manifest
        before = composition.resource_count
        child.directory, child.chain = opened.directory, (*manifest.chain, opened.real_path)
        source.work_in(child.directory)
        try:
            resolver.read(opened.node, is_sensitive=is_sensitive)
        finally:
            source.work_in(manifest.directory)
        composition.add_faults(resolver.faults.located())
        composition.resource_count = before + len(child.resources)
        resource.child = child
        manifest.resources += child.resources
        manifest.add_warnings_of(child)

    def _check_edited_files(self) -> None:
        """A file whose content one resource sets must not be changed in part by another: they would alternate."""
        types = self.manifest.types
        if not any(each.edits_files for each in types.values()):
            return
        setting = {
            types[each.type].written_path(each): each
            for each in self.manifest.resources
            if types[each.type].sets_content(each)
        }
        for resource in self.manifest.resources:
            resource_type = types[resource.type]
            path = resource_type.written_path(resource) if resource_type.edits_files else None
            if path is not None and path in setting:
                message = (
                    f"{prefix_of(resource.id)}{shorten(path, LONGEST_SHOWN_IDENTITY)} gets its content from"
                    f" {shorten(setting[path].id, LONGEST_SHOWN_IDENTITY)}; put the line there, or remove content and source of that resource"
                )
                if resource.declared_in is None or resource.declared_in is self.manifest:
                    self.faults.add(resource.place, message, at_key=True)
                elif self.composition is not None:
                    self.composition.add_fault_of(resource, message)

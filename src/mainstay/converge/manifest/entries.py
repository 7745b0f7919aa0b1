"""Reads the resources of a manifest, checks each against its type, and resolves references."""

from __future__ import annotations

from collections.abc import Callable

from mainstay.converge.contract import Resource, ResourceType
from mainstay.converge.manifest.faults import foreign_problem
from mainstay.converge.manifest.resource_reading import (
    COMMON,
    LONGEST_SHOWN_IDENTITY,
    STRUCTURED,
    Defaults,
    Known,
    ReadingContext,
    ResourceReading,
    may_be_sensitive,
    prefix_of,
)
from mainstay.converge.manifest.values import ValueReader
from mainstay.converge.value_kinds import Unfit, describe, read_text
from mainstay.foundation.faults import DocumentPath
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.scalars import Node, PlainScalar

# Types of a related manifest family that are refused by name.
UNSUPPORTED_TYPES = {"scaffold"}


class ResourceReader:
    """Fills `manifest.resources` and adds their faults to `faults`."""

    def __init__(self, context: ReadingContext, add_child: Callable[..., None]) -> None:
        self.context = context
        self.manifest = context.manifest
        self.faults = context.faults
        self.source = context.source
        # Reads the manifest that a resource applies.
        self._add_child = add_child
        self.types: dict[str, Known | None] = {}
        self.seen: dict[str, int] = {}
        # Types of resources whose name has a fault: references may mean one of them.
        self.unnamed: set[str] = set()
        self.referring: list[Resource] = []

    def read(self, node: Node, path: DocumentPath) -> None:
        if isinstance(node, PlainScalar) and node.value is None:
            node = []
        if not isinstance(node, list):
            self.faults.add(path, f"`resources` must be a list, got {describe(node)}; begin each entry with `- `")
            return
        if not node:
            self.faults.add(path, "the resource list is empty; list what to manage, such as `- file:`")
        for index, entry in enumerate(node):
            place = (*path, index)
            if not isinstance(entry, dict) or not entry:
                self.faults.add(place, f"a resource is a map with one key, its type; got {describe(entry)}")
                continue
            if len(entry) > 1:
                from mainstay.converge.migration_hints import several_types

                self.faults.add(place, several_types(entry))
                continue
            for type_name, body in entry.items():
                self._read_entry(type_name, body, (*place, type_name))

    def _type_of(self, name: str, path: DocumentPath) -> Known | None:
        if name not in self.types:
            found = self.source.find_type(name)
            self.types[name] = None if found is None else _known_of(found)
            if found is not None:
                self.manifest.types[name] = found
        entry = self.types[name]
        if entry is None:
            known = self.source.type_names()
            if name in UNSUPPORTED_TYPES:
                what = f"resource type `{name}` is not supported; known types: {', '.join(known)}"
            else:
                from mainstay.converge.migration_hints import advice_on_type

                what = f"unknown resource type {shorten(name)!r}{advice_on_type(name, known)}"
            self.faults.add(path, what, at_key=True)
        return entry

    def _read_entry(self, type_name: str, body: Node, path: DocumentPath) -> None:
        known = self._type_of(type_name, path)
        if known is None:
            return
        if isinstance(body, dict):
            self._read_flat(known, body, path)
            return
        if not isinstance(body, list):
            self.faults.add(
                path, f"{type_name}: expected a list of names, or a map with `name`; got {describe(body)}"
            )
            return
        if not body:
            self.faults.add(
                path, f"{type_name}: the list is empty; add `- name: properties`, or remove `{type_name}`"
            )
        defaults = self._find_defaults(body, path)
        if defaults[1] and len(body) == 1:
            self.faults.add(path, f"{type_name}: the list has only `defaults`; add the resources they apply to")
        for index, written in enumerate(body):
            item = written if written.__class__ is dict else _bare_name(written)
            if not isinstance(item, dict) or len(item) != 1:
                got = f"a map with {len(item)} keys" if isinstance(item, dict) else describe(item)
                self.faults.add(
                    (*path, index),
                    f"{type_name}: each item is one `name: properties`; got {got} (are the properties indented below the name?)",
                )
                continue
            for name, given in item.items():
                if name == "defaults":
                    continue
                where = (*path, index, name)
                properties = {} if given.__class__ is PlainScalar and given.value is None else given
                if not isinstance(properties, dict):
                    self.faults.add(
                        where, f"{type_name}#{shorten(name)}: properties must be a map, got {describe(properties)}"
                    )
                    continue
                self._read_resource(known, name, properties, where, defaults)

    def _find_defaults(self, body: list[Node], path: DocumentPath) -> Defaults:
        found: dict[str, Node] = {}
        found_path: DocumentPath = ()
        for index, item in enumerate(body):
            if not isinstance(item, dict) or len(item) != 1 or "defaults" not in item:
                continue
            place = (*path, index, "defaults")
            if found_path:
                self.faults.add(place, "a list can have only one `defaults`", at_key=True)
            defaults = item["defaults"]
            if isinstance(defaults, dict):
                found = defaults
            elif not (isinstance(defaults, PlainScalar) and defaults.value is None):
                self.faults.add(place, f"`defaults` must be a map, got {describe(defaults)}")
            found_path = place
        return found, found_path

    def _read_flat(self, known: Known, body: dict[str, Node], path: DocumentPath) -> None:
        if "name" not in body:
            first_key = shorten(next(iter(body), "name"))
            self.faults.add(
                path,
                f"{known[0].name}: a map without `name`; add it, or write a list: `- {first_key}:` and its properties below",
                at_key=True,
            )
            return
        try:
            name = read_text(body["name"])
        except Unfit as error:
            self.faults.add((*path, "name"), f"{known[0].name}: name: {error}")
            return
        properties = {key: node for key, node in body.items() if key != "name"}
        self._read_resource(known, name or "", properties, path, ({}, ()))

    def _read_resource(
        self, known: Known, name: str, properties: dict[str, Node], path: DocumentPath, defaults: Defaults
    ) -> None:
        if "for_each" in properties:
            self._read_repeated(known, name, properties, path, defaults)
            return
        reading = ResourceReading(self.context, known, properties, path, defaults)
        resource = reading.read(name)
        if reading.has_name:
            self._register(resource, path)
        else:
            self.unnamed.add(resource.type)
        if known[0].composes and not reading.has_faults:
            self._add_child(resource, path, is_sensitive=reading.is_sensitive)
            if resource.id in self.seen:
                # The resources of the child come first.
                number = len(self.manifest.resources)
                self.seen.update({key: number for key in _names_of(resource) if key in self.seen})
        self.manifest.resources.append(resource)

    def _read_repeated(
        self, known: Known, name: str, properties: dict[str, Node], path: DocumentPath, defaults: Defaults
    ) -> None:
        """Reads the resource once for each item of `for_each`."""
        from mainstay.converge.manifest.repetition import MOST_FAULTS, check_unused, read_items

        scope, before = self.manifest.scope, self.faults.seen
        prefix = prefix_of(f"{known[0].name}#{name}")
        hidden = may_be_sensitive({**defaults[0], **properties})
        values = ValueReader(self.faults, hidden, hidden)
        items = read_items(properties["for_each"], (*path, "for_each"), prefix, values, scope)
        rest = {key: node for key, node in properties.items() if key != "for_each"}
        if not items:
            check_unused(rest, known[1], STRUCTURED, path, prefix, values)
        self.context.templates = {}
        for index, (key, value) in enumerate(items):
            scope.each = {"key": key, "value": value}
            self._read_resource(known, name, rest, path, defaults)
            if self.faults.seen - before > MOST_FAULTS:
                left = len(items) - index - 1
                self.faults.add((*path, "for_each"), f"{prefix}for_each: {left:,} more items are not checked")
                break
        scope.each = self.context.templates = None

    # ---- identity and references ----
    def _register(self, resource: Resource, path: DocumentPath) -> None:
        seen = self.seen
        index = len(self.manifest.resources)
        if resource.id in seen and resource.name:
            self.faults.add(path, f"{prefix_of(resource.id)}{self._declared_twice(resource)}", at_key=True)
        seen[resource.id] = index
        if resource.alias is not None:
            alias = f"{resource.type}#{resource.alias}"
            if alias in seen and alias != resource.id:
                taken = f"alias {shorten(resource.alias)!r} is taken; it names the resource on {self._line_of(seen[alias])}"
                self.faults.add((*path, "alias"), prefix_of(resource.id) + taken)
            seen[alias] = index
            self.manifest.aliases[alias] = resource.id
        if resource.require or resource.subscribe:
            self.referring.append(resource)

    def _declared_twice(self, resource: Resource) -> str:
        first = self.manifest.resources[self.seen[resource.id]]
        if resource.each is None:
            return f"is declared twice; the first is on {self._line_of(self.seen[resource.id])}"
        from mainstay.converge.manifest.repetition import shown_item

        if first.place != resource.place:
            return f"{shown_item(resource)} has the name of the resource on {self._line_of(self.seen[resource.id])}"
        return f"{shown_item(resource)} has the same name as {shown_item(first)}; use lookup('each.key') in the name"

    def _line_of(self, index: int) -> str:
        return f"line {self.manifest.position(self.manifest.resources[index].place).rpartition(':')[2]}"

    def check_references(self) -> None:
        """Resolves aliases; a reference must name a resource that is declared earlier."""
        for reference, path, prefix, number in self.context.results:
            problem = self._reference_problem(reference, number)
            if problem:
                self.faults.add(path, f"{prefix}result('{shorten(reference)}'): {problem}")
        if not self.referring:
            return
        order = {resource.id: index for index, resource in enumerate(self.manifest.resources)}
        for resource in self.referring:
            for key in ("require", "subscribe"):
                resolved = []
                for position, reference in enumerate(getattr(resource, key)):
                    problem = self._reference_problem(reference, order[resource.id])
                    if problem:
                        self.faults.add((*resource.place, key, position), f"{_shown(resource)}: {key}: {problem}")
                    elif reference in self.seen:
                        resolved.append(self.manifest.resources[self.seen[reference]].id)
                    elif self.source.reference_problem is not None:
                        resolved.append(reference)
                if resolved:
                    setattr(resource, key, tuple(resolved))

    def _reference_problem(self, reference: str, number: int | None) -> str | None:
        """`number` is that of the resource that refers; None is after all resources."""
        foreign = foreign_problem(reference)
        if foreign is not None:
            return foreign
        type_name, separator, name = reference.partition("#")
        if not separator or not type_name or not name:
            return f"{shorten(reference)!r} is not a reference; write type#name"
        if type_name not in self.types and self.source.find_type(type_name) is None:
            return f"unknown resource type {type_name!r} in {shorten(reference)!r}{did_you_mean(type_name, self.source.type_names())}"
        if reference not in self.seen and type_name in self.unnamed:
            return None
        if reference not in self.seen and self.source.reference_problem is not None:
            return self.source.reference_problem(reference)
        if reference not in self.seen:
            return f"there is no {shorten(reference)} in this manifest{did_you_mean(reference, self.seen)}"
        if number is not None and self.seen[reference] == number:
            return f"{shorten(reference)} is the resource itself; name an earlier one"
        if number is not None and self.seen[reference] > number:
            own = _shown(self.manifest.resources[number])
            return f"{shorten(reference)} must be declared earlier in the file; move it before {own}"
        return None


def _names_of(resource: Resource) -> list[str]:
    """The identity of a resource, and that of its alias."""
    return [resource.id] if resource.alias is None else [resource.id, f"{resource.type}#{resource.alias}"]


def _known_of(resource_type: ResourceType) -> Known:
    table = {**COMMON, **resource_type.properties}
    plain = {
        key: entry.kind
        for key, entry in table.items()
        if not entry.choices and entry.alias_of is None and not entry.secret
    }
    return resource_type, table, plain


def _shown(resource: Resource) -> str:
    return shorten(resource.id, LONGEST_SHOWN_IDENTITY)


def _bare_name(item: Node) -> Node:
    """Converts a name without a colon to a resource without properties."""
    if isinstance(item, PlainScalar):
        return {item.text: PlainScalar("")}
    return {item: PlainScalar("")} if isinstance(item, str) else item

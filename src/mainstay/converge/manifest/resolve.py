"""Nodes to typed resources: everything a manifest says is checked here, before anything is touched.

Faults are collected with the path they stand at; `Faults.raise_if_any` finds their lines.
"""

from __future__ import annotations

from mainstay.converge.contract import DoesNotLoad, Fault, HealthCheck, Property, Resource
from mainstay.converge.kinds import (
    BOOLEAN,
    TEXT,
    TEXTS,
    Kind,
    Plain,
    Tainted,
    Unfit,
    describe,
    parse_duration,
    read_text,
    shorten,
    to_value,
)
from mainstay.converge.manifest.document import locate
from mainstay.converge.manifest.expressions import BadExpression, Expression, Scope, Template, Unresolved, split
from mainstay.converge.manifest.hierarchy import DEEP, FIRST, apply_hierarchy, overlay
from mainstay.converge.words import split_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from mainstay.converge.contract import DocumentPath, ResourceType
    from mainstay.converge.kinds import Node

TOP_KEYS = (
    "data",
    "hierarchy",
    "overrides",
    "resources",
    "fail_on_error",
    "pre_message",
    "post_message",
    "outputs",
)
# Parts of a related manifest family that we know and do not have: refused by name rather than as a typing error.
UNSUPPORTED_KEYS = {"register_when_stable", "resources_jet_file"}
UNSUPPORTED_TYPES = {"archive", "scaffold", "apply"}
HEALTH_CHECK_KEYS = ("command", "name", "tries", "try_sleep", "timeout")
MOST_TRIES = 1000

COMMON: dict[str, Property] = {
    "alias": Property(TEXT, "a second name, usable in references"),
    "ensure": Property(TEXT, "the wanted state"),
    "provider": Property(TEXT, "force one provider"),
    "require": Property(TEXTS, "resources (`type#name`) that must not have failed; they stand earlier in the file"),
    "tags": Property(TEXTS, "words for `--tag`"),
    "sensitive": Property(BOOLEAN, "keep content, commands, output and diffs out of every log and report"),
}
STRUCTURED = {
    "control": "`if` and `unless`: expressions that decide at the resource's turn whether it is managed",
    "health_checks": "commands that must succeed once the resource is as wanted",
}


class Manifest:
    """What a document wants, resolved as far as it can be before the run."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.resources: list[Resource] = []
        self.data: dict[str, Any] = {}
        self.fail_on_error = False
        self.pre_message: str | None = None
        self.post_message: Any = None
        self.outputs: Any = None
        self.warnings: list[str] = []
        self.scope = Scope({})

    def position(self, path: DocumentPath) -> str:
        """`file:line` of a path, for messages at run time."""
        place = locate(self.text, [path])
        while path and path not in place:
            path = path[:-1]
        return f"{self.file}:{place[path][0][0]}" if path in place else self.file


class Faults:
    """Collected faults, each with the document path it stands at."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.found: list[tuple[DocumentPath, bool, str]] = []

    def add(self, path: DocumentPath, message: str, *, at_key: bool = False) -> None:
        self.found.append((path, at_key, message))

    def raise_if_any(self) -> None:
        if not self.found:
            return
        places = locate(self.text, [path for path, _, _ in self.found])
        faults = []
        for path, at_key, message in self.found:
            nearest = path
            while nearest and nearest not in places:
                nearest = nearest[:-1]
            if not self.text:
                # A document made by a program has no lines.
                faults.append(Fault(self.file, None, None, message))
                continue
            part = 0 if at_key or nearest != path else 1
            line, column = places[nearest][part] if nearest in places else (1, 1)
            faults.append(Fault(self.file, line, column, message))
        raise DoesNotLoad(sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0)))


class Source:
    """What the caller brings to a manifest: where values come from, and which types there are."""

    def __init__(
        self,
        *,
        find_type: Callable[[str], ResourceType | None],
        type_names: Callable[[], Sequence[str]],
        provider_names: Callable[[str], Sequence[str]],
        roots: Mapping[str, Callable[[], Any]],
        functions: Mapping[str, Callable[..., Any]],
        data_layers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.find_type = find_type
        self.type_names = type_names
        self.provider_names = provider_names
        self.roots = roots
        self.functions = functions
        self.data_layers = data_layers


def resolve(root: Node, file: str, text: str, source: Source) -> Manifest:
    """The manifest, or `DoesNotLoad` with all its faults."""
    return Resolver(file, text, source).resolve(root)


class Resolver:
    def __init__(self, file: str, text: str, source: Source) -> None:
        self.source = source
        self.faults = Faults(file, text)
        self.manifest = Manifest(file, text)
        self.types: dict[str, tuple[ResourceType, dict[str, Property]] | None] = {}
        self.seen: dict[str, int] = {}
        self.referring: list[Resource] = []

    def resolve(self, root: Node) -> Manifest:
        sections = self.sections(root)
        manifest = self.manifest
        self.read_data(sections)
        manifest.scope = Scope({**self.source.roots, "data": lambda: manifest.data}, self.source.functions)
        self.read_settings(sections)
        if "resources" in sections:
            self.read_resources(*sections["resources"])
        elif not self.faults.found:
            self.faults.add((), "there are no `resources`; a manifest is a list of resources, or a map with that key")
        self.check_references()
        self.faults.raise_if_any()
        return manifest

    # ---- the parts of a manifest ----
    def sections(self, root: Node) -> dict[str, tuple[Node, DocumentPath]]:
        """Key → (node, path), from a bare list, a map, or a map with `ccm`."""
        if isinstance(root, list):
            return {"resources": (root, ())}
        if not isinstance(root, dict):
            got = "an empty document" if isinstance(root, Plain) and root.value is None else describe(root)
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
                    self.faults.add(place, f"`{key}` stands both at the top and under `ccm`", at_key=True)
                elif key in TOP_KEYS:
                    found[key] = (node, place)
                else:
                    self.unknown_key(key, place, TOP_KEYS)
        return found

    def unknown_key(self, key: str, path: DocumentPath, known: Iterable[str], of: str = "") -> None:
        if key in UNSUPPORTED_KEYS:
            self.faults.add(path, f"{of}`{key}` is not supported", at_key=True)
        else:
            self.faults.add(path, f"{of}unknown key {shorten(key)!r}{did_you_mean(key, known)}", at_key=True)

    def read_data(self, sections: Mapping[str, tuple[Node, DocumentPath]]) -> None:
        scope = Scope(self.source.roots, {})
        base = self.values_of(sections.get("data"), "data", scope)
        overrides = self.values_of(sections.get("overrides"), "overrides", scope)
        for key, value in overrides.items():
            if not isinstance(value, dict):
                self.faults.add((*sections["overrides"][1], key), f"override {key!r} must be a map of values")
                overrides[key] = {}
        order, merge = self.read_hierarchy(sections.get("hierarchy"))
        data = apply_hierarchy(base, overrides, order, merge)
        for layer in self.source.data_layers:
            data = overlay(data, layer)
        self.manifest.data = data

    def values_of(self, section: tuple[Node, DocumentPath] | None, name: str, scope: Scope) -> dict[str, Any]:
        if section is None or (isinstance(section[0], Plain) and section[0].value is None):
            return {}
        node, path = section
        if not isinstance(node, dict):
            self.faults.add(path, f"`{name}` must be a map, got {describe(node)}")
            return {}
        values: dict[str, Any] = self.render_values(node, path, name, scope) or {}
        return values

    def render_values(self, node: Node, path: DocumentPath, name: str, scope: Scope) -> Any:
        """Free-form values; templates in them see everything but `data` itself."""
        if isinstance(node, dict):
            return {key: self.render_values(child, (*path, key), name, scope) for key, child in node.items()}
        if isinstance(node, list):
            return [self.render_values(child, (*path, index), name, scope) for index, child in enumerate(node)]
        if isinstance(node, str) and "{{" in node:
            return self.rendered(node, path, f"{name}: ", scope)
        return to_value(node)

    def rendered(self, text: str, path: DocumentPath, of: str, scope: Scope) -> Any:
        try:
            return Template(text).render(scope)
        except (BadExpression, Unresolved) as error:
            self.faults.add(path, f"{of}{error}")
            return None

    def read_hierarchy(self, section: tuple[Node, DocumentPath] | None) -> tuple[list[str], str]:
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
                order = self.read_order(child, place)
            elif key == "merge":
                merge = child if isinstance(child, str) else describe(child)
                if merge not in (FIRST, DEEP):
                    self.faults.add(place, f"hierarchy.merge must be `first` or `deep`, not {shorten(merge)!r}")
            else:
                self.unknown_key(key, place, ("order", "merge"), "hierarchy: ")
        if merge == DEEP and len(order) > 1:
            self.manifest.warnings.append(
                "hierarchy.merge is `deep`: the later entry of `order` wins, the other way round than with `first`"
            )
        return order, merge

    def read_order(self, node: Node, path: DocumentPath) -> list[str]:
        if not isinstance(node, list):
            self.faults.add(path, f"hierarchy.order must be a list, got {describe(node)}")
            return []
        scope = Scope({"facts": self.source.roots["facts"]}, {})
        order = []
        for index, child in enumerate(node):
            text = child.text if isinstance(child, Plain) else child
            if not isinstance(text, str):
                self.faults.add((*path, index), f"hierarchy.order holds text, got {describe(child)}")
            elif "{{" in text:
                order.append(str(self.rendered(text, (*path, index), "hierarchy.order: ", scope)))
            else:
                order.append(text)
        return order

    def read_settings(self, sections: Mapping[str, tuple[Node, DocumentPath]]) -> None:
        manifest = self.manifest
        if "fail_on_error" in sections:
            node, path = sections["fail_on_error"]
            manifest.fail_on_error = bool(self.typed(BOOLEAN, node, path, "fail_on_error: ", manifest.scope))
        if "pre_message" in sections:
            node, path = sections["pre_message"]
            manifest.pre_message = self.typed(TEXT, node, path, "pre_message: ", manifest.scope)
        if "post_message" in sections:
            manifest.post_message = self.tree(*sections["post_message"], "post_message: ")
        if "outputs" in sections:
            node, path = sections["outputs"]
            if isinstance(node, dict):
                manifest.outputs = self.tree(node, path, "outputs: ")
            else:
                self.faults.add(path, f"`outputs` must be a map, got {describe(node)}")

    # ---- values ----
    def typed(self, kind: Kind, node: Node, path: DocumentPath, of: str, scope: Scope) -> Any:
        """A value of `kind`, templates rendered now; None when not given or wrong."""
        try:
            if holds_template(node):
                tree = compile_tree(node)
                value = kind.accept(render_tree(tree, scope))
            else:
                value = kind.read(node)
        except Unfit as error:
            self.faults.add((*path, *error.where), f"{of}{error}", at_key=error.at_key)
            return None
        except (BadExpression, Unresolved) as error:
            self.faults.add(path, f"{of}{error}")
            return None
        return value

    def tree(self, node: Node, path: DocumentPath, of: str) -> Any:
        """A value whose templates wait; their syntax and constant data look-ups are checked now."""
        if isinstance(node, dict):
            return {key: self.tree(child, (*path, key), of) for key, child in node.items()}
        if isinstance(node, list):
            return [self.tree(child, (*path, index), of) for index, child in enumerate(node)]
        if isinstance(node, str) and "{{" in node:
            try:
                template = Template(node)
            except BadExpression as error:
                self.faults.add(path, f"{of}{error}")
                return node
            for missing in template.missing_data(self.manifest.data):
                self.faults.add(path, f"{of}{missing}")
            return template
        return to_value(node)

    # ---- resources ----
    def read_resources(self, node: Node, path: DocumentPath) -> None:
        if not isinstance(node, list):
            self.faults.add(path, f"`resources` must be a list, got {describe(node)}")
            return
        if not node:
            self.faults.add(path, "the resource list is empty")
        for index, entry in enumerate(node):
            place = (*path, index)
            if not isinstance(entry, dict) or not entry:
                self.faults.add(place, f"a resource is a map with one key, its type; got {describe(entry)}")
                continue
            if len(entry) > 1:
                types = ", ".join(shorten(key, 20) for key in entry)
                self.faults.add(
                    place,
                    f"one entry names one type, this one has {len(entry)} keys: {types}; begin each with its own `-`",
                )
                continue
            for type_name, body in entry.items():
                self.read_entry(type_name, body, (*place, type_name))

    def type_of(self, name: str, path: DocumentPath) -> tuple[ResourceType, dict[str, Property]] | None:
        if name not in self.types:
            found = self.source.find_type(name)
            self.types[name] = None if found is None else (found, {**COMMON, **found.properties})
        entry = self.types[name]
        if entry is None:
            if name in UNSUPPORTED_TYPES:
                self.faults.add(path, f"resource type `{name}` is not supported", at_key=True)
            else:
                known = self.source.type_names()
                self.faults.add(
                    path,
                    f"unknown resource type {shorten(name)!r}{did_you_mean(name, known)}; there are {', '.join(known)}",
                    at_key=True,
                )
        return entry

    def read_entry(self, type_name: str, body: Node, path: DocumentPath) -> None:
        known = self.type_of(type_name, path)
        if known is None:
            return
        if isinstance(body, dict):
            self.read_flat(known, body, path)
            return
        if not isinstance(body, list):
            self.faults.add(
                path, f"{type_name}: expected a list of names, or a map with `name`; got {describe(body)}"
            )
            return
        if not body:
            self.faults.add(path, f"{type_name}: the list is empty")
        defaults, defaults_path = self.find_defaults(body, path)
        for index, written in enumerate(body):
            place = (*path, index)
            item = bare_name(written)
            if not isinstance(item, dict) or len(item) != 1:
                got = f"a map with {len(item)} keys" if isinstance(item, dict) else describe(item)
                self.faults.add(
                    place,
                    f"{type_name}: each item is one `name: properties`; got {got} (are the properties indented below the name?)",
                )
                continue
            for name, given in item.items():
                if place == defaults_path[:-1]:
                    continue
                where = (*place, name)
                properties = {} if isinstance(given, Plain) and given.value is None else given
                if not isinstance(properties, dict):
                    self.faults.add(
                        where, f"{type_name}#{shorten(name)}: properties must be a map, got {describe(properties)}"
                    )
                    continue
                self.read_resource(known, name, properties, where, defaults, defaults_path)

    def find_defaults(self, body: list[Node], path: DocumentPath) -> tuple[dict[str, Node], DocumentPath]:
        found: dict[str, Node] = {}
        found_path: DocumentPath = ()
        for index, item in enumerate(body):
            if not isinstance(item, dict) or len(item) != 1 or "defaults" not in item:
                continue
            place = (*path, index, "defaults")
            if found_path:
                self.faults.add(place, "a list has one `defaults` at most", at_key=True)
            defaults = item["defaults"]
            if isinstance(defaults, dict):
                found = defaults
            elif not (isinstance(defaults, Plain) and defaults.value is None):
                self.faults.add(place, f"`defaults` must be a map, got {describe(defaults)}")
            found_path = place
        return found, found_path

    def read_flat(
        self, known: tuple[ResourceType, dict[str, Property]], body: dict[str, Node], path: DocumentPath
    ) -> None:
        if "name" not in body:
            self.faults.add(
                path,
                f"{known[0].name}: a flat resource needs `name`; or write a list of `- name: properties`",
                at_key=True,
            )
            return
        try:
            name = read_text(body["name"])
        except Unfit as error:
            self.faults.add((*path, "name"), f"{known[0].name}: name: {error}")
            return
        properties = {key: node for key, node in body.items() if key != "name"}
        self.read_resource(known, name or "", properties, path, {}, ())

    def read_resource(
        self,
        known: tuple[ResourceType, dict[str, Property]],
        name: str,
        properties: dict[str, Node],
        path: DocumentPath,
        defaults: dict[str, Node],
        defaults_path: DocumentPath,
    ) -> None:
        resource_type, table = known
        manifest = self.manifest
        before = len(self.faults.found)
        if "{{" in name:
            name = self.read_name(name, path, resource_type)
        identity = f"{resource_type.name}#{name}"
        given: dict[str, Any] = {"type": resource_type.name, "name": name, "id": identity, "place": path}
        of = f"{identity}: "
        merged = {**defaults, **properties} if defaults else properties
        for key, node in merged.items():
            entry = table.get(key)
            if entry is None:
                self.read_structured(key, node, self.place(key, properties, path, defaults_path), of, given, table)
                continue
            # A constant text property: nothing to read, nothing to render.
            if node.__class__ is str and entry.kind is TEXT and "{{" not in node and not entry.choices:
                value: Any = node
            else:
                value = self.read_property(
                    key, entry, node, given, self.place(key, properties, path, defaults_path), of
                )
                if value is None:
                    continue
            attribute = entry.alias_of or key
            if attribute in given:
                self.faults.add(
                    self.place(key, properties, path, defaults_path),
                    f"{of}{key} is another name of {attribute}; give one of them",
                    at_key=True,
                )
            given[attribute] = value
        resource = resource_type.resource(given)
        self.check_ensure(resource_type, resource, path, given, of)
        if len(self.faults.found) == before:
            for wrong, message in resource_type.check(resource):
                self.faults.add(
                    self.place(wrong, properties, path, defaults_path), of + message, at_key=wrong is None
                )
        self.register(resource, path, of)
        manifest.resources.append(resource)

    def place(
        self, key: str | None, properties: dict[str, Node], path: DocumentPath, defaults_path: DocumentPath
    ) -> DocumentPath:
        if key is None:
            return path
        return (*path, key) if key in properties or not defaults_path else (*defaults_path, key)

    def read_name(self, name: str, path: DocumentPath, resource_type: ResourceType) -> str:
        value = self.rendered(name, path, f"{resource_type.name}#{shorten(name)}: name: ", self.manifest.scope)
        if isinstance(value, Tainted):
            self.faults.add(path, f"{resource_type.name}: a name must not hold a secret", at_key=True)
            return ""
        return "" if value is None else str(value)

    def read_property(
        self, key: str, entry: Property, node: Node, given: dict[str, Any], path: DocumentPath, of: str
    ) -> Any:
        of = f"{of}{key}: "
        if entry.deferred and holds_template(node):
            tree = self.tree(node, path, of)
            given["deferred"] = {**(given.get("deferred") or {}), entry.alias_of or key: tree}
            return None
        scope = self.manifest.scope
        scope.tainted = False
        value = self.typed(entry.kind, node, path, of, scope)
        if scope.tainted:
            given["sensitive"] = True
        if value is not None and entry.choices and value not in entry.choices:
            self.faults.add(
                path,
                f"{of}{one_of(entry.choices)}, not {shorten(str(value))!r}{did_you_mean(str(value), entry.choices)}",
            )
        return value

    def check_ensure(
        self, resource_type: ResourceType, resource: Resource, path: DocumentPath, given: dict[str, Any], of: str
    ) -> None:
        ensure = given.get("ensure")
        if ensure is None:
            if resource_type.ensure_required:
                self.faults.add(path, f"{of}ensure is required: {one_of(resource_type.ensures)}", at_key=True)
        elif ensure not in resource_type.ensures and not resource_type.open_ensure:
            close = did_you_mean(ensure, resource_type.ensures)
            self.faults.add(
                (*path, "ensure"), f"{of}ensure: {one_of(resource_type.ensures)}, not {shorten(ensure)!r}{close}"
            )
        if not resource.name:
            self.faults.add(path, f"{of}the name is empty", at_key=True)
        if resource.provider is not None:
            known = self.source.provider_names(resource.type)
            if resource.provider not in known:
                close = did_you_mean(resource.provider, known)
                self.faults.add(
                    (*path, "provider"), f"{of}provider: {one_of(known)}, not {shorten(resource.provider)!r}{close}"
                )

    def read_structured(
        self, key: str, node: Node, path: DocumentPath, of: str, given: dict[str, Any], table: dict[str, Property]
    ) -> None:
        if key == "control":
            self.read_control(node, path, of, given)
        elif key == "health_checks":
            scope = self.manifest.scope
            scope.tainted = False
            given["health_checks"] = self.read_health_checks(node, path, f"{of}health_checks: ")
            if scope.tainted:
                given["sensitive"] = True
        elif key == "subscribe":
            self.faults.add(
                path, f"{of}a {given['type']} cannot be refreshed, so `subscribe` means nothing here", at_key=True
            )
        else:
            self.unknown_key(key, path, (*table, *STRUCTURED), of)

    def read_control(self, node: Node, path: DocumentPath, of: str, given: dict[str, Any]) -> None:
        if not isinstance(node, dict):
            self.faults.add(path, f"{of}control must be a map with `if` or `unless`, got {describe(node)}")
            return
        for key, written in node.items():
            place = (*path, key)
            child = written
            if key not in ("if", "unless"):
                self.unknown_key(key, place, ("if", "unless"), f"{of}control: ")
                continue
            if isinstance(child, Plain) and isinstance(child.value, bool):
                child = child.text.lower()
            if not isinstance(child, str):
                self.faults.add(place, f"{of}control.{key} must be an expression, got {describe(child)}")
                continue
            try:
                expression = as_expression(child)
                expression.check()
            except BadExpression as error:
                self.faults.add(place, f"{of}control.{key}: {error}")
                continue
            for missing in expression.missing_data(self.manifest.data):
                self.faults.add(place, f"{of}control.{key}: {missing}")
            given[f"control_{key}"] = expression

    def read_health_checks(self, node: Node, path: DocumentPath, of: str) -> tuple[HealthCheck, ...]:
        if not isinstance(node, list):
            self.faults.add(path, f"{of}expected a list, got {describe(node)}")
            return ()
        checks = []
        for index, item in enumerate(node):
            place = (*path, index)
            if not isinstance(item, dict):
                self.faults.add(place, f"{of}each check is a map with `command`, got {describe(item)}")
                continue
            check = self.read_health_check(item, place, of)
            if check is not None:
                checks.append(check)
        return tuple(checks)

    def read_health_check(self, item: dict[str, Node], path: DocumentPath, of: str) -> HealthCheck | None:
        values: dict[str, Any] = {}
        for key, node in item.items():
            if key.startswith("goss"):
                self.faults.add((*path, key), f"{of}`{key}` is not supported; use `command`", at_key=True)
            elif key not in HEALTH_CHECK_KEYS:
                self.unknown_key(key, (*path, key), HEALTH_CHECK_KEYS, of)
            else:
                values[key] = self.typed(TEXT, node, (*path, key), f"{of}{key}: ", self.manifest.scope)
        command = values.get("command")
        if not command:
            if "command" not in item or values["command"] == "":
                self.faults.add(path, f"{of}a check needs `command`")
            return None
        try:
            split_words(command)
            return HealthCheck(
                command,
                values.get("name") or command,
                parse_tries(values.get("tries")),
                parse_duration(values.get("try_sleep") or "1s"),
                parse_duration(values["timeout"]) if values.get("timeout") else None,
            )
        except Unfit as error:
            self.faults.add(path, f"{of}{error}")
            return None

    # ---- identity and references ----
    def register(self, resource: Resource, path: DocumentPath, of: str) -> None:
        seen = self.seen
        index = len(self.manifest.resources)
        if resource.id in seen:
            self.faults.add(
                path, f"{of}is declared twice; the first stands in {self.line_of(seen[resource.id])}", at_key=True
            )
        seen[resource.id] = index
        if resource.alias is not None:
            alias = f"{resource.type}#{resource.alias}"
            if alias in seen and alias != resource.id:
                self.faults.add((*path, "alias"), f"{of}alias {resource.alias!r} names another resource already")
            seen[alias] = index
        if resource.require or resource.subscribe:
            self.referring.append(resource)

    def line_of(self, index: int) -> str:
        return f"line {self.manifest.position(self.manifest.resources[index].place).rpartition(':')[2]}"

    def check_references(self) -> None:
        """Resolves aliases; a reference must lead to a resource that stands earlier."""
        order = {resource.id: index for index, resource in enumerate(self.manifest.resources)}
        for resource in self.referring:
            for key in ("require", "subscribe"):
                resolved = []
                for position, reference in enumerate(getattr(resource, key)):
                    problem = self.reference_problem(reference, resource, order)
                    if problem:
                        self.faults.add((*resource.place, key, position), f"{resource.id}: {key}: {problem}")
                    else:
                        resolved.append(self.manifest.resources[self.seen[reference]].id)
                if resolved:
                    setattr(resource, key, tuple(resolved))

    def reference_problem(self, reference: str, resource: Resource, order: Mapping[str, int]) -> str | None:
        type_name, separator, name = reference.partition("#")
        if not separator or not type_name or not name:
            return f"{shorten(reference)!r} is not a reference; write type#name"
        if type_name not in self.types and self.source.find_type(type_name) is None:
            return f"unknown resource type {type_name!r} in {shorten(reference)!r}{did_you_mean(type_name, self.source.type_names())}"
        if reference not in self.seen:
            return f"there is no {shorten(reference)}{did_you_mean(reference, self.seen)}"
        if self.seen[reference] >= order[resource.id]:
            return f"{shorten(reference)} does not stand earlier in the file; move it before {resource.id}"
        return None


def bare_name(item: Node) -> Node:
    """A name without a colon is a resource without properties."""
    if isinstance(item, Plain):
        return {item.text: Plain("")}
    return {item: Plain("")} if isinstance(item, str) else item


def holds_template(node: Node) -> bool:
    if isinstance(node, str):
        return "{{" in node
    if isinstance(node, dict):
        return any(holds_template(child) for child in node.values())
    if isinstance(node, list):
        return any(holds_template(child) for child in node)
    return False


def compile_tree(node: Node) -> Any:
    if isinstance(node, dict):
        return {key: compile_tree(child) for key, child in node.items()}
    if isinstance(node, list):
        return [compile_tree(child) for child in node]
    if isinstance(node, str) and "{{" in node:
        return Template(node)
    return to_value(node)


def render_tree(tree: Any, scope: Scope) -> Any:
    """A tree of values and templates, rendered."""
    if isinstance(tree, Template):
        return tree.render(scope)
    if isinstance(tree, dict):
        return {key: render_tree(child, scope) for key, child in tree.items()}
    if isinstance(tree, list):
        return [render_tree(child, scope) for child in tree]
    return tree


def as_expression(text: str) -> Expression:
    """An expression with or without its braces."""
    stripped = text.strip()
    if not stripped.startswith("{{"):
        return Expression(stripped)
    parts = split(stripped)
    if len(parts) != 1 or not isinstance(parts[0], Expression):
        raise BadExpression(f"expected one expression, got {shorten(text)!r}")
    return parts[0]


def parse_tries(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= MOST_TRIES:
        raise Unfit(f"tries must be a number from 1 to {MOST_TRIES}, not {shorten(text)!r}")
    return int(text)


def one_of(words: Sequence[str]) -> str:
    return f"must be {words[0]}" if len(words) == 1 else f"must be {', '.join(words[:-1])} or {words[-1]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    candidates = list(known)
    # Beyond these sizes the search would take longer than the reader would.
    if len(word) > 200 or len(candidates) > 2000:
        return ""
    close = get_close_matches(word, candidates, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

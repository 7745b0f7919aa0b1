"""Reads the resources of a manifest, checks each against its type, and resolves references."""

from __future__ import annotations

from mainstay.converge.command_words import WORDS, join_words
from mainstay.converge.contract import NO_SECRET, PRIVATE_VALUE, HealthCheck, Property, Resource
from mainstay.converge.manifest.expressions import BadExpression, Expression, holds_secret, split
from mainstay.converge.manifest.values import ValueReader, check_shape, holds_template
from mainstay.converge.redaction import clean_of
from mainstay.converge.value_kinds import (
    BOOLEAN,
    DURATION_SECONDS,
    TEXT,
    TEXTS,
    TRIES,
    Unfit,
    ValueKind,
    as_plain,
    as_secret,
    describe,
    read_text,
    to_text,
)
from mainstay.foundation.suggestions import did_you_mean, one_of
from mainstay.foundation.text import REDACTED, shorten
from mainstay.foundation.yaml.scalars import PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias

    from mainstay.converge.contract import HealthCheckKind, ResourceType
    from mainstay.converge.manifest.children import Composition
    from mainstay.converge.manifest.faults import Faults
    from mainstay.converge.manifest.resolve import Manifest, Source
    from mainstay.converge.manifest.static_checks import StaticCheck
    from mainstay.converge.value_kinds import ValueKind
    from mainstay.foundation.faults import DocumentPath
    from mainstay.foundation.yaml.scalars import Node

    # A type, its properties, and the kinds of those properties that take a constant text unchanged.
    Known: TypeAlias = tuple[ResourceType, dict[str, Property], dict[str, ValueKind]]
    # The `defaults` of a list of resources, and their path, which is empty without them.
    Defaults: TypeAlias = tuple[dict[str, Node], DocumentPath]

# Types of a related manifest family that are refused by name.
UNSUPPORTED_TYPES = {"scaffold"}
LONGEST_SHOWN_IDENTITY = 200
# Every report shows these, also of sensitive resources.
SHOWN_PROPERTIES = frozenset(("alias", "ensure", "provider", "require", "subscribe", "tags"))

# Properties of every health check; those of a kind are in its file.
HEALTH_CHECK: dict[str, Property] = {
    "name": Property(TEXT, "name of the check; default: the value of its kind"),
    "tries": Property(TRIES, "number of tries; default 1"),
    "try_sleep": Property(DURATION_SECONDS, "pause between two tries; default `1s`"),
    "timeout": Property(DURATION_SECONDS, "time limit of one try"),
}
COMMON: dict[str, Property] = {
    "alias": Property(TEXT, "a second name, usable in references"),
    "ensure": Property(TEXT, "the desired state"),
    "provider": Property(TEXT, "force one provider"),
    "require": Property(TEXTS, "resources (`type#name`), declared earlier in the file, that must not have failed"),
    "tags": Property(TEXTS, "words for `--tag`"),
    "sensitive": Property(
        BOOLEAN, "hide private properties, health checks, output and diffs in every log and report"
    ),
}
STRUCTURED = {
    "for_each": "repeats the resource for each item of a list or a map; templates read `each.key` and `each.value`",
    "control": "`if` and `unless`: expressions, evaluated when the resource is reached, that decide whether it is managed",
    "health_checks": "checks that must succeed when the resource is in its desired state",
}


def _choice(kinds: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in kinds)


class ResourceReader:
    """Fills `manifest.resources` and adds their faults to `faults`."""

    def __init__(self, manifest: Manifest, faults: Faults, source: Source) -> None:
        self.manifest = manifest
        self.faults = faults
        self.source = source
        self.values = ValueReader(faults)
        # Whether a property of the current resource comes from a secret, and the kinds of secrets by property.
        self.holds_secret = False
        self.secrets: dict[str, int] = {}
        # Whether the current resource has a `control`.
        self.is_conditional = False
        self.types: dict[str, Known | None] = {}
        # Loaded with the first health check.
        self.check_kinds: Mapping[str, HealthCheckKind] | None = None
        # What all manifests of a run share; None: no resource so far applies a manifest.
        self.composition: Composition | None = None
        # Attributes of every resource of a manifest that another one applies.
        self.inherited: dict[str, Any] = {}
        self.inherited_tags: tuple[str, ...] = ()
        self.is_sensitive = False
        # Whether the manifest may never be applied, because of a `control` around it.
        self.is_entry_conditional = False
        self.seen: dict[str, int] = {}
        # Types of resources whose name has a fault: references may mean one of them.
        self.unnamed: set[str] = set()
        self.referring: list[Resource] = []
        # References of `result('type#name')`: (reference, place, prefix of a fault, number of the resource or None).
        self.results: list[tuple[str, DocumentPath, str, int | None]] = []

    def inherit(self, parent: Resource, *, is_sensitive: bool) -> None:
        """Sets what an `apply` resource gives to the resources of its manifest."""
        self.inherited = {"declared_in": self.manifest, "parent": parent, "within": (*parent.within, parent.id)}
        self.inherited_tags = parent.tags
        self.is_sensitive = is_sensitive
        entry: Resource | None = parent
        while entry is not None:
            has_control = entry.control_if is not None or entry.control_unless is not None
            self.is_entry_conditional = self.is_entry_conditional or has_control
            entry = entry.parent

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
                types = ", ".join(shorten(key, 20) for key in entry)
                self.faults.add(
                    place,
                    f"one entry names one type, this one has {len(entry)} keys: {types}; begin each with its own `-`",
                )
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
                from mainstay.converge.other_tools import advice_on_type

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
        resource_type, table, plain = known
        default_nodes, defaults_path = defaults
        before = self.faults.seen
        self.holds_secret = False
        self.secrets = {}
        name_template = ""
        if "${" in name:
            self._refuse_foreign(name, path, f"{resource_type.name}#{shorten(name)}: name: ", at_key=True)
        if "{{" in name:
            name_template, name = name, self.read_name(name, path, resource_type)
        has_name = self.faults.seen == before
        identity = f"{resource_type.name}#{name}"
        given: dict[str, Any] = {"type": resource_type.name, "name": name, "id": identity, "place": path}
        each = self.manifest.scope.each
        if each is not None:
            given["each"] = each
        if self.inherited:
            given.update(self.inherited)
        merged = {**default_nodes, **properties} if default_nodes else properties
        self.is_conditional = "control" in merged or self.is_entry_conditional
        for key, node in merged.items():
            # A short path for constant text: nothing to render, and seldom a fault.
            kind = plain.get(key)
            if kind is not None and node.__class__ is str and "{{" not in node:
                value = node if kind is TEXT else _read_or_none(kind, node)
                if value is not None:
                    given[key] = value
                    continue
            where = self.place(key, properties, path, defaults_path)
            prefix = self._prefix_at(where, path, given)
            self.values.sensitive = is_sensitive = self.is_sensitive or _may_be_sensitive(merged)
            entry = table.get(key)
            if entry is None:
                self.values.private = is_sensitive
                self._read_structured(key, node, where, prefix, given, table)
                continue
            attribute = entry.alias_of or key
            if key != attribute and attribute in merged:
                second = max(key, attribute, key=list(merged).index)
                message = f"{prefix}{key} and {attribute} are the same property; keep {attribute}"
                self.faults.add(self.place(second, properties, path, defaults_path), message, at_key=True)
            self.values.private = entry.is_hidden(sensitive=is_sensitive) or entry.hidden_parts is not None
            value = self.read_property(key, entry, node, given, where, prefix)
            if value is not None:
                given[attribute] = value
        self.values.private = self.values.sensitive = False
        if self.inherited_tags:
            given["tags"] = tuple(dict.fromkeys((*given.get("tags", ()), *self.inherited_tags)))
        # Only what the manifest says holds for the resources of a child, not what follows from a secret in its data.
        is_sensitive = self.is_sensitive or bool(given.get("sensitive"))
        if self.holds_secret or is_sensitive:
            given["sensitive"] = True
        if self.secrets:
            given["secrets"] = self.secrets
        resource = resource_type.resource(given)
        if name_template and resource_type.name_property is not None and self.faults.seen == before:
            self._read_name_property(resource_type, resource, name_template, path)
        if given.get("ensure") not in resource_type.ensures or not name or "provider" in given:
            self._check_ensure(resource_type, resource, path, given)
        unfit = self._unfit_keys(path, defaults_path) if self.faults.seen != before else ()
        if "sensitive" in unfit:
            # The manifest is refused anyway, and its faults must not show what was meant to be hidden.
            resource.sensitive = True
        for wrong, message in resource_type.check(resource):
            if wrong is None and not has_name:
                continue
            # A fault that follows from a reported fault would only distract.
            if unfit and (wrong in unfit or any(key in message for key in unfit)):
                continue
            text = clean_of(resource, table, message)
            where = self.place(wrong, properties, path, defaults_path)
            self.faults.add(where, _prefix(identity) + text, at_key=wrong is None)
        if has_name:
            self.register(resource, path)
        else:
            self.unnamed.add(resource_type.name)
        if resource_type.composes and self.faults.seen == before:
            self._add_child(resource, path, is_sensitive=is_sensitive)
        self.manifest.resources.append(resource)

    def _read_repeated(
        self, known: Known, name: str, properties: dict[str, Node], path: DocumentPath, defaults: Defaults
    ) -> None:
        """Reads the resource once for each item of `for_each`."""
        from mainstay.converge.manifest.repetition import MOST_FAULTS, check_unused, read_items

        scope, before = self.manifest.scope, self.faults.seen
        prefix = _prefix(f"{known[0].name}#{name}")
        self.values.private = self.values.sensitive = _may_be_sensitive({**defaults[0], **properties})
        items = read_items(properties["for_each"], (*path, "for_each"), prefix, self.values, scope)
        rest = {key: node for key, node in properties.items() if key != "for_each"}
        if not items:
            check_unused(rest, known[1], STRUCTURED, path, prefix, self.values)
        self.values.private = self.values.sensitive = False
        self.values.shared = {}
        for index, (key, value) in enumerate(items):
            scope.each = {"key": key, "value": value}
            self._read_resource(known, name, rest, path, defaults)
            if self.faults.seen - before > MOST_FAULTS:
                left = len(items) - index - 1
                self.faults.add((*path, "for_each"), f"{prefix}for_each: {left:,} more items are not checked")
                break
        scope.each = self.values.shared = None

    def _refuse_foreign(self, text: str, path: DocumentPath, prefix: str, *, at_key: bool = False) -> bool:
        """Refuses `${ … }` where it would silently be taken as text."""
        from mainstay.converge.manifest.foreign_syntax import PROBLEM, has_foreign_expression

        is_foreign = has_foreign_expression(text)
        if is_foreign:
            self.faults.add(path, f"{prefix}{PROBLEM}", at_key=at_key)
        return is_foreign

    def _add_child(self, resource: Resource, path: DocumentPath, *, is_sensitive: bool) -> None:
        """Reads the manifest that the resource applies. The scope of this manifest stays as it is."""
        from mainstay.converge.manifest.children import Composition, add_child

        if self.composition is None:
            self.composition = Composition()
        add_child(resource, path, self, self.composition, is_sensitive=is_sensitive)
        if resource.id in self.seen:
            # The resources of the child come first.
            self.seen.update({key: len(self.manifest.resources) for key in _names_of(resource) if key in self.seen})

    def _unfit_keys(self, path: DocumentPath, defaults_path: DocumentPath) -> set[str]:
        """Properties of a resource that have a fault; the type sees them as not given."""
        return {
            str(place[len(above)])
            for place, _, _ in self.faults.found
            for above in (path, defaults_path)
            if above and place[: len(above)] == above and len(place) > len(above)
        } | {"ensure" for place, _, message in self.faults.found if place == path and "ensure is required" in message}

    def place(
        self, key: str | None, properties: dict[str, Node], path: DocumentPath, defaults_path: DocumentPath
    ) -> DocumentPath:
        if key is None:
            return path
        return (*path, key) if key in properties or not defaults_path else (*defaults_path, key)

    def _prefix_at(self, where: DocumentPath, path: DocumentPath, given: dict[str, Any]) -> str:
        """Names the resource, or `defaults`, whose faults are reported once and not for each resource."""
        return _prefix(given["id"]) if where[: len(path)] == path else f"{given['type']}: defaults: "

    def read_name(self, name: str, path: DocumentPath, resource_type: ResourceType) -> str:
        prefix = f"{resource_type.name}#{shorten(name)}: "
        scope = self.manifest.scope
        scope.tainted = NO_SECRET
        before = self.faults.seen
        value = self.values.rendered(name, path, f"{prefix}name: ", scope, at_key=True)
        if scope.tainted > PRIVATE_VALUE:
            self.faults.add(
                path, f"{prefix}a name is shown in every report; it must not contain a secret", at_key=True
            )
        return name if self.faults.seen > before else str.__str__(to_text(value))

    def _read_name_property(
        self, resource_type: ResourceType, resource: Resource, template: str, path: DocumentPath
    ) -> None:
        """Splits the template of a name that is a command: the rendered name would be split inside values."""
        key = resource_type.name_property or ""
        if key in (resource.deferred or {}) or key in resource.__dict__:
            return
        resource.name_template = template
        if not resource_type.splits_commands(resource):
            return
        words = self.values.typed(WORDS, template, path, f"{_prefix(resource.id)}{key}: ", self.manifest.scope)
        if words is not None:
            setattr(resource, key, words)

    def read_property(
        self, key: str, entry: Property, node: Node, given: dict[str, Any], path: DocumentPath, prefix: str
    ) -> Any:
        prefix = f"{prefix}{key}: "
        scope = self.manifest.scope
        scope.tainted = NO_SECRET
        if entry.deferred and holds_template(node):
            try:
                check_shape(entry.kind, node)
            except Unfit as error:
                self.faults.add((*path, *error.where), f"{prefix}{self.values.unfit(entry.kind, error)}")
            tree = self.values.tree(node, path, prefix, self._check_in_run(path, prefix))
            given["deferred"] = {**given.get("deferred", {}), entry.alias_of or key: tree}
            return None
        value = self.values.typed(entry.kind, node, path, prefix, scope)
        if key in SHOWN_PROPERTIES:
            if scope.tainted > PRIVATE_VALUE:
                self.faults.add(path, f"{prefix}is shown in every report; it must not contain a secret")
                return None
            # Its author may show a private value.
            scope.tainted = NO_SECRET
            value = as_plain(value)
        self._note_secret(entry.alias_of or key)
        return self._accept(entry, value, path, prefix)

    def _check_in_run(self, path: DocumentPath, prefix: str) -> StaticCheck:
        """The check of expressions that are evaluated when the current resource is reached."""
        from mainstay.converge.manifest.static_checks import StaticCheck

        number = len(self.manifest.resources)
        return StaticCheck(
            self.manifest.scope,
            note_result=lambda reference: self.results.append((reference, path, prefix, number)),
            is_conditional=self.is_conditional,
        )

    def check_after_run(self, path: DocumentPath, prefix: str) -> StaticCheck:
        """The check of expressions that are evaluated after all resources."""
        from mainstay.converge.manifest.static_checks import StaticCheck

        return StaticCheck(
            self.manifest.scope, note_result=lambda reference: self.results.append((reference, path, prefix, None))
        )

    def _note_secret(self, key: str) -> None:
        if self.manifest.scope.tainted:
            self.holds_secret = True
            self.secrets[key] = self.manifest.scope.tainted

    def _accept(self, entry: Property, value: Any, path: DocumentPath, prefix: str) -> Any:
        if value is not None and entry.choices and value not in entry.choices:
            hidden = self.manifest.scope.tainted or self.values.private
            close = "" if hidden else did_you_mean(str(value), entry.choices)
            got = REDACTED if hidden else repr(shorten(str(value)))
            self.faults.add(path, f"{prefix}{one_of(entry.choices)}, not {got}{close}")
        return as_secret(value) if entry.secret else value

    def _check_ensure(
        self, resource_type: ResourceType, resource: Resource, path: DocumentPath, given: dict[str, Any]
    ) -> None:
        prefix = _prefix(resource.id)
        ensure = given.get("ensure")
        if ensure is None:
            if resource_type.ensure_required:
                self.faults.add(path, f"{prefix}ensure is required; it {one_of(resource_type.ensures)}", at_key=True)
        elif ensure not in resource_type.ensures and not resource_type.open_ensure:
            from mainstay.converge.other_tools import meant_ensure

            known_ensures = resource_type.ensures
            problem = f"{one_of(known_ensures)}, not {shorten(ensure)!r}{meant_ensure(ensure, known_ensures)}"
            self.faults.add((*path, "ensure"), f"{prefix}ensure: {problem}")
        if not resource.name:
            self.faults.add(path, f"{prefix}the name is empty", at_key=True)
        if resource.provider is not None and resource_type.composes:
            self.faults.add((*path, "provider"), f"{prefix}{resource.type} has no provider; remove `provider`")
        elif resource.provider is not None:
            known = self.source.provider_names(resource.type)
            if resource.provider not in known:
                close = did_you_mean(resource.provider, known)
                self.faults.add(
                    (*path, "provider"),
                    f"{prefix}provider: {one_of(known)}, not {shorten(resource.provider)!r}{close}",
                )

    def _read_structured(
        self, key: str, node: Node, path: DocumentPath, prefix: str, given: dict[str, Any], table: dict[str, Property]
    ) -> None:
        if key == "control":
            self._read_control(node, path, prefix, given)
        elif key == "health_checks":
            self.manifest.scope.tainted = NO_SECRET
            given["health_checks"] = self._read_health_checks(node, path, f"{prefix}health_checks: ")
            self._note_secret(key)
        elif key == "for_each":
            self.faults.add(
                path, f"{prefix}`for_each` repeats one resource; write it there, not in `defaults`", at_key=True
            )
        elif key == "subscribe":
            article = "an" if given["type"][0] in "aeiou" else "a"
            text = f"{prefix}{article} {given['type']} cannot be refreshed; remove `subscribe`"
            self.faults.add(path, text, at_key=True)
        elif key == "name":
            self.faults.add(
                path,
                f"{prefix}the name is the key before the colon; remove `name`, which is for a flat map",
                at_key=True,
            )
        else:
            self.faults.unknown_key(key, path, (*table, *STRUCTURED), prefix, of_type=given["type"])

    def _read_control(self, node: Node, path: DocumentPath, prefix: str, given: dict[str, Any]) -> None:
        if not isinstance(node, dict):
            self.faults.add(path, f"{prefix}control must be a map with `if` or `unless`, got {describe(node)}")
            return
        for key, written in node.items():
            place = (*path, key)
            child = written
            if key not in ("if", "unless"):
                self.faults.unknown_key(key, place, ("if", "unless"), f"{prefix}control: ")
                continue
            if isinstance(child, PlainScalar) and isinstance(child.value, bool):
                child = child.text.lower()
            if not isinstance(child, str):
                self.faults.add(place, f"{prefix}control.{key} must be an expression, got {describe(child)}")
                continue
            if "${" in child and self._refuse_foreign(child, place, f"{prefix}control.{key}: "):
                continue
            try:
                expression = _as_expression(child)
                expression.check()
            except BadExpression as error:
                self.faults.add(place, f"{prefix}control.{key}: {error}")
                continue
            inner = f"{prefix}control.{key}: "
            problems = self._check_in_run(place, inner).expression_problems(expression)
            self.values.add_problems(problems, place, inner)
            given[f"control_{key}"] = expression

    def _read_health_checks(self, node: Node, path: DocumentPath, prefix: str) -> tuple[HealthCheck, ...]:
        if not isinstance(node, list):
            self.faults.add(path, f"{prefix}expected a list, got {describe(node)}")
            return ()
        if self.check_kinds is None:
            self.check_kinds = self.source.health_check_kinds()
        kinds = self.check_kinds
        checks = []
        for index, item in enumerate(node):
            place = (*path, index)
            if not isinstance(item, dict):
                self.faults.add(place, f"{prefix}each check is a map with {_choice(kinds)}, got {describe(item)}")
                continue
            check = self._read_health_check(item, place, prefix, f"health check {index + 1}", kinds)
            if check is not None:
                checks.append(check)
        return tuple(checks)

    def _read_health_check(
        self,
        item: dict[str, Node],
        path: DocumentPath,
        prefix: str,
        private_name: str,
        kinds: Mapping[str, HealthCheckKind],
    ) -> HealthCheck | None:
        before = self.faults.seen
        found = [kind for name, kind in kinds.items() if name in item]
        own = {name: entry for kind in found or kinds.values() for name, entry in kind.properties.items()}
        values = self._read_check_values(item, {**own, **HEALTH_CHECK}, path, prefix, _choice(kinds))
        if self.faults.seen == before and (len(found) != 1 or values.get(found[0].name) is None):
            problem = "a check needs" if len(found) <= 1 else "a check has one of"
            self.faults.add(path, f"{prefix}{problem} {_choice(kinds)}")
        if self.faults.seen > before:
            return None
        main = values[found[0].name]
        shown = join_words(main) if isinstance(main, tuple) else to_text(main)
        self.holds_secret = self.holds_secret or any(own[name].secret for name in own if values.get(name) is not None)
        return HealthCheck(
            found[0],
            {name: values[name] for name in own if values.get(name) is not None},
            name=values.get("name") or (private_name if holds_secret(main) else shown),
            tries=values.get("tries") or 1,
            try_sleep_seconds=values.get("try_sleep") or 1.0,
            timeout_seconds=values.get("timeout"),
        )

    def _read_check_values(
        self, item: dict[str, Node], table: Mapping[str, Property], path: DocumentPath, prefix: str, choice: str
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        is_sensitive = self.values.private
        for key, node in item.items():
            place = (*path, key)
            if key.startswith("goss"):
                self.faults.add(place, f"{prefix}`{key}` is not supported; use {choice}", at_key=True)
            elif key not in table:
                self.faults.unknown_key(key, place, table, prefix)
            else:
                entry, inner = table[key], f"{prefix}{key}: "
                self.values.private = is_sensitive or entry.secret
                value = self.values.typed(entry.kind, node, place, inner, self.manifest.scope)
                values[key] = self._accept(entry, value, place, inner)
        self.values.private = is_sensitive
        return values

    # ---- identity and references ----
    def register(self, resource: Resource, path: DocumentPath) -> None:
        seen = self.seen
        index = len(self.manifest.resources)
        if resource.id in seen and resource.name:
            self.faults.add(path, f"{_prefix(resource.id)}{self._declared_twice(resource)}", at_key=True)
        seen[resource.id] = index
        if resource.alias is not None:
            alias = f"{resource.type}#{resource.alias}"
            if alias in seen and alias != resource.id:
                taken = f"alias {shorten(resource.alias)!r} is taken; it names the resource on {self._line_of(seen[alias])}"
                self.faults.add((*path, "alias"), _prefix(resource.id) + taken)
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
        for reference, path, prefix, number in self.results:
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

    def check_edited_files(self) -> None:
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
                    f"{_prefix(resource.id)}{shorten(path, LONGEST_SHOWN_IDENTITY)} gets its content from"
                    f" {_shown(setting[path])}; put the line there, or remove content and source of that resource"
                )
                if resource.declared_in is None or resource.declared_in is self.manifest:
                    self.faults.add(resource.place, message, at_key=True)
                elif self.composition is not None:
                    self.composition.add_fault_of(resource, message)

    def _reference_problem(self, reference: str, number: int | None) -> str | None:
        """`number` is that of the resource that refers; None is after all resources."""
        if "${" in reference:
            from mainstay.converge.manifest.foreign_syntax import PROBLEM, has_foreign_expression

            if has_foreign_expression(reference):
                return PROBLEM
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


def _may_be_sensitive(properties: dict[str, Node]) -> bool:
    """True also for a template or a mistyped value: a fault must not show what was meant to be hidden."""
    if "sensitive" not in properties:
        return False
    node = properties["sensitive"]
    return not isinstance(node, PlainScalar) or node.value not in (False, None)


def _prefix(identity: str) -> str:
    """The beginning of a fault of a resource."""
    return f"{shorten(identity, LONGEST_SHOWN_IDENTITY)}: "


def _shown(resource: Resource) -> str:
    return shorten(resource.id, LONGEST_SHOWN_IDENTITY)


def _read_or_none(kind: ValueKind, text: str) -> Any:
    """None also for an unfit text: the general path then reports why."""
    try:
        return kind.read(text)
    except Unfit:
        return None


def _bare_name(item: Node) -> Node:
    """Converts a name without a colon to a resource without properties."""
    if isinstance(item, PlainScalar):
        return {item.text: PlainScalar("")}
    return {item: PlainScalar("")} if isinstance(item, str) else item


def _as_expression(text: str) -> Expression:
    """Parses an expression with or without its braces."""
    stripped = text.strip()
    if not stripped.startswith("{{"):
        return Expression(stripped)
    parts = split(stripped)
    if len(parts) != 1 or not isinstance(parts[0], Expression):
        raise BadExpression(f"expected one expression, got {shorten(text)!r}")
    return parts[0]

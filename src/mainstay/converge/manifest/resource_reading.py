"""Reads one resource of a manifest: its name and its properties, each as its kind, checked by its type."""

from __future__ import annotations

from mainstay.converge.command_words import WORDS, join_words
from mainstay.converge.contract import NO_SECRET, PRIVATE_VALUE, HealthCheck, Property
from mainstay.converge.manifest.expressions import Expression, Template, split
from mainstay.converge.manifest.scope import BadExpression, holds_secret
from mainstay.converge.manifest.values import ValueReader, check_shape, holds_template
from mainstay.converge.redaction import clean_of
from mainstay.converge.value_kinds import (
    BOOLEAN,
    DURATION_SECONDS,
    TEXT,
    TEXTS,
    TRIES,
    Unfit,
    as_plain,
    as_secret,
    describe,
    to_text,
)
from mainstay.foundation import Struct
from mainstay.foundation.suggestions import did_you_mean, one_of
from mainstay.foundation.text import REDACTED, shorten
from mainstay.foundation.yaml.scalars import Node, PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any, TypeAlias

    from mainstay.converge.contract import HealthCheckKind, Resource, ResourceType
    from mainstay.converge.manifest import Manifest, Source
    from mainstay.converge.manifest.faults import Faults
    from mainstay.converge.manifest.static_checks import StaticCheck
    from mainstay.converge.value_kinds import ValueKind
    from mainstay.foundation.faults import DocumentPath

# A type, its properties, and the kinds of those properties that take a constant text unchanged.
Known: TypeAlias = "tuple[ResourceType, dict[str, Property], dict[str, ValueKind]]"
# The `defaults` of a list of resources, and their path, which is empty without them.
Defaults: TypeAlias = "tuple[dict[str, Node], DocumentPath]"
LONGEST_SHOWN_IDENTITY = 200
# Every report shows these, also of sensitive resources.
SHOWN_PROPERTIES = frozenset(("alias", "ensure", "provider", "require", "subscribe", "tags"))

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
# Properties of every health check; those of a kind are in its file.
HEALTH_CHECK: dict[str, Property] = {
    "name": Property(TEXT, "name of the check; default: the value of its kind"),
    "tries": Property(TRIES, "number of tries; default 1"),
    "try_sleep": Property(DURATION_SECONDS, "pause between two tries; default `1s`"),
    "timeout": Property(DURATION_SECONDS, "time limit of one try"),
}
STRUCTURED = {
    "for_each": "repeats the resource for each item of a list or a map; templates read `each.key` and `each.value`",
    "control": "`if` and `unless`: expressions, evaluated when the resource is reached, that decide whether it is managed",
    "health_checks": "checks that must succeed when the resource is in its desired state",
}


class ReadingContext(Struct):
    """What the resources of one manifest share while they are read."""

    manifest: Manifest
    faults: Faults
    source: Source
    # The templates of a resource while it is repeated, because all items share them.
    templates: dict[str, Template] | None = None
    # Attributes of every resource of a manifest that another one applies.
    inherited: dict[str, Any] = {}
    inherited_tags: tuple[str, ...] = ()
    is_sensitive: bool = False
    # Whether the manifest may never be applied, because of a `control` around it.
    is_entry_conditional: bool = False
    # References of `result('type#name')`: (reference, place, prefix of a fault, number of the resource or None).
    results: list[tuple[str, DocumentPath, str, int | None]] = []
    # Loaded with the first health check.
    _check_kinds: Mapping[str, HealthCheckKind] | None = None

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

    def static_check(
        self, path: DocumentPath, prefix: str, number: int | None = None, *, is_conditional: bool = False
    ) -> StaticCheck:
        """The check of expressions that are evaluated when a resource is reached; without its number, after all."""
        from mainstay.converge.manifest.static_checks import StaticCheck

        return StaticCheck(
            self.manifest.scope,
            note_result=lambda reference: self.results.append((reference, path, prefix, number)),
            is_conditional=is_conditional,
        )

    def health_check_kinds(self) -> Mapping[str, HealthCheckKind]:
        if self._check_kinds is None:
            self._check_kinds = self.source.health_check_kinds()
        return self._check_kinds


class ResourceReading:
    """One resource while it is read: what its entry gives, what of this is secret, and whether it has faults."""

    # Whether the name has no fault, so that references can mean the resource.
    has_name = True
    # Whether the manifest declares the resource sensitive, so that resources of a manifest that it applies are, too.
    is_sensitive = False
    # Whether a health check has a value that is always hidden.
    has_secret_check = False
    # Properties that come from secrets, with the kind of secret.
    _secrets: Mapping[str, int] = {}

    def __init__(
        self,
        context: ReadingContext,
        known: Known,
        properties: dict[str, Node],
        path: DocumentPath,
        defaults: Defaults,
    ) -> None:
        self.context = context
        self.faults = context.faults
        self.scope = context.manifest.scope
        self.type, self.table, self._plain = known
        self._properties = properties
        self._path = path
        default_nodes, self._defaults_path = defaults
        self._nodes = {**default_nodes, **properties} if default_nodes else properties
        self._faults_before = context.faults.seen

    @property
    def has_faults(self) -> bool:
        return self.faults.seen != self._faults_before

    @property
    def declares_sensitive(self) -> bool:
        """Whether the resource, or one around it, is declared sensitive; a secret among its values is not enough."""
        return self.context.is_sensitive or may_be_sensitive(self._nodes)

    def read(self, name: str) -> Resource:
        template, resource_type = "", self.type
        if "{{" in name or "${" in name:
            template, name = name, self._read_name(name)
        # The attributes of the resource, as far as they are read.
        self.given: dict[str, Any] = {
            "type": resource_type.name,
            "name": name,
            "id": f"{resource_type.name}#{name}",
            "place": self._path,
        }
        if self.scope.each is not None:
            self.given["each"] = self.scope.each
        if self.context.inherited:
            self.given.update(self.context.inherited)
        self._read_properties()
        if self._secrets or self.has_secret_check or "sensitive" in self.given or self.context.inherited:
            self._add_tags_and_secrecy()
        resource = resource_type.resource(self.given)
        if "{{" in template and resource_type.name_property is not None and not self.has_faults:
            self._split_name(resource, resource_type.name_property, template)
        if self.given.get("ensure") not in resource_type.ensures or not name or "provider" in self.given:
            self._check_ensure(resource)
        self._check(resource)
        return resource

    def _read_name(self, name: str) -> str:
        self.faults.refuse_foreign(name, self._path, f"{self.type.name}#{shorten(name)}: name: ", at_key=True)
        rendered = self._render_name(name) if "{{" in name else name
        self.has_name = not self.has_faults
        return rendered

    def _render_name(self, name: str) -> str:
        prefix = f"{self.type.name}#{shorten(name)}: "
        self.scope.tainted = NO_SECRET
        before = self.faults.seen
        values = ValueReader(self.faults, templates=self.context.templates)
        value = values.rendered(name, self._path, f"{prefix}name: ", self.scope, at_key=True)
        if self.scope.tainted > PRIVATE_VALUE:
            self.faults.add(
                self._path, f"{prefix}a name is shown in every report; it must not contain a secret", at_key=True
            )
        return name if self.faults.seen > before else str.__str__(to_text(value))

    def _read_properties(self) -> None:
        given, plain = self.given, self._plain
        for key, node in self._nodes.items():
            # A short path for constant text: nothing to render, and seldom a fault.
            kind = plain.get(key)
            if kind is not None and node.__class__ is str and "{{" not in node:
                value = node if kind is TEXT else _read_or_none(kind, node)
                if value is not None:
                    given[key] = value
                    continue
            where = self._place(key)
            if key in self.table:
                self._read_property(key, self.table[key], node, where)
            else:
                self._read_structured(key, node, where)

    def _read_property(self, key: str, entry: Property, node: Node, path: DocumentPath) -> None:
        attribute, prefix = entry.alias_of or key, self._prefix_at(path)
        if key != attribute and attribute in self._nodes:
            second = max(key, attribute, key=list(self._nodes).index)
            message = f"{prefix}{key} and {attribute} are the same property; keep {attribute}"
            self.faults.add(self._place(second), message, at_key=True)
        hidden = entry.is_hidden(sensitive=self.declares_sensitive) or entry.hidden_parts is not None
        self.scope.tainted = NO_SECRET
        if entry.deferred and holds_template(node):
            tree = self._defer(entry, node, path, f"{prefix}{key}: ", self.values(private=hidden))
            self.given["deferred"] = {**self.given.get("deferred", {}), attribute: tree}
            return
        value = self.read_value(entry, node, path, f"{prefix}{key}: ", self.values(private=hidden))
        if key in SHOWN_PROPERTIES:
            if self.scope.tainted > PRIVATE_VALUE:
                self.faults.add(path, f"{prefix}{key}: is shown in every report; it must not contain a secret")
                return
            # Its author may show a private value.
            self.scope.tainted = NO_SECRET
            value = as_plain(value)
        self._note_secret(attribute)
        if value is not None:
            self.given[attribute] = value

    def values(self, *, private: bool) -> ValueReader:
        """The reader of one value; a private one must stay hidden, in faults too."""
        return ValueReader(self.faults, private, self.declares_sensitive, self.context.templates)

    def read_value(self, entry: Property, node: Node, path: DocumentPath, prefix: str, values: ValueReader) -> Any:
        value = values.typed(entry.kind, node, path, prefix, self.scope)
        if value is not None and entry.choices and value not in entry.choices:
            hidden = self.scope.tainted or values.private
            close = "" if hidden else did_you_mean(str(value), entry.choices)
            got = REDACTED if hidden else repr(shorten(str(value)))
            self.faults.add(path, f"{prefix}{one_of(entry.choices)}, not {got}{close}")
        return as_secret(value) if entry.secret else value

    def _defer(self, entry: Property, node: Node, path: DocumentPath, prefix: str, values: ValueReader) -> Any:
        """Returns a value whose templates are rendered when the resource is reached."""
        try:
            check_shape(entry.kind, node)
        except Unfit as error:
            self.faults.add((*path, *error.where), f"{prefix}{values.unfit(entry.kind, error)}")
        return values.tree(node, path, prefix, self.check_in_run(path, prefix))

    def _note_secret(self, key: str) -> None:
        if self.scope.tainted:
            self._secrets = {**self._secrets, key: self.scope.tainted}

    def _add_tags_and_secrecy(self) -> None:
        given, context = self.given, self.context
        if context.inherited_tags:
            given["tags"] = tuple(dict.fromkeys((*given.get("tags", ()), *context.inherited_tags)))
        # Only what the manifest says holds for the resources of a child, not what follows from a secret in its data.
        self.is_sensitive = context.is_sensitive or bool(given.get("sensitive"))
        if self._secrets or self.has_secret_check or self.is_sensitive:
            given["sensitive"] = True
        if self._secrets:
            given["secrets"] = self._secrets

    def _split_name(self, resource: Resource, key: str, template: str) -> None:
        """Splits the template of a name that is a command: the rendered name would be split inside values."""
        if key in (resource.deferred or {}) or key in resource.__dict__:
            return
        resource.name_template = template
        if not self.type.splits_commands(resource):
            return
        values = ValueReader(self.faults, templates=self.context.templates)
        words = values.typed(WORDS, template, self._path, f"{prefix_of(resource.id)}{key}: ", self.scope)
        if words is not None:
            setattr(resource, key, words)

    # ---- checks ----
    def _check_ensure(self, resource: Resource) -> None:
        prefix, resource_type = prefix_of(resource.id), self.type
        ensure = self.given.get("ensure")
        if ensure is None:
            if resource_type.ensure_required:
                problem = f"{prefix}ensure is required; it {one_of(resource_type.ensures)}"
                self.faults.add(self._path, problem, at_key=True)
        elif ensure not in resource_type.ensures and not resource_type.open_ensure:
            from mainstay.converge.migration_hints import meant_ensure

            known_ensures = resource_type.ensures
            problem = f"{one_of(known_ensures)}, not {shorten(ensure)!r}{meant_ensure(ensure, known_ensures)}"
            self.faults.add((*self._path, "ensure"), f"{prefix}ensure: {problem}")
        if not resource.name:
            self.faults.add(self._path, f"{prefix}the name is empty", at_key=True)
        if resource.provider is not None:
            self._check_provider(resource, resource.provider, prefix)

    def _check_provider(self, resource: Resource, provider: str, prefix: str) -> None:
        place = (*self._path, "provider")
        if self.type.composes:
            self.faults.add(place, f"{prefix}{resource.type} has no provider; remove `provider`")
            return
        known = self.context.source.provider_names(resource.type)
        if provider not in known:
            close = did_you_mean(provider, known)
            self.faults.add(place, f"{prefix}provider: {one_of(known)}, not {shorten(provider)!r}{close}")

    def _check(self, resource: Resource) -> None:
        """Reports what the type finds wrong."""
        unfit = self._unfit_keys() if self.faults.seen != self._faults_before else ()
        if "sensitive" in unfit:
            # The manifest is refused anyway, and its faults must not show what was meant to be hidden.
            resource.sensitive = True
        for message in self.type.check_name(resource.name):
            self._add_problem(resource, None, message, unfit)
        for wrong, message in self.type.check(resource):
            self._add_problem(resource, wrong, message, unfit)

    def _add_problem(self, resource: Resource, key: str | None, message: str, unfit: Collection[str]) -> None:
        if key is None and not self.has_name:
            return
        # A fault that follows from a reported fault would only distract.
        if key in unfit or any(each in message for each in unfit):
            return
        text = clean_of(resource, self.table, message)
        self.faults.add(self._place(key), prefix_of(resource.id) + text, at_key=key is None)

    def _unfit_keys(self) -> set[str]:
        """Properties that have a fault; the type sees them as not given."""
        found, path = self.faults.found, self._path
        return {
            str(place[len(above)])
            for place, _, _ in found
            for above in (path, self._defaults_path)
            if above and place[: len(above)] == above and len(place) > len(above)
        } | {"ensure" for place, _, message in found if place == path and "ensure is required" in message}

    def check_in_run(self, path: DocumentPath, prefix: str) -> StaticCheck:
        """The check of expressions that are evaluated when the resource is reached."""
        is_conditional = "control" in self._nodes or self.context.is_entry_conditional
        number = len(self.context.manifest.resources)
        return self.context.static_check(path, prefix, number, is_conditional=is_conditional)

    # ---- places ----
    def _place(self, key: str | None) -> DocumentPath:
        if key is None:
            return self._path
        in_defaults = key not in self._properties and self._defaults_path
        return (*self._defaults_path, key) if in_defaults else (*self._path, key)

    def _prefix_at(self, where: DocumentPath) -> str:
        """Names the resource, or `defaults`, whose faults are reported once and not for each resource."""
        is_own = where[: len(self._path)] == self._path
        return prefix_of(self.given["id"]) if is_own else f"{self.type.name}: defaults: "

    # ---- other keys than properties ----
    def _read_structured(self, key: str, node: Node, path: DocumentPath) -> None:
        prefix, type_name = self._prefix_at(path), self.type.name
        if key == "control":
            _read_control(self, node, path, prefix)
        elif key == "health_checks":
            self.scope.tainted = NO_SECRET
            self.given[key] = _read_health_checks(self, node, path, f"{prefix}health_checks: ")
            self._note_secret(key)
        elif key == "for_each":
            problem = f"{prefix}`for_each` repeats one resource; write it there, not in `defaults`"
            self.faults.add(path, problem, at_key=True)
        elif key == "subscribe":
            article = "an" if type_name[0] in "aeiou" else "a"
            problem = f"{prefix}{article} {type_name} cannot be refreshed; remove `subscribe`"
            self.faults.add(path, problem, at_key=True)
        elif key == "name":
            problem = f"{prefix}the name is the key before the colon; remove `name`, which is for a flat map"
            self.faults.add(path, problem, at_key=True)
        else:
            self.faults.unknown_key(key, path, (*self.table, *STRUCTURED), prefix, of_type=type_name)


def may_be_sensitive(properties: dict[str, Node]) -> bool:
    """True also for a template or a mistyped value: a fault must not show what was meant to be hidden."""
    if "sensitive" not in properties:
        return False
    node = properties["sensitive"]
    return not isinstance(node, PlainScalar) or node.value not in (False, None)


def prefix_of(identity: str) -> str:
    """The beginning of a fault of a resource."""
    return f"{shorten(identity, LONGEST_SHOWN_IDENTITY)}: "


def _read_or_none(kind: ValueKind, text: str) -> Any:
    """None also for an unfit text: the general path then reports why."""
    try:
        return kind.read(text)
    except Unfit:
        return None


# ---- control ----
def _read_control(reading: ResourceReading, node: Node, path: DocumentPath, prefix: str) -> None:
    if not isinstance(node, dict):
        reading.faults.add(path, f"{prefix}control must be a map with `if` or `unless`, got {describe(node)}")
        return
    for key, child in node.items():
        place = (*path, key)
        if key not in ("if", "unless"):
            reading.faults.unknown_key(key, place, ("if", "unless"), f"{prefix}control: ")
            continue
        expression = _read_condition(reading, child, place, f"{prefix}control.{key}")
        if expression is not None:
            reading.given[f"control_{key}"] = expression


def _read_condition(reading: ResourceReading, node: Node, path: DocumentPath, name: str) -> Expression | None:
    if isinstance(node, PlainScalar) and isinstance(node.value, bool):
        node = node.text.lower()
    if not isinstance(node, str):
        reading.faults.add(path, f"{name} must be an expression, got {describe(node)}")
        return None
    if reading.faults.refuse_foreign(node, path, f"{name}: "):
        return None
    try:
        expression = _as_expression(node)
        expression.check()
    except BadExpression as error:
        reading.faults.add(path, f"{name}: {error}")
        return None
    problems = reading.check_in_run(path, f"{name}: ").expression_problems(expression)
    reading.values(private=reading.declares_sensitive).add_problems(problems, path, f"{name}: ")
    return expression


def _as_expression(text: str) -> Expression:
    """Parses an expression with or without its braces."""
    stripped = text.strip()
    if not stripped.startswith("{{"):
        return Expression(stripped)
    parts = split(stripped)
    if len(parts) != 1 or not isinstance(parts[0], Expression):
        raise BadExpression(f"expected one expression, got {shorten(text)!r}")
    return parts[0]


# ---- health checks ----
def _read_health_checks(
    reading: ResourceReading, node: Node, path: DocumentPath, prefix: str
) -> tuple[HealthCheck, ...]:
    if not isinstance(node, list):
        reading.faults.add(path, f"{prefix}expected a list, got {describe(node)}")
        return ()
    checks = []
    for index, item in enumerate(node):
        place = (*path, index)
        if not isinstance(item, dict):
            kinds = _choice(reading.context.health_check_kinds())
            reading.faults.add(place, f"{prefix}each check is a map with {kinds}, got {describe(item)}")
            continue
        check = _read_health_check(reading, item, place, prefix, f"health check {index + 1}")
        if check is not None:
            checks.append(check)
    return tuple(checks)


def _read_health_check(
    reading: ResourceReading, item: dict[str, Node], path: DocumentPath, prefix: str, private_name: str
) -> HealthCheck | None:
    faults, kinds = reading.faults, reading.context.health_check_kinds()
    before = faults.seen
    found = [kind for name, kind in kinds.items() if name in item]
    own = {name: entry for kind in found or kinds.values() for name, entry in kind.properties.items()}
    values = _read_check_values(reading, item, {**own, **HEALTH_CHECK}, path, prefix, _choice(kinds))
    if faults.seen == before and (len(found) != 1 or values.get(found[0].name) is None):
        problem = "a check needs" if len(found) <= 1 else "a check has one of"
        faults.add(path, f"{prefix}{problem} {_choice(kinds)}")
    if faults.seen > before:
        return None
    main = values[found[0].name]
    shown = join_words(main) if isinstance(main, tuple) else to_text(main)
    given = {name: values[name] for name in own if values.get(name) is not None}
    reading.has_secret_check = reading.has_secret_check or any(own[name].secret for name in given)
    return HealthCheck(
        found[0],
        given,
        name=values.get("name") or (private_name if holds_secret(main) else shown),
        tries=values.get("tries") or 1,
        try_sleep_seconds=values.get("try_sleep") or 1.0,
        timeout_seconds=values.get("timeout"),
    )


def _read_check_values(
    reading: ResourceReading,
    item: dict[str, Node],
    table: Mapping[str, Property],
    path: DocumentPath,
    prefix: str,
    choice: str,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, node in item.items():
        place = (*path, key)
        if key.startswith("goss"):
            reading.faults.add(place, f"{prefix}`{key}` is not supported; use {choice}", at_key=True)
        elif key not in table:
            reading.faults.unknown_key(key, place, table, prefix)
        else:
            values = reading.values(private=reading.declares_sensitive or table[key].secret)
            found[key] = reading.read_value(table[key], node, place, f"{prefix}{key}: ", values)
    return found


def _choice(kinds: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in kinds)

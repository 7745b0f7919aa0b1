"""Parses a schema document into a `PropertySchema`, or refuses it with all faults and their paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mainstay.control.domain.definition_hints import instead_of, written_as
from mainstay.control.domain.faults import MAX_LISTED, PathFault, locate
from mainstay.control.domain.properties import deprecated_keys
from mainstay.control.domain.properties.compile import faults_of_default
from mainstay.control.domain.properties.contract import (
    Actor,
    Check,
    Config,
    Generate,
    NamedRule,
    Permission,
    Placement,
    PropertyType,
    Purpose,
    Rulebook,
    SecretKind,
)
from mainstay.control.domain.properties.declaration import NamedProperties, PropertyDeclaration
from mainstay.control.domain.properties.rules.authorizers.actor import permit
from mainstay.control.domain.properties.schema import FREE_FORM, PropertyComparison, PropertySchema
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.domain.values import Properties, json_problem, shown, type_name
from mainstay.foundation.suggestions import did_you_mean

# Parsing is recursive, and Python's own limit depends on the depth of the caller.
MAX_SCHEMA_DEPTH = 32
MAX_DEFINITIONS = 10_000

TYPES = frozenset(PropertyType)
KEYS = frozenset(
    {
        "type",
        "label",
        "required",
        "default",
        "immutable",
        "authorizers",
        "secret",
        "generator",
        "validators",
        "properties",
        "items",
    }
)
SECRET_TYPES = frozenset(
    {PropertyType.STRING, PropertyType.INTEGER, PropertyType.NUMBER, PropertyType.BOOLEAN, PropertyType.JSON}
)
KEYS_OF_RULES = {"validator": "validators", "authorizer": "authorizers", "generator": "generator"}
SHORTHANDS = ("value", "values", "pattern")
RANGES = (("min", "max"), ("minLength", "maxLength"), ("minItems", "maxItems"))
UNSET_TYPE = PropertyType.JSON


def parse_property_schema(
    document: object,
    rulebook: Rulebook,
    *,
    purpose: Purpose = Purpose.SERVICE,
    states: frozenset[str] | None = None,
) -> PropertySchema:
    """`states` are those of the lifecycle. None: the states in authorizers are not checked."""
    if document is None:
        return FREE_FORM
    problem = json_problem(document)
    if problem is not None:
        raise InvalidDefinition([PathFault("", f"expected object, got {problem}")])
    if not isinstance(document, dict):
        raise InvalidDefinition([PathFault("", f"expected object, got {type_name(document)}")])
    reader = _Reader(rulebook, purpose, states)
    schema = reader.read_schema(document)
    if reader.faults:
        raise InvalidDefinition(reader.faults)
    return schema


def _is_wrapped(document: Mapping[str, object]) -> bool:
    """`{properties, validators}` instead of a flat map. A property may itself be named `properties`."""
    keys = {key for key, value in document.items() if value is not None}
    inner = document.get("properties")
    if not keys <= {"properties", "validators"}:
        return False
    return inner is None or (isinstance(inner, dict) and not isinstance(inner.get("type"), str))


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a definition: its path in the schema and in documents, its depth, and what it inherits."""

    definition_path: str
    schema_path: str
    name: str
    depth: int
    inherited: tuple[Actor, ...]
    in_items: bool


@dataclass(slots=True)
class _Rules:
    """Collects the validators of one property."""

    typed: bool
    checks: list[Check] = field(default_factory=list)
    keywords: Properties = field(default_factory=dict)
    limits: dict[str, tuple[object, str]] = field(default_factory=dict)
    refers: bool = False
    written: list[NamedRule] = field(default_factory=list)


class _Generation(NamedTuple):
    """The generator of a property. None: there is none, and a generator without pools has no pool type."""

    generate: Generate | None = None
    written: NamedRule | None = None
    pool_type: str | None = None


NOT_GENERATED = _Generation()


class _Reader:
    def __init__(self, rulebook: Rulebook, purpose: Purpose, states: frozenset[str] | None) -> None:
        self.rulebook = rulebook
        self.purpose = purpose
        self.states = states
        self.faults: list[PathFault] = []
        self.definitions = 0

    def fault(self, path: str, message: str) -> None:
        self.faults.append(PathFault(path, message))

    def suggest(self, word: str, known: Iterable[str]) -> str:
        """What is meant, for the faults that are listed: a schema may have hundreds of thousands."""
        if len(self.faults) >= MAX_LISTED:
            return ""
        return did_you_mean(word, known) or f"; there are {', '.join(sorted(known))}"

    def read_schema(self, document: Properties) -> PropertySchema:
        root = _Place("", "", "", 0, (Actor.USER,), in_items=False)
        if not _is_wrapped(document):
            return PropertySchema(document, self.read_members(document, root))
        inner = document.get("properties")
        members = self.read_members(
            inner if isinstance(inner, dict) else {}, replace(root, definition_path="properties")
        )
        return PropertySchema(document, members, self.read_comparisons(document.get("validators"), members))

    def read_members(self, document: Properties, outer: _Place) -> tuple[PropertyDeclaration, ...]:
        """`outer` is the place of the object that contains the members."""
        members = []
        for name, definition in document.items():
            if definition is None:
                continue
            self.definitions += 1
            if self.definitions > MAX_DEFINITIONS:
                self.fault(outer.definition_path, f"the schema has more than {MAX_DEFINITIONS} definitions")
                break
            place = replace(
                outer,
                definition_path=locate(outer.definition_path, name),
                schema_path=locate(outer.schema_path, name),
                name=name,
                depth=outer.depth + 1,
            )
            members.append(self.read_property(definition, place))
        return tuple(member for member in members if member is not None)

    def read_property(self, document: object, place: _Place) -> PropertyDeclaration | None:
        path = place.definition_path
        if not isinstance(document, dict):
            hint = f"; write `{place.name or 'items'}: {{type: {document}}}`" if document in TYPES else ""
            self.fault(path, f"expected object, got {type_name(document)}{hint}")
            return None
        if place.depth > MAX_SCHEMA_DEPTH:
            self.fault(path, f"definitions are nested deeper than {MAX_SCHEMA_DEPTH} levels")
            return None
        before = len(self.faults)
        definition = {key: value for key, value in document.items() if value is not None}
        for key in definition:
            if key not in KEYS and key not in deprecated_keys.KEYS:
                listed = len(self.faults) < MAX_LISTED
                hint = instead_of(key, KEYS, self.rulebook.validators) if listed else ""
                self.fault(locate(path, key), f"unknown key{hint}")
        declared_type = self.read_type(definition, path)
        secret = self.read_secret(definition, declared_type, path)
        rules = self.read_validators(definition, Placement(declared_type, secret=secret is not None), path)
        permissions = self.read_permissions(definition, path)
        made = self.read_generator(definition, Placement(declared_type, secret=secret is not None), place)
        explicit = _explicit_actors(permissions)
        inherited = place.inherited if explicit is None else explicit
        members = self.read_nested(definition, declared_type, place, inherited)
        items = self.read_items(definition, declared_type, place, inherited)
        actors, effective = _effective_permissions(permissions, explicit, place.inherited, members)
        declared = PropertyDeclaration(
            name=place.name,
            schema_path=place.schema_path,
            definition_path=path,
            type=declared_type,
            refers=rules.refers or declared_type is PropertyType.REFERENCE,
            label=self.read_label(definition, path),
            required=self.read_flag(definition, "required", path),
            immutable=self.read_immutable(definition, path),
            default=definition.get("default"),
            permissions=permissions,
            actors=actors,
            authorizations=tuple(permission.authorize for permission in effective),
            secret=secret,
            generate=made.generate,
            generator=made.written,
            validators=tuple(rules.written),
            pool_type=made.pool_type,
            checks=tuple(rules.checks),
            keywords=rules.keywords,
            members=members,
            items=items,
        )
        if len(self.faults) == before and declared.default is not None:
            self.faults += faults_of_default(declared)
        return declared

    def read_type(self, definition: Properties, path: str) -> PropertyType:
        name = definition.get("type")
        if name is None:
            self.fault(locate(path, "type"), "type is required")
            return UNSET_TYPE
        if not isinstance(name, str) or name not in TYPES:
            self.fault(locate(path, "type"), f"unknown type '{shown(name)}'{self.suggest(str(name), TYPES)}")
            return UNSET_TYPE
        declared = PropertyType(name)
        if declared is PropertyType.REFERENCE and self.purpose is not Purpose.SERVICE:
            self.fault(locate(path, "type"), f"type reference cannot be used in an {self.purpose.value}")
        return declared

    def read_label(self, definition: Properties, path: str) -> str | None:
        label = definition.get("label")
        if label is not None and not isinstance(label, str):
            self.fault(locate(path, "label"), f"expected string, got {type_name(label)}")
            return None
        return label or None

    def read_flag(self, definition: Properties, key: str, path: str) -> bool:
        flag = definition.get(key, False)
        if type(flag) is not bool:
            self.fault(locate(path, key), f"expected boolean, got {type_name(flag)}{written_as(key)}")
            return False
        return flag

    def read_immutable(self, definition: Properties, path: str) -> bool:
        written = self.read_flag(definition, "immutable", path)
        return deprecated_keys.immutable(definition, path, self.faults, declared=written)

    def read_secret(self, definition: Properties, declared: PropertyType, path: str) -> SecretKind | None:
        config = definition.get("secret")
        if config is None:
            return None
        path = locate(path, "secret")
        if not isinstance(config, dict):
            self.fault(path, f"expected object, got {type_name(config)}{written_as('secret')}")
            return None
        for key in config:
            if key != "type":
                self.fault(locate(path, key), f"unknown key{written_as('secret')}")
        if declared not in SECRET_TYPES:
            self.fault(path, "only primitive types (string, integer, number, boolean, json) can be secrets")
        kind = config.get("type")
        if kind is None:
            self.fault(locate(path, "type"), "secret configuration must include 'type' field")
            return None
        if not isinstance(kind, str) or kind not in frozenset(SecretKind):
            self.fault(locate(path, "type"), "secret type must be 'persistent' or 'ephemeral'")
            return None
        return SecretKind(kind)

    def read_list(self, definition: Properties, key: str, path: str) -> list[tuple[str, object]]:
        """The entries of a list with their paths."""
        entries = definition.get(key)
        if entries is None:
            return []
        path = locate(path, key)
        if not isinstance(entries, list):
            self.fault(path, f"expected array, got {type_name(entries)}{written_as(key)}")
            return []
        return [(locate(path, index), entry) for index, entry in enumerate(entries)]

    def read_rule(self, entry: object, path: str, kind: str) -> tuple[str, Properties, str] | None:
        """The name, configuration and path of the configuration of `{type, config}` or of its shorthand."""
        if not isinstance(entry, dict):
            self.fault(path, f"expected object, got {type_name(entry)}{written_as(KEYS_OF_RULES[kind])}")
            return None
        written = {key: value for key, value in entry.items() if value is not None}
        name = written.pop("type", None)
        if not isinstance(name, str) or not name:
            self.fault(locate(path, "type"), f"{kind} must have a type{written_as(KEYS_OF_RULES[kind])}")
            return None
        short = {key: written.pop(key) for key in SHORTHANDS if key in written}
        config = written.pop("config", None)
        for key in written:
            self.fault(locate(path, key), f"unknown key{written_as(KEYS_OF_RULES[kind])}")
        if config is None:
            return name, short, path if short else locate(path, "config")
        if not isinstance(config, dict):
            self.fault(locate(path, "config"), f"expected object, got {type_name(config)}{written_as('config')}")
            return None
        for key in short:
            self.fault(locate(path, key), "contradicts config; write it once")
        return name, config, locate(path, "config")

    def read_validators(self, definition: Properties, placement: Placement, path: str) -> _Rules:
        name = definition.get("type")
        rules = _Rules(typed=isinstance(name, str) and name in TYPES)
        for entry_path, entry in self.read_list(definition, "validators", path):
            read = self.read_rule(entry, entry_path, "validator")
            if read is not None:
                self.read_validator(read, placement, entry_path, rules)
        for least, greatest in RANGES:
            if least in rules.limits and greatest in rules.limits:
                self.check_range(least, rules.limits[least], greatest, rules.limits[greatest][0])
        return rules

    def check_range(self, least: str, low: tuple[object, str], greatest: str, high: object) -> None:
        value, path = low
        if value > high:  # type: ignore[operator]
            self.fault(path, f"{least} {shown(value)} is greater than {greatest} {shown(high)}")

    def read_validator(
        self, read: tuple[str, Properties, str], placement: Placement, entry_path: str, rules: _Rules
    ) -> None:
        name, values, config_path = read
        rule = self.rulebook.validators.get(name)
        if rule is None:
            hint = self.suggest(name, self.rulebook.validators)
            self.fault(locate(entry_path, "type"), f"unknown validator '{name}'{hint}")
            return
        if rule.fits is not None and placement.type not in rule.fits:
            # For an unknown type this would be a second fault with the same cause.
            if rules.typed:
                self.fault(locate(entry_path, "type"), f"validator {name} does not fit type {placement.type}")
            return
        if rule.service_only and self.purpose is not Purpose.SERVICE:
            self.fault(locate(entry_path, "type"), f"validator {name} cannot be used in an {self.purpose.value}")
        before = len(self.faults)
        config = Config(name, values, config_path, self.faults)
        check = rule.compile(config, placement)
        config.fault_unread()
        if len(self.faults) > before:
            return
        rules.written.append(NamedRule(name, values))
        rules.refers = rules.refers or name == "serviceReference"
        rules.limits[name] = (values.get("value"), locate(config_path, "value"))
        if check is not None:
            rules.checks.append(check)
        if rule.keywords is not None:
            _add_keywords(rules.keywords, rule.keywords(values))

    def read_permissions(self, definition: Properties, path: str) -> tuple[Permission, ...]:
        permissions = []
        for entry_path, entry in self.read_list(definition, "authorizers", path):
            read = self.read_rule(entry, entry_path, "authorizer")
            permission = None if read is None else self.read_permission(read, entry_path)
            if permission is not None:
                permissions.append(permission)
        translated = deprecated_keys.permissions(definition, permissions, path, self.faults)
        for permission in translated:
            if permission.states is not None and self.purpose is not Purpose.SERVICE:
                self.fault(
                    locate(path, "updatable"), f"updatable 'statuses' cannot be used in an {self.purpose.value}"
                )
            self.check_states(permission, locate(path, "updatableIn"))
        return (*permissions, *translated)

    def read_permission(self, read: tuple[str, Properties, str], entry_path: str) -> Permission | None:
        name, values, config_path = read
        rule = self.rulebook.authorizers.get(name)
        if rule is None:
            hint = self.suggest(name, self.rulebook.authorizers)
            self.fault(locate(entry_path, "type"), f"unknown authorizer '{name}'{hint}")
            return None
        if rule.service_only and self.purpose is not Purpose.SERVICE:
            self.fault(locate(entry_path, "type"), f"authorizer {name} cannot be used in an {self.purpose.value}")
        config = Config(name, values, config_path, self.faults)
        permission = rule.compile(config)
        config.fault_unread()
        if permission is not None:
            self.check_states(permission, locate(config_path, "allowedStates"))
        return permission

    def check_states(self, permission: Permission, path: str) -> None:
        for index, state in enumerate(permission.states or ()):
            if self.states is not None and state not in self.states:
                hint = self.suggest(state, self.states)
                self.fault(locate(path, index), f"state '{state}' is not in the lifecycle{hint}")

    def read_generator(self, definition: Properties, placement: Placement, place: _Place) -> _Generation:
        path = place.definition_path
        written = deprecated_keys.generator(definition, path, self.faults)
        if written is None:
            return NOT_GENERATED
        entry, path = written
        if definition.get("servicePoolType") is not None and self.purpose is not Purpose.SERVICE:
            self.fault(path, f"servicePoolType cannot be used in an {self.purpose.value}; use generator pool")
        read = self.read_rule(entry, path, "generator")
        if read is None:
            return NOT_GENERATED
        name, values, config_path = read
        rule = self.rulebook.generators.get(name)
        if rule is None:
            hint = self.suggest(name, self.rulebook.generators)
            self.fault(locate(path, "type"), f"unknown generator '{name}'{hint}")
            return NOT_GENERATED
        if definition.get("default") is not None:
            self.fault(path, "default and generator exclude each other")
        if rule.fits is not None and placement.type not in rule.fits:
            self.fault(path, f"generator {name} does not fit type {placement.type}")
        if rule.service_only and self.purpose is not Purpose.SERVICE:
            self.fault(path, f"generator {name} cannot be used in an {self.purpose.value}")
        if rule.pool_type is not None and place.in_items:
            # The index of an item may change, so the owner of the value would be lost when the array is replaced.
            self.fault(path, f"generator {name} cannot be used in array items")
        before = len(self.faults)
        config = Config(name, values, config_path, self.faults)
        generate = rule.compile(config, placement)
        config.fault_unread()
        if len(self.faults) > before or generate is None:
            return NOT_GENERATED
        return _Generation(generate, NamedRule(name, values), rule.pool_type(values) if rule.pool_type else None)

    def read_nested(
        self, definition: Properties, declared: PropertyType, place: _Place, inherited: tuple[Actor, ...]
    ) -> tuple[PropertyDeclaration, ...] | None:
        nested = self.read_container(definition, "properties", declared, PropertyType.OBJECT, place)
        if nested is None:
            return None
        path = locate(place.definition_path, "properties")
        return self.read_members(nested, replace(place, definition_path=path, inherited=inherited))

    def read_items(
        self, definition: Properties, declared: PropertyType, place: _Place, inherited: tuple[Actor, ...]
    ) -> PropertyDeclaration | None:
        items = self.read_container(definition, "items", declared, PropertyType.ARRAY, place)
        if items is None:
            return None
        path = locate(place.definition_path, "items")
        inner = _Place(path, f"{place.schema_path}[]", "", place.depth + 1, inherited, in_items=True)
        return self.read_property(items, inner)

    def read_container(
        self, definition: Properties, key: str, declared: PropertyType, wanted: PropertyType, place: _Place
    ) -> Properties | None:
        inner = definition.get(key)
        if inner is None:
            return None
        path = locate(place.definition_path, key)
        if declared is not wanted:
            self.fault(path, f"{key} is only for type {wanted}")
            return None
        if not isinstance(inner, dict):
            self.fault(path, f"expected object, got {type_name(inner)}{written_as(key)}")
            return None
        return inner

    def read_comparisons(
        self, document: object, members: tuple[PropertyDeclaration, ...]
    ) -> tuple[PropertyComparison, ...]:
        scope = NamedProperties(members)
        comparisons = []
        for path, entry in self.read_list({"validators": document}, "validators", ""):
            read = self.read_rule(entry, path, "validator")
            if read is None:
                continue
            name, values, config_path = read
            rule = self.rulebook.schema_validators.get(name)
            if rule is None:
                hint = self.suggest(name, self.rulebook.schema_validators)
                self.fault(locate(path, "type"), f"unknown schema validator '{name}'{hint}")
                continue
            config = Config(name, values, config_path, self.faults)
            compare = rule.compile(config, scope)
            config.fault_unread()
            if compare is not None:
                comparisons.append(PropertyComparison(rule, values, compare))
        return tuple(comparisons)


def _explicit_actors(permissions: tuple[Permission, ...]) -> tuple[Actor, ...] | None:
    """The actors that pass every declared rule about actors. None: there is no such rule."""
    written = [permission.actors for permission in permissions if permission.actors is not None]
    if not written:
        return None
    return tuple(actor for actor in written[0] if all(actor in actors for actors in written))


def _effective_permissions(
    permissions: tuple[Permission, ...],
    explicit: tuple[Actor, ...] | None,
    inherited: tuple[Actor, ...],
    members: tuple[PropertyDeclaration, ...] | None,
) -> tuple[frozenset[Actor], tuple[Permission, ...]]:
    """Without a rule about actors a property has the actors of its enclosing object, and at the top level the user.
    An object also admits the actors of its members; their own rules then apply."""
    if explicit is not None:
        return frozenset(explicit), permissions
    allowed = set(inherited).union(*(member.actors for member in members or ()))
    actors = tuple(actor for actor in Actor if actor in allowed)
    return frozenset(actors), (permit(actors), *permissions)


def _add_keywords(keywords: Properties, more: Properties) -> None:
    """Two rules of one kind both apply, so the second goes to `allOf` instead of replacing the first."""
    if keywords.keys().isdisjoint(more):
        keywords.update(more)
    else:
        also = keywords.get("allOf")
        keywords["allOf"] = [*(also if isinstance(also, list) else []), more]

"""The kinds of plane files: one value per kind. Reading, comparing, requests, export and the JSON Schema derive from it.

Kinds of plain nouns derive from their declarations in `mainstay.nouns`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mainstay import nouns
from mainstay.foundation import Struct
from mainstay.nouns import (
    agent_types,
    config_pools,
    metric_types,
    participants,
    service_groups,
    service_option_types,
    service_options,
    service_pool_sets,
    service_pools,
)


class Form(Struct):
    """Values of an attribute: their name, their types, what messages call one, and its JSON Schema."""

    name: str
    types: tuple[type, ...]
    shown: str
    schema: Mapping[str, Any]


TEXT = Form("text", (str,), "a text", {"type": "string"})
BOOLEAN = Form("boolean", (bool,), "a boolean", {"type": "boolean"})
INTEGER = Form("integer", (int,), "an integer", {"type": "integer"})
TEXTS = Form("list of texts", (list,), "a list of texts", {"type": "array", "items": {"type": "string"}})
OBJECT = Form("object", (dict,), "a map", {"type": "object"})
PROPERTIES = Form("properties", (dict,), "a map", {"type": "object"})
VALUES = Form("values", (list,), "a list of values", {"type": "array"})
ANY = Form("any value", (object,), "any value", {})
# Forms of members that nouns declare; all others are texts.
FORM_OF_MEMBER = {
    nouns.BOOLEAN: BOOLEAN,
    nouns.INTEGER: INTEGER,
    nouns.IDS: TEXTS,
    nouns.TAGS: TEXTS,
    nouns.OBJECT: OBJECT,
    nouns.ANY: ANY,
}


class Attribute(Struct):
    """One attribute of a kind, and the member of the API that holds it."""

    form: Form
    member: str
    description: str
    # The kind whose names it contains.
    refers_to: str | None = None
    # Set at creation only.
    fixed: bool = False
    # At creation.
    required: bool = False
    # What the server sets at creation, left out of exports.
    default: object = None
    # The allowed texts; empty: any.
    choices: tuple[str, ...] = ()


class Kind(Struct):
    name: str
    noun: str
    collection: str
    description: str
    attributes: Mapping[str, Attribute]
    # The kinds of the names around an entry, outermost first.
    owners: tuple[str, ...] = ()
    # The members that hold the ids of the owners. None: the server sets it.
    owner_members: tuple[str | None, ...] = ()
    # The member that the last name is.
    key: str = "name"
    # Belongs to the whole server; only admins write it.
    is_global: bool = False
    # Created when another entry is below it.
    implied: bool = False

    def owner_paths(self, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(kind, path) of every owner in the path of an entry."""
        for depth, owner in enumerate(self.owners):
            inner = KINDS[owner].owners
            # An owner without owners of its own has one name: the option type between provider and option.
            yield owner, path[depth - len(inner) : depth + 1]


def _kinds(declared: tuple[Kind | nouns.Noun, ...]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for each in declared:
        kinds = (each,) if isinstance(each, Kind) else _kinds_of(each, found)
        found |= {kind.name: kind for kind in kinds}
    return found


def _kinds_of(noun: nouns.Noun, known: Mapping[str, Kind]) -> Iterator[Kind]:
    """The kinds of a noun. `known`: the kinds that it can refer to."""
    kind_at = {kind.collection: kind.name for kind in known.values()}
    for plane in noun.plane:
        owners = [known[owner].collection for owner in plane.owners]
        members = {each.refers_to: each.name for each in noun.all_members if each.refers_to in owners}
        attributes = {
            each.attribute: Attribute(
                FORM_OF_MEMBER.get(each.kind, TEXT),
                each.name,
                each.meaning,
                refers_to=kind_at.get(each.refers_to),
                fixed=each.fixed,
                required=each.required,
                default=each.default,
                choices=tuple(each.choices),
            )
            for each in noun.in_front_end(nouns.PLANE)
            if each.name not in (noun.key, *members.values())
        }
        if plane.values:
            attributes["values"] = Attribute(VALUES, "", plane.values)
        yield Kind(
            plane.name,
            plane.word or noun.word,
            noun.path,
            plane.description,
            attributes,
            owners=plane.owners,
            owner_members=tuple(members.get(owner) for owner in owners),
            key=noun.key,
            is_global=plane.is_global,
            implied=plane.implied,
        )


# In the order of their creation: an entry refers only to kinds before its own, and to orders before it.
KINDS: dict[str, Kind] = _kinds(
    (
        participants.NOUN,
        service_option_types.NOUN,
        metric_types.NOUN,
        Kind(
            "blueprints",
            "blueprint",
            "/blueprints",
            "current versions of blueprints, by name; a directory is pushed, never deleted",
            {
                "version": Attribute(TEXT, "version", "version that new services get"),
                "directory": Attribute(TEXT, "", "directory of the blueprint, relative to the file"),
            },
            is_global=True,
        ),
        Kind(
            "serviceTypes",
            "service type",
            "/service-types",
            "service types without a blueprint, by name",
            {
                "propertySchema": Attribute(OBJECT, "propertySchema", "properties of the services"),
                "lifecycleSchema": Attribute(OBJECT, "lifecycleSchema", "states and actions of the services"),
            },
            is_global=True,
        ),
        agent_types.NOUN,
        service_options.NOUN,
        service_pool_sets.NOUN,
        service_pools.NOUN,
        config_pools.NOUN,
        Kind(
            "agents",
            "agent",
            "/agents",
            "enrolled agents, by provider and name; changed, never created",
            {
                "tags": Attribute(TEXTS, "tags", "tags that orders select", default=[]),
                "poolSet": Attribute(TEXT, "servicePoolSetId", "pool set of its services", refers_to="poolSets"),
                "capacity": Attribute(INTEGER, "capacity", "most services that orders give it; null: unlimited"),
                "disabled": Attribute(BOOLEAN, "status", "whether it gets no orders and no jobs", default=False),
                "configuration": Attribute(PROPERTIES, "configuration", "its configuration"),
            },
            owners=("participants",),
        ),
        service_groups.NOUN,
        Kind(
            "orders",
            "order",
            "/services",
            "services, by customer, group and name",
            {
                "type": Attribute(
                    TEXT, "serviceTypeId", "service type", refers_to="serviceTypes", fixed=True, required=True
                ),
                "provider": Attribute(
                    TEXT, "providerId", "provider of the agent", refers_to="participants", fixed=True
                ),
                "agent": Attribute(TEXT, "agentId", "agent that runs the service", refers_to="agents", fixed=True),
                "tags": Attribute(TEXTS, "agentTags", "tags of the agent, for the creation"),
                "properties": Attribute(PROPERTIES, "properties", "properties that a user sets"),
            },
            owners=("participants", "groups"),
            owner_members=(None, "groupId"),
        ),
    )
)
# Members of every entry: which row it is, and its name if that is not the key.
ID, NAME = "id", "name"
GLOBAL_KINDS = frozenset(name for name, kind in KINDS.items() if kind.is_global)
# Of pools: the list of the values, and the member of a value that names its pool.
VALUE_COLLECTIONS = {
    "pools": ("/service-pool-values", "servicePoolId"),
    "configPools": ("/config-pool-values", "configPoolId"),
    "globalConfigPools": ("/config-pool-values", "configPoolId"),
}
NEVER_DELETED = frozenset({"participants", "blueprints"})

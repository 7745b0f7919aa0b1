"""Pools: values of which each is used by one service at a time."""

from __future__ import annotations

from mainstay.nouns import CHOICE, CLI, FORM, ID, NAME, OBJECT, PLANE, TAG, Member, Noun, PlaneKind

PROPERTY_TYPES = ("string", "integer", "number", "boolean", "json")


def pool_members(generators: dict[str, str], type_hint: str, *, only_lists: bool = False) -> tuple[Member, ...]:
    """What pools of services and pools of agents have in common."""
    made = {CLI: "`add` makes lists, `pools create` networks", PLANE: "follows from `subnet`"}
    return (
        Member(
            "name",
            NAME,
            "name of the pool",
            required=True,
            left_out={CLI: "the argument of `add` and `create`; a pool is renamed on its page"},
        ),
        Member("type", TAG, "poolType that generators use", hint=type_hint, required=True, fixed=True),
        Member(
            "propertyType",
            CHOICE,
            "type of the values",
            label="Values are",
            required=True,
            fixed=True,
            initial="string",
            choices={each: each for each in PROPERTY_TYPES},
            listed=False,
            left_out={CLI: "follows from the values"},
        ),
        Member(
            "generatorType",
            CHOICE,
            "what the values are made of",
            label="Made of",
            required=True,
            fixed=True,
            initial="list",
            choices=generators,
            listed=False,
            left_out=dict.fromkeys((CLI, PLANE, FORM), "config pools are lists") if only_lists else made,
        ),
    )


NOUN = Noun(
    "service_pool",
    "pool",
    "/service-pools",
    (
        *pool_members(
            {"list": "a list of values", "subnet": "the addresses of a network"},
            "Schemas name it: generator pool, poolType.",
        ),
        Member(
            "generatorConfig",
            OBJECT,
            "network of a subnet pool: cidr, excludeFirst, excludeLast",
            label="Configuration",
            hint="For a network: cidr, excludeFirst, excludeLast. JSON or YAML.",
            short="subnet",
        ),
        Member(
            "servicePoolSetId",
            ID,
            "pool set of the pool",
            label="Pool set",
            required=True,
            fixed=True,
            refers_to="/service-pool-sets",
            short="set",
        ),
    ),
    plane=(
        PlaneKind(
            "pools",
            "pools, by provider, pool set and name",
            owners=("participants", "poolSets"),
            values="values of a list pool; ranges such as 8100-8199 in a pool of integers",
        ),
    ),
)

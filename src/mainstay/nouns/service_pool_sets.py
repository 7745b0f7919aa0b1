"""Pool sets: the pools that an agent takes values from."""

from __future__ import annotations

from mainstay.nouns import CLI, NAME, Member, Noun, PlaneKind, owning_participant

NOUN = Noun(
    "service_pool_set",
    "pool set",
    "/service-pool-sets",
    (Member("name", NAME, "name of the set", required=True),),
    owner=owning_participant("providerId", "provider of the set", "provider"),
    plane=(PlaneKind("poolSets", "pool sets, by provider and name", owners=("participants",), implied=True),),
    left_out={CLI: "`pools add` and `pools create` make the set of an agent, with the name of the agent"},
)

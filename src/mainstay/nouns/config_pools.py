"""Config pools: values that agents get for their configuration. Those of no participant are global."""

from __future__ import annotations

from mainstay.nouns import CLI, FORM, ID, OBJECT, Member, Noun, PlaneKind
from mainstay.nouns.service_pools import pool_members

_VALUES = "values of the pool; ranges such as 8100-8199 in a pool of integers"
_ONLY_LISTS = "config pools are lists, which need none"

NOUN = Noun(
    "config_pool",
    "config pool",
    "/config-pools",
    (
        *pool_members({"list": "a list of values"}, "Schemas of agent types name it: poolType.", only_lists=True),
        Member(
            "generatorConfig",
            OBJECT,
            "configuration of the generator",
            listed=False,
            left_out={CLI: _ONLY_LISTS, FORM: _ONLY_LISTS},
        ),
    ),
    owner=Member(
        "participantId",
        ID,
        "owner of the pool",
        label="Owner",
        hint="None: global, for agents of granted providers and those that an admin adds.",
        fixed=True,
        refers_to="/participants",
        short="for",
    ),
    plane=(
        PlaneKind(
            "configPools",
            "config pools of participants, by owner and name",
            owners=("participants",),
            values=_VALUES,
        ),
        PlaneKind(
            "globalConfigPools",
            "config pools of all providers, by name",
            word="global config pool",
            is_global=True,
            values=_VALUES,
        ),
    ),
)

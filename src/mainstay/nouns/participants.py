"""Participants: the providers and consumers of services. A participant may be both."""

from __future__ import annotations

from mainstay.nouns import CHOICE, CLI, FORM, NAME, Member, Noun, PlaneKind

NOUN = Noun(
    "participant",
    "participant",
    "/participants",
    (
        Member("name", NAME, "name of the participant", required=True, argument="PARTICIPANT"),
        Member(
            "status",
            CHOICE,
            "whether its tokens work",
            default="Enabled",
            choices={"Enabled": "enabled", "Disabled": "disabled"},
            left_out={CLI: "the verbs enable and disable", FORM: "buttons of its page"},
        ),
    ),
    plane=(PlaneKind("participants", "customers and providers, by name; never deleted"),),
)

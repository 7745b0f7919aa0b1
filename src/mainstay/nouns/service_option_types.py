"""Types of service options, shared by all providers and written by admins."""

from __future__ import annotations

from mainstay.nouns import NAME, TEXT, WORD, Member, Noun, PlaneKind

NOUN = Noun(
    "service_option_type",
    "option type",
    "/service-option-types",
    (
        Member("name", NAME, "name that customers see", required=True),
        Member(
            "type",
            WORD,
            "letters, digits and underscores",
            hint="Letters, digits and underscores. Schemas name it: serviceOption.",
            required=True,
            argument="OPTION-TYPE",
        ),
        Member("description", TEXT, "what the options are for", hint="", default=""),
    ),
    key="type",
    sort="type",
    plane=(PlaneKind("optionTypes", "types of service options, by type", is_global=True),),
)

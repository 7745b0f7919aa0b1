"""Service options: the values that a provider offers for a property, by option type."""

from __future__ import annotations

from mainstay.nouns import ANY, BOOLEAN, ID, INTEGER, NAME, Member, Noun, PlaneKind, owning_participant

NOUN = Noun(
    "service_option",
    "service option",
    "/service-options",
    (
        Member(
            "serviceOptionTypeId",
            ID,
            "type that `serviceOption` validators name",
            label="Option type",
            heading="Type",
            required=True,
            fixed=True,
            refers_to="/service-option-types",
            refers_by="type",
            short="type",
            argument="OPTION-TYPE",
        ),
        Member(
            "name", NAME, "name that customers see", hint="What a customer reads.", required=True, argument="NAME"
        ),
        Member(
            "value",
            ANY,
            "value of the property",
            hint="JSON or YAML: a text, a number, a map.",
            required=True,
            argument="VALUE",
            lines=2,
        ),
        Member(
            "displayOrder",
            INTEGER,
            "position in lists",
            label="Position",
            hint="Lower numbers come first.",
            default=0,
            short="order",
            listed=False,
        ),
        Member(
            "enabled",
            BOOLEAN,
            "whether it is offered",
            label="Offered to customers",
            heading="Offered",
            hint="",
            default=True,
            switch=("offer it", "do not offer it"),
        ),
    ),
    short="option",
    owner=owning_participant("providerId", "provider of the option", "provider"),
    sort="displayOrder",
    api_only={"serviceOptionType": "the type by its name, instead of serviceOptionTypeId"},
    plane=(
        PlaneKind(
            "options",
            "service options, by provider, option type and name",
            owners=("participants", "optionTypes"),
        ),
    ),
)

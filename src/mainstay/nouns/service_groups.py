"""Service groups: how a customer groups its services."""

from __future__ import annotations

from mainstay.nouns import NAME, Member, Noun, PlaneKind, owning_participant

NOUN = Noun(
    "service_group",
    "service group",
    "/service-groups",
    (Member("name", NAME, "name of the group", required=True, argument="NAME"),),
    short="group",
    owner=owning_participant("consumerId", "customer that owns the group", "for"),
    plane=(PlaneKind("groups", "service groups, by customer and name", owners=("participants",), implied=True),),
)

"""Metric types: the kinds of measurements that agents report."""

from __future__ import annotations

from mainstay.nouns import CHOICE, CLI, NAME, Member, Noun, PlaneKind

NOUN = Noun(
    "metric_type",
    "metric type",
    "/metric-types",
    (
        Member(
            "name",
            NAME,
            "name that agents report measurements by",
            hint="Agents report measurements by this name.",
            required=True,
        ),
        Member(
            "entityType",
            CHOICE,
            "what is measured",
            label="Measures",
            required=True,
            fixed=True,
            choices={"Agent": "an agent", "Service": "a service", "Resource": "a resource of a service"},
        ),
    ),
    plane=(PlaneKind("metricTypes", "types of metrics, by name", is_global=True),),
    left_out={CLI: "admins write them in plane files or on their page"},
)

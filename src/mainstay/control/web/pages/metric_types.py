"""Metric types: the kinds of measurements that agents report."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import noun_pages
from mainstay.nouns.metric_types import NOUN

PAGES = noun_pages(
    declared_pages(
        NOUN,
        "/metric-types",
        explanation="The kinds of measurements that agents report about services.",
        effects=lambda row: [f"{row['name']} is deleted. While measurements of it are stored, this is refused."],
        navigation=NavigationEntry("Metric types", "i-event", 4, "Catalogue"),
    )
)

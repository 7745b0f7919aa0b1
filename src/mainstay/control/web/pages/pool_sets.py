"""Pool sets: the pools that an agent takes values from."""

from __future__ import annotations

from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import TableColumn, noun_pages
from mainstay.nouns.service_pool_sets import NOUN

PAGES = noun_pages(
    declared_pages(
        NOUN,
        "/pool-sets",
        explanation="Each agent takes values from the pools of one set.",
        columns={"pools": TableColumn("Pools", lambda row: (f"/pools?set={row['id']}", "Show"), "link", "tight")},
        effects=lambda row: [f"{row['name']} is deleted. While it has pools, or an agent uses it, this is refused."],
        related=(("/pools", "Pools"),),
    )
)

"""Service groups: how a customer groups its services. Jobs of one group run one after the other on an agent."""

from __future__ import annotations

from mainstay.control.web.contract import NavigationEntry
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import TableColumn, noun_pages
from mainstay.nouns.service_groups import NOUN

PAGES = noun_pages(
    declared_pages(
        NOUN,
        "/groups",
        explanation="Services of a consumer that belong together. On an agent their jobs run one after the other.",
        columns={
            "services": TableColumn(
                "Services", lambda row: (f"/services?groupId={row['id']}", "Show"), "link", "tight"
            )
        },
        effects=lambda row: [
            f"{row['name']} is deleted, with its services that have ended.",
            "While a service in it lives, or a clean-up of one is owed, this is refused.",
        ],
        navigation=NavigationEntry("Groups", "i-box", 3, "Access"),
        filters=("consumerId",),
    )
)

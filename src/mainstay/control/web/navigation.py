"""The side bar: which pages a caller sees, with the counts that matter at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainstay.control.access import ACCESS, Caller, Role
from mainstay.control.store import navigation as store
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.web.contract import NavigationEntry, WebPage
from mainstay.control.web.pages import all_pages

GROUPS = ("", "Catalogue", "Estate", "Record", "Access")


@dataclass(frozen=True, slots=True)
class NavigationLink:
    href: str
    label: str
    icon: str
    count: str = ""
    # Whether the count is a reason to look.
    alarming: bool = False


async def read_navigation(tables: Store, caller: Caller) -> list[tuple[str, Sequence[NavigationLink]]]:
    """(name, links) of each group."""
    async with tables.autocommit() as tx:
        if caller.role is Role.ADMIN:
            counts = await store.count_for_admin(tx)
        else:
            counts = await store.count_for_participant(tx, str(caller.participant_id))
    # An admin, or a participant that has an agent.
    provides = bool(counts["provides"])
    offline, active = int(str(counts["offline"])), int(str(counts["active"]))
    shown = {
        "/jobs": (f"{active:,}" if active else "", False),
        "/agents": (f"{offline:,} offline" if offline else "", offline > 0),
    }
    groups: list[tuple[str, Sequence[NavigationLink]]] = []
    for group in GROUPS:
        links = [
            NavigationLink(page.path, entry.label, entry.icon, *shown.get(page.path, ()))
            for page, entry in _entries(group)
            if _is_shown(page, entry, caller, provides=provides)
        ]
        if links:
            groups.append((group, links))
    return groups


async def is_provider(tx: Transaction, caller: Caller) -> bool:
    """Whether the caller offers services: an admin, or a participant that has an agent."""
    return caller.participant_id is None or await store.has_agents(tx, caller.participant_id)


def _entries(group: str) -> list[tuple[WebPage, NavigationEntry]]:
    found = [(page, page.navigation) for page in all_pages() if page.navigation and page.navigation.group == group]
    return sorted(found, key=lambda each: each[1].position)


def _is_shown(page: WebPage, entry: NavigationEntry, caller: Caller, *, provides: bool) -> bool:
    admitted = page.access is None or caller.role in ACCESS[page.access]
    fits = {"everyone": True, "provider": provides, "admin": caller.role is Role.ADMIN}[entry.audience]
    return admitted and fits

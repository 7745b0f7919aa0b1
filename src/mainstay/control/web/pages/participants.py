"""Participants: the providers and consumers of services. A participant sees and renames itself."""

from __future__ import annotations

from mainstay.control.access import Role
from mainstay.control.store import participants as store
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.declared_pages import declared_pages
from mainstay.control.web.noun_pages import Row, TableColumn, may, may_row, noun_pages
from mainstay.nouns.participants import NOUN

API = "/api/v1/participants"
STATES = {"Enabled": ("up", "Enabled"), "Disabled": ("rest", "Disabled")}


def _effects(row: Row) -> list[str]:
    return [
        f"{row['name']}, its tokens, its groups and its services that have ended are deleted.",
        "While it has living services, agents, options or pools, this is refused.",
        "Its events stay.",
    ]


async def _show(call: PageCall) -> PageAnswer:
    participant = await call.api("GET", f"{API}/{call.path['id']}")
    async with call.reading() as work:
        holdings = await store.count_holdings(work.tx, participant["id"])
    is_admin = call.caller.role is Role.ADMIN
    values = {
        "participant": participant,
        "state": STATES[participant["status"]],
        "details": [
            (each.shown_heading, participant[each.name])
            for each in NOUN.members
            if each.name not in ("name", "status")
        ],
        "holdings": holdings,
        "most_counted": store.MOST_COUNTED,
        "may_change": may_row(call, "participant", participant, "change"),
        "may_add_token": may(call, "token"),
        "may_write": is_admin and not call.caller.read_only,
        "is_admin": is_admin,
    }
    return PageAnswer("participant.html", values)


async def _set_status(call: PageCall) -> PageAnswer:
    status = "Disabled" if call.posted("status") == "Disabled" else "Enabled"
    changed = await call.api("PATCH", f"{API}/{call.path['id']}", {"status": status})
    notice = f"Participant {changed['name']} is {status.lower()}"
    return PageAnswer(redirect=f"/participants/{changed['id']}", notice=notice)


PAGES = (
    *noun_pages(
        declared_pages(
            NOUN,
            "/participants",
            columns={"status": TableColumn("Status", lambda row: STATES[row["status"]], "state")},
            explanation="Each participant orders services, offers them with its agents, or both.",
            effects=_effects,
            navigation=NavigationEntry("Participants", "i-people", 1, "Access", "admin"),
            change="change",
            detail=True,
        )
    ),
    WebPage(method="GET", path="/participants/{id}", act=_show, access=("participant", "read")),
    WebPage(method="POST", path="/participants/{id}/status", act=_set_status, access=("participant", "write")),
)

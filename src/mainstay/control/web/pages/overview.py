"""The overview: what needs attention, what is going on, everything else. Programs get the addresses of the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from markupsafe import Markup

from mainstay import __version__
from mainstay.control.domain.event_types import EVENT_TYPES
from mainstay.control.operations import events as operations
from mainstay.control.operations.overview import SLOT_SECONDS, WINDOW, AgentSummary, Overview, read_overview
from mainstay.control.store.engine.paging import parse_listing
from mainstay.control.store.events import EVENTS, entity_names
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.drawings.numbers import (
    AgentActivity,
    AgentSquare,
    JobSlot,
    StateShare,
    count_activities,
    draw_activity_mark,
    draw_agent_squares,
    draw_job_bars,
    draw_state_bar,
    legend_of,
)
from mainstay.control.web.navigation import is_provider
from mainstay.control.web.views.events import show_event

# Kind of a finding → kind of its state, its word, the page that helps and the text of its button.
FINDINGS = {
    "failed": ("bad", "Failed", "/jobs/{job_id}", "See job"),
    "offline": ("bad", "Offline", "/agents/{id}", "See agent"),
    "unknown": ("rest", "Unknown", "/services?view=unknown&agentId={id}", "See services"),
    "unheld": ("bad", "Repair does not hold", "/services/{id}", "See diff"),
    "drifted": ("warn", "Drifted", "/services/{id}", "See diff"),
    "stuck": ("warn", "No way out", "/service-types/{id}", "See type"),
    "orphan": ("warn", "Not cleaned up", "/agents/{id}", "See agent"),
    "nearly_full": ("warn", "Nearly full", "/pools/{id}", "See pool"),
    "waiting": ("warn", "Not claimed", "/jobs/{job_id}", "See job"),
    "secret": ("warn", "No owner", "/events?type=vault", "See events"),
    "grant": ("warn", "Confirm", "/agent-types/{id}", "See agent type"),
}

# Those without a number yet are a second old at most.
NEWEST = (("sort", "-sequenceNumber"), ("pageSize", "8"), ("after", ""))
EVENT_NOUNS = " ".join(sorted({each.partition(".")[0] for each in EVENT_TYPES}))


async def _show(call: PageCall) -> PageAnswer:
    async with call.reading() as work:
        found = await read_overview(work, provides=await is_provider(work.tx, call.caller))
        page = await operations.page(work, parse_listing(EVENTS, NEWEST))
        names = await entity_names(work.tx, [each.entity_id for each in page.items])
    values = {
        "overview": found,
        "living": sum(each.number for each in found.states),
        "running": sum(each.number for each in found.states if each.kind == "up"),
        "finding_words": FINDINGS,
        "may_act": not call.caller.read_only,
        "events": [show_event(each, names, call.caller) for each in page.items],
        "event_topics": EVENT_NOUNS,
        **_pictures(found),
    }
    return PageAnswer("overview.html", values)


def _pictures(found: Overview) -> dict[str, Any]:
    shares = [StateShare(each.state, each.kind, each.number) for each in found.states]
    squares = [AgentSquare(each.name, _activity(each)) for each in found.agents]
    starts = [found.now - WINDOW + timedelta(seconds=SLOT_SECONDS) * number for number in range(len(found.slots))]
    slots = [
        JobSlot(f"{start:%H:%M} UTC", done, failed) for start, (done, failed) in zip(starts, found.slots, strict=True)
    ]
    axis = [found.now - WINDOW, found.now - WINDOW / 2, found.now]
    return {
        "state_bar": draw_state_bar(shares),
        "state_legend": legend_of(shares),
        "agent_squares": draw_agent_squares(squares) if squares else Markup(),
        "activity_mark": draw_activity_mark,
        "activities": count_activities(squares),
        "job_bars": draw_job_bars(slots, "in the last 4 hours"),
        "job_axis": [f"{each:%H:%M}" for each in axis],
        "jobs_done": sum(done for done, _ in found.slots),
        "jobs_failed": sum(failed for _, failed in found.slots),
    }


def _activity(agent: AgentSummary) -> AgentActivity:
    if agent.status == "Connected":
        return "at work" if agent.running else "idle"
    return "not in use" if agent.status in ("Disabled", "New") else "offline"


async def _describe(_call: PageCall) -> PageAnswer:
    document = {"name": "mainstay", "version": __version__, "api": "/api/v1", "docs": "/docs"}
    return PageAnswer(document=document)


PAGES = (
    WebPage(
        method="GET",
        path="/",
        act=_show,
        access=("service", "read"),
        navigation=NavigationEntry("Overview", "i-home", 1),
        as_json=_describe,
    ),
)

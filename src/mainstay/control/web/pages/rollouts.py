"""Roll-outs: the list, the form of a new one, and one roll-out with its waves and items. For admins."""

from __future__ import annotations

from typing import Any

from mainstay.control.domain.refusals import WrongRolloutState
from mainstay.control.domain.rollouts import RolloutVerb, status_after
from mainstay.control.store.rollouts import WaveCount, count_waves, last_wave
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.noun_pages import (
    Confirmation,
    ConfirmedRequest,
    NounField,
    NounForm,
    confirmed_pages,
    creation_pages,
    may,
    reference_field,
)

API = "/api/v1/rollouts"
PAGE_SIZE = "50"
# Waves in the picture; a roll-out may have many more.
MOST_WAVES = 50
CRUMBS = (("/rollouts", "Roll-outs"),)
STATES = {
    "Running": ("work", "Running"),
    "Paused": ("queued", "Paused"),
    "Stopped": ("bad", "Stopped"),
    "Completed": ("done", "Completed"),
    "Aborted": ("rest", "Aborted"),
}
ITEM_STATES = {
    "Waiting": ("queued", "Waiting"),
    "Running": ("work", "Running"),
    "Done": ("done", "Done"),
    "Failed": ("bad", "Failed"),
    "Skipped": ("rest", "Skipped"),
}
VERBS: dict[RolloutVerb, tuple[str, tuple[str, ...]]] = {
    "pause": ("Pause the roll-out", ("No further service starts.", "Services with a running job finish it.")),
    "resume": (
        "Resume the roll-out",
        ("Services that failed start again, in the next waves.", "Failures are counted from zero."),
    ),
    "abort": (
        "Abort the roll-out",
        (
            "No further service starts, and the roll-out cannot be resumed.",
            "Services with a running job finish it. Nothing is undone.",
        ),
    ),
}
READ = ("rollout", "read")
WRITE = ("rollout", "write")


async def _list(call: PageCall) -> PageAnswer:
    after = call.asked("after")
    page = await call.api("GET", API, query=[("after", after), ("sort", "-createdAt"), ("pageSize", PAGE_SIZE)])
    values = {
        "rollouts": page["items"],
        "states": STATES,
        "older": page.get("next"),
        "after": after,
        "may_write": may(call, "rollout"),
    }
    return PageAnswer("rollouts.html", values)


async def _show(call: PageCall) -> PageAnswer:
    rollout = await call.api("GET", f"{API}/{call.path['id']}")
    status, after = call.asked("status"), call.asked("after")
    query = [("status", status), ("after", after), ("pageSize", PAGE_SIZE)]
    page = await call.api("GET", f"{API}/{rollout['id']}/items", query=query)
    async with call.reading() as work:
        waves = _waves(await count_waves(work.tx, rollout["id"], MOST_WAVES))
        last = await last_wave(work.tx, rollout["id"])
    values = {
        "rollout": rollout,
        "states": STATES,
        "item_states": ITEM_STATES,
        "items": page["items"],
        "older": page.get("next"),
        "after": after,
        "status": status if status in ITEM_STATES else "",
        "waves": waves,
        "last_wave": last,
        "verbs": [verb for verb in VERBS if may(call, "rollout") and _is_possible(verb, rollout)],
    }
    return PageAnswer("rollout.html", values)


def _waves(counts: list[WaveCount]) -> list[tuple[int, dict[str, int]]]:
    """(number, state → items) of each wave."""
    found: dict[int, dict[str, int]] = {}
    for each in counts:
        found.setdefault(each.wave, {})[each.status] = each.items
    return sorted(found.items())


def _is_possible(verb: RolloutVerb, rollout: Any) -> bool:
    try:
        status_after(verb, rollout["status"])
    except WrongRolloutState:
        return False
    return True


async def _new_form(call: PageCall) -> NounForm:
    kinds = await reference_field(call, "serviceTypeId", "Service type", "/api/v1/service-types", required=True)
    fields = [
        kinds,
        NounField(
            "action", "Action", "code", "An action of the lifecycle, such as update.", required=True, default="update"
        ),
        NounField(
            "blueprintVersion", "Version", "code", "Of the blueprint; empty: for update the latest, else unchanged."
        ),
        NounField(
            "batch",
            "Wave",
            "code",
            "Services at once: a number, or a percentage such as 10%.",
            required=True,
            default="10%",
        ),
        NounField(
            "maxFailures",
            "Failures",
            "number",
            "The roll-out stops after this many failed services.",
            required=True,
            default="1",
        ),
        NounField(
            "status",
            "Start",
            "choice",
            required=True,
            choices=[("Running", "at once"), ("Paused", "paused")],
            default="Running",
        ),
    ]
    explanation = (
        "The action starts on all living services of the type, of all customers, wave by wave. The next wave starts when"
        " every service of the last one has ended."
    )
    return NounForm("New roll-out", "Start the roll-out", fields, CRUMBS, explanation)


def _created(_call: PageCall, rollout: Any) -> PageAnswer:
    return PageAnswer(redirect=f"/rollouts/{rollout['id']}", notice="The roll-out is created")


async def _confirm(call: PageCall, verb: RolloutVerb) -> tuple[Confirmation, ConfirmedRequest]:
    rollout = await call.api("GET", f"{API}/{call.path['id']}")
    button, effects = VERBS[verb]
    page = f"/rollouts/{rollout['id']}"
    named = f"{rollout['action']} of {rollout['serviceType']['name']}"
    request = ConfirmedRequest("POST", f"{API}/{rollout['id']}/{verb}", page, f"{verb.capitalize()} is done")
    return Confirmation(f"{button}: {named}", button, effects, [*CRUMBS, (page, named)]), request


def _verb_pages(verb: RolloutVerb) -> tuple[WebPage, WebPage]:
    return confirmed_pages(f"/rollouts/{{id}}/{verb}", WRITE, lambda call: _confirm(call, verb))


PAGES = (
    WebPage(
        method="GET",
        path="/rollouts",
        act=_list,
        access=READ,
        navigation=NavigationEntry("Roll-outs", "i-right", 9, "Estate", "admin"),
    ),
    *creation_pages("/rollouts/new", WRITE, _new_form, API, _created),
    WebPage(method="GET", path="/rollouts/{id}", act=_show, access=READ),
    *(page for verb in VERBS for page in _verb_pages(verb)),
)

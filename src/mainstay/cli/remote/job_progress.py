"""Follows what happens to a service: a line in place on a terminal, a line per change in a pipe, until nothing is active."""

from __future__ import annotations

import os
import sys
import time

from mainstay.agent.client import Unreachable
from mainstay.cli.main import complain
from mainstay.cli.remote.connection import EXIT_FAILED, short
from mainstay.cli.views.run_display import Palette, indented, printable
from mainstay.cli.views.tables import BAD, BOLD, GOOD, age, bar, cut, lasted, terminal_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0
# A server that restarts is waited for; one that is gone is not.
PATIENCE_SECONDS = 120.0
# Whoever waits that long for an agent that is not there is told what else there is to do.
HINT_SECONDS = 10.0
BAR_WIDTH = 20


class StatusLine:
    """Where it is shown: one line that is painted again and again, or lines in a pipe, or nowhere."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.palette = Palette(sys.stdout)
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.painted = False
        self.last = ""

    def now(self, line: str) -> None:
        """How it is at the moment; a terminal forgets it when something else is shown."""
        if self.quiet:
            return
        if self.live:
            # Cut before it is painted: colours take no place, and must not be cut off.
            name, colon, rest = cut(line, (terminal_width() or 80) - 1).partition(": ")
            sys.stdout.write(f"\r\033[K{self.palette.paint(name, BOLD)}{colon}{rest}")
            sys.stdout.flush()
            self.painted = True
        elif line != self.last:
            print(line, flush=True)
        self.last = line

    def lasting(self, line: str) -> None:
        if not self.quiet:
            self.clear()
            print(line, flush=True)

    def clear(self) -> None:
        if self.painted:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()
            self.painted = False


class FollowResult:
    """How a service was found to be at the end: its document and its newest job, None if it never had one."""

    def __init__(self, service: Any, job: Any) -> None:
        self.service = service
        self.job = job

    @property
    def exit_code(self) -> int:
        return EXIT_FAILED if self.job is not None and self.job["status"] in ("Failed", "Cancelled") else 0


def follow(
    client: Client, service_id: str, *, run_id: str | None = None, quiet: bool = False, forever: bool = False
) -> FollowResult:
    """Looks until the run has ended, or else until nothing is active any more, or without end.

    Leaving by Ctrl-C leaves the run alone."""
    screen = StatusLine(quiet=quiet)
    # A run belongs to who asked for it: what others begin after it does not count.
    of = {"serviceId": service_id} if run_id is None else {"runId": run_id}
    try:
        return _look(client, service_id, of, screen, forever=forever)
    except KeyboardInterrupt:
        screen.clear()
        if not forever and not quiet:
            complain(f"the run goes on; `mainstay watch {short(service_id)}` follows it again")
        raise
    finally:
        screen.clear()


def _look(
    client: Client, service_id: str, of: Mapping[str, str], screen: StatusLine, *, forever: bool
) -> FollowResult:
    pause = SHORTEST_PAUSE_SECONDS
    seen: object = None
    lost_at: float | None = None
    ended: set[str] = set()
    hinted: set[str] = set()
    waiting_since = time.monotonic()
    while True:
        try:
            found = _read(client, service_id, of)
            lost_at = None
        except Unreachable:
            lost_at = lost_at or time.monotonic()
            if not forever and time.monotonic() - lost_at > PATIENCE_SECONDS:
                raise
            screen.now("the server does not answer; trying again")
            time.sleep(LONGEST_PAUSE_SECONDS)
            continue
        job = found.job
        if job is not None and job["id"] not in ended and not _is_active(job):
            if seen is not None or not forever:
                screen.lasting(_ended_line(screen.palette, found))
            ended.add(job["id"])
        if not forever and not _is_active(job):
            if job is None:
                screen.lasting(_present_line(screen, found))
            return found
        if job is None or not _waits_for_agent(found):
            waiting_since = time.monotonic()
        elif job["id"] not in hinted and time.monotonic() - waiting_since > HINT_SECONDS:
            hinted.add(job["id"])
            screen.lasting(_hint(found))
        screen.now(_present_line(screen, found))
        state = (found.service["version"], None if job is None else (job["id"], job["status"], job["progress"]))
        pause = SHORTEST_PAUSE_SECONDS if state != seen else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        seen = state
        time.sleep(pause)


def _read(client: Client, service_id: str, of: Mapping[str, str]) -> FollowResult:
    """The newest job tells the service as it was in the same instant."""
    newest = client.get("/jobs", query={**of, "sort": "-createdAt", "pageSize": 1})["items"]
    if not newest:
        return FollowResult(client.get(f"/services/{service_id}"), None)
    return FollowResult(newest[0]["service"], newest[0])


def _is_active(job: Any) -> bool:
    """The server sets the time when a job ends, so the statuses need no list here. None: there is no job."""
    return job is not None and job.get("completedAt") is None


def _present_line(screen: StatusLine, found: FollowResult) -> str:
    service, job = found.service, found.job
    head = f"{printable(service['name'])}: {printable(service['status'])}"
    if not _is_active(job):
        return head
    action, agent = printable(job["action"]), printable(service["agent"]["name"])
    if job["status"] == "Pending":
        # One that is there may be at work for another service of the same group.
        status = service["agent"]["status"]
        waits_for = f"its turn on agent {agent}" if status == "Connected" else f"agent {agent} ({status})"
        return f"{head}, {action} waits for {waits_for}"
    asked = asked_to_stop(job)
    if screen.live:
        return f"{head}, {action}{asked} {age(job['claimedAt'])} {_shown_progress(job)}".rstrip()
    return f"{head}, {action} runs on {agent}{asked}{told_progress(job)}"


def _waits_for_agent(found: FollowResult) -> bool:
    return bool(found.job["status"] == "Pending" and found.service["agent"]["status"] != "Connected")


def _hint(found: FollowResult) -> str:
    agent = printable(found.service["agent"]["name"])
    return (
        f"  Nobody works on it until agent {agent} is back. Ctrl-C leaves it standing;"
        f" `mainstay jobs cancel {short(found.job['id'])}` takes it back."
    )


def asked_to_stop(job: Any) -> str:
    return " (asked to stop)" if job["cancelRequested"] and _is_active(job) else ""


def told_progress(job: Any) -> str:
    """How far an active job is; of one that has ended it would tell nothing."""
    progress = (job.get("progress") if _is_active(job) else None) or {}
    percent, text = progress.get("percent"), progress.get("text")
    said = [f"{percent:.0f}%"] if isinstance(percent, (int, float)) else []
    return "".join(f", {printable(str(part))}" for part in (*said, text) if part)


def _shown_progress(job: Any) -> str:
    progress = job.get("progress") or {}
    percent, text = progress.get("percent"), printable(str(progress.get("text") or ""))
    if not isinstance(percent, (int, float)):
        return text
    return f"{bar(percent / 100, BAR_WIDTH)} {percent:.0f}% {text}".rstrip()


def _ended_line(palette: Palette, found: FollowResult) -> str:
    service, job = found.service, found.job
    head = f"{palette.paint(printable(service['name']), BOLD)}: {printable(service['status'])}, {printable(job['action'])}"
    # As in the list of jobs: what it waited for the agent is not what it took.
    took = lasted(job.get("claimedAt"), job.get("completedAt"))
    took = f" in {took}" if took else ""
    if job["status"] == "Completed":
        return f"{head} {palette.paint('done', GOOD)}{took}"
    reason = f": {indented(job['errorMessage'])}" if job.get("errorMessage") else ""
    word = palette.paint(job["status"].lower(), BAD)
    return f"{head} {word}{took}{reason}\n  `mainstay jobs show {short(job['id'])}` tells more"


def finish(client: Client, service: Any, action: str, *, wait: bool, as_json: bool) -> int:
    """After a request: follows what it began to the end, or only tells what that is."""
    begun = service.get("activeJob")
    if begun is not None and begun["action"] != action:
        # Somebody else's: how that ends says nothing about what was asked for here.
        begun = None
    if begun is not None and wait:
        run_id = client.get(f"/jobs/{begun['id']}")["runId"]
        followed = follow(client, service["id"], run_id=run_id, quiet=as_json)
        if as_json:
            _print_outcome(followed)
        return followed.exit_code
    if as_json:
        _print_outcome(FollowResult(service, None))
        return 0
    name, status = printable(service["name"]), printable(service["status"])
    if begun is None:
        print(f"{name}: {status}, nothing is left to do")
        if _is_drifted(service):
            print(f"Its host is not as wanted, though: `mainstay show {short(service['id'])}` tells where.")
    else:
        action = printable(begun["action"])
        print(f"{name}: {status}, {action} is queued; `mainstay watch {short(service['id'])}` follows it")
    return 0


def _is_drifted(service: Any) -> bool:
    return any(each.get("type") == "InSync" and each.get("status") == "False" for each in service["conditions"])


def _print_outcome(followed: FollowResult) -> None:
    from mainstay.cli.local_run import print_json

    job = followed.job
    last = None if job is None else {key: value for key, value in job.items() if key != "service"}
    print_json({**followed.service, "lastJob": last})

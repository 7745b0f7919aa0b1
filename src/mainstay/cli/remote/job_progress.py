"""Follows jobs, and whatever else takes time on the server: a line updated in place on a terminal, a line per change in
a pipe. All commands that wait share `follow_until_ended`: how long, what Ctrl-C does, and which command goes on."""

from __future__ import annotations

import argparse
import os
import sys
import time
from argparse import ArgumentTypeError, BooleanOptionalAction
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from mainstay.agent.client import Client, RateLimited, Unreachable
from mainstay.cli.main import add_argument, parse_seconds, print_error, print_json
from mainstay.cli.remote.connection import EXIT_FAILED, short_id
from mainstay.cli.views.run_display import Palette, indented, printable
from mainstay.cli.views.tables import BAD, BOLD, GOOD, age, elapsed, progress_bar, terminal_width, truncate
from mainstay.foundation import Struct

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.1, 1.0
# Long enough for a server restart.
RECONNECT_SECONDS = 120.0
# Delay before the hint about an offline agent.
HINT_SECONDS = 10.0
# Requests between two pauses, when many jobs are followed.
MAX_READS_AT_ONCE = 10
EXIT_TIMEOUT = 4
TIMEOUT_VARIABLE, DEFAULT_TIMEOUT = "MAINSTAY_TIMEOUT", "10m"
AGENT_WORDS = {"New": "offline", "Disconnected": "offline", "Disabled": "disabled"}


class ProgressOutput:
    """Prints progress: one line updated in place, lines in a pipe, or nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.palette = Palette(sys.stdout)
        self.live = self.palette.is_live
        self.painted = False
        self.last = ""

    def update(self, line: str) -> None:
        """Shows the current state. On a terminal the next output replaces it."""
        if self.quiet:
            return
        if self.live:
            # Truncate before colouring: colour codes have no width and must stay complete.
            name, colon, rest = truncate(line, (terminal_width() or 80) - 1).partition(": ")
            sys.stdout.write(f"\r\033[K{self.palette.paint(name, BOLD)}{colon}{rest}")
            sys.stdout.flush()
            self.painted = True
        elif line != self.last:
            print(line, flush=True)
        self.last = line

    def print_line(self, line: str) -> None:
        if not self.quiet:
            self.clear()
            print(line, flush=True)

    def clear(self) -> None:
        if self.painted:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()
            self.painted = False


class FollowResult(Struct):
    """The service and its newest job; the job is None if there never was one."""

    service: Any
    job: Any

    @property
    def exit_code(self) -> int:
        if _is_active(self.job):
            return EXIT_TIMEOUT
        return EXIT_FAILED if self.job is not None and self.job["status"] in ("Failed", "Cancelled") else 0


def add_wait_options(parser: argparse.ArgumentParser, meaning: str = "wait until the job finishes") -> None:
    parser.add_argument("--wait", action=BooleanOptionalAction, default=True, help=f"{meaning} (default)")
    add_timeout_option(parser)


def add_timeout_option(parser: argparse.ArgumentParser, *, default: str | None = "") -> None:
    """argparse parses a default that is a text: an unfit variable is refused before anything is sent."""
    add_argument(
        parser,
        "--timeout",
        "DURATION",
        f"stop waiting after this time, with exit code {EXIT_TIMEOUT}; nothing is cancelled; 0 waits for ever"
        f" (default: {TIMEOUT_VARIABLE}, else {DEFAULT_TIMEOUT})",
        type=_duration,
        default=default,
    )


def _duration(text: str) -> float:
    from mainstay.converge.value_kinds import Unfit, parse_duration

    if not text:
        return default_timeout_seconds()
    try:
        return inf if text == "0" else parse_duration(text)
    except Unfit as error:
        raise ArgumentTypeError(str(error)) from None


def default_timeout_seconds() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE) or DEFAULT_TIMEOUT
    return inf if text == "0" else parse_seconds(text, TIMEOUT_VARIABLE)


class Waiting(Struct):
    """How long a command follows something, and how the user goes on when the command stops before the end."""

    timeout_seconds: float
    # What goes on without the command, such as "the job continues", and the command that shows it; both are empty if
    # Ctrl-C is the way to end this one.
    continues: str
    command: str
    quiet: bool = False
    # Until Ctrl-C, whatever ends meanwhile. A server that is away for long does not end it either.
    forever: bool = False

    def hint(self) -> str:
        return f"{self.continues}; follow it with `{self.command}`"


def follow_until_ended(
    waiting: Waiting,
    read: Callable[[], Any],
    ended: Callable[[Any], bool],
    show: Callable[[ProgressOutput, Any], object],
) -> tuple[Any, bool]:
    """Polls; returns what was read last, and whether the time is up. Neither that nor Ctrl-C cancels anything.

    `show` prints what was read and returns what it depends on: while that is equal, polls become rarer."""
    screen, deadline = ProgressOutput(quiet=waiting.quiet), time.monotonic() + waiting.timeout_seconds
    contact = ServerContact(screen, deadline, forever=waiting.forever)
    pause, seen, found = MIN_DELAY_SECONDS, object(), None
    try:
        while True:
            try:
                found = contact.read(read)
            except Unreachable:
                if found is None or time.monotonic() < deadline:
                    raise
            else:
                state: object = show(screen, found)
                if ended(found) and not waiting.forever:
                    return found, False
            if time.monotonic() >= deadline:
                _report_timeout(screen, waiting)
                return found, True
            pause = MIN_DELAY_SECONDS if state != seen else min(pause * 1.5, MAX_DELAY_SECONDS)
            seen = state
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
    except KeyboardInterrupt:
        screen.clear()
        if waiting.command:
            print_error(waiting.hint())
        raise
    finally:
        screen.clear()


def _report_timeout(screen: ProgressOutput, waiting: Waiting) -> None:
    if not waiting.command:
        return
    hint = waiting.hint()
    text = f"Timed out. {hint[0].upper()}{hint[1:]}."
    if screen.quiet:
        # Standard output is for the document.
        print_error(text)
    else:
        screen.print_line(f"{screen.last}\n  {text}" if screen.live else f"  {text}")


def follow(
    client: Client,
    service_id: str,
    timeout_seconds: float,
    *,
    job_id: str | None = None,
    quiet: bool = False,
    forever: bool = False,
) -> FollowResult:
    """Polls until the run of the job has finished; without `job_id` until no job is active; with `forever` until Ctrl-C."""
    command = "" if forever else f"mainstay watch {short_id(service_id)}"
    waiting = Waiting(timeout_seconds, "the job continues", command, quiet, forever)
    shown = _ShownJobs(forever=forever)
    filters = {"serviceId": service_id}

    def read() -> FollowResult:
        if job_id is not None and "runId" not in filters:
            # Only this run: others may start more jobs after it.
            run_id = client.get(f"/jobs/{job_id}")["runId"]
            filters.clear()
            filters["runId"] = run_id
        return _read(client, service_id, filters)

    found: FollowResult = follow_until_ended(waiting, read, lambda found: not _is_active(found.job), shown.show)[0]
    return found


class _ShownJobs:
    """What is printed of the jobs of one service."""

    def __init__(self, *, forever: bool) -> None:
        self._forever = forever
        self._is_first = True
        self._finished: set[str] = set()
        self._hinted: set[str] = set()
        self._waiting_since = time.monotonic()

    def show(self, screen: ProgressOutput, found: FollowResult) -> object:
        job = found.job
        if job is not None and job["id"] not in self._finished and not _is_active(job):
            if not (self._is_first and self._forever):
                screen.print_line(_finished_line(screen.palette, found))
            self._finished.add(job["id"])
        self._is_first = False
        if not self._forever and not _is_active(job):
            if job is None:
                screen.print_line(_current_line(screen, found))
            return None
        if job is None or not _is_agent_offline(found):
            self._waiting_since = time.monotonic()
        elif job["id"] not in self._hinted and time.monotonic() - self._waiting_since > HINT_SECONDS:
            self._hinted.add(job["id"])
            screen.print_line(_hint(found))
        screen.update(_current_line(screen, found))
        return found.service["version"], None if job is None else (job["id"], job["status"], job["progress"])


class ServerContact(Struct):
    """Reads again while the server does not answer. Raises the error when it is time to give up."""

    _screen: ProgressOutput
    _deadline: float
    forever: bool = False
    _lost_at: float | None = None

    def read(self, call: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                found = call(*arguments)
            except Unreachable as error:
                self._wait_after(error)
            else:
                self._lost_at = None
                return found

    def _wait_after(self, error: Unreachable) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise error
        if isinstance(error, RateLimited):
            # The server is there, and says when to go on.
            self._lost_at = None
            seconds = max(error.retry_after_seconds or 0, MAX_DELAY_SECONDS)
            self._screen.update(f"the server limits requests, going on in {seconds:g} s")
        else:
            self._lost_at = self._lost_at or now
            if not self.forever and now - self._lost_at > RECONNECT_SECONDS:
                raise error
            seconds = MAX_DELAY_SECONDS
            self._screen.update("the server is unreachable, retrying")
        time.sleep(min(seconds, self._deadline - now))


def follow_all(
    client: Client, jobs: Sequence[Mapping[str, str]], timeout_seconds: float, *, quiet: bool
) -> list[FollowResult]:
    """Polls until the runs of all jobs have finished, each with `serviceId` and `runId`. The results are in the order of
    the jobs, and of those that the timeout left active as last read."""
    return _JobGroup(client, jobs).follow(Waiting(timeout_seconds, "the apply continues", "mainstay jobs", quiet))


class _JobGroup:
    """Jobs of several services, which are read in turns: one that waits for its agent does not hide the others."""

    def __init__(self, client: Client, jobs: Sequence[Mapping[str, str]]) -> None:
        self._client = client
        self._jobs = jobs
        self._found: dict[int, FollowResult] = {}
        self._lines: dict[int, str] = {}
        self._active = deque(range(len(jobs)))
        self._offline_since: dict[int, float] = {}
        self._hinted: set[str] = set()

    def follow(self, waiting: Waiting) -> list[FollowResult]:
        follow_until_ended(waiting, self._read_some, lambda _: not self._active, self._show_some)
        for number in self._active:
            if number not in self._found:
                self._found[number] = self._read_job(number)
        return [self._found[number] for number in range(len(self._jobs))]

    def _read_some(self) -> list[int]:
        """The numbers of the jobs that it read."""
        numbers = list(self._active)[:MAX_READS_AT_ONCE]
        for number in numbers:
            self._found[number] = self._read_job(number)
        return numbers

    def _show_some(self, screen: ProgressOutput, numbers: Sequence[int]) -> object:
        for number in numbers:
            self._active.popleft()
            self._show(screen, number)
            if _is_active(self._found[number].job):
                self._active.append(number)
        return len(self._active), tuple(self._lines.values())

    def _read_job(self, number: int) -> FollowResult:
        job = self._jobs[number]
        return _read(self._client, job["serviceId"], {"runId": job["runId"]})

    def _show(self, screen: ProgressOutput, number: int) -> None:
        found = self._found[number]
        if found.job is None or not _is_active(found.job):
            screen.print_line(
                _current_line(screen, found) if found.job is None else _finished_line(screen.palette, found)
            )
            return
        self._hint_about_offline_agent(screen, number)
        line = _current_line(screen, found)
        if screen.live:
            done = len(self._jobs) - len(self._active) - 1
            screen.update(f"{done} of {len(self._jobs)} finished; {line}")
        elif line != self._lines.get(number):
            screen.print_line(line)
        self._lines[number] = line

    def _hint_about_offline_agent(self, screen: ProgressOutput, number: int) -> None:
        """Once for each agent: many jobs may wait for it."""
        found, now = self._found[number], time.monotonic()
        if not _is_agent_offline(found):
            self._offline_since.pop(number, None)
            return
        since = self._offline_since.setdefault(number, now)
        agent = found.service["agent"]["id"]
        if agent not in self._hinted and now - since > HINT_SECONDS:
            self._hinted.add(agent)
            screen.print_line(_hint(found))


def _read(client: Client, service_id: str, filters: Mapping[str, str]) -> FollowResult:
    """The newest job contains the service, read in the same transaction."""
    newest = client.get("/jobs", query={**filters, "sort": "-createdAt", "pageSize": 1})["items"]
    if not newest:
        return FollowResult(client.get(f"/services/{service_id}"), None)
    return FollowResult(newest[0]["service"], newest[0])


def _is_active(job: Any) -> bool:
    """Uses the completion time, so that no list of final statuses is needed. None means no job."""
    return job is not None and job.get("completedAt") is None


def _current_line(screen: ProgressOutput, found: FollowResult) -> str:
    service, job = found.service, found.job
    head = f"{printable(service['name'])}: {printable(service['status'])}"
    if not _is_active(job):
        return head
    action, agent = printable(job["action"]), printable(service["agent"]["name"])
    if job.get("waitingFor"):
        return f"{head}, {action} waits for service {short_id(job['waitingFor'])}"
    if job["status"] == "Pending":
        status = service["agent"]["status"]
        if status == "Connected":
            return f"{head}, {action} is queued on {agent}"
        return f"{head}, {action} is queued, agent {agent} is {AGENT_WORDS.get(status, status)}"
    note = cancel_note(job)
    if screen.live:
        return f"{head}, {action}{note} {age(job['claimedAt'])} {_progress_bar_text(job)}".rstrip()
    return f"{head}, {action} is running on {agent}{note}{progress_text(job)}"


def _is_agent_offline(found: FollowResult) -> bool:
    job = found.job
    is_claimable = job["status"] == "Pending" and not job.get("waitingFor")
    return bool(is_claimable and found.service["agent"]["status"] != "Connected")


def _hint(found: FollowResult) -> str:
    agent = printable(found.service["agent"]["name"])
    return (
        f"  The job starts when agent {agent} connects. Ctrl-C stops watching and keeps the job;"
        f" `mainstay jobs cancel {short_id(found.job['id'])}` cancels it."
    )


def cancel_note(job: Any) -> str:
    return " (cancel requested)" if job["cancelRequested"] and _is_active(job) else ""


def progress_text(job: Any) -> str:
    """Percent and text of an active job; empty for a finished job."""
    progress = (job.get("progress") if _is_active(job) else None) or {}
    percent, text = progress.get("percent"), progress.get("text")
    shown = f"{percent:.0f}%" if isinstance(percent, (int, float)) else ""
    return "".join(f", {printable(str(part))}" for part in (shown, text) if part)


def _progress_bar_text(job: Any) -> str:
    progress = job.get("progress") or {}
    percent, text = progress.get("percent"), printable(str(progress.get("text") or ""))
    if not isinstance(percent, (int, float)):
        return text
    return f"{progress_bar(percent / 100)} {percent:.0f}% {text}".rstrip()


def _finished_line(palette: Palette, found: FollowResult) -> str:
    service, job = found.service, found.job
    head = f"{palette.paint(printable(service['name']), BOLD)}: {printable(service['status'])}, {printable(job['action'])}"
    # Without the time in the queue, as in the list of jobs.
    duration = elapsed(job.get("claimedAt"), job.get("completedAt"))
    duration = f" in {duration}" if duration else ""
    status = job["status"].lower()
    if status == "completed":
        return f"{head} {palette.paint(status, GOOD)}{duration}"
    reason = f": {indented(job['errorMessage'])}" if job.get("errorMessage") else ""
    details = f"  `mainstay jobs show {short_id(job['id'])}` shows the report"
    return f"{head} {palette.paint(status, BAD)}{duration}{reason}\n{details}"


def follow_or_report(client: Client, service: Any, action: str, arguments: argparse.Namespace) -> int:
    """Follows the job that a request started, or with --no-wait prints that it is queued."""
    as_json = arguments.json
    job = service.get("activeJob")
    if job is not None and job["action"] != action:
        # The active job belongs to another request.
        job = None
    if job is not None and arguments.wait:
        followed = follow(client, service["id"], arguments.timeout, job_id=job["id"], quiet=as_json)
        if as_json:
            _print_outcome(followed)
        return followed.exit_code
    if as_json:
        _print_outcome(FollowResult(service, None))
        return 0
    name, status = printable(service["name"]), printable(service["status"])
    if job is None:
        print(f"{name}: {status}, no job needed")
        if _is_drifted(service):
            print(f"The host has drifted: `mainstay show {short_id(service['id'])}` shows the differences.")
    else:
        command = f"mainstay watch {short_id(service['id'])}"
        print(f"{name}: {status}, {printable(action)} is queued; follow it with `{command}`")
    return 0


def _is_drifted(service: Any) -> bool:
    return any(each.get("type") == "InSync" and each.get("status") == "False" for each in service["conditions"])


def _print_outcome(followed: FollowResult) -> None:
    job = followed.job
    last = None if job is None else {key: value for key, value in job.items() if key != "service"}
    print_json({**followed.service, "lastJob": last})

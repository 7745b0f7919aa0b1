"""Follows the jobs of a service: a line updated in place on a terminal, a line per change in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import contextmanager
from math import inf

from mainstay.agent.client import RateLimited, Unreachable
from mainstay.cli.main import print_error, print_json
from mainstay.cli.remote.connection import EXIT_FAILED, short_id
from mainstay.cli.views.run_display import Palette, indented, printable
from mainstay.cli.views.tables import BAD, BOLD, GOOD, age, elapsed, progress_bar, terminal_width, truncate
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.agent.client import Client

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.1, 1.0
# Long enough for a server restart.
RECONNECT_SECONDS = 120.0
# Delay before the hint about an offline agent.
HINT_SECONDS = 10.0
# Requests between two pauses, when many jobs are followed.
MAX_READS_AT_ONCE = 10
# As of timeout(1).
EXIT_TIMEOUT = 124
AGENT_WORDS = {"New": "offline", "Disconnected": "offline", "Disabled": "disabled"}


class ProgressOutput:
    """Prints progress: one line updated in place, lines in a pipe, or nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.palette = Palette(sys.stdout)
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
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


def add_wait_options(parser: argparse.ArgumentParser) -> None:
    from argparse import BooleanOptionalAction

    parser.add_argument(
        "--wait", action=BooleanOptionalAction, default=True, help="wait until the job finishes (default)"
    )
    add_timeout_option(parser)


def add_timeout_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        type=_duration,
        help=f"stop waiting after this time, such as 10m, with exit code {EXIT_TIMEOUT}; the job continues",
    )


def _duration(text: str) -> float:
    from argparse import ArgumentTypeError

    from mainstay.converge.value_kinds import Unfit, parse_duration

    try:
        return parse_duration(text)
    except Unfit as error:
        raise ArgumentTypeError(str(error)) from None


def follow(
    client: Client,
    service_id: str,
    *,
    run_id: str | None = None,
    quiet: bool = False,
    forever: bool = False,
    timeout_seconds: float | None = None,
) -> FollowResult:
    """Polls until the run has finished; without `run_id` until no job is active; with `forever` until Ctrl-C.

    Neither Ctrl-C nor the timeout affects the run."""
    deadline = _deadline(timeout_seconds)
    # Only this run: others may start more jobs after it.
    filters = {"serviceId": service_id} if run_id is None else {"runId": run_id}
    hint = "" if forever else f"the job continues; follow it with `mainstay watch {short_id(service_id)}`"
    with _progress_output(hint, quiet=quiet) as screen:
        return _poll(client, service_id, filters, screen, forever=forever, deadline=deadline)


def _deadline(timeout_seconds: float | None) -> float:
    return inf if timeout_seconds is None else time.monotonic() + timeout_seconds


@contextmanager
def _progress_output(hint: str, *, quiet: bool) -> Iterator[ProgressOutput]:
    """Ctrl-C prints the hint, if there is one: how to go on."""
    screen = ProgressOutput(quiet=quiet)
    try:
        yield screen
    except KeyboardInterrupt:
        screen.clear()
        if hint and not quiet:
            print_error(hint)
        raise
    finally:
        screen.clear()


def _poll(
    client: Client,
    service_id: str,
    filters: Mapping[str, str],
    screen: ProgressOutput,
    *,
    forever: bool,
    deadline: float,
) -> FollowResult:
    pause = MIN_DELAY_SECONDS
    seen: object = None
    contact = ServerContact(screen, deadline, forever=forever)
    finished: set[str] = set()
    hinted: set[str] = set()
    waiting_since = time.monotonic()
    while True:
        found: FollowResult = contact.read(_read, client, service_id, filters)
        job = found.job
        if job is not None and job["id"] not in finished and not _is_active(job):
            if seen is not None or not forever:
                screen.print_line(_finished_line(screen.palette, found))
            finished.add(job["id"])
        if not forever and not _is_active(job):
            if job is None:
                screen.print_line(_current_line(screen, found))
            return found
        if time.monotonic() >= deadline:
            line = _timeout_line(screen, found)
            if line:
                screen.print_line(line)
            return found
        if job is None or not _is_agent_offline(found):
            waiting_since = time.monotonic()
        elif job["id"] not in hinted and time.monotonic() - waiting_since > HINT_SECONDS:
            hinted.add(job["id"])
            screen.print_line(_hint(found))
        screen.update(_current_line(screen, found))
        state = (found.service["version"], None if job is None else (job["id"], job["status"], job["progress"]))
        pause = MIN_DELAY_SECONDS if state != seen else min(pause * 1.5, MAX_DELAY_SECONDS)
        seen = state
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))


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
    client: Client, jobs: Sequence[Mapping[str, str]], *, quiet: bool, timeout_seconds: float | None
) -> list[FollowResult]:
    """Polls until the runs of all jobs have finished, each with `serviceId` and `runId`. The results are in the order of
    the jobs, and of those that the timeout left active as last read. Neither Ctrl-C nor the timeout affects the runs."""
    with _progress_output("the jobs continue; `mainstay jobs` lists them", quiet=quiet) as screen:
        return _JobGroup(client, jobs, screen, _deadline(timeout_seconds)).poll()


class _JobGroup:
    """Jobs of several services, which are read in turns: one that waits for its agent does not hide the others."""

    def __init__(
        self, client: Client, jobs: Sequence[Mapping[str, str]], screen: ProgressOutput, deadline: float
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._screen = screen
        self._deadline = deadline
        self._contact = ServerContact(screen, deadline)
        self._found: dict[int, FollowResult] = {}
        self._lines: dict[int, str] = {}
        self._active = deque(range(len(jobs)))
        self._offline_since: dict[int, float] = {}
        self._hinted: set[str] = set()

    def poll(self) -> list[FollowResult]:
        pause, deadline = MIN_DELAY_SECONDS, self._deadline
        while self._active:
            has_changed = False
            for _ in range(min(len(self._active), MAX_READS_AT_ONCE)):
                number = self._active.popleft()
                self._found[number] = self._contact.read(self._read_job, number)
                has_changed |= self._show(number)
                if _is_active(self._found[number].job):
                    self._active.append(number)
            if time.monotonic() >= deadline:
                break
            pause = MIN_DELAY_SECONDS if has_changed else min(pause * 1.5, MAX_DELAY_SECONDS)
            if self._active:
                time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        for number in self._active:
            if number not in self._found:
                self._found[number] = self._contact.read(self._read_job, number)
        return [self._found[number] for number in range(len(self._jobs))]

    def _read_job(self, number: int) -> FollowResult:
        job = self._jobs[number]
        return _read(self._client, job["serviceId"], {"runId": job["runId"]})

    def _show(self, number: int) -> bool:
        """Whether something is new."""
        screen, found = self._screen, self._found[number]
        if found.job is None or not _is_active(found.job):
            screen.print_line(
                _current_line(screen, found) if found.job is None else _finished_line(screen.palette, found)
            )
            return True
        self._hint_about_offline_agent(number)
        line = _current_line(screen, found)
        is_new = line != self._lines.get(number)
        self._lines[number] = line
        if screen.live:
            done = len(self._jobs) - len(self._active) - 1
            screen.update(f"{done} of {len(self._jobs)} finished; {line}")
        elif is_new:
            screen.print_line(line)
        return is_new

    def _hint_about_offline_agent(self, number: int) -> None:
        """Once for each agent: many jobs may wait for it."""
        found, now = self._found[number], time.monotonic()
        if not _is_agent_offline(found):
            self._offline_since.pop(number, None)
            return
        since = self._offline_since.setdefault(number, now)
        agent = found.service["agent"]["id"]
        if agent not in self._hinted and now - since > HINT_SECONDS:
            self._hinted.add(agent)
            self._screen.print_line(_hint(found))


def _timeout_line(screen: ProgressOutput, found: FollowResult) -> str:
    line = _current_line(screen, found)
    # In a pipe the same line may be printed already.
    lines = [] if line == screen.last and not screen.live else [line]
    if _is_active(found.job):
        follow_up = f"`mainstay watch {short_id(found.service['id'])}`"
        lines.append(f"  Timed out. The job continues; follow it with {follow_up}.")
    return "\n".join(lines)


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
    return bool(found.job["status"] == "Pending" and found.service["agent"]["status"] != "Connected")


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
        contact = ServerContact(ProgressOutput(quiet=as_json), inf)
        run_id = contact.read(client.get, f"/jobs/{job['id']}")["runId"]
        followed = follow(client, service["id"], run_id=run_id, quiet=as_json, timeout_seconds=arguments.timeout)
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

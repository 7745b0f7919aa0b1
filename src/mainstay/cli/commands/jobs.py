"""Lists jobs, newest first; `jobs show JOB` prints its report from the host, `jobs cancel JOB` cancels it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_limit_option, add_switch, print_json
from mainstay.cli.remote.connection import connected, find_by_id, find_service, get_if_exists, list_items, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.job_progress import cancel_note, progress_text
from mainstay.cli.views.reports import print_host_report
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, DIM, GOOD, Cell, age, elapsed, local_time, print_fields, print_table

SUMMARY = "list jobs, show or cancel one"
GROUP = "order"
DEFAULT_LIMIT = 20
COLOURS = {"Completed": GOOD, "Failed": BAD, "Cancelled": DIM, "Processing": BUSY, "Pending": BUSY}


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "verb", "show|cancel", "show or cancel one job", nargs="?", choices=("show", "cancel"))
    add_argument(parser, "job", "JOB", "id or id prefix", nargs="?")
    add_argument(parser, "--service", "SERVICE", "only jobs of this service")
    add_argument(
        parser, "--status", "STATUS", " | ".join(COLOURS), action="append", default=[], choices=tuple(COLOURS)
    )
    add_limit_option(parser, DEFAULT_LIMIT)
    add_switch(parser, "-v", "--verbose", "show: also show stable resources")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb and not arguments.job:
        raise CommandRefused(f"name the job: mainstay jobs {arguments.verb} JOB")
    with connected(arguments) as client:
        return {"show": _show, "cancel": _cancel, None: _list_jobs}[arguments.verb](client, arguments)


def _list_jobs(client: Client, arguments: argparse.Namespace) -> int:
    query: dict[str, object] = {"sort": "-createdAt"}
    if arguments.service:
        query["serviceId"] = find_service(client, arguments.service)["id"]
    if arguments.status:
        query["status"] = arguments.status
    found = list_items(client, "/jobs", query, arguments.limit)
    if arguments.json:
        print_json(found)
    elif found:
        print_jobs(found, of_one_service=False)
    else:
        print("There are no matching jobs." if arguments.service or arguments.status else "There is no job yet.")
    return 0


def print_jobs(jobs: Sequence[Mapping[str, Any]], *, of_one_service: bool) -> None:
    headers = ("JOB", "SERVICE", "ACTION", "STATUS", "AGENT", "AGE", "DURATION", "MESSAGE")
    rows = [_row(each) for each in jobs]
    if of_one_service:
        print_table([*headers[:1], *headers[2:]], [[*each[:1], *each[2:]] for each in rows])
    else:
        print_table(headers, rows)


def _row(job: Mapping[str, Any]) -> list[Cell]:
    message = job.get("errorMessage") or progress_text(job).removeprefix(", ")
    attempt = f" (attempt {job['attempt']})" if job["attempt"] > 1 else ""
    return [
        short_id(job["id"]),
        job["service"]["name"],
        _action_of(job),
        (job["status"] + attempt, COLOURS.get(job["status"], "")),
        job["agent"]["name"],
        age(job["createdAt"]),
        elapsed(job.get("claimedAt"), job.get("completedAt")),
        message.split("\n")[0] if message else "",
    ]


def _action_of(job: Mapping[str, Any]) -> str:
    return f"{job['action']}, step {job['step']}" if job["step"] > 1 else str(job["action"])


def _show(client: Client, arguments: argparse.Namespace) -> int:
    job = find_by_id(client, "/jobs", arguments.job)
    report = get_if_exists(client, f"/jobs/{job['id']}/report")
    if arguments.json:
        print_json({**job, "report": report})
        return 0
    print_fields(_fields(job, _requested_by(client, job)))
    print_host_report(report, verbose=arguments.verbose)
    return 0


def _requested_by(client: Client, job: Mapping[str, Any]) -> str:
    """The initiator of the run: later steps are queued when an agent completes the step before."""
    first = client.get("/jobs", query={"runId": job["runId"], "sort": "createdAt", "pageSize": 1})["items"]
    query = {"entityId": first[0]["id"] if first else job["id"], "type": "job.created", "pageSize": 1}
    created = client.get("/events", query=query)["items"]
    role = created[0].get("initiatorRole") if created else None
    if role is None:
        return ""
    name = created[0].get("initiatorName") or (job["consumer"]["name"] if role == "participant" else "")
    return f" by {role} {name}".rstrip()


def _fields(job: Mapping[str, Any], requested_by: str) -> list[tuple[str, Cell]]:
    return [
        ("job", job["id"]),
        ("service", f"{job['service']['name']} ({job['service']['status']})"),
        ("action", _action_of(job)),
        ("status", (job["status"] + cancel_note(job) + progress_text(job), COLOURS.get(job["status"], ""))),
        ("message", job.get("errorMessage") or ""),
        ("agent", job["agent"]["name"]),
        ("attempt", str(job["attempt"])),
        ("requested", local_time(job["createdAt"]) + requested_by),
        ("started", local_time(job.get("claimedAt"))),
        ("finished", local_time(job.get("completedAt"))),
        ("duration", elapsed(job.get("claimedAt"), job.get("completedAt"))),
        ("blueprint", job.get("blueprintDigest") or ""),
    ]


def _cancel(client: Client, arguments: argparse.Namespace) -> int:
    job = find_by_id(client, "/jobs", arguments.job)
    client.post(f"/jobs/{job['id']}/cancel")
    after = client.get(f"/jobs/{job['id']}")
    if arguments.json:
        print_json(after)
    elif after["status"] == "Cancelled":
        print(printable(f"Cancelled {after['action']} of {after['service']['name']}."))
    else:
        agent, name = after["agent"]["name"], after["service"]["name"]
        print(
            printable(
                f"Requested cancellation: agent {agent} stops {after['action']} of {name} before the next resource. "
                f"Follow it with `mainstay watch {name}`."
            )
        )
    return 0

"""Lists services: state, agent, whether the host is as wanted, and what is being done. Those that ended only with --all."""

from __future__ import annotations

from mainstay.cli.main import at_least_one
from mainstay.cli.remote.connection import connected, find_agent, find_type, short, some
from mainstay.cli.remote.job_progress import told_progress
from mainstay.cli.remote.service_types import lifecycle_of, state_names, terminal_states
from mainstay.cli.views.tables import BAD, BUSY, GOOD, age, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.views.tables import Cell

    States = tuple[tuple[str, ...], tuple[str, ...]]

SUMMARY = "list services"
SHOWN = 200
MOST_STATES = 100
SYNC_COLOURS = {"True": GOOD, "False": BAD}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", metavar="STATE", action="append", default=[], help="only in this state")
    parser.add_argument("--type", metavar="TYPE", help="only of this service type")
    parser.add_argument("--agent", metavar="AGENT", help="only of this agent")
    parser.add_argument("--name", metavar="TEXT", help="only with this text in their name")
    parser.add_argument("--all", action="store_true", help="also those that have ended")
    parser.add_argument(
        "--limit", metavar="N", type=at_least_one, default=SHOWN, help=f"how many at most; {SHOWN} if not given"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        limit = arguments.limit
        ended = {} if arguments.all or arguments.status else _ended_states(client)
        found = some(client, "/services", _wanted(client, arguments, ended), limit + 1)
        found = [each for each in found if each["status"] not in ended.get(each["serviceTypeId"], ((), ()))[1]]
        statuses = {each["activeJob"]["status"] for each in found if each["activeJob"]}
        jobs = _active_jobs(client, statuses) if statuses else {}
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json([{**each, "activeJob": jobs.get(each["id"], each["activeJob"])} for each in found[:limit]])
        return 0
    if not found:
        print(
            "There is no such service."
            if _narrowed(arguments)
            else "There is no service yet; `mainstay types` lists what can be ordered."
        )
        return 0
    print_table(
        ("NAME", "TYPE", "STATUS", "AGENT", "IN SYNC", "JOB", "AGE", "ID"),
        [_row(each, jobs.get(each["id"], each["activeJob"])) for each in found[:limit]],
    )
    if len(found) > limit:
        print(f"There are more than {limit}; narrow it down or say --limit N.")
    return 0


def _narrowed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.status or arguments.type or arguments.agent or arguments.name)


def _wanted(client: Client, arguments: argparse.Namespace, ended: Mapping[str, States]) -> dict[str, object]:
    query: dict[str, object] = {"sort": "name"}
    if arguments.type:
        query["serviceTypeId"] = find_type(client, arguments.type)["id"]
    if arguments.agent:
        query["agentId"] = find_agent(client, arguments.agent)["id"]
    if arguments.name:
        query["name"] = arguments.name
    if arguments.status:
        query["status"] = arguments.status
    # Most of those that ended are left out by the server: there may be many more of them than of the others.
    alive = sorted({state for states in ended.values() for state in states[0]})
    if 0 < len(alive) <= MOST_STATES:
        query["status"] = alive
    return query


def _ended_states(client: Client) -> dict[str, States]:
    """For each service type the states in which a service lives, and those in which it has ended."""
    found = {}
    for each in some(client, "/service-types"):
        ended = terminal_states(each)
        found[each["id"]] = (tuple(set(state_names(lifecycle_of(each))) - ended), tuple(ended))
    return found


def _active_jobs(client: Client, statuses: set[str]) -> dict[str, Any]:
    """By service. The services name the statuses that count as active, so there is no list of them here."""
    found = some(client, "/jobs", {"status": sorted(statuses)})
    return {job["serviceId"]: {key: job[key] for key in ("id", "action", "status", "progress")} for job in found}


def _row(service: Mapping[str, Any], job: Mapping[str, Any] | None) -> list[Cell]:
    agent = service["agent"]
    sick = agent["status"] != "Connected"
    return [
        service["name"],
        service["serviceType"]["name"],
        service["status"],
        (f"{agent['name']} ({agent['status']})", BUSY) if sick else agent["name"],
        _sync_cell(service["conditions"]),
        (f"{job['action']} {job['status'].lower()}{told_progress(job)}", BUSY) if job else "",
        age(service["createdAt"]),
        short(service["id"]),
    ]


def _sync_cell(conditions: list[Any]) -> Cell:
    for condition in conditions:
        if condition.get("type") == "InSync":
            status = str(condition.get("status"))
            return (str(condition.get("reason") or status), SYNC_COLOURS.get(status, BUSY))
    return ""

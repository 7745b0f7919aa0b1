"""Lists services with owner, provider, version, state, agent, drift and active job. Deleted services are listed only with
--all."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import add_argument, add_limit_option, add_list_option, add_switch, print_json
from mainstay.cli.remote.connection import connected, find_agent, find_named, find_type, list_items, name_of, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.job_progress import progress_text
from mainstay.cli.remote.service_types import lifecycle_of, state_names, terminal_states
from mainstay.cli.views.tables import BAD, BUSY, GOOD, Cell, age, print_table

States = tuple[tuple[str, ...], tuple[str, ...]]


SUMMARY = "list services"
GROUP = "order"
DEFAULT_LIMIT = 200
MAX_STATES = 100
DEFAULT_GROUP = "default"
JOB_WORDS = {"Pending": "queued", "Processing": "running"}
IN_SYNC = ("True", "False", "Unknown")
SYNC_COLOURS = {"True": GOOD, "False": BAD}


def configure(parser: argparse.ArgumentParser) -> None:
    add_list_option(parser, "--status", "STATE", "only services in this state")
    add_argument(parser, "--type", "TYPE", "only services of this type")
    add_argument(parser, "--agent", "AGENT", "only services of this agent")
    add_argument(parser, "--group", "GROUP", "only services of this group")
    add_argument(parser, "--for", "PARTICIPANT", "only services of this customer", dest="consumer")
    add_argument(
        parser, "--in-sync", "STATUS", f"only services whose IN SYNC is {', '.join(IN_SYNC)}", choices=IN_SYNC
    )
    add_argument(parser, "--name", "TEXT", "only services whose name contains this text")
    add_switch(parser, "--all", "also services in a terminal state")
    add_limit_option(parser, DEFAULT_LIMIT)
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        limit = arguments.limit
        states = {} if arguments.all or arguments.status else _states_by_type(client)
        found = list_items(client, "/services", _query(client, arguments, states), limit + 1)
        found = [each for each in found if each["status"] not in states.get(each["serviceTypeId"], ((), ()))[1]]
        statuses = {each["activeJob"]["status"] for each in found if each["activeJob"]}
        jobs = _active_jobs(client, statuses) if statuses else {}
    if arguments.json:
        print_json([{**each, "activeJob": jobs.get(each["id"], each["activeJob"])} for each in found[:limit]])
        return 0
    if not found:
        print(
            "There are no matching services."
            if _has_filter(arguments)
            else "There is no service yet; `mainstay types` lists what can be ordered."
        )
        return 0
    print_table(
        ("NAME", "TYPE", "VERSION", "STATUS", "OWNER", "PROVIDER", "AGENT", "IN SYNC", "JOB", "AGE", "ID"),
        [_row(each, jobs.get(each["id"], each["activeJob"])) for each in found[:limit]],
        optional_columns=("PROVIDER", "OWNER", "VERSION"),
    )
    if len(found) > limit:
        print(f"There are more than {limit} services; use a filter or --limit N.")
    return 0


def _has_filter(arguments: argparse.Namespace) -> bool:
    names = ("status", "type", "agent", "in_sync", "name", "group", "consumer")
    return any(getattr(arguments, name) for name in names)


def _query(client: Client, arguments: argparse.Namespace, states: Mapping[str, States]) -> dict[str, object]:
    query: dict[str, object] = {"sort": "name"}
    if arguments.type:
        query["serviceTypeId"] = find_type(client, arguments.type)["id"]
    if arguments.agent:
        query["agentId"] = find_agent(client, arguments.agent)["id"]
    if arguments.group:
        query["groupId"] = find_named(client, "/service-groups", arguments.group)["id"]
    if arguments.consumer:
        query["consumerId"] = find_named(client, "/participants", arguments.consumer)["id"]
    if arguments.name:
        query["name"] = arguments.name
    if arguments.in_sync:
        query["inSync"] = arguments.in_sync
    if arguments.status:
        query["status"] = arguments.status
    # Filter on the server: there may be many more deleted services than others.
    live_states = sorted({state for live, _ in states.values() for state in live})
    if 0 < len(live_states) <= MAX_STATES:
        query["status"] = live_states
    return query


def _states_by_type(client: Client) -> dict[str, States]:
    """For each service type its non-terminal and its terminal states."""
    found = {}
    for each in list_items(client, "/service-types"):
        terminal = terminal_states(each)
        found[each["id"]] = (tuple(set(state_names(lifecycle_of(each))) - terminal), tuple(terminal))
    return found


def _active_jobs(client: Client, statuses: set[str]) -> dict[str, Any]:
    """The active jobs by service id. `statuses` come from the services, so no list of active statuses is needed."""
    found = list_items(client, "/jobs", {"status": sorted(statuses)})
    return {job["serviceId"]: {key: job[key] for key in ("id", "action", "status", "progress")} for job in found}


def _row(service: Mapping[str, Any], job: Mapping[str, Any] | None) -> list[Cell]:
    agent = service["agent"]
    is_offline = agent["status"] != "Connected"
    return [
        service["name"],
        service["serviceType"]["name"],
        # Servers of older releases embed neither version nor parties.
        str(service.get("blueprintVersion") or ""),
        service["status"],
        _owner_text(service),
        name_of(service, "provider"),
        (f"{agent['name']} ({agent['status']})", BUSY) if is_offline else agent["name"],
        _sync_cell(service["conditions"]),
        (f"{job['action']} {JOB_WORDS.get(job['status'], job['status'])}{progress_text(job)}", BUSY) if job else "",
        age(service["createdAt"]),
        short_id(service["id"]),
    ]


def _owner_text(service: Mapping[str, Any]) -> str:
    """The customer, with its group unless that is the default one."""
    group = name_of(service, "group")
    return name_of(service, "consumer") + (f" / {group}" if group not in ("", DEFAULT_GROUP) else "")


def _sync_cell(conditions: list[Any]) -> Cell:
    for condition in conditions:
        if condition.get("type") == "InSync":
            status = str(condition.get("status"))
            if condition.get("lastReportedAt"):
                last = condition.get("lastReason") or condition.get("lastStatus")
                return (f"Unknown (was {last} {age(condition['lastReportedAt'])} ago)", BUSY)
            return (str(condition.get("reason") or status), SYNC_COLOURS.get(status, BUSY))
    return ""

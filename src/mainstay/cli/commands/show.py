"""Shows one service: properties (never secrets), available actions, conditions with diffs, and jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from mainstay.cli.commands.jobs import print_jobs
from mainstay.cli.main import add_argument, add_switch, print_json
from mainstay.cli.remote.connection import connected, find_service, name_of, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.service_types import hide_secrets, members_of
from mainstay.cli.views.run_display import Palette, diff_line, printable
from mainstay.cli.views.tables import (
    BAD,
    BOLD,
    BUSY,
    GOOD,
    Cell,
    age,
    local_time,
    print_fields,
    print_table,
    tree_lines,
)

SUMMARY = "show one service"
GROUP = "order"
LAST_JOBS = 5
COLOURS = {"True": GOOD, "False": BAD}


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix")
    add_switch(parser, "-v", "--verbose", "also show the provenance of each property, and the agent's data")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        path = f"/services/{service['id']}"
        members = members_of(client.get(f"/service-types/{service['serviceTypeId']}"))
        newest = {"serviceId": service["id"], "sort": "-createdAt", "pageSize": LAST_JOBS}
        jobs = client.get("/jobs", query=newest)["items"]
        origins = client.get(f"{path}/provenance")["properties"] if arguments.verbose else None
    if arguments.json:
        without = [{key: value for key, value in job.items() if key != "service"} for job in jobs]
        print_json({**service, "jobs": without, **({} if origins is None else {"provenance": origins})})
        return 0
    print_fields(_fields(service))
    properties = hide_secrets(service["properties"], members)
    if properties:
        _section("properties", tree_lines(properties))
    if arguments.verbose and isinstance(service.get("agentInstanceData"), dict):
        _section("agent data", tree_lines(service["agentInstanceData"]))
    if service["conditions"]:
        _section("conditions", [line for each in service["conditions"] for line in _condition_lines(each)])
    if origins:
        _section("provenance", [])
        print_table(
            ("PROPERTY", "SET BY", "HOW", "AGE", "JOB"), [_origin_row(path, each) for path, each in origins.items()]
        )
    if jobs:
        _section("latest jobs", [])
        print_jobs(jobs, of_one_service=True)
    return 0


def _section(title: str, lines: list[str]) -> None:
    print("\n".join(["", Palette(sys.stdout).paint(title, BOLD), *lines]))


def _fields(service: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    agent = service["agent"]
    return [
        ("name", service["name"]),
        ("id", service["id"]),
        ("type", service["serviceType"]["name"]),
        ("status", (service["status"], BOLD)),
        ("actions", _actions_text(service)),
        ("agent", (f"{agent['name']} ({agent['status']})", GOOD if agent["status"] == "Connected" else BUSY)),
        # Servers of older releases have no orphans.
        ("clean-up", ("an agent owes a clean-up; see `mainstay clean-ups`", BUSY) if service.get("orphan") else ""),
        ("instance", service.get("agentInstanceId") or ""),
        ("owner", name_of(service, "consumer")),
        ("provider", name_of(service, "provider")),
        ("group", name_of(service, "group")),
        ("blueprint", _blueprint_text(service)),
        ("created", f"{local_time(service['createdAt'])} ({age(service['createdAt'])} ago)"),
    ]


def _blueprint_text(service: Mapping[str, Any]) -> str:
    digest, version = service.get("blueprintDigest"), service.get("blueprintVersion")
    return f"{version} ({digest})" if version else str(digest or "")


def _actions_text(service: Mapping[str, Any]) -> str:
    active = service.get("activeJob")
    if active is not None:
        return f"none until {active['action']} has finished"
    return ", ".join(service["availableActions"])


def _condition_lines(condition: Mapping[str, Any]) -> list[str]:
    palette = Palette(sys.stdout)
    status, reason = str(condition.get("status")), str(condition.get("reason") or "")
    head = f"  {printable(str(condition.get('type')))}  {palette.paint(printable(status), COLOURS.get(status, BUSY))}"
    message = str(condition.get("message") or "")
    first, *rest = message.split("\n")
    if condition.get("lastReportedAt"):
        last = condition.get("lastReason") or condition.get("lastStatus")
        reason += f", was {last} {age(condition['lastReportedAt'])} ago"
    head += "".join(f"  {printable(text)}" for text in (reason, first) if text and text != status)
    return [head, *(diff_line(palette, line) for line in rest)]


def _origin_row(path: str, origin: Mapping[str, Any]) -> list[Cell]:
    how = str(origin.get("how") or "")
    return [path, str(origin.get("actor") or ""), how, age(origin.get("at")), short_id(origin.get("jobId") or "")]

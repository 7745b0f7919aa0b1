"""Tells what happened: the last events, and with --follow those to come, in order and without a gap.

Events of a service (--service) are its own and those of its jobs. With --follow, --json prints one document per line."""

from __future__ import annotations

import json
import sys
import time

from mainstay.agent.client import Unreachable
from mainstay.cli.remote.connection import connected, find_service, print_warning, short, some
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BAD, BOLD, BUSY, DIM, GOOD, clock, cut, plain, terminal_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mainstay.agent.client import Client

SUMMARY = "tell what happened, or follow it"
SHOWN = 20
MOST_IDS = 100
TYPE_WIDTH = 22
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
# They change with everything, and tell nothing.
SILENT = ("updatedAt", "version", "createdAt", "lastStatusUpdate", "claimedAt", "completedAt", "leaseExpiresAt")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", "-f", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument("--type", metavar="TEXT", default="", help="only types with this text, such as job.")
    parser.add_argument("--service", metavar="SERVICE", help="only of this service and its jobs")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=SHOWN, help=f"how many past ones; {SHOWN} if not given"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        about = _entities(client, arguments.service) if arguments.service else None
        query: dict[str, object] = {"sort": "-sequenceNumber"}
        newest = client.get("/events", query={**query, "pageSize": 1})["items"]
        last = int(newest[0]["sequenceNumber"]) if newest else 0
        if arguments.type:
            query["type"] = arguments.type
        if about is not None:
            query["entityId"] = sorted(about)[:MOST_IDS]
        past = some(client, "/events", query, arguments.limit)[::-1] if arguments.limit > 0 else []
        past = [each for each in past if int(each["sequenceNumber"]) <= last or not arguments.follow]
        if not arguments.follow:
            return _tell(past, as_json=arguments.json)
        for event in past:
            _tell_one(event, as_json=arguments.json)
        for event in _coming(client, last):
            if _is_wanted(event, arguments.type, about):
                _tell_one(event, as_json=arguments.json)
    return 0


def _entities(client: Client, service: str) -> set[str]:
    """The ids that a service's events are about: its own, and those of its newest jobs."""
    found = find_service(client, service)
    jobs = some(client, "/jobs", {"serviceId": found["id"], "sort": "-createdAt"}, MOST_IDS - 1)
    return {found["id"], *(job["id"] for job in jobs)}


def _is_wanted(event: Mapping[str, Any], kind: str, about: set[str] | None) -> bool:
    if about is not None and event["entityId"] not in about:
        # A job that is made for the service belongs to it from now on.
        if not any(each.get("path") == "/serviceId" and each.get("value") in about for each in _changes(event)):
            return False
        about.add(event["entityId"])
    return kind in event["type"]


def _coming(client: Client, last: int) -> Iterator[Any]:
    """Events after a number; a lost connection is made anew from the last one that came."""
    pause, warned = 0.0, False
    while True:
        try:
            for event in client.stream("/events/stream", last_event_id=str(last)):
                last = int(event["sequenceNumber"])
                pause, warned = 0.0, False
                yield event
        except Unreachable as error:
            if not warned:
                print_warning(f"{error}; connecting again")
            warned = True
        pause = min(max(SHORTEST_PAUSE_SECONDS, pause * 2), LONGEST_PAUSE_SECONDS)
        time.sleep(pause)


def _tell(events: list[Any], *, as_json: bool) -> int:
    if as_json:
        from mainstay.cli.local_run import print_json

        print_json(events)
        return 0
    for event in events:
        _tell_one(event, as_json=False)
    if not events:
        print("There is no such event.")
    return 0


def _tell_one(event: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(event, ensure_ascii=True), flush=True)
        return
    paint = Palette(sys.stdout).paint
    kind = event["type"]
    head = f"{clock(event['createdAt'])}  {kind:<{TYPE_WIDTH}}  {short(event['entityId'])}"
    line = f"{head}  {printable(_said(event))}".rstrip()
    limit = terminal_width()
    line = line if limit is None else cut(line, limit)
    coloured = line.replace(kind, paint(kind, _colour_of(kind)), 1)
    print(coloured, flush=True)


def _colour_of(kind: str) -> str:
    if kind.endswith(("failed", "deleted")):
        return BAD
    if kind.endswith(("created", "completed")):
        return GOOD
    return BUSY if kind.endswith("transitioned") else BOLD if kind.startswith("token") else DIM


def _changes(event: Mapping[str, Any]) -> list[Any]:
    diff = (event.get("properties") or {}).get("diff")
    return [each for each in diff if isinstance(each, dict)] if isinstance(diff, list) else []


def _said(event: Mapping[str, Any]) -> str:
    """What changed, in short; of something new, what it is called."""
    told = {str(each.get("path", "")).lstrip("/").replace("/", "."): each for each in _changes(event)}
    if event["type"].endswith((".created", ".deleted")):
        found = told.get("name") or told.get("action") or {}
        return plain(found["value"]) if "value" in found else ""
    parts = []
    for name, change in told.items():
        if name in SILENT or name.endswith("Id"):
            continue
        value = change.get("value")
        if name == "conditions" and isinstance(value, list):
            parts += [f"{each.get('type')}={each.get('reason') or each.get('status')}" for each in value]
        else:
            gone = change.get("op") == "remove" or value is None
            parts.append(f"{name} removed" if gone else f"{name}={plain(value)}")
    return ", ".join(parts)

"""Lists the latest events. With --follow, also prints new events, in order and without gaps.

--service selects the events of a service and of its jobs. With --follow, --json prints one document per line.
`events verify` (admin) recomputes the hash chain of all events, and compares it with the last event that it saw on this
server: exit code 0 intact, 1 changed, inserted or missing events, with the number of the first."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mainstay.agent.client import Client, Unreachable
from mainstay.cli.main import add_argument, add_switch, print_json
from mainstay.cli.remote.connection import connected, find_service, list_items, print_warning, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.event_chain import verify
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BAD, BOLD, BUSY, DIM, GOOD, format_value, local_time, terminal_width, truncate

SUMMARY = "list, follow or verify events"
GROUP = "operate"
DEFAULT_LIMIT = 20
MAX_IDS = 100
TYPE_WIDTH = 22
MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.5, 15.0
# Fields that change with every update.
IGNORED = (
    "updatedAt",
    "version",
    "createdAt",
    "lastStatusUpdate",
    "claimedAt",
    "completedAt",
    "leaseExpiresAt",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "verb", "verify", "check the hash chain instead of listing", nargs="?", choices=("verify",))
    add_switch(parser, "--follow", "-f", "also print new events, until Ctrl-C")
    add_argument(parser, "--type", "TEXT", "only event types that contain this text, such as job.", default="")
    add_argument(parser, "--service", "SERVICE", "only events of this service and its jobs")
    add_argument(
        parser, "--limit", "N", f"number of past events (default {DEFAULT_LIMIT})", type=int, default=DEFAULT_LIMIT
    )
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        if arguments.verb == "verify":
            return verify(client, as_json=arguments.json)
        entity_ids = _entity_ids(client, arguments.service) if arguments.service else None
        query: dict[str, object] = {"sort": "-sequenceNumber"}
        newest = client.get("/events", query={**query, "pageSize": 1})["items"]
        last = int(newest[0]["sequenceNumber"]) if newest else 0
        if arguments.type:
            query["type"] = arguments.type
        if entity_ids is not None:
            query["entityId"] = sorted(entity_ids)[:MAX_IDS]
        past = list_items(client, "/events", query, arguments.limit)[::-1] if arguments.limit > 0 else []
        past = [each for each in past if int(each["sequenceNumber"]) <= last or not arguments.follow]
        if not arguments.follow:
            return _print_events(past, as_json=arguments.json)
        for event in past:
            _print_event(event, as_json=arguments.json)
        for event in _stream(client, last):
            if _matches(event, arguments.type, entity_ids):
                _print_event(event, as_json=arguments.json)
    return 0


def _entity_ids(client: Client, service: str) -> set[str]:
    """The ids of a service and of its newest jobs."""
    found = find_service(client, service)
    jobs = list_items(client, "/jobs", {"serviceId": found["id"], "sort": "-createdAt"}, MAX_IDS - 1)
    return {found["id"], *(job["id"] for job in jobs)}


def _matches(event: Mapping[str, Any], kind: str, entity_ids: set[str] | None) -> bool:
    if entity_ids is not None and event["entityId"] not in entity_ids:
        # Include new jobs of the service.
        if not any(each.get("path") == "/serviceId" and each.get("value") in entity_ids for each in _changes(event)):
            return False
        entity_ids.add(event["entityId"])
    return kind in event["type"]


def _stream(client: Client, last: int) -> Iterator[Any]:
    """Yields events after a sequence number. Reconnects from the last received event."""
    pause, warned = 0.0, False
    while True:
        try:
            for event in client.stream("/events/stream", last_event_id=str(last)):
                if "deletedUpTo" in event:
                    print_warning(f"events {last + 1} to {event['deletedUpTo']} are deleted; some are missing here")
                    last = int(event["deletedUpTo"])
                    continue
                last = int(event["sequenceNumber"])
                pause, warned = 0.0, False
                yield event
        except Unreachable as error:
            if not warned:
                print_warning(f"{error}; reconnecting")
            warned = True
        pause = min(max(MIN_DELAY_SECONDS, pause * 2), MAX_DELAY_SECONDS)
        time.sleep(pause)


def _print_events(events: list[Any], *, as_json: bool) -> int:
    if as_json:
        print_json(events)
        return 0
    for event in events:
        _print_event(event, as_json=False)
    if not events:
        print("There are no matching events.")
    return 0


def _print_event(event: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(event, ensure_ascii=True), flush=True)
        return
    paint = Palette(sys.stdout).paint
    kind = event["type"]
    head = f"{local_time(event['createdAt'])}  {kind:<{TYPE_WIDTH}}  {short_id(event['entityId'])}"
    line = f"{head}  {printable(_summary(event))}".rstrip()
    limit = terminal_width()
    line = line if limit is None else truncate(line, limit)
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


def _member(change: Mapping[str, Any]) -> str:
    return str(change.get("path", "")).lstrip("/").replace("/", ".")


def _summary(event: Mapping[str, Any]) -> str:
    """The changed fields; for a created or deleted entity its name or action."""
    changes = {_member(each): each for each in _changes(event) if each.get("op") != "test"}
    if event["type"].endswith((".created", ".deleted")):
        found = changes.get("name") or changes.get("action") or {}
        return format_value(found["value"]) if "value" in found else ""
    parts = []
    old = {_member(each): each.get("value") for each in _changes(event) if each.get("op") == "test"}
    for name, change in changes.items():
        if name in IGNORED or name.endswith("Id"):
            continue
        value = change.get("value")
        if name == "conditions" and isinstance(value, list):
            parts += [f"{each.get('type')}={each.get('reason') or each.get('status')}" for each in value]
        else:
            is_removed = change.get("op") == "remove" or value is None
            was = f" (was {format_value(old[name])})" if old.get(name) is not None else ""
            parts.append(f"{name} removed{was}" if is_removed else f"{name}={format_value(value)}{was}")
    return ", ".join(parts)

"""Rolls out an action to all services of a type, in waves: mainstay rollout web --action update --batch 10%

`rollout list` lists roll-outs, `rollout status ROLLOUT` shows one and follows it, `rollout pause|resume|abort ROLLOUT`
change it, `rollout versions TYPE` counts the services on each version. The next wave starts when every service of the
last one has ended; at --max-failures failed runs the roll-out stops. All of this is for admins. Exit code: 0 completed,
1 stopped, aborted or with failed services, 2 refused, 4 not finished within --timeout."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import EXIT_FAILED, connected, find_by_id, find_type, list_items, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.job_progress import (
    EXIT_TIMEOUT,
    ProgressOutput,
    Waiting,
    add_wait_options,
    follow_until_ended,
)
from mainstay.cli.remote.removal import confirm_by_name, print_list
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import (
    BAD,
    BUSY,
    GOOD,
    Cell,
    age,
    local_time,
    print_fields,
    print_table,
    progress_bar,
)

SUMMARY = "roll out an action to all services of a type, or see and change roll-outs"
GROUP = "operate"
VERBS = ("list", "status", "pause", "resume", "abort", "versions")
COLOURS = {
    "Running": BUSY,
    "Completed": GOOD,
    "Stopped": BAD,
    "Aborted": BAD,
    "Paused": BUSY,
    "Failed": BAD,
    "Done": GOOD,
}
# States that need no operator.
ACTIVE = ("Running",)
WAITING = ("Paused", "Stopped")
OPEN = (*ACTIVE, *WAITING)
SHOWN_ITEMS = 20
MAX_VERSIONS = 1000
UNENDED = ("waiting", "running")


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(
        parser,
        "what",
        "TYPE|list|status|pause|resume|abort|versions",
        "the service type to roll out to, or what to do with a roll-out",
    )
    add_argument(
        parser,
        "rollout",
        "ROLLOUT",
        "id or id prefix; default: the newest, for abort the only open one; versions: the service type",
        nargs="?",
    )
    add_argument(parser, "--action", "ACTION", "action of the lifecycle (default: update)", default="update")
    add_argument(parser, "--to", "VERSION", "version of the blueprint; default for update: the latest")
    add_argument(parser, "--batch", "N|N%", "size of a wave (default: 10%%)", default="10%")
    add_argument(parser, "--max-failures", "N", "stop after N failed services (default: 1)", type=int, default=1)
    add_switch(parser, "--pause", "create it paused; `rollout resume` starts it")
    add_switch(parser, "--yes", "roll out delete: do not ask for a confirmation")
    add_wait_options(parser, "follow the roll-out until it ends")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        if arguments.what not in VERBS:
            return _start(client, arguments)
        if arguments.what == "list":
            return _list_rollouts(client, arguments)
        if arguments.what == "versions":
            return _show_versions(client, arguments)
        if arguments.what == "abort" and arguments.rollout is None:
            rollout = _only_open(client)
        else:
            rollout = _named(client, arguments.rollout)
        if arguments.what != "status":
            rollout = client.post(f"/rollouts/{rollout['id']}/{arguments.what}")
        follows = arguments.wait and arguments.what in ("status", "resume")
        return _follow_or_report(client, rollout, arguments, follows=follows)


def _named(client: Client, wanted: str | None) -> Any:
    if wanted is not None:
        return find_by_id(client, "/rollouts", wanted)
    found = client.get("/rollouts", query={"sort": "-createdAt", "pageSize": 1})["items"]
    if not found:
        raise CommandRefused("there is no roll-out yet; `mainstay rollout TYPE` starts one")
    return found[0]


def _only_open(client: Client) -> Any:
    """Nothing resumes an aborted roll-out, so it must be clear which one is meant."""
    found = list_items(client, "/rollouts", {"status": list(OPEN), "sort": "-createdAt"})
    if not found:
        raise CommandRefused("there is no open roll-out; `mainstay rollout list` lists all of them")
    if len(found) > 1:
        rows = "\n".join(
            f"  {short_id(each['id'])}  {each['serviceType']['name']} {each['action']}" for each in found[:10]
        )
        raise CommandRefused(f"{len(found)} roll-outs are open; name one: mainstay rollout abort ROLLOUT\n{rows}")
    return found[0]


def _start(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.rollout is not None:
        raise CommandRefused(f"`rollout {arguments.what}` takes one name; --help lists the other forms")
    kind = find_type(client, arguments.what)
    if arguments.action == "delete" and not arguments.yes:
        _confirm_deletion(client, arguments, kind)
    body: dict[str, Any] = {
        "serviceTypeId": kind["id"],
        "action": arguments.action,
        "batch": arguments.batch,
        "maxFailures": arguments.max_failures,
    }
    if arguments.to:
        body["blueprintVersion"] = arguments.to
    if arguments.pause:
        body["status"] = "Paused"
    rollout = client.post("/rollouts", body)
    return _follow_or_report(client, rollout, arguments, follows=arguments.wait and not arguments.pause)


def _confirm_deletion(client: Client, arguments: argparse.Namespace, kind: Mapping[str, Any]) -> None:
    query = {"serviceTypeId": kind["id"], "living": "true", "pageSize": 1}
    page = client.get("/services", query=query)
    count = f"more than {page['totalItems']}" if page.get("totalIsBounded") else page["totalItems"]
    warning = f"This deletes {count} services of {kind['name']}, of all customers."
    confirm_by_name(arguments, warning, kind["name"], "delete them", "deleted")


# ---- one roll-out ----
def _follow_or_report(client: Client, rollout: Any, arguments: argparse.Namespace, *, follows: bool) -> int:
    timed_out = False
    if follows:
        command = f"mainstay rollout status {short_id(rollout['id'])}"
        rollout, timed_out = follow_until_ended(
            Waiting(arguments.timeout, "the roll-out continues", command, arguments.json),
            partial(client.get, f"/rollouts/{rollout['id']}"),
            _has_ended,
            _show_progress,
        )
    items = list_items(client, f"/rollouts/{rollout['id']}/items", {"status": ["Failed", "Skipped"]}, SHOWN_ITEMS + 1)
    if arguments.json:
        print_json({**rollout, "failedOrSkipped": items[:SHOWN_ITEMS]})
    else:
        _print_rollout(rollout, _planned_items(client, rollout) or items)
    if timed_out:
        return EXIT_TIMEOUT
    # What was asked for has happened: a paused or aborted roll-out is then no failure.
    if not follows:
        return 0
    return EXIT_FAILED if rollout["status"] in ("Stopped", "Aborted") or rollout["items"]["failed"] else 0


def _planned_items(client: Client, rollout: Mapping[str, Any]) -> list[Any]:
    """All items in the order of their waves, of a small roll-out that waits for an admin."""
    if rollout["status"] not in WAITING or rollout["total"] > SHOWN_ITEMS:
        return []
    items = list_items(client, f"/rollouts/{rollout['id']}/items", {}, SHOWN_ITEMS)
    return sorted(items, key=lambda item: (item["wave"], item["service"]["name"]))


def _has_ended(rollout: Mapping[str, Any]) -> bool:
    """Also when it waits for an admin."""
    return rollout["status"] not in ACTIVE and not rollout["items"]["running"]


def _show_progress(screen: ProgressOutput, rollout: Mapping[str, Any]) -> object:
    if not _has_ended(rollout):
        screen.update(_progress_line(rollout, live=screen.live))
    return rollout["items"]


def _progress_line(rollout: Mapping[str, Any], *, live: bool) -> str:
    counts, total = rollout["items"], rollout["total"]
    ended = total - sum(counts[name] for name in UNENDED)
    name = f"{printable(rollout['serviceType']['name'])}: {printable(rollout['action'])}"
    bar = f" {progress_bar(ended / max(total, 1))}" if live else ""
    wave = f"wave {rollout['wave']} of {_wave_count(rollout)}" if rollout["wave"] else "no wave started"
    numbers = f"{wave}, {ended} of {total} ended, {counts['running']} running, {counts['failed']} failed"
    return f"{name} {rollout['status'].lower()},{bar} {numbers}"


def _wave_count(rollout: Mapping[str, Any]) -> int:
    """A resumed roll-out repeats failed services in a wave of their own."""
    return max(-(-int(rollout["total"]) // int(rollout["batchSize"])), int(rollout["wave"]))


def _waves_text(rollout: Mapping[str, Any]) -> str:
    size = rollout["batchSize"]
    return (
        f"{rollout['wave']} of {_wave_count(rollout)} started, {size} {'service' if size == 1 else 'services'} each"
    )


def _print_rollout(rollout: Mapping[str, Any], items: list[Any]) -> None:
    counts = rollout["items"]
    status = rollout["status"]
    print_fields(
        [
            ("roll-out", rollout["id"]),
            ("type", rollout["serviceType"]["name"]),
            (
                "action",
                rollout["action"] + (f" to {rollout['blueprintVersion']}" if rollout.get("blueprintVersion") else ""),
            ),
            ("status", (status, COLOURS.get(status, BUSY))),
            ("waves", _waves_text(rollout)),
            (
                "services",
                f"{rollout['total']}: " + ", ".join(f"{number} {name}" for name, number in counts.items() if number),
            ),
            ("failures", f"{rollout['failures']}; stops at {rollout['maxFailures']}"),
            ("started", f"{local_time(rollout['createdAt'])} ({age(rollout['createdAt'])} ago)"),
        ]
    )
    if items:
        print()
        print_table(("SERVICE", "WAVE", "STATUS", "JOB", "REASON"), [_item_row(each) for each in items[:SHOWN_ITEMS]])
    if len(items) > SHOWN_ITEMS:
        print("There are more; the page of the roll-out lists all of them.")
    if status in WAITING:
        print(f"\nThe roll-out waits for you: `mainstay rollout resume|abort {short_id(rollout['id'])}`")


def _item_row(item: Mapping[str, Any]) -> list[Cell]:
    return [
        item["service"]["name"],
        str(item["wave"]),
        (item["status"], COLOURS.get(item["status"], BUSY)),
        short_id(item.get("jobId") or ""),
        str(item.get("reason") or ""),
    ]


# ---- lists ----
def _list_rollouts(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, "/rollouts", {"sort": "-createdAt"})
    headers = ("ROLLOUT", "TYPE", "ACTION", "VERSION", "STATUS", "DONE", "FAILED", "SKIPPED", "SERVICES", "AGE")
    empty = "There are no roll-outs. `mainstay rollout TYPE` starts one."
    return print_list(arguments, found, headers, map(_row, found), empty)


def _row(rollout: Mapping[str, Any]) -> list[Cell]:
    counts, status = rollout["items"], rollout["status"]
    return [
        short_id(rollout["id"]),
        rollout["serviceType"]["name"],
        rollout["action"],
        rollout.get("blueprintVersion") or "",
        (status, COLOURS.get(status, BUSY)),
        str(counts["done"]),
        (str(counts["failed"]), BAD) if counts["failed"] else "0",
        str(counts["skipped"]),
        str(rollout["total"]),
        age(rollout["createdAt"]),
    ]


def _show_versions(client: Client, arguments: argparse.Namespace) -> int:
    """Which services are on which version; the server counts."""
    if arguments.rollout is None:
        raise CommandRefused("name the service type: mainstay rollout versions TYPE")
    kind = find_type(client, arguments.rollout)
    known = list_items(client, "/blueprints", {"serviceTypeId": kind["id"], "sort": "-createdAt"}, MAX_VERSIONS)
    found = [
        {
            "version": each["version"],
            "digest": each["digest"],
            "isCurrent": each["isCurrent"],
            "services": _count(client, kind, each["digest"]),
        }
        for each in known
    ]
    others = _count(client, kind, None) - sum(each["services"] for each in found)
    # Below zero if the server stopped counting.
    if others > 0:
        found.append({"version": None, "digest": None, "isCurrent": False, "services": others})
    if arguments.json:
        print_json(found)
        return 0
    print_table(
        ("VERSION", "SERVICES", "", "BLUEPRINT"),
        [
            [
                each["version"] or "other",
                str(each["services"]),
                ("latest", GOOD) if each["isCurrent"] else "",
                (each["digest"] or "")[:19],
            ]
            for each in found
        ],
    )
    return 0


def _count(client: Client, kind: Mapping[str, Any], digest: str | None) -> int:
    query = {"serviceTypeId": kind["id"], "living": "true", "pageSize": 1}
    if digest is not None:
        query["blueprintDigest"] = digest
    return int(client.get("/services", query=query)["totalItems"])

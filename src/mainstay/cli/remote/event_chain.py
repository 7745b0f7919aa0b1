"""Verifies the hash chain of a server's events against the server and against the last verification."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, print_json
from mainstay.cli.remote.connection import EXIT_FAILED, get_if_exists, write_private
from mainstay.foundation.canonical_json import canonical_json

HEADS_FILE = "event-heads.json"


class BrokenChain(Exception):
    """`number` is the first event that is not as it was recorded."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def verify(client: Client, *, as_json: bool) -> int:
    if client.get("/tokens/me")["role"] != "admin":
        raise CommandRefused("`events verify` needs an admin token: other callers do not see every event")
    checkpoint = _read_checkpoint(client)
    while True:
        try:
            number, note = _verify_from(client, checkpoint)
            return _report(number, None, as_json=as_json, first=checkpoint["sequenceNumber"] + 1, note=note)
        except BrokenChain as broken:
            moved = _read_checkpoint(client)
            if moved == checkpoint:
                return _report(broken.number, str(broken), as_json=as_json)
            # Retention has deleted events meanwhile.
            checkpoint = moved


def _verify_from(client: Client, checkpoint: Mapping[str, Any]) -> tuple[int, str | None]:
    """Returns the number of the last verified event, which it remembers, and a note."""
    path = _heads_path()
    heads = _read_heads(path)
    known = heads.get(client.url)
    note, deleted = None, None
    if known is not None and known["sequenceNumber"] < checkpoint["sequenceNumber"]:
        note = (
            f"the last verification ended at event {known['sequenceNumber']}; events up to"
            f" {checkpoint['sequenceNumber']} have been deleted since, as the retention settings demand"
        )
        deleted, known = known, None
    head = _check(client, checkpoint, known, deleted)
    if head["sequenceNumber"]:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps({**heads, client.url: head}, indent=1))
    return head["sequenceNumber"], note


def _read_checkpoint(client: Client) -> Any:
    """Number and hash of the last deleted event. A server without retention deletes none."""
    from mainstay.control.domain.event_chain import FIRST

    return get_if_exists(client, "/events/checkpoint") or {"sequenceNumber": 0, "hash": FIRST}


def _check(
    client: Client,
    checkpoint: Mapping[str, Any],
    known: Mapping[str, Any] | None,
    deleted: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Returns the last hashed event, as it is remembered. Events after it are seconds old and have no hash yet.
    `known` is the event that was remembered last, `deleted` the same if it is before the checkpoint."""
    from mainstay.control.domain.event_chain import hashed_members, next_hash

    number, value = checkpoint["sequenceNumber"], checkpoint["hash"]
    created_at, deletion, is_hashed = None, None, True
    if known is not None and number == known["sequenceNumber"] and value != known["hash"]:
        raise BrokenChain(number, "the last deleted event does not have the hash of the last verification")
    for event in client.pages("/events", {"sort": "sequenceNumber"}):
        if event["sequenceNumber"] <= checkpoint["sequenceNumber"]:
            raise BrokenChain(event["sequenceNumber"], "the event is older than the last deleted one")
        if _records_deletion(event, checkpoint):
            deletion = event
        is_hashed = is_hashed and event.get("hash") is not None
        if not is_hashed:
            continue
        if event["sequenceNumber"] != number + 1:
            raise BrokenChain(number + 1, "the event is missing")
        expected = next_hash(value, canonical_json(hashed_members(event)))
        if event["hash"] != expected:
            raise BrokenChain(number + 1, "the event does not have the recorded hash")
        number, value, created_at = number + 1, expected, event["createdAt"]
        if known is not None and number == known["sequenceNumber"] and value != known["hash"]:
            raise BrokenChain(number, "the event, or one before it, was changed since the last verification")
    if known is not None and number < known["sequenceNumber"]:
        raise BrokenChain(
            number + 1, f"the last verification saw events up to {known['sequenceNumber']}, which are missing now"
        )
    if checkpoint["sequenceNumber"] and "retentionDays" in checkpoint:
        _check_deletion(checkpoint, deletion, deleted)
    return {
        "sequenceNumber": number,
        "hash": value,
        "createdAt": created_at,
        "retentionDays": checkpoint.get("retentionDays"),
    }


def _records_deletion(event: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> bool:
    wanted = {"upTo": checkpoint["sequenceNumber"], "hash": checkpoint["hash"]}
    return bool(event["type"] == "events.deleted" and event["properties"] == wanted)


def _check_deletion(
    checkpoint: Mapping[str, Any], deletion: Mapping[str, Any] | None, deleted: Mapping[str, Any] | None
) -> None:
    """Retention records what it deletes, and deletes no event before its time. A record can be forged by those who can
    write to the database; the time of the event that was remembered cannot."""
    number = checkpoint["sequenceNumber"]
    if deletion is None:
        raise BrokenChain(
            number, f"the events up to {number} are deleted, and no event records that retention deleted them"
        )
    if deleted is None or deleted.get("createdAt") is None:
        return
    days = [each for each in (checkpoint["retentionDays"], deleted["retentionDays"]) if each]
    at = min(datetime.fromisoformat(deletion["createdAt"]), datetime.now(UTC))
    if not days or datetime.fromisoformat(deleted["createdAt"]) > at - timedelta(days=min(days)):
        raise BrokenChain(
            deleted["sequenceNumber"],
            "the event of the last verification was deleted before its retention period ended",
        )


def _report(number: int, problem: str | None, *, as_json: bool, first: int = 1, note: str | None = None) -> int:
    if as_json:
        print_json(
            {
                "intact": problem is None,
                "sequenceNumber": number,
                "reason": problem,
                "firstSequenceNumber": first,
                "note": note,
            }
        )
    elif problem is None:
        if note is not None:
            print(f"Note: {note}.")
        start = f"; it starts at event {first}" if first > 1 else ""
        print(f"The chain of {number - first + 1} events is intact{start}.")
    else:
        print(f"The chain of events is broken at {number}: {problem}.")
    return 0 if problem is None else EXIT_FAILED


def _heads_path() -> Path:
    directory = os.environ.get("MAINSTAY_STATE_DIR")
    if directory:
        return Path(directory) / HEADS_FILE
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "mainstay" / HEADS_FILE


def _read_heads(path: Path) -> dict[str, Any]:
    """By the address of the server. A damaged file is refused: without it a removed tail would go unnoticed."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        for head in found.values():
            if not isinstance(head["sequenceNumber"], int) or not isinstance(head["hash"], str):
                raise ValueError
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise CommandRefused(
            f"cannot read {path}, which holds the last verified event; restore or remove it"
        ) from None
    return found

"""What a push decides without contacting a host: selection, batches, exit codes, the meaning of responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from mainstay.cli.views.push_table import PushTable
from mainstay.packaging.program_cache import CacheRefused, private_folder
from mainstay.push.contents import ContentIndex
from mainstay.push.event_spool import EventSpool
from mainstay.push.frames import MARK, parse_frame
from mainstay.push.host_push import Connection, HostPush
from mainstay.push.inventory import Inventory, InventoryHost
from mainstay.push.outcome import HostFault, HostOutcome, exit_code
from mainstay.push.plan import PushPlan
from mainstay.push.selection import BadSelection, batch_size, in_batches, select
from mainstay.push.ssh import explain_ssh, remote_script, ssh_command

INVENTORY = Inventory(
    {name: InventoryHost(name, None, ()) for name in ("web1", "web2", "db1", "db2")},
    {"databases": frozenset(("db1", "db2")), "first": frozenset(("web1", "db1"))},
)
SUMMARY = {"total": 1, "stable": 1, "changed": 0, "refreshed": 0, "skipped": 0, "unmet": 0, "failed": 0}
EVENT = {"type": "file", "name": "/x", "outcome": "changed", "changed": True, "duration_seconds": 0.1}


@pytest.mark.parametrize(
    ("limits", "selected"),
    [
        ([], ["web1", "web2", "db1", "db2"]),
        (["web*"], ["web1", "web2"]),
        (["databases"], ["db1", "db2"]),
        (["first,web2"], ["web1", "web2", "db1"]),
        (["first", "!db*"], ["web1"]),
        (["!databases"], ["web1", "web2"]),
    ],
)
def test_patterns_select_hosts_and_groups_in_inventory_order(limits: list[str], selected: list[str]) -> None:
    assert [host.name for host in select(INVENTORY, limits)] == selected


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (["wbe1"], "no host or group matches 'wbe1' (did you mean 'web1'?)"),
        (["web1", "!web*"], "leaves no host"),
        ([","], "needs a pattern"),
    ],
)
def test_a_limit_that_reaches_no_host_is_refused(limits: list[str], message: str) -> None:
    with pytest.raises(BadSelection) as refusal:
        select(INVENTORY, limits)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "hosts", "size"), [(None, 7, 7), ("3", 7, 3), ("10%", 7, 1), ("34%", 7, 3), ("100%", 7, 7)]
)
def test_a_batch_is_a_number_or_a_percentage_rounded_up(text: str | None, hosts: int, size: int) -> None:
    assert batch_size(text, hosts) == size


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-1", "x", "", "%", "1.5"])
def test_another_batch_is_refused(text: str) -> None:
    with pytest.raises(BadSelection, match="such as 5 or 10%"):
        batch_size(text, 10)


def test_batches_keep_the_order() -> None:
    assert in_batches("abcde", 2) == ["ab", "cd", "e"]


def outcome(word: str) -> HostOutcome:
    found = HostOutcome("web1", "run")
    if word in ("stable", "failed", "unmet"):
        found.summary = {**SUMMARY, "stable": 0, word: 1}
    elif word == "stopped in the run":
        found.summary, found.ending = SUMMARY, {"stopped_by": "SIGINT"}
    else:
        found.fault = HostFault(word, "message")
    return found


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["stable"], 0),
        (["stable", "failed"], 1),
        (["stable", "unmet"], 1),
        (["stable", "unreachable"], 1),
        (["locked", "stable"], 3),
        (["locked", "unreachable"], 1),
        (["stopped in the run"], 1),
        (["stopped"], 1),
        (["does_not_load", "does_not_load"], 2),
        (["does_not_load", "stable"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_host(words: Sequence[str], code: int) -> None:
    assert exit_code([outcome(word) for word in words]) == code


@pytest.mark.parametrize(
    ("code", "errors", "kind", "message"),
    [
        (255, "ssh: connect to host web1 port 22: Connection refused", "unreachable", "the connection is refused"),
        (255, "ssh: connect to host web1 port 22: Connection timed out", "unreachable", "no response within"),
        (255, "ssh: Could not resolve hostname web1: Name or service not known", "unreachable", "cannot be resolved"),
        (255, "root@web1: Permission denied (publickey).", "refused_key", "it refuses your keys (publickey)"),
        (
            255,
            "No ED25519 host key is known for web1 and you have requested strict checking.\r\nHost key verification failed.",
            "host_key",
            "unknown; `ssh web1` shows it",
        ),
        (
            255,
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "host_key",
            "has changed",
        ),
        (1, "sudo: a password is required", "become", "--ask-become-pass"),
        (127, "sh: 1: exec: sudo: not found", "become", "sudo is not installed"),
        (255, "something new", "unreachable", "ssh failed: something new"),
        (255, "", "unreachable", "it printed no reason"),
    ],
)
def test_failures_of_ssh_and_sudo_are_explained(code: int, errors: str, kind: str, message: str) -> None:
    fault = explain_ssh("web1", code, errors)
    assert fault is not None
    assert fault.kind == kind
    assert message in fault.message


def test_ssh_asks_nothing_and_accepts_no_key_for_the_user() -> None:
    command = ssh_command("web1", remote_script("/opt/it's", become=True, with_password=False), "/run/x")
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ControlPath=/run/x/%C"} <= set(command)
    assert command[-3:-1] == ["--", "web1"]


@pytest.mark.parametrize(
    "frame",
    [
        b"nonsense",
        b"[]",
        b"{}",
        b'{"end": {}}',
        b'{"end": {"summary": {"total": -1}}}',
        b'{"event": {"outcome": "fine", "type": "file", "name": "/x"}}',
        b'{"event": {"outcome": "failed", "type": 1, "name": "/x"}}',
        b'{"event": {"outcome": "failed", "type": "file", "name": "/x", "errors": "text"}}',
        b'{"event": {"outcome": "failed", "type": "file", "name": "/x", "duration_seconds": NaN}}',
        b'{"event": {"outcome": "failed", "type": "file", "name": "/x"}, "index": "../../etc/passwd"}',
        b'{"start": true}',
        b'{"at": ["1", "x"]}',
        b'{"hello": {"python": "3.11"}}',
        b'{"fault": {"kind": "stopped", "message": "x"}}',
        b'{"faults": []}',
        b'{"start": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_a_response_that_is_no_frame_is_a_fault_of_that_host(frame: bytes) -> None:
    with pytest.raises(HostFault) as fault:
        parse_frame(MARK + frame + b"\n")
    assert fault.value.kind == "protocol"
    assert len(fault.value.message) < 600


def test_a_frame_keeps_only_what_an_event_has() -> None:
    document: dict[str, Any] = {"event": {**EVENT, "host": "another", "run_id": "x"}, "index": 3, "host": "another"}
    frame = parse_frame(MARK + json.dumps(document).encode())
    assert (frame.kind, frame.index) == ("event", 3)
    assert frame.value.keys().isdisjoint({"host", "run_id"})
    assert frame.value["errors"] == []


def test_the_directory_of_received_manifests_is_private_or_refused(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    folder = Path(private_folder("contents", cache))
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(CacheRefused, match="has mode 0755"):
        private_folder("contents", cache)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(CacheRefused, match="is a link"):
        private_folder("contents", cache)


def test_a_slow_host_is_reported_on_a_pipe_and_again_after_twice_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    connection = Connection(control_directory=None, become=False, become_password=None, first_stage=b"")
    push = HostPush(HostOutcome("web1", "run"), None, {}, PushPlan(ContentIndex("", "")), connection, "")
    push.phase, push.position, push.total, push.resource = "running", 4, 9, "exec#backup"
    table = PushTable(["web1"], verbose=False)
    capsys.readouterr()
    for seconds in (29, 31, 59, 61):
        push.started_at = monotonic() - seconds
        table.tick([push])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["web1", "running", "31", "s", "[5/9]", "exec#backup"],
        ["web1", "running", "61", "s", "[5/9]", "exec#backup"],
    ]


def test_a_host_cannot_fill_the_terminal_with_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome("stable")
    found.events = EventSpool(str(tmp_path / "events"))
    for number in range(20):
        event = {**EVENT, "outcome": "failed", "failed": True, "output": f"{number} {'x' * 500_000}"}
        found.events.add(number, parse_frame(MARK + json.dumps({"event": event}).encode()).value)
    found.events.close()
    PushTable(["web1"], verbose=False).finish([found], 1.0, noop=False)
    shown = capsys.readouterr().out
    assert shown.count("failed    file#/x") == 7
    assert len(shown) < 4_100_000
    assert "… more events are not shown; `mainstay history show run` prints them" in shown

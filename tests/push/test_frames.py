"""Frames of a hostile host, and the directory of shared connections."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mainstay.push.frames import DEEPEST, MARK, parse_frame
from mainstay.push.outcome import HostFault
from mainstay.push.ssh import control_directory

EVENT = '{"type": "file", "name": "/x", "outcome": "changed", "state": %s, "duration_seconds": %s}'
SUMMARY = '{"total": 1, "changed": 1, "stable": 0, "failed": 0, "skipped": 0, "unmet": 0, "duration_seconds": %s}'
NAN, INFINITE = '{"a": NaN}', '{"a": [1e999]}'
HUGE = "1" + "0" * 400
DEEP = '{"a":' * (DEEPEST + 1) + "1" + "}" * (DEEPEST + 1)


@pytest.mark.parametrize(
    "frame",
    [
        f'{{"event": {EVENT % ("{}", HUGE)}}}',
        f'{{"event": {EVENT % ("{}", "-" + HUGE)}}}',
        f'{{"event": {EVENT % ("{}", "1e999")}}}',
        f'{{"report": {EVENT % (NAN, "1")}}}',
        f'{{"report": {EVENT % (INFINITE, "1")}}}',
        f'{{"event": {EVENT % (DEEP, "1")}}}',
        f'{{"end": {{"summary": {SUMMARY % HUGE}, "outputs": null}}}}',
        f'{{"end": {{"summary": {SUMMARY % "1"}, "outputs": {DEEP}}}}}',
    ],
)
def test_values_that_could_not_be_written_again_are_a_fault_of_that_host(frame: str) -> None:
    with pytest.raises(HostFault) as fault:
        parse_frame(MARK + frame.encode() + b"\n")
    assert fault.value.kind == "protocol"


def test_states_and_outputs_keep_any_json_object() -> None:
    state: Any = {"a": [1, 2.5, {"b": None}], "big": 10**100}
    for _ in range(DEEPEST - 5):
        state = {"inner": state}
    frame = {"event": {"type": "file", "name": "/x", "outcome": "changed", "state": state}}
    assert parse_frame(MARK + json.dumps(frame).encode()).value["state"] == state


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Names of sockets are short."""
    with TemporaryDirectory(prefix="p", dir="/tmp") as name:
        yield Path(name)


def test_the_directory_of_connections_is_out_of_the_reach_of_other_users(short_path: Path) -> None:
    own = short_path / "own"
    own.mkdir(0o700)
    assert control_directory({"XDG_RUNTIME_DIR": str(own)}) == f"{own}/mainstay-ssh"
    shared = short_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "run").mkdir(0o700)
    assert not str(control_directory({"XDG_RUNTIME_DIR": str(shared / "run")})).startswith(str(shared))
    if os.geteuid() == 0:
        # `su` may leave root with the runtime directory of the user before.
        os.chown(own, 65534, 65534)
        assert control_directory({"XDG_RUNTIME_DIR": str(own)}) == "/run/mainstay-ssh"

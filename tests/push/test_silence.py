"""A host that says nothing before its run has started does not hold up a push."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainstay.push import host_push
from mainstay.push.host_push import Connection, HostPush
from mainstay.push.outcome import HostOutcome

HELLO = r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2], "has_program": true, "has_index": true}}\n'; """
NEED = r"""printf 'mainstay-push {"need": []}\n'; """
START = r"""printf 'mainstay-push {"start": 1}\n'; """


def push_to(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **order: float) -> HostOutcome:
    """Pushes to a host that runs this script."""
    monkeypatch.setattr(host_push, "SILENCE_SECONDS", 0.5)
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    nothing = SimpleNamespace(travelling=b"", digest="0" * 64)
    plan: Any = SimpleNamespace(program=nothing, index=nothing, contents=[])
    outcome = HostOutcome("web1", "run")
    connection = Connection(control_directory=None, become=False, become_password=None, first_stage=b"first")
    asyncio.run(HostPush(outcome, None, order, plan, connection, str(tmp_path / "spool")).run())
    return outcome


@pytest.mark.parametrize("said", ["", HELLO, HELLO + NEED])
def test_a_silent_host_is_unreachable(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = push_to(f"{said} exec sleep 600", tmp_path, monkeypatch)
    assert outcome.fault is not None
    assert outcome.fault.kind == "unreachable"
    assert "it did not respond within" in str(outcome.fault)


def test_a_run_may_be_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = push_to(f"{HELLO}{NEED}{START} sleep 1.5", tmp_path, monkeypatch)
    assert outcome.fault is not None
    assert outcome.fault.kind == "lost"


def test_a_host_that_waits_for_a_lock_may_be_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = push_to(f"{HELLO}{NEED} sleep 1.5", tmp_path, monkeypatch, lock_wait_seconds=60)
    assert outcome.fault is not None
    assert outcome.fault.kind == "lost"

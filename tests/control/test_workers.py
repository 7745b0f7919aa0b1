"""Several workers on one port: one supervisor, one set of background tasks, one set of metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control_plane import Client, Cluster, Server, children, is_alive, running
from fork_server import PROGRAM
from scenario import Scenario

WORKERS = 3


@pytest.fixture
def several(tmp_path: Path, postgresql: Cluster) -> Iterator[Server]:
    environment = {"MAINSTAY_WORKERS": str(WORKERS)}
    with running(tmp_path / "data", database_url=postgresql.new_database(), environment=environment) as server:
        yield server


def wait_for_workers(server: Server, count: int = WORKERS) -> set[int]:
    until = time.monotonic() + 30
    while len(found := {each for each in children(server.process.pid) if is_alive(each)}) < count:
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.05)
    return found


def get(server: Server, path: str) -> Any:
    """Over a connection of its own, so that any worker may answer."""
    client = Client(server.url, server.admin.token)
    try:
        return client.call("GET", path, expect=200).body
    finally:
        client.pool.clear()


def test_the_embedded_database_has_one_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "server", "--workers", "2", "--port", "0", "--data-dir", tmp_path / "data"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "several workers need PostgreSQL" in done.stderr
    assert not (tmp_path / "data").exists()


def test_workers_share_port_metrics_wake_ups_and_background_tasks(several: Server) -> None:
    workers = wait_for_workers(several)
    assert len(workers) == WORKERS
    for _ in range(60):
        get(several, "/healthz")
    # Every worker reports the requests of all.
    for _ in range(5):
        text = get(several, "/metrics").decode()
        line = 'mainstay_requests_total{method="GET",route="/healthz",status="200"} '
        assert float(text.split(line)[1].split()[0]) == 60.0
    (directory,) = several.data_dir.glob("metrics-*")
    # Only one process has run background tasks.
    assert len(list(directory.glob("gauge_mostrecent_*.db"))) == 1
    # An order at one worker wakes the agent that waits at another.
    scenario = Scenario(several.admin)
    kind = scenario.service_type()
    token = scenario.agent.token
    for _ in range(6):
        answers: list[Any] = []

        def poll(answers: list[Any] = answers) -> None:
            client = Client(several.url, token)
            answers.append((client.get("/jobs/pending?wait=20"), time.monotonic()))

        waiting = threading.Thread(target=poll)
        waiting.start()
        time.sleep(0.3)
        service = scenario.order(kind)
        ordered = time.monotonic()
        waiting.join(30)
        ((jobs, answered),) = answers
        assert [job["serviceId"] for job in jobs] == [service["id"]]
        # Without a notice between processes it would take the 5 s of the slow re-check.
        assert answered - ordered < 3.5
        scenario.complete(service)


def test_a_dead_worker_is_replaced_and_requests_go_on(several: Server) -> None:
    before = wait_for_workers(several)
    for victim in before:
        os.kill(victim, signal.SIGKILL)
        until = time.monotonic() + 30
        while len(wait_for_workers(several) - {victim}) < WORKERS:
            assert time.monotonic() < until
        get(several, "/api/v1/participants")
    assert wait_for_workers(several).isdisjoint(before)
    assert "worker ended, restarting" in several.log.read_text()


def test_sigterm_answers_long_polls_and_ends_all_workers(several: Server) -> None:
    workers = wait_for_workers(several)
    scenario = Scenario(several.admin)
    agent = scenario.agent
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(agent.get("/jobs/pending?wait=60")))
    waiting.start()
    time.sleep(1)
    assert several.stop() == 0
    waiting.join(30)
    assert answers == [[]]
    assert not any(is_alive(each) for each in workers)
    assert not list(several.data_dir.glob("metrics-*"))


def test_workers_end_with_a_killed_supervisor(several: Server) -> None:
    workers = wait_for_workers(several)
    several.process.kill()
    until = time.monotonic() + 30
    while any(is_alive(each) for each in workers):
        assert time.monotonic() < until
        time.sleep(0.05)

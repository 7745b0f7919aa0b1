"""A simulated agent for tests of plans: it answers plan requests with an answer of the test."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from control_plane import Client, Reply
from fork_server import run_program

DIGEST = "ab" * 32
ANSWER = {
    "digest": DIGEST,
    "manifest": "manifests/create.yaml",
    "events": [{"type": "file", "name": "/etc/x", "outcome": "changed", "diff": "+x"}],
    "summary": {"total": 1, "changed": 1},
    "secretsHidden": True,
}


def with_agent(agent: Client, ask: Callable[[], Reply], answer: object = None) -> tuple[Reply, Any]:
    """The reply to a request for which the server asks the agent, and the plan request that the agent got."""
    # The server asks only agents that are connected.
    agent.get("/plans/pending")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask)
        (plan_request,) = agent.get("/plans/pending?wait=30")
        agent.post(f"/plans/{plan_request['id']}/answer", answer or ANSWER, expect=204)
        return reply.result(), plan_request


def all_rows(data_dir: Path, database_url: str | None, file: Path) -> list[Any]:
    """All rows of the database, without the time of the last contact of an agent."""
    words: list[str | Path] = ["server", "backup", file, "--data-dir", data_dir]
    run_program([*words, *(["--database-url", database_url] if database_url else [])]).check_returncode()
    rows: list[Any] = []
    columns: list[str] = []
    for line in gzip.decompress(file.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if isinstance(row, dict):
            columns = row.get("columns", [])
        elif "last_status_update" in columns:
            row[columns.index("last_status_update")] = None
        rows.append(row)
    return rows

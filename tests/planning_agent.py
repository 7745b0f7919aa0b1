"""An agent that is played by hand, for tests of plans: asked by the server, it answers what the test says."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from control_plane import Client, Reply

PROGRAM = Path(sys.executable).with_name("mainstay")
DIGEST = "ab" * 32
ANSWER = {
    "digest": DIGEST,
    "manifest": "manifests/create.yaml",
    "events": [{"type": "file", "name": "/etc/x", "outcome": "changed", "diff": "+x"}],
    "summary": {"total": 1, "changed": 1},
}


def with_agent(agent: Client, ask: Callable[[], Reply], answer: object = None) -> tuple[Reply, Any]:
    """What was answered to a request that makes the server ask the agent, and what the agent was asked."""
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask)
        (question,) = agent.get("/plans/pending?wait=30")
        agent.post(f"/plans/{question['id']}/answer", answer or ANSWER, expect=204)
        return reply.result(), question


def all_rows(data_dir: Path, database_url: str | None, file: Path) -> list[Any]:
    """Everything in the database, but for when an agent was last heard of."""
    command = [str(each) for each in (PROGRAM, "server", "backup", file, "--data-dir", data_dir)]
    subprocess.run([*command, *(["--database-url", database_url] if database_url else [])], check=True)
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

"""The floor of an order on PostgreSQL: pgbench writes the same rows, in one transaction for each order, and nothing else.

The rows are copies of those that a real order wrote, with new ids. Triggers, foreign keys and indexes are the schema's."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from control_plane import Cluster

# In the order of their foreign keys, with the column that refers to the service.
TABLES = {
    "services": "id",
    "service_states": "service_id",
    "runs": "service_id",
    "jobs": "service_id",
}
# The database computes them.
COMPUTED = {"in_sync"}
OWNED_EVENTS = "SELECT * FROM events WHERE entity_id IN ($1, $2) ORDER BY ordinal"
RATE = re.compile(r"tps = ([0-9.]+) \(without")


async def write_script(url: str, service_id: str, job_id: str, script: Path) -> None:
    connection = await asyncpg.connect(url)
    try:
        run_id = await connection.fetchval("SELECT run_id FROM jobs WHERE id = $1", job_id)
        new_ids = {service_id: "s", job_id: "j", run_id: "r"}
        lines = [f"\\set {name} random(1, 1000000000000)" for name in (*new_ids.values(), "e0", "e1", "e2", "e3")]
        lines.append("BEGIN;")
        for table, column in TABLES.items():
            for row in await connection.fetch(f"SELECT * FROM {table} WHERE {column} = $1", service_id):
                lines.append(_insert(table, dict(row), new_ids))
        for number, row in enumerate(await connection.fetch(OWNED_EVENTS, service_id, job_id)):
            event = {**row, "sequence_number": None, "hash": None}
            lines.append(_insert("events", event, {**new_ids, str(row["id"]): f"e{number}"}))
        lines.append("COMMIT;")
    finally:
        await connection.close()
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o644)


def _insert(table: str, row: Mapping[str, object], new_ids: Mapping[str, str]) -> str:
    stored = {name: value for name, value in row.items() if name not in COMPUTED}
    values = ", ".join(_literal(value, new_ids) for value in stored.values())
    return f"INSERT INTO {table} ({', '.join(stored)}) VALUES ({values});"


def _literal(value: object, new_ids: Mapping[str, str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if str(value) in new_ids:
        # As long as the id that it replaces.
        return f"lpad((:{new_ids[str(value)]})::text, 36, '0')"
    # pgbench replaces a colon and a name, also in quotes.
    parts = [f"'{part}'" for part in str(value).replace("'", "''").split(":")]
    return "(" + " || chr(58) || ".join(parts) + ")" if len(parts) > 1 else parts[0]


def run_floor(cluster: Cluster, url: str, script: Path, clients: int, orders: int) -> float:
    """Transactions per second."""
    database = url.split("@/")[1].split("?", maxsplit=1)[0]
    each = max(1, orders // clients)
    load = ["-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-t", str(each)]
    target = ["-h", str(cluster.folder), "-U", "postgres", "-f", str(script), database]
    owner = "postgres" if os.geteuid() == 0 else None
    command = [str(cluster.programs / "pgbench"), *load, *target]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=cluster.folder, user=owner)
    rate = RATE.search(found.stdout)
    if rate is None:
        raise RuntimeError(found.stdout + found.stderr)
    return float(rate.group(1))

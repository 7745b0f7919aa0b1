"""A soak: mixed load on one server while retention runs in compressed time. Memory, file descriptors, table sizes and
latency must be flat.

`python -m benchmarks.soak` takes ten minutes, `--seconds 60` one. Rows are deleted seconds after their services end: each
pass of retention believes that a day has gone by. Exit code 1: something grows. `--no-retention` shows that the judgement
can fail."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benchmarks.plane import UNLIMITED, Connection, Scene, all_of, resident_kib
from control_plane import Server, postgresql_cluster, running
from mainstay.control.domain.retention import RetentionPeriods
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.retention import delete_expired
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.open import open_store

CLIENTS = 4
AGENTS = 8
# Rows are kept so long after their services end.
KEPT_SECONDS = 10
SAMPLES = 30
TABLES = ("services", "jobs", "runs", "events", "service_states", "vault_readings")
# Largest last third of the time, compared with the middle third. The first one fills caches and tables.
MOST_MEMORY, MOST_DESCRIPTORS, MOST_ROWS, MOST_LATENCY = 1.05, 1.1, 1.3, 1.5


@dataclass(frozen=True)
class Sample:
    memory: float
    descriptors: float
    rows: float
    latency: float


class Soak:
    def __init__(self, server: Server, store: Store, *, with_retention: bool) -> None:
        self.server, self.store, self.with_retention = server, store, with_retention
        self.scene = Scene(server.url, server.admin.token or "")
        # Of each agent, by its id.
        self.tokens: dict[str, str] = {}
        self.orders = 0
        self._taken: list[float] = []
        self._days = 0

    async def prepare(self) -> None:
        await self.scene.prepare()
        self.tokens = dict(await self.scene.new_agents(AGENTS))

    async def load(self, until: float) -> None:
        async def client(connection: Connection) -> None:
            while time.monotonic() < until:
                await self._one_service(connection)

        await all_of((client for _ in range(CLIENTS)), self.scene.url, self.scene.consumer_token, CLIENTS)

    async def _one_service(self, connection: Connection) -> None:
        """The life of a service, with readers, refused requests, and a caller that goes away."""
        agent_id = random.choice(list(self.tokens))
        started = time.perf_counter()
        service = await self.scene.order(connection, agent_id)
        self._taken.append(time.perf_counter() - started)
        self.orders += 1
        path = f"/services/{service['id']}"
        await self._work(connection, path, agent_id)
        await connection.call("GET", "/services?after=&pageSize=20")
        await connection.call("GET", "/events?after=&pageSize=20")
        await connection.call("GET", f"{path}x", expect=404)
        await connection.call("POST", path, {"unknown": 1}, 405)
        await self._leave()
        await connection.call("POST", f"{path}/delete")
        await self._work(connection, path, agent_id)

    async def _work(self, connection: Connection, path: str, agent_id: str) -> None:
        job = (await connection.call("GET", path))["activeJob"]["id"]
        agent = Connection(self.scene.url, self.tokens[agent_id])
        lease = await agent.call("POST", f"/jobs/{job}/claim", {"leaseSeconds": 30})
        held = {"leaseToken": lease["leaseToken"]}
        await agent.call("POST", f"/jobs/{job}/renew", {**held, "progress": {"percent": 50, "text": "half"}})
        await agent.call("POST", f"/jobs/{job}/complete", held, 204)
        agent.close()

    async def _leave(self) -> None:
        """Asks for a stream of events or a job, and closes the connection before an answer."""
        agent = random.choice(list(self.tokens.values()))
        for target, token in (("/events/stream", self.scene.consumer_token), ("/jobs/pending?wait=30", agent)):
            caller = Connection(self.scene.url, token)
            with suppress(TimeoutError):
                await asyncio.wait_for(caller.call("GET", target), 0.02)
            caller.close()

    async def sample(self, seconds: float) -> Sample:
        """The state after a time under load; retention runs before."""
        self._taken.clear()
        await asyncio.sleep(seconds)
        if self.with_retention:
            await self._delete_expired()
        descriptors = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        latency = statistics.median(self._taken) * 1000 if self._taken else 0.0
        return Sample(resident_kib(self.server) / 1024, descriptors, await self._count_rows(), latency)

    async def _delete_expired(self) -> None:
        """One pass that believes that a day has gone by since the last one."""
        self._days += 1
        days = self._days
        periods = RetentionPeriods(events=days, jobs=days, reports=days, services=days, metrics=days)
        tools = OperationTools(Definitions(installed_rulebook()), retention=periods)
        now = datetime.now(UTC) + timedelta(days=days, seconds=-KEPT_SECONDS)
        more = True
        while more:
            async with self.store.transaction() as tx:
                more = await delete_expired(UnitOfWork(tx, now, tools))

    async def _count_rows(self) -> int:
        async with self.store.reading() as tx:
            counted = [await tx.fetch(f"SELECT count(*) AS number FROM {table}") for table in TABLES]
        return sum(int(str(rows[0]["number"])) for rows in counted)


def grown(samples: list[Sample]) -> list[str]:
    """What the last third of the time shows more of than the middle third."""
    third = len(samples) // 3
    bounds = {
        "memory": MOST_MEMORY,
        "descriptors": MOST_DESCRIPTORS,
        "rows": MOST_ROWS,
        "latency": MOST_LATENCY,
    }
    found = []
    for what, most in bounds.items():
        middle, last = (
            statistics.median(getattr(each, what) for each in part)
            for part in (samples[third : 2 * third], samples[2 * third :])
        )
        if last > middle * most:
            found.append(f"{what}: {middle:.1f} → {last:.1f}, more than {most} times")
    return found


async def soak(server: Server, database_url: str, seconds: float, *, with_retention: bool) -> list[str]:
    store = await open_store(database_url)
    try:
        run = Soak(server, store, with_retention=with_retention)
        await run.prepare()
        load = asyncio.create_task(run.load(time.monotonic() + seconds))
        samples = []
        print("     time     memory  descriptors     rows    order")
        for number in range(SAMPLES):
            samples.append(await run.sample(seconds / SAMPLES))
            if load.done():
                break
            each = samples[-1]
            moment = (number + 1) * seconds / SAMPLES
            print(
                f"  {moment:5.0f} s  {each.memory:5.1f} MiB  {each.descriptors:11.0f}  {each.rows:7.0f}"
                f"  {each.latency:4.1f} ms",
                flush=True,
            )
        await load
        print(f"{run.orders:,} services from order to deletion, {run.orders / seconds:.0f} a second")
        return grown(samples)
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="length of the soak (default 600)")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="postgresql")
    parser.add_argument("--no-retention", action="store_true", help="keep all rows, so that the tables grow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="so") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if options.database == "sqlite":
            found = _soak_server(folder, None, options)
        else:
            with postgresql_cluster(folder / "c", durable=True) as cluster:
                found = _soak_server(folder, cluster.new_database(), options)
    print("\n".join(found) if found else "Flat: memory, descriptors, rows and latency.")
    sys.exit(1 if found else 0)


def _soak_server(folder: Path, url: str | None, options: argparse.Namespace) -> list[str]:
    with running(folder / "data", database_url=url, environment=UNLIMITED, installed=True) as server:
        stored = url or f"sqlite:///{folder}/data/mainstay.db"
        return uvloop.run(soak(server, stored, options.seconds, with_retention=not options.no_retention))


if __name__ == "__main__":
    main()

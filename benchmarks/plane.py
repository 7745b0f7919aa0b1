"""The control plane under load, on both databases, beside the bare commits that are its floor.

Run it with `python benchmarks/plane.py [--services N] [--agents N] [--orders N]`. Everything stays on loopback. PostgreSQL
is a private cluster in a temporary directory that does not wait for the disk, for the floor and the server alike: on it
only ratios count."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from mainstay.control.store.contract import Store
from mainstay.control.store.open import open_store
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.services import SERVICES, ServiceRow
from plane import Client, Server, postgresql_cluster, running
from world import World

THREADS = 8
FLOOR_COMMITS = 500
PAGES = 50


def per_second(count: int, work: Callable[[int], object]) -> float:
    with ThreadPoolExecutor(THREADS) as threads:
        started = time.perf_counter()
        list(threads.map(work, range(count)))
    return count / (time.perf_counter() - started)


def milliseconds(work: Callable[[], object], rounds: int = PAGES) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


async def floor(url: str, consumer_id: str) -> float:
    """Commits of one row by one writer after another, with nothing around them."""
    store = await open_store(url)
    try:
        started = time.perf_counter()
        for _ in range(FLOOR_COMMITS):
            now = datetime.now(UTC)
            async with store.transaction() as tx:
                group = ServiceGroup(
                    id=str(uuid4()), created_at=now, updated_at=now, name="f", consumer_id=consumer_id
                )
                await SERVICE_GROUPS.insert(tx, group)
        return FLOOR_COMMITS / (time.perf_counter() - started)
    finally:
        await store.close()


async def fill(url: str, sample: dict[str, Any], count: int) -> None:
    store: Store = await open_store(url)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    try:
        for batch in range(0, count, 5000):
            async with store.transaction() as tx:
                for number in range(batch, min(batch + 5000, count)):
                    at = start + timedelta(seconds=number)
                    row = ServiceRow(
                        id=str(uuid4()),
                        created_at=at,
                        updated_at=at,
                        name=f"bulk {number}",
                        status="Stopped",
                        properties={},
                        provider_id=sample["providerId"],
                        consumer_id=sample["consumerId"],
                        group_id=sample["groupId"],
                        agent_id=sample["agentId"],
                        service_type_id=sample["serviceTypeId"],
                        conditions=[],
                        version=1,
                    )
                    await SERVICES.insert(tx, row, is_terminal=0, provenance="{}")
    finally:
        await store.close()


def resident_kib(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


@contextmanager
def idle_agents(world: World, count: int) -> Iterator[None]:
    """Agents that wait for work, each on a connection of its own."""
    tokens = [world.token("agent", world.new_agent()["id"]).token for _ in range(count)]
    threads = [
        threading.Thread(
            target=lambda token=token: Client(world.admin.url, token).get("/jobs/pending?wait=30"), daemon=True
        )
        for token in tokens
    ]
    for thread in threads:
        thread.start()
    time.sleep(2 + count / 200)
    yield
    for thread in threads:
        thread.join(timeout=60)


def wake_up(world: World, kind: Any) -> float:
    """Milliseconds from the answer to an order to the answer to the agent that waits for it."""
    taken = []
    for _ in range(10):
        answered: list[float] = []
        waiting = threading.Thread(
            target=lambda found=answered: (
                world.agent.get("/jobs/pending?wait=30"),
                found.append(time.perf_counter()),
            )
        )
        waiting.start()
        time.sleep(0.1)
        service = world.order(kind)
        ordered = time.perf_counter()
        waiting.join(timeout=60)
        taken.append((answered[0] - ordered) * 1000)
        world.complete(service)
    return statistics.median(taken)


def measure(server: Server, url: str, options: argparse.Namespace) -> None:
    world = World(server.admin)
    kind = world.service_type()
    sample = world.order(kind)
    world.complete(sample)
    bare = asyncio.run(floor(url, world.consumer_id))
    print(f"  floor: commits of one row    {bare:9.0f} /s")
    groups = [
        world.admin.post("/service-groups", {"name": "g", "consumerId": world.consumer_id})["id"] for _ in range(50)
    ]
    made: list[Any] = []
    orders = per_second(options.orders, lambda number: made.append(world.order(kind, groupId=groups[number % 50])))
    print(f"  orders                       {orders:9.0f} /s   {bare / orders:5.1f} floor commits each")

    def work_on(service: Any) -> None:
        job = service["activeJob"]["id"]
        world.agent.post(f"/jobs/{job}/claim", expect=204)
        world.agent.post(f"/jobs/{job}/complete", expect=204)

    done = per_second(len(made), lambda number: work_on(made[number]))
    print(f"  claims with completes        {done:9.0f} /s   {bare / done:5.1f} floor commits each")
    before = resident_kib(server)
    with idle_agents(world, options.agents):
        held = resident_kib(server) - before
        print(f"  wake-up of a waiting agent   {wake_up(world, kind):9.1f} ms  with {options.agents} others idle")
        print(f"  memory of an idle agent      {held / options.agents:9.0f} KiB")
    filled = 0
    for size in (1000, 10_000, 100_000, 1_000_000):
        if size > options.services:
            break
        asyncio.run(fill(url, sample, size - filled))
        filled = size
        cursor = world.consumer.get("/services?after=&pageSize=50")["next"]
        page = milliseconds(partial(world.consumer.get, f"/services?after={cursor}&pageSize=50"))
        print(f"  page after a cursor          {page:9.1f} ms  at {size:>9,} services")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=100_000, help="how many services to list at most")
    parser.add_argument("--agents", type=int, default=100, help="how many agents wait idly")
    parser.add_argument("--orders", type=int, default=500, help="how many orders to place")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        Path(folder).chmod(0o755)
        print("SQLite")
        data = Path(folder) / "sqlite"
        with running(data) as server:
            measure(server, f"sqlite:///{data}/mainstay.db", options)
        print("PostgreSQL")
        with postgresql_cluster(Path(folder) / "c") as cluster:
            url = cluster.new_database()
            with running(Path(folder) / "postgresql", database_url=url) as server:
                measure(server, url, options)


if __name__ == "__main__":
    main()

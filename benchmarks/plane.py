"""The control plane under load on both databases, compared with a floor of bare commits.

`python -m benchmarks.plane` takes a minute or two, `--quick` seconds; `--all` also lists a million services. All traffic
stays on loopback. PostgreSQL is a private cluster in a temporary directory. Floor and server both wait for the disk at
every commit. A separate process on the same machine generates the load."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import asyncpg
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benchmarks.order_floor import run_floor, write_script
from bulk_services import Owners, cursor_at, fill
from control_plane import Cluster, Server, children, find_postgresql, postgresql_cluster, running
from mainstay.control.serve import raise_file_limit
from mainstay.control.store.engine.open import open_store

CLIENTS = 16
PAGES = 40
PAGE_SIZE = 50
WAKE_UPS = 20
LEASE_SECONDS = 60
# A benchmark sends more than the default rate limit admits, and PostgreSQL needs a key.
UNLIMITED = {"MAINSTAY_RATE_LIMIT": "0", "VAULT_ENCRYPTION_KEY": "ab" * 32}


@dataclass(frozen=True)
class Sizes:
    floor_commits: int
    orders: int
    services: tuple[int, ...]
    idle_agents: int
    idle_seconds: float
    working_agents: int
    jobs: int


QUICK = Sizes(100, 100, (1000,), 20, 0.5, 20, 100)
USUAL = Sizes(1000, 1000, (1000, 100_000), 1000, 5, 1000, 10_000)
ALL = Sizes(1000, 1000, (1000, 100_000, 1_000_000), 1000, 5, 1000, 10_000)


class Connection:
    """A persistent connection of one caller, with minimal HTTP so that the client costs less than the server."""

    def __init__(self, url: str, token: str) -> None:
        address = urlsplit(url)
        self._host, self._port = str(address.hostname), int(address.port or 80)
        self._head = f"Host: {address.netloc}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        expect: int = 200,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Any:
        # The server may have closed an idle connection.
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"{method} /api/v1{path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(answer[9:12])
        length = next(
            (int(line[15:]) for line in answer.split("\r\n") if line.lower().startswith("content-length:")), 0
        )
        found = await reader.readexactly(length)
        if status != expect:
            raise RuntimeError(f"{method} {path} → {status}: {found.decode()[:500]}")
        return json.loads(found) if found else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def all_of(work: Iterable[Callable[[Connection], Awaitable[Any]]], url: str, token: str, clients: int) -> float:
    """Seconds that the clients need together; each takes one piece after the other."""
    left = iter(work)

    async def client() -> None:
        connection = Connection(url, token)
        for piece in left:
            await piece(connection)
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - started


def unique(name: str) -> str:
    return f"{name}-{os.urandom(6).hex()}"


class Scene:
    """A provider, a consumer, a service type without properties, and agents that serve it."""

    def __init__(self, url: str, admin_token: str) -> None:
        self.url = url
        self.admin_token = admin_token
        self.admin = Connection(url, admin_token)

    async def prepare(self) -> None:
        post = self.admin.call
        self.provider_id, self.consumer_id = [
            (await post("POST", "/participants", {"name": unique("p")}, 201))["id"] for _ in range(2)
        ]
        self.type_id = (await post("POST", "/service-types", {"name": unique("type")}, 201))["id"]
        kind = {"name": unique("kind"), "serviceTypeIds": [self.type_id]}
        self.agent_type_id = (await post("POST", "/agent-types", kind, 201))["id"]
        group = {"name": "group", "consumerId": self.consumer_id}
        self.group_id = (await post("POST", "/service-groups", group, 201))["id"]
        token = {"name": "consumer", "role": "participant", "scopeId": self.consumer_id}
        self.consumer_token = (await post("POST", "/tokens", token, 201))["value"]
        self.consumer = Connection(self.url, self.consumer_token)

    async def new_agents(self, count: int) -> list[tuple[str, str]]:
        """(id, token) of each new agent."""
        made: list[tuple[str, str]] = []

        async def add(connection: Connection) -> None:
            agent = {"name": unique("a"), "providerId": self.provider_id, "agentTypeId": self.agent_type_id}
            agent_id = (await connection.call("POST", "/agents", agent, 201))["id"]
            token = {"name": "agent", "role": "agent", "scopeId": agent_id}
            made.append((agent_id, (await connection.call("POST", "/tokens", token, 201))["value"]))

        await all_of((add for _ in range(count)), self.url, self.admin_token, CLIENTS)
        return made

    async def order(self, connection: Connection, agent_id: str) -> Any:
        body = {
            "serviceTypeId": self.type_id,
            "name": unique("service"),
            "groupId": self.group_id,
            "agentId": agent_id,
        }
        return await connection.call("POST", "/services", body, 201)

    async def short_order(self, connection: Connection) -> None:
        """As the command line orders: the server finds group and agent, and a repeated order is answered once."""
        body = {"serviceTypeId": self.type_id, "name": unique("service")}
        await connection.call("POST", "/services", body, 201, (("Idempotency-Key", unique("key")),))


def sqlite_floor(path: Path, commits: int) -> float:
    """Commits per second: one row each, sequential, nothing else."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE floor (number INTEGER, text TEXT)")
    started = time.perf_counter()
    for number in range(commits):
        connection.execute("INSERT INTO floor VALUES (?, ?)", (number, "x" * 300))
    taken = time.perf_counter() - started
    connection.close()
    return commits / taken


async def postgresql_floor(url: str, commits: int) -> float:
    """Commits per second: one row each, on as many parallel connections as there are clients."""
    pool = await asyncpg.create_pool(url, min_size=CLIENTS, max_size=CLIENTS)
    await pool.execute("CREATE TABLE floor (number BIGINT, text TEXT)")
    numbers = iter(range(commits))

    async def commit() -> None:
        async with pool.acquire() as connection:
            for number in numbers:
                await connection.execute("INSERT INTO floor VALUES ($1, $2)", number, "x" * 300)

    started = time.perf_counter()
    await asyncio.gather(*(commit() for _ in range(CLIENTS)))
    taken = time.perf_counter() - started
    await pool.close()
    return commits / taken


def print_row(what: str, value: float, unit: str, note: str = "") -> None:
    print(f"  {what:<44} {value:10.1f} {unit:<5} {note}".rstrip(), flush=True)


def resident_kib(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def cpu_seconds(server: Server) -> float:
    """With its workers."""
    return sum(process_cpu_seconds(process) for process in (server.process.pid, *children(server.process.pid)))


def cpu_each(server: Server, before: float, count: int) -> str:
    """CPU time per request, which other load on the machine disturbs less than a rate."""
    return f"{(cpu_seconds(server) - before) / count * 1000:.1f} ms server CPU"


def database_cpu_seconds(cluster: Cluster) -> float:
    """Of all processes of the database; those that ended are counted by the first."""
    first = int((cluster.data / "postmaster.pid").read_text().split()[0])
    return sum(process_cpu_seconds(process) for process in (first, *children(first)))


def process_cpu_seconds(process: int) -> float:
    """With the children that it has waited for. 0: it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


async def measure_gets(scene: Scene, server: Server, sizes: Sizes) -> None:
    """One service, read again and again by its consumer."""
    ((agent_id, _),) = await scene.new_agents(1)
    path = f"/services/{(await scene.order(scene.consumer, agent_id))['id']}"

    async def get(connection: Connection) -> None:
        await connection.call("GET", path)

    before = cpu_seconds(server)
    count = sizes.orders * 3
    rate = count / await all_of((get for _ in range(count)), scene.url, scene.consumer_token, CLIENTS)
    print_row("reads of one service", rate, "/s", cpu_each(server, before, count))


async def measure_short_orders(scene: Scene, server: Server, sizes: Sizes) -> None:
    before = cpu_seconds(server)
    orders = (scene.short_order for _ in range(sizes.orders))
    rate = sizes.orders / await all_of(orders, scene.url, scene.consumer_token, CLIENTS)
    used = cpu_each(server, before, sizes.orders)
    print_row("orders without agent and group, with a key", rate, "/s", used)


async def measure_same_rows(scene: Scene, cluster: Cluster, url: str, sizes: Sizes) -> None:
    """Orders beside pgbench, which writes the same rows in one transaction for each order."""
    ((agent_id, _),) = await scene.new_agents(1)
    made = await scene.order(scene.consumer, agent_id)
    script = cluster.folder / "order.sql"
    await write_script(url, made["id"], made["activeJob"]["id"], script)

    async def order(connection: Connection) -> None:
        await scene.order(connection, agent_id)

    before = database_cpu_seconds(cluster)
    rate = sizes.orders / await all_of((order for _ in range(sizes.orders)), scene.url, scene.consumer_token, CLIENTS)
    used = (database_cpu_seconds(cluster) - before) / sizes.orders * 1000
    before = database_cpu_seconds(cluster)
    floor = await asyncio.to_thread(run_floor, cluster, url, script, CLIENTS, sizes.orders)
    floor_used = (database_cpu_seconds(cluster) - before) / sizes.orders * 1000
    print_row("floor: the rows of an order, by pgbench", floor, "/s", f"{floor_used:.1f} ms database CPU")
    print_row(
        "orders beside it", rate, "/s", f"{floor / rate:.1f} times the floor's time, {used:.1f} ms database CPU"
    )


async def measure_orders(scene: Scene, server: Server, sizes: Sizes, floor: float) -> None:
    """Orders of one consumer; then a claim and a completion of each by the agents."""
    agents = await scene.new_agents(CLIENTS)
    made: list[tuple[str, Any]] = []

    def ordering(number: int) -> Callable[[Connection], Awaitable[None]]:
        async def order(connection: Connection) -> None:
            agent_id, token = agents[number % len(agents)]
            made.append((token, await scene.order(connection, agent_id)))

        return order

    before = cpu_seconds(server)
    orders = sizes.orders / await all_of(map(ordering, range(sizes.orders)), scene.url, scene.consumer_token, CLIENTS)
    used = cpu_each(server, before, sizes.orders)
    print_row("orders", orders, "/s", f"{floor / orders:.1f} floor commits each, {used}")

    async def work(token: str) -> None:
        connection = Connection(scene.url, token)
        for owner, service in made:
            if owner == token:
                job = service["activeJob"]["id"]
                await connection.call("POST", f"/jobs/{job}/claim", expect=204)
                await connection.call("POST", f"/jobs/{job}/complete", expect=204)
        connection.close()

    before = cpu_seconds(server)
    started = time.perf_counter()
    await asyncio.gather(*(work(token) for _, token in agents))
    done = len(made) / (time.perf_counter() - started)
    used = cpu_each(server, before, sizes.orders)
    print_row("claims with completes", done, "/s", f"{floor / done:.1f} floor commits for both, {used}")


@asynccontextmanager
async def waiting(scene: Scene, tokens: list[str]) -> AsyncIterator[None]:
    """Agents that long-poll in the background, each on its own connection."""

    async def wait(token: str) -> NoReturn:
        connection = Connection(scene.url, token)
        try:
            while True:
                await connection.call("GET", "/jobs/pending?wait=60")
        finally:
            connection.close()

    tasks = [asyncio.create_task(wait(token)) for token in tokens]
    try:
        yield
    finally:
        await ended(tasks)


async def ended(tasks: Sequence[asyncio.Task[NoReturn]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def timed(work: Awaitable[Any]) -> tuple[Any, float]:
    """The result, and the time when it arrived."""
    return await work, time.perf_counter()


async def measure_idle(scene: Scene, server: Server, sizes: Sizes) -> None:
    agents = await scene.new_agents(sizes.idle_agents + 1)
    before = resident_kib(server)
    async with waiting(scene, [token for _, token in agents[1:]]):
        # After their first heartbeat is stored, the agents only wait.
        connected = f"/agents?status=Connected&agentTypeId={scene.agent_type_id}&pageSize=1"
        while (await scene.admin.call("GET", connected))["totalItems"] < sizes.idle_agents:
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        held = resident_kib(server) - before
        print_row("memory per idle agent", held / sizes.idle_agents, "KiB", f"with {sizes.idle_agents} idle agents")
        started = cpu_seconds(server)
        await asyncio.sleep(sizes.idle_seconds)
        print_row(
            "CPU of one core while all are idle", (cpu_seconds(server) - started) / sizes.idle_seconds * 100, "%"
        )
        answered: list[float] = []
        received: list[float] = []
        agent_id, token = agents[0]
        agent = Connection(scene.url, token)
        for _ in range(WAKE_UPS):
            poll = asyncio.create_task(timed(agent.call("GET", "/jobs/pending?wait=30")))
            await asyncio.sleep(0.05)
            started = time.perf_counter()
            _, at = await timed(scene.order(scene.consumer, agent_id))
            answered.append(at - started)
            (job,), at = await poll
            received.append(at - started)
            await agent.call("POST", f"/jobs/{job['id']}/claim", expect=204)
            await agent.call("POST", f"/jobs/{job['id']}/complete", expect=204)
        agent.close()
    print_row("an order, request to response (median)", statistics.median(answered) * 1000, "ms")
    worst = max(received) * 1000
    print_row(
        "an order, request to received by its agent", statistics.median(received) * 1000, "ms", f"worst {worst:.1f}"
    )


async def median_milliseconds(call: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(PAGES):
        started = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


async def measure_pages(scene: Scene, server: Server, database_url: str, sizes: Sizes) -> None:
    ((agent_id, agent_token),) = await scene.new_agents(1)
    store = await open_store(database_url)
    owners = Owners(scene.provider_id, scene.consumer_id, scene.group_id, agent_id, scene.type_id)
    filled = 0
    consumer = scene.consumer
    for size in sizes.services:
        await fill(store, owners, filled + 1, size, with_jobs=True)
        if store.dialect == "postgresql":
            async with store.transaction() as tx:
                await tx.execute("ANALYZE")
        filled = size
        first = f"/services?pageSize={PAGE_SIZE}&after="
        questions = {
            "first page": first,
            "page after a cursor, half-way": first + cursor_at(size // 2),
            "name, one match": f"{first}&name=bulk%20{size - 1}",
            "name, 0.1 % match": f"{first}&name=lk%20{str(size)[:1]}23",
            "name, all match": f"{first}&name=bulk",
            "name, no match": f"{first}&name=nothing",
            "status": f"{first}&status=Stopped",
            "numbered page, with totals": f"/services?pageSize={PAGE_SIZE}",
        }
        for what, path in questions.items():
            before = cpu_seconds(server)
            taken = await median_milliseconds(lambda path=path: consumer.call("GET", path))  # type: ignore[misc]
            print_row(what, taken, "ms", f"at {size:,} services, {cpu_each(server, before, PAGES)}")
        await measure_one_by_one(scene, server, agent_id, agent_token, f"at {size:,} services")
        before = cpu_seconds(server)
        taken = await median_milliseconds(lambda: scene.short_order(consumer))
        print_row("an order without agent", taken, "ms", f"at {size:,} services, {cpu_each(server, before, PAGES)}")
    await store.close()


async def measure_one_by_one(scene: Scene, server: Server, agent_id: str, agent_token: str, where: str) -> None:
    """An order and its agent's poll, claim and completion, without other load."""
    agent = Connection(scene.url, agent_token)
    taken: dict[str, list[float]] = {"an order": [], "a poll": [], "a claim": [], "a completion": []}

    async def timed_call(what: str, call: Awaitable[Any]) -> Any:
        started = time.perf_counter()
        found = await call
        taken[what].append((time.perf_counter() - started) * 1000)
        return found

    before = cpu_seconds(server)
    for _ in range(PAGES):
        await timed_call("an order", scene.order(scene.consumer, agent_id))
        (job,) = await timed_call("a poll", agent.call("GET", "/jobs/pending"))
        path = f"/jobs/{job['id']}"
        await timed_call("a claim", agent.call("POST", f"{path}/claim", expect=204))
        await timed_call("a completion", agent.call("POST", f"{path}/complete", expect=204))
    agent.close()
    used = cpu_each(server, before, PAGES)
    for what, times in taken.items():
        print_row(what, statistics.median(times), "ms", f"{where}, all four {used}")


async def measure_jobs(scene: Scene, server: Server, sizes: Sizes, floor: float) -> None:
    """Every agent polls, claims with a lease, renews once and completes while orders arrive; no job may be lost."""
    agents = await scene.new_agents(sizes.working_agents)
    finished: set[str] = set()

    async def work(token: str) -> NoReturn:
        connection = Connection(scene.url, token)
        while True:
            for job in await connection.call("GET", "/jobs/pending?wait=60"):
                path = f"/jobs/{job['id']}"
                lease = await connection.call("POST", f"{path}/claim", {"leaseSeconds": LEASE_SECONDS})
                held = {"leaseToken": lease["leaseToken"]}
                await connection.call("POST", f"{path}/renew", {**held, "progress": {"percent": 50}})
                await connection.call("POST", f"{path}/complete", held, 204)
                finished.add(job["service"]["id"])

    async def order_all() -> set[str]:
        ordered: set[str] = set()

        def ordering(number: int) -> Callable[[Connection], Awaitable[None]]:
            async def order(connection: Connection) -> None:
                ordered.add((await scene.order(connection, agents[number % len(agents)][0]))["id"])

            return order

        await all_of(map(ordering, range(sizes.jobs)), scene.url, scene.consumer_token, CLIENTS)
        return ordered

    async def until_done(workers: list[asyncio.Task[NoReturn]]) -> None:
        while len(finished) < sizes.jobs:
            for worker in workers:
                if worker.done():
                    worker.result()
            await asyncio.sleep(0.05)

    before = cpu_seconds(server)
    started = time.perf_counter()
    workers = [asyncio.create_task(work(token)) for _, token in agents]
    ordered = await order_all()
    await until_done(workers)
    taken = time.perf_counter() - started
    await ended(workers)
    left = await scene.consumer.call("GET", "/jobs?status=Pending&status=Processing")
    if finished != ordered or left["totalItems"]:
        raise RuntimeError(f"{len(ordered - finished)} jobs were lost, {left['totalItems']} are unfinished")
    rate = sizes.jobs / taken
    used = cpu_each(server, before, sizes.jobs)
    print_row(
        "orders: polled, claimed, renewed, completed", rate, "/s", f"{floor / rate:.1f} floor commits each, {used}"
    )
    print_row(f"… {sizes.jobs:,} by {sizes.working_agents:,} agents, none lost", taken, "s")


async def measure(
    server: Server, database_url: str, sizes: Sizes, floor: float, cluster: Cluster | None = None
) -> None:
    scene = Scene(server.url, server.admin.token or "")
    await scene.prepare()
    print_row("floor: bare commits of one row", floor, "/s")
    await measure_orders(scene, server, sizes, floor)
    # Of its own, because no agent works on these orders.
    shop = Scene(server.url, server.admin.token or "")
    await shop.prepare()
    if cluster is not None:
        await measure_same_rows(shop, cluster, database_url, sizes)
    await measure_gets(shop, server, sizes)
    await measure_short_orders(shop, server, sizes)
    await measure_idle(scene, server, sizes)
    await measure_jobs(scene, server, sizes, floor)
    await measure_pages(scene, server, database_url, sizes)


async def measure_workers(server: Server, sizes: Sizes, floor: float) -> None:
    scene = Scene(server.url, server.admin.token or "")
    await scene.prepare()
    await measure_orders(scene, server, sizes, floor)
    await measure_gets(scene, server, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", const=QUICK, dest="sizes", help="takes seconds")
    sizes.add_argument("--all", action="store_const", const=ALL, dest="sizes", help="up to a million services")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], help="only this database")
    parser.set_defaults(sizes=USUAL)
    options = parser.parse_args()
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="pl") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if options.database != "postgresql":
            print("SQLite")
            floor = sqlite_floor(folder / "floor.db", options.sizes.floor_commits)
            with running(folder / "sqlite", environment=UNLIMITED, installed=True) as server:
                uvloop.run(measure(server, f"sqlite:///{folder}/sqlite/mainstay.db", options.sizes, floor))
        if options.database != "sqlite" and find_postgresql() is None:
            print("PostgreSQL is not installed")
        elif options.database != "sqlite":
            print("PostgreSQL")
            with postgresql_cluster(folder / "c", durable=True) as cluster:
                url = cluster.new_database()
                floor = uvloop.run(postgresql_floor(cluster.new_database(), options.sizes.floor_commits))
                with running(
                    folder / "postgresql", database_url=url, environment=UNLIMITED, installed=True
                ) as server:
                    uvloop.run(measure(server, url, options.sizes, floor, cluster))
                # In a database of the same size each.
                for workers in (1, 2):
                    print("PostgreSQL, 1 worker" if workers == 1 else f"PostgreSQL, {workers} workers")
                    url, environment = cluster.new_database(), {**UNLIMITED, "MAINSTAY_WORKERS": str(workers)}
                    with running(
                        folder / f"workers-{workers}", database_url=url, environment=environment, installed=True
                    ) as server:
                        uvloop.run(measure_workers(server, options.sizes, floor))


if __name__ == "__main__":
    main()

"""The pages with many services on both databases: time, statements and bytes of each, CPU against the bare API call, and
500 live streams.

`python -m benchmarks.pages` uses 100,000 services, `--quick` 1,000. All traffic stays on loopback; one request at a time,
so the times are those of a server without other load."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benchmarks.live_streams import measure_streams
from benchmarks.plane import UNLIMITED, cpu_seconds
from browser_session import WebSession, signed_in
from bulk_services import Owners, bulk_id, fill
from control_plane import Server, find_postgresql, postgresql_cluster, running
from mainstay.control.store.engine.open import open_store
from query_counter import CountingProxy, counting_proxy
from sample_rows import SampleRows
from web_samples import readable_pages, sample_urls

REQUESTS = 40
MAX_MILLISECONDS = 100
MAX_STATEMENTS = 20
MAX_BYTES = 100_000
STREAMS, STREAMED_SECONDS = 500, 20
# With the documents that they need, uncompressed.
FIRST_LOADS = ("/", "/services", "/services/{id}")
LINKED = re.compile(r'(?:href|src)="(/static/[^"]+)"')
# The bare call that shows the same row or list.
BARE_CALLS = {"/services": "/api/v1/services?pageSize=50&after=", "/services/{id}": "/api/v1/services/{service}"}


@dataclass(frozen=True)
class Bench:
    server: Server
    session: WebSession
    # None: not counted.
    proxy: CountingProxy | None


@contextmanager
def _server(database: str, folder: Path) -> Iterator[tuple[Server, str, CountingProxy | None]]:
    """The server, the URL of its database, and the proxy between them."""
    if database == "sqlite":
        with running(folder / "data", environment=UNLIMITED, installed=True) as server:
            yield server, f"sqlite:///{folder}/data/mainstay.db", None
        return
    with (
        postgresql_cluster(folder / "c") as cluster,
        counting_proxy(url := cluster.new_database()) as (proxied, proxy),
        running(folder / "data", database_url=proxied, environment=UNLIMITED, installed=True) as server,
    ):
        yield server, url, proxy


async def _fill(database_url: str, rows: SampleRows, server: Server, services: int) -> None:
    sample = server.admin.get(f"/services/{rows.ids['services']}")
    owners = Owners(
        sample["providerId"], sample["consumerId"], sample["groupId"], sample["agentId"], sample["serviceTypeId"]
    )
    store = await open_store(database_url)
    try:
        await fill(store, owners, 1, services, with_jobs=True)
        if store.dialect == "postgresql":
            # As the database does by itself after many new rows.
            async with store.autocommit() as tx:
                await tx.execute("VACUUM ANALYZE")
    finally:
        await store.close()


def _measure(bench: Bench, url: str) -> tuple[float, float, int, int]:
    """(p95 in ms, CPU in ms, statements, bytes)."""
    taken, statements, size = [], [], 0
    bench.session.get(url)
    before = cpu_seconds(bench.server)
    for _ in range(REQUESTS):
        trips = bench.proxy.round_trips if bench.proxy else 0
        started = time.perf_counter()
        size = len(bench.session.get(url).text.encode())
        taken.append((time.perf_counter() - started) * 1000)
        statements.append((bench.proxy.round_trips if bench.proxy else 0) - trips)
    cpu = (cpu_seconds(bench.server) - before) / REQUESTS * 1000
    # Other tasks of the server only add statements.
    return sorted(taken)[int(REQUESTS * 0.95) - 1], cpu, min(statements), size


def _bare_cpu(bench: Bench, path: str) -> float:
    before = cpu_seconds(bench.server)
    for _ in range(REQUESTS):
        bench.server.admin.call("GET", path, expect=200)
    return (cpu_seconds(bench.server) - before) / REQUESTS * 1000


def _first_load(bench: Bench, url: str) -> int:
    page = bench.session.get(url).text
    names = set(LINKED.findall(page))
    # Scripts import others.
    scripts = {name: bench.session.get(name).text for name in names}
    for text in list(scripts.values()):
        for imported in re.findall(r'from "\./([^"]+)"', text):
            name = f"/static/{imported}"
            scripts.setdefault(name, bench.session.get(name).text)
    return len(page.encode()) + sum(len(text.encode()) for text in scripts.values())


def measure_pages(bench: Bench, rows: SampleRows, services: int) -> list[str]:
    """The pages that are slower, larger or more talkative than they may be."""
    faults = []
    print(f"{'page':52} {'p95':>9} {'CPU':>9} {'statements':>11} {'size':>10}")
    rows.ids["services"] = bulk_id(services // 2)
    for page in (each for each in readable_pages() if each.access is not None):
        for url in sample_urls(page, rows):
            if bench.session.get(url, expect=None).status != 200:
                # Leads to another page, or the sample is not in a state to be shown there.
                continue
            slowest, cpu, statements, size = _measure(bench, url)
            counted = f"{statements:>11}" if bench.proxy else f"{'':>11}"
            shown = page.path if url == sample_urls(page, rows)[0] else f"{page.path} {url.partition('?')[2]}"
            print(f"{shown[:52]:52} {slowest:>6.1f} ms {cpu:>6.1f} ms {counted} {size / 1000:>7.1f} kB")
            if slowest > MAX_MILLISECONDS or statements > MAX_STATEMENTS:
                faults.append(f"{shown}: {slowest:.0f} ms, {statements} statements")
        if page.path in BARE_CALLS:
            bare = _bare_cpu(bench, BARE_CALLS[page.path].format(service=rows.ids["services"]))
            print(f"{'  the bare API call':52} {'':>9} {bare:>6.1f} ms")
        if page.path in FIRST_LOADS:
            size = _first_load(bench, sample_urls(page, rows)[0])
            print(f"{'  first load, with styles and scripts':52} {'':>31} {size / 1000:>7.1f} kB")
            if size > MAX_BYTES:
                faults.append(f"{page.path}: first load of {size:,} bytes")
    return faults


def _run(database: str, services: int) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with _server(database, folder) as (server, database_url, proxy):
            rows = SampleRows(server.admin)
            asyncio.run(_fill(database_url, rows, server, services))
            print(f"\nPages with {services:,} services, {database}")
            bench = Bench(server, signed_in(server.url, str(server.admin.token)), proxy)
            faults = measure_pages(bench, rows, services)
            faults += measure_streams(server, STREAMS, STREAMED_SECONDS)
            return [f"{database}: {fault}" for fault in faults]


def main() -> None:
    uvloop.install()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 services")
    chosen = parser.parse_args()
    services = 1000 if chosen.quick else 100_000
    databases = ["sqlite", *(["postgresql"] if find_postgresql() else [])]
    faults = [fault for database in databases for fault in _run(database, services)]
    print("\n" + ("\n".join(["Beyond the limits:", *faults]) if faults else "Every page is within its limits."))


if __name__ == "__main__":
    main()

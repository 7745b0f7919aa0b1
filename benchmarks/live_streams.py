"""Open pages of many browsers: how soon each live stream receives an event, and what the server spends on it.

`python -m benchmarks.pages` runs it: 500 streams of ten participants, one event per second for each participant."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benchmarks.plane import cpu_seconds
from browser_session import signed_in
from control_plane import Server
from scenario import Scenario, unique

PARTICIPANTS = 10
MAX_SECONDS = 2.0
MAX_CORES = 1.0


@dataclass
class Reader:
    """One stream. Notes when each change of its participant arrives."""

    participant_id: str
    cookie: str
    arrivals: list[float] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, url: str) -> None:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = f"GET /live HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {self.cookie}\r\n\r\n"
        writer.write(head.encode())
        wanted = f'"entity":"{self.participant_id}"'.encode()
        try:
            while line := await reader.readline():
                # The position of the stream: from here on nothing is missed.
                if line.startswith(b"id: "):
                    self.connected.set()
                elif wanted in line:
                    self.arrivals.append(time.perf_counter())
        finally:
            writer.close()


async def _follow(server: Server, readers: list[Reader], events: int) -> tuple[dict[str, list[float]], float]:
    """When the changes of each participant began, and the cores that the server used meanwhile."""
    tasks = [asyncio.create_task(reader.read(server.url)) for reader in readers]
    await asyncio.wait_for(asyncio.gather(*(reader.connected.wait() for reader in readers)), 60)
    begun: dict[str, list[float]] = {reader.participant_id: [] for reader in readers}
    started, cpu = time.perf_counter(), cpu_seconds(server)
    for number in range(events):
        for participant_id, times in begun.items():
            times.append(time.perf_counter())
            path, body = f"/api/v1/participants/{participant_id}", {"name": unique(f"event {number}")}
            await asyncio.to_thread(server.admin.call, "PATCH", path, body, expect=200)
        await asyncio.sleep(max(0.0, started + number + 1 - time.perf_counter()))
    await asyncio.sleep(MAX_SECONDS)
    cores = (cpu_seconds(server) - cpu) / (time.perf_counter() - started)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return begun, cores


def measure_streams(server: Server, streams: int, events: int) -> list[str]:
    """The limits that were exceeded."""
    scenario = Scenario(server.admin)
    readers = []
    for _ in range(PARTICIPANTS):
        participant_id = scenario.participant()
        session = signed_in(server.url, str(scenario.token("participant", participant_id).token))
        cookie = "; ".join(f"{name}={value}" for name, value in session.cookies.items())
        readers += [Reader(participant_id, cookie) for _ in range(streams // PARTICIPANTS)]
    begun, cores = asyncio.run(_follow(server, readers, events))
    delays = [
        arrival - start
        for reader in readers
        for start, arrival in zip(begun[reader.participant_id], reader.arrivals, strict=False)
    ]
    missing = len(readers) * events - len(delays)
    slowest = max(delays, default=float("inf"))
    print(f"\n{len(readers)} live streams of {PARTICIPANTS} participants, 1 event/s for each participant, {events} s")
    print(
        f"delay: median {statistics.median(delays) * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms; missing {missing}"
    )
    print(f"server: {cores:.2f} cores")
    is_fine = missing == 0 and slowest <= MAX_SECONDS and cores < MAX_CORES
    return [] if is_fine else [f"live streams: slowest {slowest:.2f} s, {missing} missing, {cores:.2f} cores"]

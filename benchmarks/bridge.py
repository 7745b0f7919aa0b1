"""Measures the time from an order request to the first change on the host.

Run it with `python benchmarks/bridge.py [--agents N] [--orders N]`. Server, agent and idle agents share this machine and its
loopback. The first change is a file; the clock stops when the file appears."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from applying import GROUP, USER
from bridge import Bridge, bridge_on, write_blueprint
from control_plane import running

SCHEMA = {"password": {"type": "string", "secret": {"type": "persistent"}}}
ROOT = "{{ lookup('service.root') }}/{{ lookup('service.name') }}"
POLL = b"GET /api/v1/jobs/pending?wait=60 HTTP/1.1\r\nHost: bridge\r\nAuthorization: Bearer %b\r\n\r\n"
WARM_UP = 3
# A benchmark sends more than the default rate limit admits.
UNLIMITED = {"MAINSTAY_RATE_LIMIT": "0"}


def manifest(*, secret: bool) -> str:
    content = "{{ lookup('properties.password') }}" if secret else "made"
    wanted = {"ensure": "present", "content": content, "owner": USER, "group": GROUP, "mode": "0600"}
    return json.dumps([{"file": [{ROOT: wanted}]}])


@contextmanager
def idle_agents(bridge: Bridge, count: int) -> Iterator[None]:
    """Agents that long-poll for work, each with its own token and connection."""
    if not count:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < count + 100 else soft, hard))
    tokens = [str(bridge.scenario.token("agent", bridge.scenario.new_agent()["id"]).token) for _ in range(count)]
    address = urlsplit(bridge.server.url)
    loop: asyncio.AbstractEventLoop | None = None
    tasks: list[asyncio.Task[None]] = []
    waiting = threading.Semaphore(0)

    async def wait(token: str) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while True:
            writer.write(POLL % token.encode())
            await writer.drain()
            waiting.release()
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            await reader.readexactly(length)

    async def wait_all() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        tasks.extend(loop.create_task(wait(token)) for token in tokens)
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(wait_all()), daemon=True)
    thread.start()
    for _ in tokens:
        waiting.acquire()
    time.sleep(2)
    yield
    for task in tasks:
        if loop is not None:
            loop.call_soon_threadsafe(task.cancel)
    thread.join()


def order_to_change(
    bridge: Bridge, kind: Any, root: Path, orders: int, *, warm_up: int = WARM_UP, **properties: object
) -> list[float]:
    taken = []
    # Prepared before the clock starts.
    group, consumer = bridge.scenario.group_id, bridge.scenario.consumer
    body = {
        "serviceTypeId": kind["id"],
        "groupId": group,
        "agentId": bridge.scenario.agent_id,
        "properties": properties,
    }
    for number in range(orders + warm_up):
        name = f"{kind['name']}-{number}-{time.monotonic_ns()}"
        path = str(root / name)
        started = time.perf_counter()
        service = consumer.post("/services", {**body, "name": name})
        while not os.path.exists(path):
            time.sleep(0.0002)
        taken.append((time.perf_counter() - started) * 1000)
        bridge.wait_for(service, "Stopped")
    return taken[warm_up:]


def show(title: str, taken: list[float]) -> float:
    middle = statistics.median(taken)
    print(f"  {title:<44} {middle:7.1f} ms   worst of {len(taken)}: {max(taken):7.1f} ms")
    return middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000, help="number of other, idle agents")
    parser.add_argument("--orders", type=int, default=20, help="number of orders")
    options = parser.parse_args()
    os.environ.pop("MAINSTAY_STATE_DIR", None)
    with tempfile.TemporaryDirectory(prefix="br") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        with (
            running(Path(folder) / "data", environment=UNLIMITED, installed=True) as server,
            bridge_on(server, Path(folder) / "bridge") as bridge,
        ):
            kinds = {}
            given = []
            for secret in (False, True):
                kinds[secret] = kind = bridge.service_type(SCHEMA)
                blueprint = bridge.folder / f"blueprint-{secret}"
                write_blueprint(
                    blueprint,
                    type_name=kind["name"],
                    property_schema=SCHEMA,
                    manifests={"create": manifest(secret=secret)},
                )
                given += ["--blueprint", str(blueprint)]
            bridge.start_agent(*given, "--root", str(root), "--drift-interval", "0s", command=[])
            print("From an order to the first change on the host")
            print(f"  {'first order':<44} {order_to_change(bridge, kinds[False], root, 1, warm_up=0)[0]:7.1f} ms")
            alone = show("no other agent", order_to_change(bridge, kinds[False], root, options.orders))
            show(
                "no other agent, with a secret",
                order_to_change(bridge, kinds[True], root, options.orders, password="x"),
            )
            with idle_agents(bridge, options.agents):
                title = f"{options.agents:,} idle agents"
                crowded = show(title, order_to_change(bridge, kinds[False], root, options.orders))
                show(
                    f"{title}, with a secret",
                    order_to_change(bridge, kinds[True], root, options.orders, password="x"),
                )
            print(f"  {'ratio':<44} {crowded / alone:7.2f}")


if __name__ == "__main__":
    main()

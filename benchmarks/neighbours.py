"""What one participant can do to another: the 99th percentile of a victim's reads and writes, alone and beside each attack.

`python -m benchmarks.neighbours` uses 300,000 services of others and 15 s for each attack, `--quick` 3,000 and 3 s. Limits
are the defaults. Every attack has one participant with its agents, in a process of its own; the victim sends one request at
a time. At most the larger of 3 times its own baseline and 50 ms is fine. Run it alone: other work on the machine is load, too."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import urllib3

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from browser_session import WebSession
from bulk_services import Owners, fill
from control_plane import Client, Server, find_postgresql, postgresql_cluster, running
from mainstay.control.store.engine.open import open_store
from scenario import Scenario

MAX_RATIO = 3
ALWAYS_FINE_SECONDS = 0.05
# Together less than the limit of a participant.
PAUSE_SECONDS = 0.02
REFUSED_PAUSE_SECONDS = 0.05
LISTS = b'{"properties":{"\\u003a":[' + b"[]," * 1_200_000 + b"0]}}"
PROPERTIES = b",".join(b'"p%d":1' % number for number in range(45_000))


@dataclass(frozen=True)
class Target:
    """What an attacker knows."""

    url: str
    token: str
    agent_tokens: tuple[str, ...]
    type_id: str
    group_id: str
    consumer_id: str

    def client(self, token: str = "") -> Client:
        return Client(self.url, token or self.token)


# ---- attacks: (connections, what each one repeats) ----


def _send(client: Client, method: str, path: str, **more: Any) -> None:
    if client.call(method, f"/api/v1{path}", **more).status == 429:
        time.sleep(REFUSED_PAUSE_SECONDS)


def _list_by(parameter: str, value: Callable[[Target], str]) -> Callable[[Target, int], None]:
    return lambda target, _: _send(target.client(), "GET", f"/services?{parameter}={value(target)}")


def _post_lists(target: Target, _: int) -> None:
    _send(target.client(), "POST", "/services", raw=LISTS)


def _validate(target: Target, _: int) -> None:
    raw = b'{"properties":{%s}}' % PROPERTIES
    _send(target.client(), "POST", f"/service-types/{target.type_id}/validate", raw=raw)


def _dry_run(target: Target, _: int) -> None:
    order = {"name": "o", "serviceTypeId": target.type_id, "consumerId": target.consumer_id, "properties": {}}
    requests = [{"method": "POST", "path": "/services", "body": order}] * 500
    _send(target.client(), "POST", "/batch?dryRun=true", body={"requests": requests})


def _ask_as_agent(target: Target, number: int) -> None:
    _send(target.client(target.agent_tokens[number % len(target.agent_tokens)]), "GET", "/agents/me")


@cache
def _sign_in_form(url: str) -> tuple[dict[str, str], str]:
    """Cookies and the CSRF token of a form that is sent again and again."""
    browser = WebSession(url)
    csrf = browser.get("/signin").csrf
    return dict(browser.cookies), csrf


def _sign_in(target: Target, _: int) -> None:
    cookies, csrf = _sign_in_form(target.url)
    browser = WebSession(target.url, dict(cookies))
    if browser.post("/signin", {"token": target.token}, csrf=csrf, expect=None).status == 429:
        time.sleep(REFUSED_PAUSE_SECONDS)


def _stream(target: Target, _: int) -> None:
    with suppress(urllib3.exceptions.HTTPError):
        for _piece in target.client().open_stream("/api/v1/events/stream").stream(4096):
            pass


ATTACKS: dict[str, tuple[int, Callable[[Target, int], None]]] = {
    "lists by a type": (8, _list_by("serviceTypeId", lambda target: target.type_id)),
    "lists by a state": (8, _list_by("status", lambda _: "Started")),
    "lists by a foreign group": (8, _list_by("groupId", lambda target: target.group_id)),
    "bodies of 3.6 MB": (2, _post_lists),
    "45,000 unknown properties": (2, _validate),
    "dry runs of 500 orders": (2, _dry_run),
    "16 agents": (16, _ask_as_agent),
    "sign-ins": (8, _sign_in),
    "96 event streams": (96, _stream),
}


def attack(name: str, target: Target) -> None:
    """Runs until the process is ended."""
    connections, act = ATTACKS[name]

    def repeat(number: int) -> None:
        while True:
            with suppress(urllib3.exceptions.HTTPError, AssertionError):
                act(target, number)

    for number in range(connections):
        threading.Thread(target=repeat, args=(number,), daemon=True).start()
    threading.Event().wait()


# ---- the victim ----


@dataclass(frozen=True)
class Percentiles:
    read: float
    write: float


def _percentile(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def measure_victim(victim: Client, consumer_id: str, seconds: float) -> Percentiles:
    reads: list[float] = []
    writes: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not writes:
        for kept, method, path, body in (
            (reads, "GET", "/services?after=&pageSize=20", None),
            (reads, "GET", "/service-groups", None),
            (writes, "POST", "/service-groups", {"name": "victim", "consumerId": consumer_id}),
        ):
            started = time.perf_counter()
            victim.call(method, f"/api/v1{path}", body, expect=200 if method == "GET" else 201)
            kept.append(time.perf_counter() - started)
            time.sleep(PAUSE_SECONDS)
    return Percentiles(_percentile(reads), _percentile(writes))


def _is_fine(before: float, during: float) -> bool:
    return during <= max(MAX_RATIO * before, ALWAYS_FINE_SECONDS)


def _target(server: Server, services: int, database_url: str) -> tuple[Target, Scenario]:
    """A plane of others, and an attacker who owns nothing in it."""
    others, attacker = Scenario(server.admin), Scenario(server.admin)
    schema = {"properties": {"size": {"type": "integer"}}}
    service_type = server.admin.post("/service-types", {"name": "bulk", "propertySchema": schema})
    agent_type = server.admin.post("/agent-types", {"name": "bulk", "serviceTypeIds": [service_type["id"]]})
    agent = {"name": "bulk", "providerId": others.provider_id, "agentTypeId": agent_type["id"]}
    agent_id = server.admin.post("/agents", agent)["id"]
    group = {"name": "bulk", "consumerId": others.consumer_id}
    group_id = server.admin.post("/service-groups", group)["id"]
    owners = Owners(others.provider_id, others.consumer_id, group_id, agent_id, service_type["id"])

    async def insert() -> None:
        store = await open_store(database_url)
        await fill(store, owners, 1, services)
        await store.close()

    asyncio.run(insert())
    own = {"name": "own", "providerId": attacker.consumer_id, "agentTypeId": agent_type["id"]}
    made = [server.admin.post("/agents", own)["id"] for _ in range(16)]
    tokens = tuple(str(attacker.token("agent", each).token) for each in made)
    token = str(attacker.consumer.token)
    return Target(server.url, token, tokens, service_type["id"], group_id, attacker.consumer_id), Scenario(
        server.admin
    )


@contextmanager
def _beside(name: str, target: Target) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(name, target), daemon=True)
    process.start()
    try:
        # The attack is at its height once its first burst is spent.
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.join()


def measure(server: Server, database: str, database_url: str, services: int, seconds: float) -> list[str]:
    """Prints the table; returns the attacks that do more harm than allowed."""
    target, scenario = _target(server, services, database_url)
    offences = []
    print(f"\n{services:,} services of others, {database}, {seconds:g} s for each row; p99 of the victim in ms\n")
    print("| attack | read before | read during | write before | write during | |\n|---|---|---|---|---|---|")
    for name in ATTACKS:
        before = measure_victim(scenario.consumer, scenario.consumer_id, seconds)
        with _beside(name, target):
            during = measure_victim(scenario.consumer, scenario.consumer_id, seconds)
        fine = _is_fine(before.read, during.read) and _is_fine(before.write, during.write)
        cells = (before.read, during.read, before.write, during.write)
        print(
            f"| {name} | {' | '.join(f'{each * 1000:.0f}' for each in cells)} | {'' if fine else 'too much'} |",
            flush=True,
        )
        offences += [] if fine else [f"{database}: {name}"]
    return offences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3,000 services and 3 s for each attack")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append", help="default: both")
    arguments = parser.parse_args()
    services, seconds = (3_000, 3.0) if arguments.quick else (300_000, 15.0)
    offences = []
    for database in arguments.database or ["sqlite", "postgresql"]:
        with tempfile.TemporaryDirectory(prefix="neighbours") as temporary:
            folder = Path(temporary)
            if database == "sqlite":
                with running(folder / "data", installed=True) as server:
                    offences += measure(server, database, f"sqlite:///{folder}/data/mainstay.db", services, seconds)
            elif find_postgresql() is None:
                sys.exit("PostgreSQL is not installed")
            else:
                folder.chmod(0o755)
                with postgresql_cluster(folder / "c", durable=True) as cluster:
                    url = cluster.new_database()
                    with running(folder / "data", database_url=url, installed=True) as server:
                        offences += measure(server, database, url, services, seconds)
    if offences:
        sys.exit("more harm than allowed:\n" + "\n".join(offences))


if __name__ == "__main__":
    main()

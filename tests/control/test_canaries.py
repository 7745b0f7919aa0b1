"""Recognisable secrets pass through all operations; afterwards no file, log or response contains one."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seed_text
from control_plane import Client, Cluster, Server, running
from fork_server import run_program
from scenario import Scenario

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
CANARY = b"canary-7f3a9c"
PLAIN = CANARY.decode()
KEY = {"VAULT_ENCRYPTION_KEY": "56" * 32, "MAINSTAY_LOG_LEVEL": "debug"}
PERSISTENT = {"type": "string", "secret": {"type": "persistent"}}
SCHEMA = {
    "key": {**PERSISTENT, "validators": [{"type": "maxLength", "value": 40}]},
    "once": {"type": "string", "secret": {"type": "ephemeral"}},
    "document": {"type": "json", "secret": {"type": "persistent"}},
    "database": {"type": "object", "properties": {"host": {"type": "string"}, "password": PERSISTENT}},
    "users": {"type": "array", "items": {"type": "object", "properties": {"password": PERSISTENT}}},
    "reported": {**PERSISTENT, "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}


class RecordingClient(Client):
    """Records every response, except those of the vault to an agent."""

    received: bytes = b""

    def call(self, method: str, path: str, *arguments: Any, **more: Any) -> Any:
        reply = super().call(method, path, *arguments, **more)
        if "/vault/" not in path:
            RecordingClient.received += f"{reply.body}{dict(reply.headers)}".encode()
        return reply

    def as_token(self, token: str) -> Client:
        return RecordingClient(self.url, token, self.pool)


def use_every_operation(server: Server) -> Scenario:
    """Orders, refusals, changes, failures, reports and deletions, each with a secret."""
    scenario = Scenario(RecordingClient(server.url, server.admin.token))
    kind = scenario.service_type(SCHEMA, SIMPLE)
    order = {
        "key": f"{PLAIN}-key",
        "once": f"{PLAIN}-once",
        "document": {PLAIN: [PLAIN]},
        "database": {"host": "h", "password": f"{PLAIN}-db"},
        "users": [{"password": f"{PLAIN}-{number}"} for number in range(3)],
    }
    body = {"serviceTypeId": kind["id"], "name": "n", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    consumer = scenario.consumer
    key = {"Idempotency-Key": "once-only"}
    service = consumer.post("/services", {**body, "properties": order}, headers=key)
    consumer.post("/services", {**body, "properties": order}, headers=key)
    consumer.post("/services", {**body, "properties": {**order, "key": PLAIN}}, headers=key, expect=409)
    consumer.post("/services?dryRun=true", {**body, "properties": order}, expect=200)
    wrong: list[dict[str, object]] = [
        {**order, "key": PLAIN * 9},
        {**order, "key": [PLAIN]},
        {**order, "database": {"password": {PLAIN: 1}}},
        {**order, "key": f"vault://{PLAIN}"},
        {**order, "reported": PLAIN},
    ]
    for properties in wrong:
        consumer.post("/services", {**body, "properties": properties}, expect=400)
        consumer.post(f"/service-types/{kind['id']}/validate", {"properties": properties}, expect=200)
    for value in service["properties"].values():
        if isinstance(value, str):
            scenario.agent.get(f"/vault/secrets/{value.removeprefix('vault://')}")
    scenario.complete(service, properties={"reported": f"{PLAIN}-reported"})
    path = f"/services/{service['id']}"
    consumer.patch(path, {"properties": {"key": f"{PLAIN}-new"}})
    scenario.fail(service, "no")
    consumer.patch(path, {"properties": {"key": f"{PLAIN}-newer", "users": [{"password": f"{PLAIN}-u"}]}})
    scenario.complete(service)
    consumer.get(f"{path}/provenance")
    agent_type = scenario.agent_type(configurationSchema={"secret": PERSISTENT})
    agent = scenario.new_agent(agentTypeId=agent_type["id"], configuration={"secret": f"{PLAIN}-agent"})
    scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"secret": f"{PLAIN}-agent-2"}})
    gone = scenario.order(kind, order)
    scenario.complete(gone)
    consumer.delete(f"/services/{gone['id']}")
    scenario.complete(gone)
    for listed in ("services", "jobs", "events", "agents", "service-types"):
        scenario.admin.get(f"/{listed}?pageSize=100")
    scenario.admin.call("GET", "/metrics")
    return scenario


@pytest.fixture(params=["sqlite", "postgresql"])
def locations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str | None, list[Path]]]:
    """The data directory, the database URL, and the folders with their files."""
    data = tmp_path / "data"
    if request.param == "sqlite":
        yield data, None, [data]
        return
    cluster: Cluster = request.getfixturevalue("postgresql")
    yield data, cluster.new_database(), [data, cluster.folder]


def files_with_canaries(folders: list[Path]) -> list[str]:
    found = []
    for file in (file for folder in folders for file in folder.rglob("*") if file.is_file()):
        if CANARY in file.read_bytes():
            found.append(str(file))
    return found


def test_no_file_log_or_response_contains_a_secret(
    locations: tuple[Path, str | None, list[Path]], tmp_path: Path
) -> None:
    data, url, folders = locations
    RecordingClient.received = b""
    with running(data, database_url=url, environment=KEY, installed=True) as server:
        scenario = use_every_operation(server)
        tokens = [str(client.token).encode() for client in (scenario.admin, scenario.consumer, scenario.agent)]
        process = Path(f"/proc/{server.process.pid}")
        for name in ("cmdline", "environ"):
            assert CANARY not in (process / name).read_bytes()
        # Also while the server runs: recent writes are in the write-ahead log.
        assert files_with_canaries(folders) == []
        backup = tmp_path / "backup.gz"
        where: list[str | Path] = ["--data-dir", data, *(["--database-url", url] if url else [])]
        run_program(["server", "backup", backup, *where]).check_returncode()
        assert server.stop() == 0
        log = server.log.read_bytes()
    assert files_with_canaries(folders) == []
    kept = gzip.decompress(backup.read_bytes())
    assert CANARY not in kept
    assert CANARY not in log
    assert CANARY not in RecordingClient.received
    assert b"vault://" in RecordingClient.received
    # The admin token is in its own file only; other tokens appear nowhere.
    database = b"".join(file.read_bytes() for file in data.glob("mainstay.db*"))
    for token in tokens:
        assert token not in database + kept + log

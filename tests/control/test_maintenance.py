"""Maintenance commands: backup and restore between the databases, lost keys, admin tokens and doctor."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

import seed_text
from command_line import on_terminal
from control_plane import Client, Cluster, Server, running
from fork_server import PROGRAM, run_program
from guide_commands import guide_commands
from mainstay.control.store.engine.migrations import migrations
from scenario import Scenario

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
KEY = {"VAULT_ENCRYPTION_KEY": "ef" * 32}


def program(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_program([str(each) for each in arguments], environment={**os.environ, **environment})


def test_without_its_key_a_plane_works_again_as_the_guide_says(tmp_path: Path) -> None:
    data = tmp_path / "plane"
    with running(data) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"password": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        service = scenario.complete(scenario.order(kind, {"password": "canary-lost"}, name="shop"))
        agent, consumer = str(scenario.agent.token), str(scenario.consumer.token)
        busy = program("vault", "discard", "--yes", "--data-dir", data)
        assert "a server uses it; stop the server first" in busy.stderr
    (data / "vault.key").write_text("12" * 32)
    (set_aside, discard), (update,) = guide_commands("operating/disaster-recovery.md", "## Without the key")
    subprocess.run(["bash", "-c", set_aside], cwd=tmp_path, check=True)
    refused = program("server", "--port", "0", "--data-dir", data)
    assert "the vault key is missing" in refused.stderr
    assert "`mainstay vault discard` gives up" in refused.stderr
    words = [str(PROGRAM), *shlex.split(discard.replace("plane", str(data)))[1:]]
    for typed, code in (("2\n", 2), ("1\n", 0)):
        with on_terminal(words, {}) as terminal:
            terminal.wait_for(f"service shop ({service['id']}): password")
            terminal.wait_for("Type the number of secrets to give up (1): ")
            terminal.type(typed)
            assert terminal.finish() == code
    assert "Gave up 1 secret. Start the servers, and set each one anew." in terminal.seen
    with running(data) as server:
        client = Client(server.url, consumer)
        (event,) = server.admin.get("/events?type=vault.discarded")["items"]
        assert (event["entityId"], event["properties"]["schemaPath"]) == (service["id"], "password")
        reference = service["properties"]["password"].removeprefix("vault://")
        client.as_token(agent).get(f"/vault/secrets/{reference}", expect=404)
        run_program(
            [*shlex.split(update)[1:], "--no-wait"],
            stdin="new-secret\n",
            environment={**os.environ, "MAINSTAY_URL": server.url, "MAINSTAY_TOKEN": consumer},
        ).check_returncode()
        host = client.as_token(agent)
        (job,) = host.get("/jobs/pending")
        host.post(f"/jobs/{job['id']}/claim", expect=204)
        host.post(f"/jobs/{job['id']}/complete", expect=204)
        after = client.get(f"/services/{service['id']}")["properties"]["password"].removeprefix("vault://")
        assert host.get(f"/vault/secrets/{after}")["value"] == "new-secret"


def test_a_backup_of_one_database_is_restored_into_the_other(tmp_path: Path, postgresql: Cluster) -> None:
    file = tmp_path / "backup.gz"
    with running(tmp_path / "one", environment=KEY) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"a": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        service = scenario.order(kind, {"a": "canary-backup"})
        agent, consumer = str(scenario.agent.token), str(scenario.consumer.token)
        made = program("server", "backup", file, "--data-dir", tmp_path / "one")
        assert made.returncode == 0, made.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    text = gzip.decompress(file.read_bytes())
    assert b"canary" not in text
    assert agent.encode() not in text
    url = postgresql.new_database()
    restored = program("server", "restore", file, "--data-dir", tmp_path / "two", "--database-url", url)
    assert restored.returncode == 0, restored.stderr
    again = program("server", "restore", file, "--data-dir", tmp_path / "two", "--database-url", url)
    assert again.returncode == 2
    assert "not empty" in again.stderr
    check_key_and_admin_token(tmp_path / "two", url)
    with running(tmp_path / "two", database_url=url, environment=KEY) as server:
        new_admin = Client(server.url, (tmp_path / "two" / "admin.token").read_text().strip())
        # The command was run twice, and the server created none of its own.
        tokens = new_admin.get("/tokens?pageSize=100")["items"]
        created = {each["id"] for each in tokens if each["name"] == "admin of `server admin-token`"}
        events = new_admin.get("/events?type=token.created&sort=-createdAt&pageSize=2")["items"]
        assert {(each["initiatorType"], each["entityId"]) for each in events} == {
            ("system", each) for each in created
        }
        assert len(created) == 2
        client = Client(server.url, consumer)
        found = client.get(f"/services/{service['id']}")
        assert found["properties"] == service["properties"]
        reference = service["properties"]["a"].removeprefix("vault://")
        assert client.as_token(agent).get(f"/vault/secrets/{reference}")["value"] == "canary-backup"
        copy = program(
            "server", "backup", tmp_path / "copy.gz", "--data-dir", tmp_path / "two", "--database-url", url
        )
        assert copy.returncode == 0, copy.stderr
    # The right key gives up nothing, and no key is no reason to.
    place = ("--data-dir", tmp_path / "two", "--database-url", url)
    assert program("vault", "discard", "--yes", *place, **KEY).stdout == (
        "The key of this server decrypts every secret; there is nothing to give up.\n"
    )
    assert "there is no vault key" in program("vault", "discard", "--yes", *place).stderr
    listed = program("vault", "discard", *place, VAULT_ENCRYPTION_KEY="12" * 32)
    assert (listed.returncode, listed.stdout) == (2, f"service {service['name']} ({service['id']}): a\n")
    assert "1 secret would be given up, and there is no terminal to confirm it" in listed.stderr
    third = program("server", "restore", tmp_path / "copy.gz", "--data-dir", tmp_path / "three")
    assert third.returncode == 0, third.stderr
    check_key_and_admin_token(tmp_path / "three", None)


def check_key_and_admin_token(data: Path, url: str | None) -> None:
    """What an operator does after a restore: check the key, and get a way in."""
    place = ("--data-dir", data, *(("--database-url", url) if url else ()))
    for key, problem in ((None, "there is no vault key" if url else "is missing"), ("12" * 32, "does not open")):
        if key is not None:
            (data / "vault.key").write_text(f"{key}\n")
        (finding,) = [
            each for each in json.loads(program("doctor", "--json", *place).stdout) if each["code"] == "vault-key"
        ]
        assert problem in finding["message"]
        assert finding["command"] == f"install -m 600 KEY-BACKUP {data / 'vault.key'}"
    (data / "vault.key").write_text(f"{KEY['VAULT_ENCRYPTION_KEY']}\n")
    assert "vault-key" not in program("doctor", *place).stdout
    (data / "vault.key").unlink()
    made = program("server", "admin-token", *place)
    assert made.returncode == 0, made.stderr
    file = data / "admin.token"
    value = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert value.strip() not in made.stdout + made.stderr
    refused = program("server", "admin-token", *place)
    assert (refused.returncode, file.read_text()) == (2, value)
    assert f"{file} exists; log in with it" in refused.stderr
    assert program("server", "admin-token", "--force", *place).returncode == 0
    assert file.read_text() != value


def test_an_admin_token_needs_a_database(tmp_path: Path) -> None:
    missing = program("server", "admin-token", "--data-dir", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "there is no database in" in missing.stderr
    assert "there is no database in" in program("vault", "rotate", "--data-dir", tmp_path / "nowhere").stderr
    assert not (tmp_path / "nowhere").exists()


def test_an_admin_token_of_a_database_of_an_earlier_release_is_refused_and_nothing_migrated(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert program("server", "migrate", "--data-dir", data).returncode == 0
    newest = migrations("sqlite")[-1].name
    with sqlite3.connect(data / "mainstay.db") as connection:
        connection.execute("DELETE FROM migrations WHERE name = ?", (newest,))
    connection.close()
    refused = program("server", "admin-token", "--data-dir", data)
    assert refused.returncode == 2
    assert (
        f"the database is of an earlier release and lacks {newest}; this command does not migrate" in refused.stderr
    )
    assert "`mainstay server migrate`" in refused.stderr
    for verb in ("rotate", "discard"):
        assert f"lacks {newest}; this command does not migrate" in program("vault", verb, "--data-dir", data).stderr
    assert not (data / "admin.token").exists()
    with sqlite3.connect(data / "mainstay.db") as connection:
        assert connection.execute("SELECT count(*) FROM migrations WHERE name = ?", (newest,)).fetchone() == (0,)
    connection.close()


def test_a_backup_replaces_an_existing_file_only_by_force_and_options_may_be_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "backup.gz"
    file.write_text("precious")
    data = tmp_path / "one"
    assert program("server", "migrate", "--data-dir", data).returncode == 0
    for words in (("backup", "--data-dir", data, file), ("--data-dir", data, "backup", file)):
        refused = program("server", *words)
        assert refused.returncode == 2
        assert refused.stderr == f"mainstay: {file} exists; choose another file, or replace it with --force\n"
    assert file.read_text() == "precious"
    made = program("server", "backup", "--data-dir", data, file, "--force")
    assert made.returncode == 0, made.stderr
    assert gzip.decompress(file.read_bytes())
    misplaced = program("server", "restore", "--force", "--data-dir", data, file)
    assert misplaced.stderr == (
        "mainstay: --force is an option of `mainstay server backup FILE` and `mainstay server admin-token`\n"
    )


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "missing row"])
def test_a_damaged_backup_restores_nothing(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "backup.gz"
    with running(tmp_path / "one") as server:
        server.admin.post("/participants", {"name": "x"})
        program("server", "backup", file, "--data-dir", tmp_path / "one")
    content = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "not gzip":
        file.write_bytes(b"rubbish")
    else:
        lines = gzip.decompress(content).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(lines[:-2] + lines[-1:])))
    done = program("server", "restore", file, "--data-dir", tmp_path / "two")
    assert done.returncode == 2, done
    with sqlite3.connect(tmp_path / "two" / "mainstay.db") as connection:
        assert connection.execute("SELECT count(*) FROM participants").fetchone() == (0,)
    connection.close()


def test_doctor_lists_what_is_stuck(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        assert program("doctor", "--data-dir", data).stdout == "Nothing is stuck.\n"
        scenario = Scenario(server.admin)
        stuck = {
            "states": [{"name": "New"}, {"name": "Lost"}, {"name": "Deleted"}],
            "actions": [
                {"name": "create", "requestSchemaType": "properties", "transitions": [{"from": "New", "to": "Lost"}]},
                {"name": "delete", "transitions": [{"from": "New", "to": "Deleted"}]},
            ],
            "initialState": "New",
            "terminalStates": ["Deleted"],
        }
        lost = scenario.order(scenario.service_type(None, stuck))
        scenario.complete(lost)
        made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        body = {"name": "full", "type": "ip", "propertyType": "string", "generatorType": "list"}
        scenario.provider.post("/service-pools", {**body, "servicePoolSetId": made["id"]})
        waiting = scenario.order(scenario.service_type(None, SIMPLE))
        scenario.provider.patch(f"/agents/{scenario.agent_id}", {"status": "Error"})
        server.stop()
    with sqlite3.connect(data / "mainstay.db") as connection:
        connection.execute("UPDATE jobs SET created_at = 0 WHERE service_id = ?", (waiting["id"],))
        connection.execute(
            "INSERT INTO vault_secrets VALUES ('orphan', 0, x'00', 'k', 'service', 'missing', 'a', 'persistent', 2)"
        )
    connection.close()
    found = program("doctor", "--json", "--data-dir", data)
    assert found.returncode == 1, found.stderr
    findings = json.loads(found.stdout)
    # No key opens the damaged secret, and a server would not start.
    (key,) = [finding for finding in findings if finding["code"] == "vault-key"]
    assert "does not open the secrets in this database" in key["message"]
    findings.remove(key)
    assert all(finding["command"].startswith(("mainstay ", "systemctl ")) for finding in findings)
    codes = {finding["code"]: finding["subject"] for finding in findings}
    assert codes.keys() == {"job-waits-for-silent-agent", "no-way-out", "pool-nearly-empty", "secret-without-owner"}
    assert codes["no-way-out"] == f"service {lost['id']}"
    assert program("doctor", "--data-dir", tmp_path / "nowhere").returncode == 2
    assert program("vault", "clean", "--data-dir", data).stdout == "deleted 1 secrets without an owner\n"
    with running(data) as server:
        over_the_api = remote_doctor(server, tmp_path, "--json")
        assert {each["code"] for each in json.loads(over_the_api.stdout)} == codes.keys() - {"secret-without-owner"}
        assert "  $ mainstay do " in remote_doctor(server, tmp_path).stdout


def remote_doctor(server: Server, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """From another machine: with a token, without a database."""
    environment = {"MAINSTAY_URL": server.url, "MAINSTAY_TOKEN": str(server.admin.token), "HOME": str(tmp_path)}
    return run_program(["doctor", *more], environment=environment, directory=tmp_path)


def test_doctor_names_a_job_of_an_agent_that_never_connected_at_once(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        scenario = Scenario(server.admin)
        added = scenario.provider.post(
            "/agents",
            {"name": "late one", "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id},
        )
        service = scenario.order(scenario.service_type(None, SIMPLE), agentId=added["id"])
        (finding,) = json.loads(remote_doctor(server, tmp_path, "--json").stdout)
        assert finding["code"] == "job-waits-for-silent-agent"
        assert "has never connected; enroll it" in finding["message"]
        assert finding["command"] == "mainstay agents code 'late one'"
        # Deleted with force after a claim: the agent is connected, and needs no start.
        other = scenario.order(scenario.service_type(None, SIMPLE))
        scenario.next_job(other)
        server.admin.delete(f"/services/{other['id']}?force=true")
        server.admin.delete(f"/services/{service['id']}?force=true")
        # A connected agent has some time to clean up.
        assert remote_doctor(server, tmp_path).stdout == "Nothing is stuck.\n"
        with sqlite3.connect(tmp_path / "data" / "mainstay.db", timeout=30) as connection:
            connection.execute("UPDATE orphans SET created_at = 0")
        connection.close()
        (orphan,) = json.loads(remote_doctor(server, tmp_path, "--json").stdout)
        assert orphan["code"] == "orphan"
        assert "the agent tries again by itself" in orphan["message"]
        assert "start the agent" not in orphan["message"]

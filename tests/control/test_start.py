"""The start of a server: a refused one leaves nothing behind, and the admin token is printed only on a terminal."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from certificates import make_certificate
from command_line import on_terminal
from control_plane import Cluster, running
from fork_server import PROGRAM
from scenario import Scenario

KEY = "5a" * 32


def start_refused(tmp_path: Path, *arguments: object, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSTAY_", "VAULT_"))}
    done = subprocess.run(
        [PROGRAM, "server", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**inherited, "HOME": str(tmp_path), **environment},
    )
    assert done.returncode == 2, done
    return done.stderr


def files_of(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")} if directory.exists() else set()


def test_a_taken_port_creates_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = start_refused(tmp_path, "--port", port, "--data-dir", tmp_path / "data")
        assert f"cannot listen on 127.0.0.1 port {port}" in message
        message = start_refused(
            tmp_path, "--port", 0, "--data-dir", tmp_path / "data", MAINSTAY_HEALTH_PORT=str(port)
        )
        assert f"cannot listen on 127.0.0.1 port {port}" in message
    assert files_of(tmp_path) == set()


def test_a_malformed_key_creates_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "VAULT_ENCRYPTION_KEY" in start_refused(
        tmp_path, "--port", 0, "--data-dir", data, VAULT_ENCRYPTION_KEY="short"
    )
    assert files_of(tmp_path) == set()


def test_a_certificate_that_does_not_load_creates_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for certificate in ("missing.pem", os.devnull):
        message = start_refused(tmp_path, "--port", 0, "--data-dir", data, MAINSTAY_TLS_CERTIFICATE=certificate)
        assert f"cannot load the certificate {certificate}" in message
    assert "tls_key is set without tls_certificate" in start_refused(
        tmp_path, "--port", 0, "--data-dir", data, MAINSTAY_TLS_KEY="key.pem"
    )
    assert files_of(tmp_path) == set()


def test_postgresql_without_a_key_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, postgresql: Cluster
) -> None:
    data, url = tmp_path / "data", postgresql.new_database()
    message = start_refused(tmp_path, "--port", 0, "--data-dir", data, "--database-url", url)
    assert "there is no vault key" in message
    assert "openssl rand -hex 32" in message
    assert "MAINSTAY_VAULT=off" in message
    assert files_of(tmp_path) == set()
    with running(data, database_url=url, environment={"MAINSTAY_VAULT": "off"}) as server:
        assert server.admin.get("/participants")["totalItems"] == 0


def test_a_missing_or_wrong_key_is_refused_and_no_new_key_is_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        scenario = Scenario(server.admin)
        scenario.order(scenario.service_type({"a": {"type": "string", "secret": {"type": "persistent"}}}), {"a": "x"})
        assert server.stop() == 0
    key = (data / "vault.key").read_bytes()
    (data / "vault.key").unlink()
    before = files_of(data)
    assert "the vault key is missing" in start_refused(tmp_path, "--port", 0, "--data-dir", data)
    assert files_of(data) == before
    message = start_refused(tmp_path, "--port", 0, "--data-dir", data, VAULT_ENCRYPTION_KEY=KEY)
    assert "the vault key does not open the secrets in this database" in message
    assert files_of(data) == before
    (data / "vault.key").write_bytes(key)
    with running(data) as server:
        assert server.stop() == 0


def test_the_start_prints_the_address_to_open_in_a_browser(tmp_path: Path) -> None:
    with running(tmp_path / "one") as server:
        assert f"Mainstay listens on {server.url} (open it in a browser;" in server.log.read_text()


def test_the_admin_token_is_printed_on_a_terminal_only(tmp_path: Path) -> None:
    with running(tmp_path / "one") as server:
        token = (tmp_path / "one" / "admin.token").read_text().strip()
        assert token not in server.log.read_text()
        assert f"The admin token is in {tmp_path / 'one' / 'admin.token'}." in server.log.read_text()
    command = [str(PROGRAM), "server", "--port", "0", "--data-dir", str(tmp_path / "two")]
    with on_terminal(command, {}) as terminal:
        terminal.wait_for("The admin token is in")
        token = (tmp_path / "two" / "admin.token").read_text().strip()
        assert f"Admin token, shown only once: {token}" in terminal.seen


@pytest.mark.parametrize("command", ["server", "doctor", "vault"])
def test_a_password_in_an_argument_is_warned_about(tmp_path: Path, command: str) -> None:
    verb = {"server": ["migrate"], "doctor": [], "vault": ["rotate"]}[command]
    for url, warned in (
        ("postgresql://u:canary@127.0.0.1:9/x", True),
        ("postgresql://127.0.0.1:9/x?password=canary", True),
        ("postgresql://u@127.0.0.1:9/x", False),
    ):
        done = subprocess.run(
            [PROGRAM, command, *verb, "--data-dir", tmp_path, "--database-url", url],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ("can read the password of --database-url" in done.stderr) == warned
        assert "canary" not in done.stdout + done.stderr


def served_certificate(url: str) -> str:
    host, port = url.removeprefix("https://").split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10)


@pytest.mark.test_all
def test_a_replaced_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    settings = {"MAINSTAY_TLS_CERTIFICATE": str(tmp_path / "tls.pem"), "MAINSTAY_TLS_KEY": str(tmp_path / "tls.key")}
    with running(tmp_path / "data", environment=settings, ca_file=tmp_path / "tls.pem") as server:
        first = (tmp_path / "tls.pem").read_text()
        assert served_certificate(server.url) == first
        (tmp_path / "tls.pem").write_text("half a certificate")
        wait_for_log(server.log, "the replaced certificate does not load")
        assert served_certificate(server.url) == first
        make_certificate(tmp_path, "second")
        until = time.monotonic() + 20
        while served_certificate(server.url) == first:
            assert time.monotonic() < until, "the old certificate is still served"
            time.sleep(0.2)
        assert served_certificate(server.url) == (tmp_path / "tls.pem").read_text()


def wait_for_log(log: Path, text: str) -> None:
    until = time.monotonic() + 20
    while text not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)

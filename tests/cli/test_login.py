"""Login: the token is never an argument and never echoed, is checked before it is saved, and goes to one server only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Shell, on_terminal
from control_plane import Server
from fork_server import PROGRAM, run_program
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import read_url
from scenario import Scenario

Program = Callable[..., subprocess.CompletedProcess[str]]


def login_file(tmp_path: Path) -> Path:
    return tmp_path / "configuration" / "login.json"


def test_an_address_from_the_environment_is_checked(shell: Shell, scenario: Scenario) -> None:
    environment = shell.environment(scenario.consumer.token)
    for address, code, message in (
        (scenario.admin.url.removeprefix("http://"), 0, ""),
        ("ftp://plane.example", 2, "mainstay: 'ftp://plane.example' is not a server address"),
        ("https://me:secret@plane.example", 2, "mainstay: 'https://plane.example' is not a server address"),
    ):
        done = run_program(["services"], environment={**environment, "MAINSTAY_URL": address})
        assert (done.returncode, done.stderr.partition(",")[0]) == (code, message)


def test_a_login_is_saved_for_its_owner_only_and_used_by_other_commands(
    mainstay: Program, scenario: Scenario, tmp_path: Path
) -> None:
    done = mainstay("login", scenario.admin.url, stdin=f"{scenario.consumer.token}\n")
    assert done.returncode == 0, done.stderr
    assert "as participant consumer-" in done.stdout
    assert ", until " in done.stdout
    assert str(scenario.consumer.token) not in done.stdout + done.stderr
    assert stat.S_IMODE(login_file(tmp_path).stat().st_mode) == 0o600
    assert json.loads(login_file(tmp_path).read_text()) == {
        "url": scenario.admin.url,
        "token": scenario.consumer.token,
    }
    assert mainstay("services").returncode == 0
    assert mainstay("login").stdout.startswith(f"Logged in to {scenario.admin.url} as participant")
    assert mainstay("login", "--logout").stdout == "Logged out.\n"
    assert not login_file(tmp_path).exists()


def test_without_a_login_the_message_names_the_login_command(mainstay: Program) -> None:
    done = mainstay("services")
    assert done.returncode == 2
    assert done.stderr.startswith("mainstay: not logged in: run `mainstay login URL`")


def test_a_refused_token_is_not_saved(mainstay: Program, server: Server, tmp_path: Path) -> None:
    done = mainstay("login", server.url, stdin="wrong")
    assert done.returncode == 2
    assert "wrong" not in done.stdout + done.stderr
    assert not login_file(tmp_path).exists()
    assert "this is not a token" in mainstay("login", server.url, stdin="").stderr


def test_a_refused_token_from_the_environment_is_reported_as_such(mainstay: Program, server: Server) -> None:
    assert mainstay("login", server.url, "--data-dir", server.data_dir).returncode == 0
    done = mainstay("services", env={**os.environ, "MAINSTAY_TOKEN": "wrong"})
    assert done.returncode == 2
    assert done.stderr.endswith("\nMAINSTAY_TOKEN is set and takes precedence over the saved login.\n")
    assert "MAINSTAY_TOKEN" not in mainstay("login", server.url, stdin="wrong").stderr


def test_a_terminal_does_not_show_the_token(scenario: Scenario, tmp_path: Path) -> None:
    token = str(scenario.consumer.token)
    with on_terminal([str(PROGRAM), "login", scenario.admin.url], {}) as terminal:
        terminal.wait_for("Token for ")
        terminal.type(f"{token}\n")
        assert terminal.finish() == 0
    assert token not in terminal.seen
    assert "Logged in" in terminal.seen
    assert token in login_file(tmp_path).read_text()


def test_the_admin_token_is_read_from_the_data_directory(mainstay: Program, server: Server) -> None:
    done = mainstay("login", server.url, "--data-dir", server.data_dir)
    assert f"Logged in to {server.url} as admin.\n" in done.stdout


def test_a_saved_token_is_not_sent_to_another_server(mainstay: Program, server: Server) -> None:
    assert mainstay("login", server.url, "--data-dir", server.data_dir).returncode == 0
    other = {**os.environ, "MAINSTAY_URL": "http://127.0.0.1:9"}
    done = mainstay("services", env=other)
    assert done.returncode == 2
    assert "no token for http://127.0.0.1:9" in done.stderr


def test_a_damaged_login_file_is_reported(mainstay: Program, tmp_path: Path) -> None:
    login_file(tmp_path).parent.mkdir()
    login_file(tmp_path).write_text("{")
    done = mainstay("services")
    assert (done.returncode, "log in again" in done.stderr) == (2, True)


def test_an_unreachable_server_is_named(shell: Shell, scenario: Scenario) -> None:
    done = shell.run(scenario.consumer, "services", code=1, url="http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached" in done.stderr
    assert "/healthz" in done.stderr
    assert "Connection refused" in done.stderr
    done = shell.run(scenario.consumer, "services", "--json", code=1, url="http://127.0.0.1:9")
    assert "cannot be reached" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("plane.example", "https://plane.example"),
        ("localhost:8420/", "http://localhost:8420"),
        ("127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("https://plane.example/api/v1", "https://plane.example"),
        ("http://[::1]:8420", "http://[::1]:8420"),
    ],
)
def test_addresses_are_completed_to_urls(text: str, url: str) -> None:
    assert read_url(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "https://", "https://me:secret@plane.example", "http://x:port", "x?y=1"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(CommandRefused) as refusal:
        read_url(text)
    assert "secret" not in str(refusal.value)

"""Logging in: the token is never an argument and never echoed, is tried before it is kept, and goes to one server only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Shell, on_terminal
from control_plane import PROGRAM, Server
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.addresses import is_open, read_url
from scenario import Scenario

Program = Callable[..., subprocess.CompletedProcess[str]]


def kept(tmp_path: Path) -> Path:
    return tmp_path / "configuration" / "login.json"


def test_an_address_from_the_environment_is_read_like_any_other(shell: Shell, scenario: Scenario) -> None:
    environment = shell.environment(scenario.consumer.token)
    for address, code, told in (
        (scenario.admin.url.removeprefix("http://"), 0, ""),
        ("ftp://plane.example", 2, "mainstay: 'ftp://plane.example' is no address of a server"),
        ("https://me:secret@plane.example", 2, "mainstay: 'https://plane.example' is no address of a server"),
    ):
        done = subprocess.run(
            [PROGRAM, "services"], env={**environment, "MAINSTAY_URL": address}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.partition(",")[0]) == (code, told)


def test_a_login_is_kept_for_its_owner_only_and_used_by_other_commands(
    mainstay: Program, scenario: Scenario, tmp_path: Path
) -> None:
    done = mainstay("login", scenario.admin.url, stdin=f"{scenario.consumer.token}\n")
    assert done.returncode == 0, done.stderr
    assert "as participant consumer-" in done.stdout
    assert ", until " in done.stdout
    assert str(scenario.consumer.token) not in done.stdout + done.stderr
    assert stat.S_IMODE(kept(tmp_path).stat().st_mode) == 0o600
    assert json.loads(kept(tmp_path).read_text()) == {"url": scenario.admin.url, "token": scenario.consumer.token}
    assert mainstay("services").returncode == 0
    assert mainstay("login").stdout.startswith(f"Logged in to {scenario.admin.url} as participant")
    assert mainstay("login", "--logout").stdout == "Logged out.\n"
    assert not kept(tmp_path).exists()


def test_without_a_login_the_way_to_one_is_said(mainstay: Program) -> None:
    done = mainstay("services")
    assert done.returncode == 2
    assert done.stderr.startswith("mainstay: no login: `mainstay login URL` asks for a token")


def test_a_token_that_the_server_does_not_take_is_not_kept(mainstay: Program, server: Server, tmp_path: Path) -> None:
    done = mainstay("login", server.url, stdin="wrong")
    assert done.returncode == 2
    assert "wrong" not in done.stdout + done.stderr
    assert not kept(tmp_path).exists()
    assert "no token" in mainstay("login", server.url, stdin="").stderr


def test_a_token_from_the_environment_that_the_server_does_not_take_is_said_to_be_from_there(
    mainstay: Program, server: Server
) -> None:
    assert mainstay("login", server.url, "--data-dir", server.data_dir).returncode == 0
    done = mainstay("services", env={**os.environ, "MAINSTAY_TOKEN": "wrong"})
    assert done.returncode == 2
    assert done.stderr.endswith("\nMAINSTAY_TOKEN is set, and wins over what `mainstay login` keeps.\n")
    assert "MAINSTAY_TOKEN" not in mainstay("login", server.url, stdin="wrong").stderr


def test_a_terminal_shows_nothing_of_the_token(scenario: Scenario, tmp_path: Path) -> None:
    token = str(scenario.consumer.token)
    with on_terminal([str(PROGRAM), "login", scenario.admin.url], {}) as terminal:
        terminal.wait_for("Token for ")
        terminal.type(f"{token}\n")
        assert terminal.finish() == 0
    assert token not in terminal.seen
    assert "Logged in" in terminal.seen
    assert token in kept(tmp_path).read_text()


def test_the_admin_token_of_a_server_on_this_machine_is_taken_from_its_files(
    mainstay: Program, server: Server
) -> None:
    done = mainstay("login", server.url, "--data-dir", server.data_dir)
    assert f"Logged in to {server.url} as admin.\n" in done.stdout


def test_a_kept_token_is_not_sent_to_another_server(mainstay: Program, server: Server) -> None:
    assert mainstay("login", server.url, "--data-dir", server.data_dir).returncode == 0
    other = {**os.environ, "MAINSTAY_URL": "http://127.0.0.1:9"}
    done = mainstay("services", env=other)
    assert done.returncode == 2
    assert "no token for http://127.0.0.1:9" in done.stderr


def test_a_damaged_login_is_said(mainstay: Program, tmp_path: Path) -> None:
    kept(tmp_path).parent.mkdir()
    kept(tmp_path).write_text("{")
    done = mainstay("services")
    assert (done.returncode, "log in again" in done.stderr) == (2, True)


def test_a_server_that_does_not_answer_is_named(shell: Shell, scenario: Scenario) -> None:
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
def test_addresses_are_taken_as_people_write_them(text: str, url: str) -> None:
    assert read_url(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "https://", "https://me:secret@plane.example", "http://x:port", "x?y=1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandRefused) as refusal:
        read_url(text)
    assert "secret" not in str(refusal.value)


def test_only_plain_http_to_another_machine_can_be_read_on_the_way() -> None:
    assert is_open("http://plane.example")
    assert not is_open("https://plane.example")
    assert not is_open("http://localhost:8420")

"""Tokens and codes are not sent unencrypted to another host, and --ca-file works wherever a server is addressed."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from certificates import make_certificate
from control_plane import running
from mainstay.agent.client import is_unencrypted
from mainstay.cli.main import command_names, load_command, make_parser

Program = Callable[..., subprocess.CompletedProcess[str]]
REMOTE = "http://plane.invalid:8420"
# A complete command line for each command that sends a token or code.
CALLS = {
    "agent": ["enroll", REMOTE, "code"],
    "agents": [],
    "blueprint": ["pull", "x", "directory"],
    "clean-ups": [],
    "config-pools": [],
    "do": ["x", "start"],
    "doctor": [],
    "events": [],
    "groups": [],
    "jobs": [],
    "login": [REMOTE, "--token-file", os.devnull],
    "move": ["x", "--agent", "y"],
    "open": ["x"],
    "options": [],
    "order": ["x", "y"],
    "participants": [],
    "plane": ["export"],
    "pools": [],
    "repair": ["x"],
    "rollout": ["list"],
    "services": [],
    "show": ["x"],
    "tokens": [],
    "types": [],
    "watch": ["x"],
}


def parsers_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action.choices, dict):
            found += [each for child in action.choices.values() for each in parsers_of(child)]
    return found


def test_every_command_that_addresses_a_server_is_listed_here() -> None:
    found = set()
    for name in command_names():
        command = load_command(name)
        assert command is not None
        options = {
            option
            for parser in parsers_of(make_parser(name, command))
            for each in parser._actions
            for option in each.option_strings
        }
        source = Path(str(command.__file__)).read_text()
        if any(module in source for module in ("remote.connection", "remote.noun_verbs", "agent.client import")):
            assert name == "completion" or {"--insecure", "--ca-file"} <= options, f"{name}: add_connection_options"
            found.add(name)
    assert found - {"completion", "type"} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_plain_http_to_another_host_is_refused(name: str, mainstay: Program, tmp_path: Path) -> None:
    login = {**os.environ, "MAINSTAY_URL": REMOTE, "MAINSTAY_TOKEN": "canary"}
    done = mainstay(name, *CALLS[name], env=login)
    assert done.returncode == 2
    assert f"{REMOTE} is not encrypted" in done.stderr
    assert "--insecure" in done.stderr
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"login"}))
def test_insecure_allows_plain_http(name: str, mainstay: Program) -> None:
    login = {**os.environ, "MAINSTAY_URL": REMOTE, "MAINSTAY_TOKEN": "canary"}
    done = mainstay(name, *CALLS[name], "--insecure", env=login)
    assert done.returncode == 1
    assert f"{REMOTE} cannot be reached" in done.stderr


@pytest.mark.parametrize(
    ("url", "unencrypted"),
    [
        ("http://plane.example", True),
        ("HTTP://plane.example", True),
        ("http://127.plane.example", True),
        ("http://127.0.0.1.plane.example", True),
        ("http://localhost.plane.example", True),
        ("http://10.0.0.1:8420", True),
        ("http://0.0.0.0:8420", True),
        ("http://[fe80::1]:8420", True),
        ("http://localhost@plane.example", True),
        ("https://plane.example", False),
        ("http://localhost:8420", False),
        ("http://127.0.0.1:8420", False),
        ("http://127.8.8.8", False),
        ("http://[::1]:8420", False),
    ],
)
def test_only_plain_http_to_another_host_is_unencrypted(url: str, unencrypted: bool) -> None:
    assert is_unencrypted(url) == unencrypted


def test_a_saved_login_without_permission_for_plain_http_is_refused(mainstay: Program, tmp_path: Path) -> None:
    file = tmp_path / "configuration" / "login.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"url": REMOTE, "token": "canary"}))
    done = mainstay("services")
    assert (done.returncode, f"{REMOTE} is not encrypted" in done.stderr) == (2, True)
    file.write_text(json.dumps({"url": REMOTE, "token": "canary", "insecure": True}))
    assert f"{REMOTE} cannot be reached" in mainstay("services").stderr


def test_an_agent_enrolled_over_plain_http_refuses_to_run(mainstay: Program, tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"url": REMOTE, "agentId": "x", "token": "canary"}))
    file.chmod(0o600)
    done = mainstay("agent", "run", "--config", file)
    assert (done.returncode, f"{REMOTE} is not encrypted" in done.stderr) == (2, True)


def test_a_private_certificate_authority_is_saved_with_the_login(mainstay: Program, tmp_path: Path) -> None:
    make_certificate(tmp_path)
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    settings = {"MAINSTAY_TLS_CERTIFICATE": str(certificate), "MAINSTAY_TLS_KEY": str(key)}
    with running(tmp_path / "data", environment=settings, ca_file=certificate) as server:
        data = ["--data-dir", server.data_dir]
        refused = mainstay("login", server.url, *data)
        assert (refused.returncode, "cannot be reached" in refused.stderr) == (1, True)
        reason = "certificate verify failed: self-signed certificate; --ca-file FILE trusts a private authority\n"
        assert refused.stderr.startswith(f"mainstay: {server.url} cannot be reached: {reason}")
        missing = mainstay("login", server.url, *data, "--ca-file", tmp_path / "missing.pem")
        assert (missing.returncode, "missing.pem" in missing.stderr) == (2, True)
        done = mainstay("login", server.url, *data, "--ca-file", "tls.pem", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert mainstay("services", cwd="/").returncode == 0
        (tmp_path / "rubbish.pem").write_text("rubbish")
        rubbish = mainstay("services", "--ca-file", tmp_path / "rubbish.pem")
        assert rubbish.returncode == 2
        assert "rubbish.pem" in rubbish.stderr

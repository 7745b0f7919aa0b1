"""`mainstay open`: the address of the pages, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Shell
from control_plane import Server
from scenario import Scenario, unique


def opened_by(browser: Path) -> str:
    return browser.with_suffix(".opened").read_text().strip()


def make_browser(folder: Path, monkeypatch: pytest.MonkeyPatch, *, works: bool = True) -> Path:
    """A program that notes which address it opens."""
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {folder}/browser.opened\nexit {0 if works else 1}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    return program


def test_open_leads_to_the_overview(
    shell: Shell, server: Server, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = make_browser(tmp_path, monkeypatch)
    done = shell.run(scenario.consumer, "open")
    assert done.stdout == f"{server.url}/\n"
    assert opened_by(browser) == f"{server.url}/"


def test_open_with_a_service_leads_to_its_page(
    shell: Shell, server: Server, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = scenario.order(scenario.service_type(), name=unique("opened"))
    browser = make_browser(tmp_path, monkeypatch)
    done = shell.run(scenario.consumer, "open", service["name"])
    assert done.stdout == f"{server.url}/services/{service['id']}\n"
    assert opened_by(browser) == f"{server.url}/services/{service['id']}"


def test_print_only_prints(
    shell: Shell, server: Server, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = make_browser(tmp_path, monkeypatch)
    done = shell.run(scenario.consumer, "open", "--print")
    assert done.stdout == f"{server.url}/\n"
    assert not browser.with_suffix(".opened").exists()


def test_without_a_browser_the_address_is_still_printed(
    shell: Shell, server: Server, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_browser(tmp_path, monkeypatch, works=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = shell.run(scenario.consumer, "open")
    assert done.stdout == f"{server.url}/\n"
    assert "no browser was found" in done.stderr


def test_open_of_an_unknown_service_is_refused(shell: Shell, scenario: Scenario) -> None:
    done = shell.run(scenario.consumer, "open", "--print", "nothing-like-this", code=2)
    assert "nothing-like-this" in done.stderr

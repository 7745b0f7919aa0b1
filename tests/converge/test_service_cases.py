"""The service type without systemd: names, properties, and hosts on which it is not available."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from applying import Applied
from loading import CASES, faults_of, load_text

NAMES: dict[str, list[str]] = yaml.safe_load((CASES / "service" / "names.yaml").read_text())


def naming(name: str) -> str:
    return json.dumps([{"service": {"name": name, "ensure": "running"}}])


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a process is started."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.parametrize("name", NAMES["accepted"])
def test_a_name_is_accepted(name: str, root: Path) -> None:
    assert [resource.name for resource in load_text(naming(name), root).resources] == [name]


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("name", NAMES["refused"], ids=ascii)
def test_a_dangerous_name_is_refused_at_load(name: str, root: Path) -> None:
    (fault,) = faults_of(naming(name), root)
    shown = ascii(name)[1:-1]
    assert fault.endswith(f'service name contains dangerous characters: "{shown}"')


@pytest.mark.usefixtures("nothing_runs")
def test_a_name_of_ten_thousand_characters_is_refused(root: Path) -> None:
    (fault,) = faults_of(naming("a" * 10_000), root)
    assert fault.endswith("service name is longer than 247 characters")
    (fault,) = faults_of(naming("a;" * 5_000), root)
    assert fault.endswith(f'service name contains dangerous characters: "{"a;" * 29}a…"')


def test_a_name_that_is_too_long_for_systemd_is_refused(root: Path) -> None:
    assert faults_of(naming("a" * 247), root) == []
    assert faults_of(naming("a" * 248), root)[0].endswith("service name is longer than 247 characters")


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ("{ensure: started}", "ensure: must be running or stopped, not 'started' (did you mean 'running'?)"),
        ("{enable: maybe}", "enable: expected true or false, got the text 'maybe'"),
        ("{on_refresh: reboot}", "on_refresh: must be restart, reload or none, not 'reboot'"),
        ("{enabled: true}", "unknown key 'enabled' (did you mean 'enable'?)"),
        ("{mask: maybe}", "mask: expected true or false, got the text 'maybe'"),
        ("{mask: true}", "mask: true needs `ensure: stopped`, because a masked service cannot be started"),
        (
            "{ensure: stopped, enable: true, mask: true}",
            "mask: true and `enable: true` exclude each other: a masked service does not start at boot",
        ),
    ],
)
def test_invalid_properties_are_refused_at_load(properties: str, fault: str, root: Path) -> None:
    (found,) = faults_of(f"- service:\n    - httpd: {properties}\n", root)
    assert found.endswith(f"service#httpd: {fault}")


@pytest.mark.parametrize(
    "properties",
    [
        "{ensure: stopped, mask: true}",
        "{ensure: stopped, enable: false, mask: true}",
        "{mask: false}",
        "{enable: true, mask: false}",
    ],
)
def test_a_mask_that_fits_the_other_properties_is_accepted(properties: str, root: Path) -> None:
    assert faults_of(f"- service:\n    - httpd: {properties}\n", root) == []


def test_both_conflicts_of_a_mask_are_reported(root: Path) -> None:
    found = faults_of("- service:\n    - httpd: {ensure: running, enable: true, mask: true}\n", root)
    assert len(found) == 2


# ---- hosts without systemd ----
MANIFEST = "- service:\n    - httpd: {ensure: running}\n"


def test_the_failure_names_a_missing_systemctl(apply: Callable[..., Applied], root: Path) -> None:
    done = apply(MANIFEST, environ={"PATH": str(root)})
    assert done.errors == ["no provider for service is available: systemd: systemctl is not on PATH"]


def test_the_failure_names_an_init_other_than_systemd(apply: Callable[..., Applied], root: Path) -> None:
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("this machine runs systemd")
    shutil.copy("/bin/true", root / "systemctl")
    done = apply(MANIFEST, environ={"PATH": str(root)})
    (error,) = done.errors
    assert error.endswith("systemd: systemd is not the running init (/run/systemd/system does not exist)")


def test_in_a_dry_run_no_command_can_bring_another_init(apply: Callable[..., Applied], root: Path) -> None:
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("this machine runs systemd")
    maker = "- exec:\n    - /bin/true: {}\n"
    forecast = apply(maker + MANIFEST, noop=True, environ={"PATH": str(root)})
    assert forecast.outcomes == ["changed", "failed"]
    assert forecast.as_json()["events"][1]["error_kind"] == "NotFound"

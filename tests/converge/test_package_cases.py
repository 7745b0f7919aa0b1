"""The package type without a package manager: names, versions, and dnf with recorded answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from applying import Applied
from loading import CASES, cases, faults_of

NAMES: dict[str, list[str]] = yaml.safe_load((CASES / "package" / "names.yaml").read_text())


def manifest_of(name: str, ensure: str = "present") -> str:
    return json.dumps([{"package": {"name": name, "ensure": str(ensure)}}])


@pytest.mark.parametrize("name", NAMES["accepted"])
def test_a_name_is_accepted(name: str, root: Path) -> None:
    assert faults_of(manifest_of(name), root) == []


@pytest.mark.parametrize("name", [*NAMES["refused"], "a" * 10_000], ids=lambda name: ascii(name)[:30])
def test_a_dangerous_name_is_refused_at_load(name: str, root: Path) -> None:
    (fault,) = faults_of(manifest_of(name), root)
    assert ": package name " in fault


@pytest.mark.parametrize("version", NAMES["accepted_versions"])
def test_a_version_is_accepted(version: str, root: Path) -> None:
    assert faults_of(manifest_of("httpd", version), root) == []


@pytest.mark.parametrize("version", NAMES["refused_versions"], ids=ascii)
def test_an_invalid_version_is_refused_at_load(version: str, root: Path) -> None:
    (fault,) = faults_of(manifest_of("httpd", version), root)
    assert "ensure: must be present, absent, latest or a version, not " in fault


# ---- dnf ----
REPLAY = """#!/bin/sh
cd "$(dirname "$0")"
call=$(($(cat calls) + 1))
echo $call >calls
printf '%s' "PROGRAM $*" >$call.command
cat $call.stdout
cat $call.stderr >&2
exit $(cat $call.exit)
"""


class Replay:
    """Programs that replay recorded answers call by call, and log the commands they receive."""

    def __init__(self, folder: Path, answers: list[dict[str, Any]]) -> None:
        self.folder = folder
        folder.mkdir()
        for program in ("rpm", "dnf"):
            (folder / program).write_text(REPLAY.replace("PROGRAM", program))
            (folder / program).chmod(0o755)
        (folder / "calls").write_text("0")
        for call, answer in enumerate(answers, 1):
            (folder / f"{call}.stdout").write_text(answer.get("stdout", ""))
            (folder / f"{call}.stderr").write_text(answer.get("stderr", ""))
            (folder / f"{call}.exit").write_text(str(answer["exit"]))

    def commands(self) -> list[str]:
        calls = int((self.folder / "calls").read_text())
        return [(self.folder / f"{call}.command").read_text() for call in range(1, calls + 1)]


def apply_dnf(
    apply: Callable[..., Applied], root: Path, case: dict[str, Any], *, noop: bool = False
) -> tuple[Applied, list[str]]:
    replay = Replay(root / "bin", case["answers"])
    properties = [{name: {"ensure": ensure, "provider": "dnf"}} for name, ensure in case["wanted"].items()]
    done = apply(json.dumps([{"package": properties}]), noop=noop, environ={"PATH": f"{root}/bin:/usr/bin:/bin"})
    return done, replay.commands()


@pytest.mark.parametrize("case", cases("package/dnf"), ids=lambda case: case["case"])
def test_dnf_is_called_and_read_as_on_a_real_host(
    apply: Callable[..., Applied], root: Path, case: dict[str, Any]
) -> None:
    done, commands = apply_dnf(apply, root, case, noop=case.get("noop", False))
    assert done.outcomes == case["outcomes"], done.errors
    assert commands == [answer["command"] for answer in case["answers"]]
    if "messages" in case:
        assert done.messages == case["messages"]


def test_a_failed_transaction_is_reported_with_the_error_of_dnf(apply: Callable[..., Applied], root: Path) -> None:
    installing = next(case for case in cases("package/dnf") if case["case"] == "a version is installed")
    refusal = {"exit": 1, "stderr": "Error: Unable to find a match: tiny-1.0\n"}
    absent = installing["answers"][0]
    case = {**installing, "answers": [*installing["answers"][:2], refusal, absent]}
    done, _ = apply_dnf(apply, root, case)
    assert done.errors == ["dnf install tiny-1.0 failed (exit 1): Error: Unable to find a match: tiny-1.0"]
    assert done.report.events[0].changed is False


def test_the_failure_names_the_missing_package_managers(apply: Callable[..., Applied], root: Path) -> None:
    done = apply("- package:\n    - httpd: {}\n", environ={"PATH": str(root)})
    (error,) = done.errors
    assert "apt: apt-get and dpkg-query are not on PATH" in error
    assert "dnf: dnf and rpm are not on PATH" in error


PACKAGE = "- package:\n    - httpd: {}\n"


def test_in_a_dry_run_a_missing_provider_is_unknown_only_after_a_command(
    apply: Callable[..., Applied], root: Path
) -> None:
    alone = apply(PACKAGE, noop=True, environ={"PATH": str(root)})
    assert alone.outcomes == ["failed"]
    after_a_command = apply("- exec:\n    - /bin/true: {}\n" + PACKAGE, noop=True, environ={"PATH": str(root)})
    assert after_a_command.outcomes == ["changed", "changed"]
    message = after_a_command.messages[1]
    assert message is not None
    assert message.startswith("Unknown until applied: no provider for package is available: apt: apt-get")


def test_in_a_dry_run_a_file_brings_no_provider(apply: Callable[..., Applied], root: Path) -> None:
    file = "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
    forecast = apply(file + PACKAGE, noop=True, environ={"PATH": str(root)})
    assert forecast.outcomes == ["changed", "failed"]

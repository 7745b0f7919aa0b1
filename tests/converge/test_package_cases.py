"""The package type where no package manager is needed: names, versions, and dnf by what it was heard to say."""

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


def wanting(name: str, ensure: str = "present") -> str:
    return json.dumps([{"package": {"name": name, "ensure": str(ensure)}}])


@pytest.mark.parametrize("name", NAMES["accepted"])
def test_a_name_is_accepted(name: str, root: Path) -> None:
    assert faults_of(wanting(name), root) == []


@pytest.mark.parametrize("name", [*NAMES["refused"], "a" * 10_000], ids=lambda name: ascii(name)[:30])
def test_a_dangerous_name_is_refused_at_load(name: str, root: Path) -> None:
    (fault,) = faults_of(wanting(name), root)
    assert ": package name " in fault


@pytest.mark.parametrize("version", NAMES["accepted_versions"])
def test_a_version_is_accepted(version: str, root: Path) -> None:
    assert faults_of(wanting("httpd", version), root) == []


@pytest.mark.parametrize("version", NAMES["refused_versions"], ids=ascii)
def test_what_cannot_be_a_version_is_refused_at_load(version: str, root: Path) -> None:
    (fault,) = faults_of(wanting("httpd", version), root)
    assert "ensure: must be present, absent, latest or a version, not " in fault


# ---- dnf ----
REPLAY = """#!/bin/sh
cd "$(dirname "$0")"
turn=$(($(cat turn) + 1))
echo $turn >turn
printf '%s' "PROGRAM $*" >$turn.asked
cat $turn.stdout
cat $turn.stderr >&2
exit $(cat $turn.exit)
"""


class Replay:
    """Programs that say what the real ones said, turn by turn, and write down what they were asked."""

    def __init__(self, folder: Path, answers: list[dict[str, Any]]) -> None:
        self.folder = folder
        folder.mkdir()
        for program in ("rpm", "dnf"):
            (folder / program).write_text(REPLAY.replace("PROGRAM", program))
            (folder / program).chmod(0o755)
        (folder / "turn").write_text("0")
        for turn, answer in enumerate(answers, 1):
            (folder / f"{turn}.stdout").write_text(answer.get("stdout", ""))
            (folder / f"{turn}.stderr").write_text(answer.get("stderr", ""))
            (folder / f"{turn}.exit").write_text(str(answer["exit"]))

    def asked(self) -> list[str]:
        turns = int((self.folder / "turn").read_text())
        return [(self.folder / f"{turn}.asked").read_text() for turn in range(1, turns + 1)]


def apply_dnf(
    apply: Callable[..., Applied], root: Path, case: dict[str, Any], *, noop: bool = False
) -> tuple[Applied, list[str]]:
    replay = Replay(root / "bin", case["answers"])
    properties = [{name: {"ensure": ensure, "provider": "dnf"}} for name, ensure in case["wanted"].items()]
    done = apply(json.dumps([{"package": properties}]), noop=noop, environ={"PATH": f"{root}/bin:/usr/bin:/bin"})
    return done, replay.asked()


@pytest.mark.parametrize("case", cases("package/dnf"), ids=lambda case: case["case"])
def test_dnf_is_asked_and_understood_as_on_a_real_host(
    apply: Callable[..., Applied], root: Path, case: dict[str, Any]
) -> None:
    done, asked = apply_dnf(apply, root, case, noop=case.get("noop", False))
    assert done.outcomes == case["outcomes"], done.errors
    assert asked == [answer["command"] for answer in case["answers"]]
    if "messages" in case:
        assert done.messages == case["messages"]


def test_a_transaction_that_fails_is_told_in_the_words_of_dnf(apply: Callable[..., Applied], root: Path) -> None:
    installing = next(case for case in cases("package/dnf") if case["case"] == "a version is installed")
    refusal = {"exit": 1, "stderr": "Error: Unable to find a match: tiny-1.0\n"}
    absent = installing["answers"][0]
    case = {**installing, "answers": [*installing["answers"][:2], refusal, absent]}
    done, _ = apply_dnf(apply, root, case)
    assert done.errors == ["dnf install tiny-1.0 failed (exit 1): Error: Unable to find a match: tiny-1.0"]
    assert done.report.events[0].changed is False


def test_without_a_package_manager_the_failure_names_what_is_missing(
    apply: Callable[..., Applied], root: Path
) -> None:
    done = apply("- package:\n    - httpd: {}\n", environ={"PATH": str(root)})
    (error,) = done.errors
    assert "apt: apt-get and dpkg-query are not on PATH" in error
    assert "dnf: dnf and rpm are not on PATH" in error

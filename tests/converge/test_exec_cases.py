"""Every row of the `exec` decision tables, in a dry run and a run: outcomes, and which commands and guards run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from applying import Applied
from scratch import fingerprint, make_tree

CASES = Path(__file__).parents[1] / "cases" / "exec"


def load_cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        for case in yaml.load(path.read_text(), yaml.BaseLoader):
            found.append(pytest.param(case, id=f"{path.stem}: {case['case']}"))
    return found


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class CommandLog:
    """A program `SAY word [exit code]` that logs its calls in order."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.program = folder / "say"
        self.program.write_text(f'#!/bin/sh\necho "$1" >> {self.log}\nexit ${{2:-0}}\n')
        self.program.chmod(0o755)

    def take(self) -> list[str]:
        words = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return words


def check_messages(expected: list[str], forecast: Applied) -> None:
    messages = [message for message in forecast.messages if message]
    assert len(messages) == len(expected), messages
    for wanted, message in zip(expected, messages, strict=True):
        if wanted.startswith("regex:"):
            assert re.search(wanted.removeprefix("regex:"), message), message
        else:
            assert message == wanted


def check_errors(case: dict[str, Any], errors: list[str]) -> None:
    patterns = as_list(case.get("error", []))
    assert len(errors) == len(patterns), errors
    for pattern, error in zip(patterns, errors, strict=True):
        assert re.search(pattern, error), error


@pytest.mark.parametrize("case", load_cases())
def test_an_exec_resource_follows_its_decision_table(
    case: dict[str, Any], apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    log = CommandLog(tmp_path)
    make_tree(root, case.get("given", {}))
    manifest = case["manifest"].replace("SAY", str(log.program))
    before = fingerprint(root)

    forecast = apply(manifest, noop=True)
    real = as_list(case["outcome"])
    assert forecast.outcomes == as_list(case.get("forecast", real))
    check_messages(as_list(case.get("message", [])), forecast)
    assert log.take() == as_list(case.get("noop_commands", []))
    assert fingerprint(root) == before, "a dry run changed the tree"

    done = apply(manifest)
    assert done.outcomes == real
    assert log.take() == as_list(case.get("commands", []))
    check_errors(case, done.errors)
    warnings = [warning for event in done.report.events for warning in event.warnings]
    assert len(warnings) == len(as_list(case.get("warning", []))), warnings
    for pattern, warning in zip(as_list(case.get("warning", [])), warnings, strict=True):
        assert re.search(pattern, warning)
    for key, value in case.get("state", {}).items():
        assert str(done.as_json()["events"][-1]["state"][key]) == value, key
    if "again" in case:
        assert apply(manifest).outcomes == as_list(case["again"])

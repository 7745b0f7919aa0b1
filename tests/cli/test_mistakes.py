"""Typical mistakes and the exact messages of the installed program, as text and as JSON.

`pytest tests/cli/test_mistakes.py --update-golden` writes the current messages; read the diff before you commit it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay.converge import resources

GOLDEN = Path(__file__).parents[1] / "golden" / "mistakes"
MISTAKES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))
COMMAND = re.compile(rb"# mainstay (.+)\n")
Program = Callable[..., "subprocess.CompletedProcess[str]"]


def arguments(mistake: str) -> list[str]:
    """The command line in the first line of the file, else a dry run of the file."""
    command = COMMAND.match((GOLDEN / f"{mistake}.yaml").read_bytes())
    words = command[1].decode().split() if command else ["apply"]
    names_a_manifest = mistake in ("missing-file", "directory-as-manifest", "no-manifest", "misspelt-command")
    return words if names_a_manifest else [*words, "--noop", f"{mistake}.yaml"]


def without_variable_parts(text: str) -> str:
    """Replaces durations and the list of types, which vary."""
    text = text.replace(f"known types: {', '.join(resources.names())}", "known types: (all types)")
    return re.sub(r"\bin \d+\.\d+ s\b", "in 0.00 s", text)


def without_details(document: dict[str, Any]) -> dict[str, Any]:
    if "faults" in document:
        return document
    kept = ("type", "name", "outcome", "errors")
    return {"events": [{key: event[key] for key in kept} for event in document["events"]]}


@pytest.fixture
def here(root: Path, mistake: str) -> Path:
    return Path(shutil.copy(GOLDEN / f"{mistake}.yaml", root))


def compare(path: Path, output: str, *, update: bool) -> None:
    if update:
        path.write_text(output, encoding="utf-8")
    assert output == path.read_text(encoding="utf-8")


def test_there_are_at_least_thirty_mistakes() -> None:
    assert len(MISTAKES) >= 30


def test_every_golden_file_belongs_to_a_mistake() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("here")
def test_a_mistake_is_reported_as_text(mainstay: Program, mistake: str, update_golden: bool) -> None:
    done = mainstay(*arguments(mistake))
    output = f"exit {done.returncode}\n{without_variable_parts(done.stdout)}{without_variable_parts(done.stderr)}"
    assert done.returncode in (1, 2)
    assert "Traceback" not in output
    compare(GOLDEN / f"{mistake}.txt", output, update=update_golden)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("here")
def test_a_mistake_is_reported_as_json(mainstay: Program, mistake: str, update_golden: bool) -> None:
    done = mainstay(*arguments(mistake), "--json")
    if not done.stdout:
        # Wrong usage is reported as text on standard error, also with --json.
        assert done.returncode == 2
        assert done.stderr.startswith("mainstay: ")
        assert not (GOLDEN / f"{mistake}.json").exists()
        return
    assert done.stderr == ""
    output = (
        json.dumps(without_details(json.loads(without_variable_parts(done.stdout))), ensure_ascii=False, indent=1)
        + "\n"
    )
    compare(GOLDEN / f"{mistake}.json", output, update=update_golden)

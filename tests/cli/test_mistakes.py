"""Typical mistakes and what the installed program says about each, word for word, as text and as JSON.

`pytest tests/cli/test_mistakes.py --update-golden` writes what is said now; read the difference before it is kept.
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
    """The command line in the first line of the file, or a dry run of the file itself."""
    written = COMMAND.match((GOLDEN / f"{mistake}.yaml").read_bytes())
    words = written[1].decode().split() if written else ["apply"]
    names_a_manifest = mistake in ("missing-file", "directory-as-manifest", "no-manifest", "misspelt-command")
    return words if names_a_manifest else [*words, "--noop", f"{mistake}.yaml"]


def settled(text: str) -> str:
    """Without what differs from run to run, and from one set of types to the next."""
    text = text.replace(f"known types: {', '.join(resources.names())}", "known types: (all types)")
    return re.sub(r"\bin \d+\.\d+ s\b", "in 0.00 s", text)


def essence(document: dict[str, Any]) -> dict[str, Any]:
    if "faults" in document:
        return document
    kept = ("type", "name", "outcome", "errors")
    return {"events": [{key: event[key] for key in kept} for event in document["events"]]}


@pytest.fixture
def here(root: Path, mistake: str) -> Path:
    return Path(shutil.copy(GOLDEN / f"{mistake}.yaml", root))


def compare(path: Path, said: str, *, update: bool) -> None:
    if update:
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")


def test_there_are_at_least_thirty() -> None:
    assert len(MISTAKES) >= 30


def test_every_kept_message_belongs_to_a_mistake() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("here")
def test_a_mistake_is_told_as_text(mainstay: Program, mistake: str, update_golden: bool) -> None:
    done = mainstay(*arguments(mistake))
    said = f"exit {done.returncode}\n{settled(done.stdout)}{settled(done.stderr)}"
    assert done.returncode in (1, 2)
    assert "Traceback" not in said
    compare(GOLDEN / f"{mistake}.txt", said, update=update_golden)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("here")
def test_a_mistake_is_told_as_json(mainstay: Program, mistake: str, update_golden: bool) -> None:
    done = mainstay(*arguments(mistake), "--json")
    if not done.stdout:
        # Bad usage is told to the person who typed it, in one line and where to read more.
        assert done.returncode == 2
        assert done.stderr.startswith("mainstay: ")
        assert not (GOLDEN / f"{mistake}.json").exists()
        return
    assert done.stderr == ""
    said = json.dumps(essence(json.loads(settled(done.stdout))), ensure_ascii=False, indent=1) + "\n"
    compare(GOLDEN / f"{mistake}.json", said, update=update_golden)

"""Every example blueprint passes its check without findings and its test, with and without systemd."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from control_plane import find_postgresql
from fork_server import PROGRAM
from mainstay.blueprints.check import check_blueprint
from mainstay.blueprints.scaffold import files_of
from ports import free_ports
from required_parts import need
from system.conftest import need_systemd

pytestmark = pytest.mark.test_all

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent for path in (ROOT / "examples" / "blueprints").glob("*/blueprint.yaml"))
# Ports in the orders; each test replaces them by free ports.
PORTS = ("15431", "15432", "18473", "18474")
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


def steps_of(*words: str | Path, command: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*command, PROGRAM, "blueprint", "test", *words, "--json"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    return found


def check_walk(steps: list[dict[str, Any]]) -> None:
    assert steps[-1]["to"] == "Deleted"
    assert not [step for step in steps if step["problems"] or step["again"]]
    # A delete leaves no files behind.
    assert [step["note"] for step in steps if step["note"]] == []


def need_parts(example: Path) -> None:
    if example.name == "postgresql":
        need(present=find_postgresql() is not None, what="PostgreSQL")


@every_example
def test_an_example_passes_its_check_without_findings(example: Path) -> None:
    blueprint, found = check_blueprint(str(example))
    assert list(found.lines()) == []
    assert blueprint is not None
    assert set(blueprint.keeps)
    assert (example / "README.md").exists()


def test_one_example_repairs_drift_and_one_reports_it() -> None:
    policies = {blueprint.drift for path in EXAMPLES if (blueprint := check_blueprint(str(path))[0])}
    assert policies == {"report", "repair"}


@every_example
def test_an_example_passes_its_test_on_a_host_with_systemd(example: Path) -> None:
    need_systemd()
    need_parts(example)
    check_walk(steps_of(example, "--on", "throw-away"))


def plain_user() -> tuple[str, ...]:
    """A command prefix that drops root, since PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    user = pwd.getpwnam("postgres")
    need(present=shutil.which("unshare") is not None, what="unshare")
    return ("unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}")


@every_example
def test_an_example_passes_its_test_in_a_scratch_directory(example: Path, tmp_path: Path) -> None:
    need_parts(example)
    copy = tmp_path / example.name
    shutil.copytree(example, copy)
    for order in (copy / "orders").iterdir():
        text = order.read_text()
        for port in PORTS:
            text = text.replace(port, str(free_ports(1)[0]))
        order.write_text(text)
    check_walk(steps_of(copy, "--on", "scratch", command=plain_user()))


def test_a_new_blueprint_passes_its_test(tmp_path: Path) -> None:
    for path, content in files_of("fresh").items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    check_walk(steps_of(tmp_path, "--on", "scratch", command=plain_user()))

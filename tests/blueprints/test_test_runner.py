"""`mainstay blueprint test` runs every action, requires that a second run is stable, and reports the problems."""

from __future__ import annotations

import json
import subprocess
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import pytest

from blueprint_findings import make
from blueprints.test_check import DEFINITION, PRESENT, TYPE
from fork_server import run_program
from system.conftest import need_systemd

OUTPUTS = "\n# Values that the agent reports"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_program(["blueprint", "test", folder, *options], timeout=300)


def steps_of(folder: Path, *options: str, expect: int = 0) -> list[dict[str, Any]]:
    done = run(folder, "--json", *(options or ("--on", "scratch")))
    assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    found: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    return found


def with_exec(folder: Path, properties: str) -> Path:
    return make(folder, (PRESENT, OUTPUTS, f"  - exec:\n      - attempt:\n{properties}{OUTPUTS}"))


def test_a_new_blueprint_passes_its_test(tmp_path: Path) -> None:
    steps = steps_of(make(tmp_path))
    assert [(step["action"], step["from"], step["to"], step["changed"]) for step in steps] == [
        ("create", "New", "Running", 3),
        ("update", "Running", "Running", 1),
        ("delete", "Running", "Deleted", 1),
    ]
    assert not any(step["problems"] or step["again"] or step["note"] for step in steps)


def test_a_blueprint_whose_manifest_applies_another_passes_its_test(tmp_path: Path) -> None:
    entry = "  - apply:\n      - part/child.yaml: {data: {home: \"{{ lookup('data.home') }}\"}}\n"
    folder = make(tmp_path, (PRESENT, OUTPUTS, f"{entry}{OUTPUTS}"))
    (folder / "manifests" / "part").mkdir()
    (folder / "manifests" / "part" / "child.yaml").write_text(
        "data: {home: /nowhere}\n"
        "resources:\n"
        "  - file:\n"
        "      - \"{{ lookup('data.home') }}/{{ lookup('each.value') }}\":\n"
        "          for_each: [one, two]\n"
        "          ensure: present\n"
        "          source: ../../files/greeting.j2\n"
        "          owner: \"{{ lookup('facts.user.name') }}\"\n"
        "          group: \"{{ lookup('facts.user.group') }}\"\n"
        '          mode: "0600"\n'
    )
    steps = steps_of(folder)
    # Three files of the manifest, two of the child, and its `apply` resource.
    assert [(step["action"], step["resources"], step["changed"]) for step in steps] == [
        ("create", 6, 6),
        ("update", 6, 1),
        ("delete", 1, 1),
    ]
    assert not any(step["problems"] or step["again"] or step["note"] for step in steps)


@pytest.mark.test_all
def test_a_new_blueprint_passes_on_a_throw_away_host(tmp_path: Path) -> None:
    need_systemd()
    done = run(make(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "demo 0.1.0 on a throw-away host"
    assert done.stdout.splitlines()[-1] == "3 steps, all passed"
    assert not list(Path("/srv").glob("demo-*"))


@pytest.mark.test_all
def test_files_of_other_programs_are_not_left_behind_by_a_throw_away_host(tmp_path: Path) -> None:
    need_systemd()
    folder = make(tmp_path, ("manifests/absent.yaml", "demo-", "other-"))
    is_over = Event()

    def write_files() -> None:
        for number in count():
            (written / str(number)).touch()
            if is_over.wait(0.05):
                return

    with TemporaryDirectory(prefix="of-the-machine-", dir="/srv") as directory:
        written = Path(directory)
        writing = Thread(target=write_files)
        writing.start()
        try:
            steps = steps_of(folder, "--on", "throw-away")
        finally:
            is_over.set()
            writing.join()
        assert len(list(written.iterdir())) > 1
    assert "/greeting" in steps[-1]["note"]
    assert "of-the-machine" not in steps[-1]["note"]


def test_every_action_runs_in_every_state(tmp_path: Path) -> None:
    started = "    - name: start\n      transitions: [{from: Running, to: Up}]\n    - name: stop\n      transitions: [{from: Up, to: Running}]\n"
    folder = make(
        tmp_path,
        (TYPE, "{name: Failed}", "{name: Up}, {name: Failed}"),
        (TYPE, "    - name: delete\n", f"{started}    - name: delete\n"),
        (
            TYPE,
            "        - {from: Running, to: Running}\n",
            "        - {from: Running, to: Running}\n        - {from: Up, to: Up}\n",
        ),
        (
            TYPE,
            "        - {from: Running, to: Deleted}\n",
            "        - {from: Running, to: Deleted}\n        - {from: Up, to: Deleted}\n",
        ),
        (DEFINITION, "actions:\n", "actions:\n  start: manifests/present.yaml\n  stop: manifests/present.yaml\n"),
    )
    steps = steps_of(folder)
    assert [(step["action"], step["from"]) for step in steps] == [
        ("create", "New"),
        ("update", "Running"),
        ("start", "Running"),
        ("update", "Up"),
        ("stop", "Up"),
        ("delete", "Running"),
    ]


def test_a_second_run_with_changes_is_a_failure(tmp_path: Path) -> None:
    folder = with_exec(tmp_path, '          command: "true"\n          unless: "false"\n')
    steps = steps_of(folder, expect=1)
    assert steps[0]["again"] == ["exec#attempt: Would have executed (its guards allow it to run)"]
    # The service is deleted after a failure too.
    assert [step["action"] for step in steps] == ["create", "delete"]
    shown = run(folder, "--on", "scratch").stdout
    assert "CHANGES\n    a second run would change: exec#attempt" in shown
    assert shown.endswith("2 steps, 1 failed\n")


def test_a_command_without_a_guard_may_run_again(tmp_path: Path) -> None:
    assert len(steps_of(with_exec(tmp_path, '          command: "true"\n'))) == 3


def test_a_failure_is_shown_with_its_reason_and_output(tmp_path: Path) -> None:
    folder = with_exec(tmp_path, "          command: sh -c 'echo why; exit 3'\n")
    steps = steps_of(folder, expect=1)
    assert (steps[0]["action"], steps[0]["to"]) == ("create", "Failed")
    (problem,) = steps[0]["problems"]
    assert problem.startswith("exec#attempt: ")
    assert "exit code is 3" in problem
    assert "  | why" in problem
    assert steps[-1]["to"] == "Deleted"


def test_files_left_behind_are_noted(tmp_path: Path) -> None:
    folder = make(tmp_path, ("manifests/absent.yaml", "NAME-".replace("NAME", "demo"), "other-"))
    steps = steps_of(folder)
    assert steps[-1]["note"].startswith("left behind: /")
    assert "/greeting" in steps[-1]["note"]


def test_order_options_select_the_orders(tmp_path: Path) -> None:
    folder = make(tmp_path, ("orders/other.yaml", "", "properties: {key: xyz}\n"))
    steps = steps_of(folder, "--on", "scratch", "--order", "other")
    assert {step["order"] for step in steps} == {"other"}
    assert [step["note"] for step in steps if step["action"] == "update"] == [
        "the order has no `change` to test it with"
    ]
    assert run(folder, "--order", "none", "--on", "scratch").returncode == 2


def test_a_blueprint_with_faults_is_not_tested(tmp_path: Path) -> None:
    done = run(make(tmp_path, (DEFINITION, "  Running:", "  Runing:")), "--on", "scratch")
    assert done.returncode == 1
    assert "the lifecycle has no state Runing" in done.stdout + done.stderr


def test_pool_values_of_an_order_are_created(tmp_path: Path) -> None:
    folder = make(
        tmp_path,
        (
            TYPE,
            "  path:\n",
            "  port:\n    type: integer\n    generator: {type: pool, config: {poolType: port}}\n    authorizers: [{type: actor, config: {actors: [system]}}]\n  path:\n",
        ),
        ("files/greeting.j2", " from", " at {{ lookup('properties.port') }} from"),
        ("orders/small.yaml", "", "pools: {port: [8001, 8002]}\n"),
    )
    assert len(steps_of(folder)) == 3

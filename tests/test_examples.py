"""Every example manifest loads, its dry run forecasts its run, and its second run is stable. The demos work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from applying import GROUP, USER
from mainstay.converge.apply import Options
from mainstay.converge.run import RunRequest, load, run

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = sorted((ROOT / "examples").rglob("manifest.yaml"))
# Other examples need a real host; tests/system runs them.
IN_A_SCRATCH_DIRECTORY = ["many-hosts", "sites", "website"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_an_example_loads(manifest: Path) -> None:
    assert load(RunRequest(str(manifest)))[1].resources


@pytest.mark.parametrize("name", IN_A_SCRATCH_DIRECTORY)
def test_an_example_does_what_its_dry_run_forecasts_and_is_then_stable(name: str, root: Path) -> None:
    manifest = str(ROOT / "examples" / name / "manifest.yaml")
    data = [{"root": str(root / name), "owner": USER, "group": GROUP}]
    outcomes = [
        [event.outcome for event in run(RunRequest(manifest, data_layers=data, options=Options(noop=noop)))[1].events]
        for noop in (True, False, False)
    ]
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[2]) == {"stable"}


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("demo", ["Response: Hello", "Response: Good day", "Repaired", "Files left on the host: 0"]),
        ("demo-apply", ["Published 2 times"]),
    ],
)
def test_the_demos_print_their_results_and_leave_no_files(script: str, output: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", f"scripts/{script}"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [text for text in output if text not in done.stdout] == []
    assert list(tmp_path.glob("mainstay-demo*")) == []

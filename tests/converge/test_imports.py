"""The modules that a one-file `mainstay apply` imports, by name: each costs start-up time in every run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from applying import GROUP, USER

PROGRAM = """
import sys
before = set(sys.modules)
from mainstay.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code
sys.stderr.write("\\n".join(set(sys.modules) - before))
"""
# Our modules, then top-level modules that a bare Python 3.11 has not loaded; `json` writes the history.
GOLDEN = Path(__file__).parents[1] / "golden" / "one_file_apply_imports.txt"
TOO_MANY = (
    "a one-file apply imports modules that it did not import before: {}. Import them where they are used, inside the"
    " function, and types under TYPE_CHECKING. If every run needs one of them, add it to {} and put"
    " what it costs (python -X importtime) into the commit message."
)
TOO_FEW = "a one-file apply no longer imports {}. Remove them from {}."


def imported(manifest: Path, state: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "apply", str(manifest)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"MAINSTAY_STATE_DIR": str(state), "PATH": os.environ["PATH"], "HOME": str(state)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the list is that of Python 3.11")
@pytest.mark.parametrize("run", ["creates the file", "finds it stable"])
def test_a_one_file_apply_imports_exactly_these_modules(run: str, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        f"- file:\n    - {tmp_path}/x:\n        ensure: present\n        content: x\n"
        f"        owner: {USER}\n        group: {GROUP}\n        mode: '0644'\n"
    )
    if run == "finds it stable":
        (tmp_path / "x").write_text("x")
        (tmp_path / "x").chmod(0o644)
    loaded = imported(manifest, tmp_path / "state")
    found = {name if name.startswith("mainstay") else name.partition(".")[0] for name in loaded}
    found = {name for name in found if name == "__future__" or not name.startswith("_")}
    expected = set(GOLDEN.read_text().split())
    unexpected, missing = ", ".join(sorted(found - expected)), ", ".join(sorted(expected - found))
    assert not unexpected, TOO_MANY.format(unexpected, GOLDEN)
    assert not missing, TOO_FEW.format(missing, GOLDEN)

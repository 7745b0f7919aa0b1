"""Finds other Python interpreters: programs must also run on those that hosts have."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from required_parts import need_part


def need_python(version: str) -> str:
    """The path of a Python of this version, such as 3.9; skips the test if there is none."""
    found = find_python(version)
    need_part(present=found is not None, what=f"Python {version}")
    return found or version


@cache
def find_python(version: str) -> str | None:
    """Returns None if this machine has no such Python."""
    parts = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainstay-test-parts" / "pythons"
    folders = [*Path.home().glob(f".pyenv/versions/{version}.*/bin"), *parts.glob(f"cpython-{version}.*/bin")]
    names = [str(folder / "python3") for folder in sorted(folders)]
    on_path = shutil.which(f"python{version}")
    return next((path for path in (*names, on_path, "/usr/bin/python3") if path and _is(path, version)), None)


def _is(path: str, version: str) -> bool:
    """Whether it runs: a version manager puts programs on the path that only print an error."""
    try:
        done = subprocess.run([path, "-IV"], capture_output=True, text=True, timeout=30)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.startswith(f"Python {version}.")

"""Programs and rights that some tests need. A missing part skips the test; with CI=true it fails the test."""

from __future__ import annotations

import os
import shutil

import pytest


def need(*, present: bool, what: str) -> None:
    """Skips or fails the test unless the part is present."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"this test needs {what}, and CI=true requires all parts")
    pytest.skip(f"needs {what}")


def need_root() -> None:
    need(present=os.geteuid() == 0, what="root")


def need_program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    need(present=path is not None, what=f"the program {name}")
    return path or name


def need_part(*, present: bool, what: str) -> None:
    """Like `need`, for a part that a script installs."""
    need(present=present, what=f"{what}; scripts/install-test-parts installs it")

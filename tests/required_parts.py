"""Parts of the machine that some tests need: a loud skip where one is missing, a failure where everything must run."""

from __future__ import annotations

import os
import shutil

import pytest


def need(*, present: bool, what: str) -> None:
    """Goes on only where the part is there."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"this test needs {what}, and with CI=true every part must be there")
    pytest.skip(f"needs {what}")


def need_root() -> None:
    need(present=os.geteuid() == 0, what="root")


def need_program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    need(present=path is not None, what=f"the program {name}")
    return path or name

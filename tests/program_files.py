"""Runs program files with a program cache of their own: root's cache is a fixed path, so root gets its own mounts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from required_parts import need_program

IN_OWN_CACHE = 'mount --bind "$1" /var/cache; shift; exec "$@"'


class ProgramRunner:
    """Runs a program file with one interpreter. `folder` takes the place of /var/cache, or of ~/.cache."""

    def __init__(self, python: str, program: Path, folder: Path) -> None:
        self.python = python
        self.program = program
        self.folder = folder

    @property
    def cache(self) -> Path:
        return self.folder / "mainstay"

    def __call__(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.launch(self.python, "-I", str(self.program), *map(str, arguments), **options)

    def launch(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs any command with this cache."""
        command = [*words]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder)}
        if os.geteuid() == 0:
            unshare = need_program("unshare")
            own_mounts = [unshare, "--mount", "--propagation", "private", "sh", "-euc", IN_OWN_CACHE, "sh"]
            command = [*own_mounts, str(self.folder), *command]
        options = {"capture_output": True, "text": True, "timeout": 60, "env": environment, **options}
        return subprocess.run(command, **options)

"""Runs parts of a test as another user, in a mount namespace of their own, or under strace."""

from __future__ import annotations

import os
import pickle
import pwd
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fork_server import PROGRAM
from required_parts import need_program, need_root

Result = TypeVar("Result")
PLAIN_USER = "nobody"  # language: the name of an account


@contextmanager
def open_folder() -> Iterator[Path]:
    """A scratch folder that a plain user can reach and write, unlike the temporary folders of root."""
    folder = Path(tempfile.mkdtemp(prefix="mainstay-test-", dir="/tmp"))
    try:
        folder.chmod(0o777)
        yield folder
    finally:
        shutil.rmtree(folder)


def as_plain_user(act: Callable[[], Result]) -> Result:
    """Returns the result of `act` in a child process without privileges."""
    if os.geteuid() != 0:
        return act()
    import_everything()
    account = pwd.getpwnam(PLAIN_USER)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.environ["HOME"] = "/nonexistent"
            os.write(writing, pickle.dumps(act()))
            code = 0
        except BaseException:  # noqa: BLE001  # the child must not return into the test runner
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the part of the test that runs as a plain user failed; see its traceback above"
    result: Result = pickle.loads(content)
    return result


def import_everything() -> None:
    """Imports all modules in advance, because a plain user may have no access to Python's own folder."""
    import difflib
    import encodings.idna
    import hashlib
    from importlib import import_module
    from pkgutil import walk_packages

    import jinja2.sandbox

    import mainstay.converge

    assert all((difflib, encodings.idna, hashlib, jinja2.sandbox))
    for module in walk_packages(mainstay.converge.__path__, "mainstay.converge."):
        import_module(module.name)


def in_own_mounts(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script as root in a mount namespace of its own; $MAINSTAY is the program."""
    need_root()
    unshare = need_program("unshare")
    return subprocess.run(
        [unshare, "--mount", "--propagation", "private", "sh", "-euc", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MAINSTAY": str(PROGRAM)},
    )


def traced(calls: str, *command: str | Path) -> list[str]:
    """Returns the lines of strace for a command that must succeed, with file names in place of descriptors."""
    strace = need_program("strace")
    with tempfile.NamedTemporaryFile("r") as lines:
        done = subprocess.run([strace, "-f", "-y", "-qq", "-e", f"trace={calls}", "-o", lines.name, *command])
        assert done.returncode == 0
        return lines.read().splitlines()

"""Runs parts of a test as another user, in a mount namespace of their own, or under strace."""

from __future__ import annotations

import os
import pickle
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import own_accounts
from fork_server import PROGRAM
from required_parts import need_program, need_root

Result = TypeVar("Result")
PLAIN_USER = "nobody"  # language: the name of an account
# Runs a command without the rights of root, except to read: the clone may be in the home directory of root.
WITHOUT_RIGHTS = (
    "setpriv",
    "--reuid=65534",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)


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
            _open_homes()
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


def _open_homes() -> None:
    """In a mount namespace of this process, everybody may enter the home directory that contains the clone or Python."""
    needed = {Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix)}
    closed = {
        parent: path
        for path in needed
        for parent in reversed(path.parents)
        if not parent.stat().st_mode & stat.S_IXOTH
    }
    if not closed:
        return
    home = min(closed, key=lambda each: len(each.parts))
    own_accounts.unshare_mounts()
    opened = {path: os.open(path, os.O_PATH) for path in needed if path.is_relative_to(home)}
    own_accounts.mount("tmpfs", str(home), "tmpfs", 0, "mode=755")
    for path, descriptor in opened.items():
        path.mkdir(parents=True, exist_ok=True)
        own_accounts.mount(f"/proc/self/fd/{descriptor}", str(path), None, own_accounts.MS_BIND, None)


def import_everything() -> None:
    """Imports all modules in advance, because a plain user may have no access to Python's own folder."""
    import difflib
    import encodings.idna
    import encodings.utf_8_sig
    import hashlib
    from importlib import import_module
    from pkgutil import walk_packages

    import jinja2.sandbox

    import mainstay.converge
    import mainstay.foundation

    assert all((difflib, encodings.idna, encodings.utf_8_sig, hashlib, jinja2.sandbox))
    for package in (mainstay.converge, mainstay.foundation):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
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

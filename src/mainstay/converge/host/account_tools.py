"""Runs the shadow tools (useradd, groupmod, chpasswd, …), and waits while another process holds their locks."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mainstay.converge.failures import CommandFailed, Failure, Stopped, TimedOut
from mainstay.converge.host.account_databases import GROUP, GSHADOW, PASSWD, SHADOW
from mainstay.converge.host.clock import monotonic, sleep
from mainstay.converge.host.commands import missing_programs, search_path
from mainstay.converge.host.facts import read_small
from mainstay.converge.host.host import Host
from mainstay.converge.host.state import Busy
from mainstay.foundation.private_files import Closing

TOOL_TIMEOUT_SECONDS = 300.0
LOCK_WAIT_SECONDS = 60.0
LOCK_PAUSE_SECONDS = 0.2
RUN_LOCK = "/run/mainstay-accounts.lock"
# The lock of lckpwdf(3), which the kernel frees with its process, and those of the tools, which are files with a
# process number.
KERNEL_LOCK = "/etc/.pwd.lock"
LOCK_FILES = tuple(f"{path}.lock" for path in (PASSWD, SHADOW, GROUP, GSHADOW))
LARGEST_LOCK_BYTES = 4096
LOCKED_WORDS = ("cannot lock ", "try again later")
NSSWITCH = "/etc/nsswitch.conf"
LOCAL_SOURCES = ("files", "compat")
LARGEST_SETTINGS_BYTES = 1024 * 1024
QUERY_TIMEOUT_SECONDS = 30.0


def _search_path(host: Host) -> str:
    """The tools are in directories that a PATH of plain users does not have."""
    return f"{search_path(host.environ)}:/usr/sbin:/sbin"


def missing_tools(host: Host, *names: str) -> str | None:
    return missing_programs(host.files, _search_path(host), *names, place="installed")


def refuse_plain_users(host: Host) -> None:
    """Raises `Failure` if this process may not change accounts."""
    if host.files.effective_uid != 0:
        raise Failure("only root changes users and groups; run as root")


@contextmanager
def one_run_at_a_time(host: Host) -> Iterator[None]:
    """Keeps other runs on this host from choosing the same numbers: they are free until the tool has written them."""
    refuse_plain_users(host)
    try:
        lock = host.state.lock(RUN_LOCK, wait_seconds=LOCK_WAIT_SECONDS, stop=host.stop)
    except Busy as busy:
        raise TimedOut(f"another run has changed accounts for more than {LOCK_WAIT_SECONDS:.0f}s ({busy})") from None
    with lock:
        host.accounts.forget()
        host.account_databases().look_again()
        yield


def run_tool(host: Host, words: Sequence[str], *, stdin: bytes | None = None) -> None:
    """Makes one change. `stdin` is for what must not be in the arguments, where every user of the host reads it."""
    until = monotonic() + LOCK_WAIT_SECONDS
    environment = {**host.environ, "LC_ALL": "C", "PATH": _search_path(host)}
    while True:
        _wait_for_locks(host, until)
        try:
            done = host.commands.run(
                words, environment=environment, timeout_seconds=TOOL_TIMEOUT_SECONDS, stdin=stdin
            )
        finally:
            host.accounts.forget()
        if done.exit_code == 0:
            return
        is_locked = all(word in done.output for word in LOCKED_WORDS)
        if not is_locked or monotonic() >= until:
            text = "; ".join(line.strip() for line in done.output.strip().split("\n") if line.strip())
            raise CommandFailed(f"{words[0]} failed (exit {done.exit_code}){': ' if text else ''}{text[-500:]}")


def _wait_for_locks(host: Host, until: float) -> None:
    while True:
        problem = _kernel_lock_problem() or next(filter(None, map(_lock_file_problem, LOCK_FILES)), None)
        if problem is None:
            return
        if monotonic() >= until:
            raise TimedOut(f"{problem}; nothing is changed after {LOCK_WAIT_SECONDS:.0f}s of waiting")
        sleep(LOCK_PAUSE_SECONDS, host.stop)
        if host.stop.at_once:
            raise Stopped


def _kernel_lock_problem() -> str | None:
    try:
        descriptor = os.open(KERNEL_LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # Not created yet, or not ours to open: the tool says why.
        return None
    with Closing(descriptor):
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else f"{KERNEL_LOCK} is locked by process {_described(process)}"


def _lock_file_problem(path: str) -> str | None:
    """Why the tools would refuse to work; they remove the lock of a process that has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"the lock {path} cannot be read ({error.strerror}); if no tool is running, remove it"
    with Closing(descriptor):
        content = os.read(descriptor, LARGEST_LOCK_BYTES).rstrip(b"\0")
    if not content.isdigit():
        return f"the lock {path} names no process; if no tool such as vipw is running, remove it"
    process = int(content[:10])
    if not os.path.exists(f"/proc/{process}"):
        return None
    return f"the lock {path} belongs to process {_described(process)}; if that is no tool such as vipw, remove it"


def _described(process: int) -> str:
    name = read_small(f"/proc/{process}/comm")
    return str(process) if name is None else f"{process} ({name.strip()})"


# ---- accounts of other sources ----
def source_of(name: str, what: str, host: Host) -> str:
    """Names the source that knows a user or group which is not local, such as `sss`."""
    database = "passwd" if what == "user" else "group"
    try:
        text = (host.files.read(NSSWITCH, LARGEST_SETTINGS_BYTES) or b"").decode("utf-8", "replace")
    except OSError:
        text = ""
    sources: list[str] = []
    for line in text.split("\n"):
        key, separator, words = line.partition("#")[0].partition(":")
        if separator and key.strip() == database:
            sources = [word for word in words.split() if word.isalnum() and word not in LOCAL_SOURCES]
    if len(sources) == 1:
        return sources[0]
    for source in sources:
        done = host.commands.run(
            ("getent", "-s", source, database, name),
            environment={**host.environ, "LC_ALL": "C"},
            timeout_seconds=QUERY_TIMEOUT_SECONDS,
            read_only=True,
        )
        if done.exit_code == 0:
            return source
    return "another source of names"

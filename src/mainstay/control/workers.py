"""Several worker processes on one port. The supervisor starts them, restarts dead ones and passes signals on.

Workers are forked: they share the listening sockets, and the memory of loaded modules."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
CHECK_SECONDS = 1.0
# A worker that lives shorter than this is restarted after a delay, which doubles.
SHORT_LIFE_SECONDS = 10.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 30.0
# Of the system call prctl: the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1

log = structlog.get_logger("mainstay.workers")


class Supervisor:
    """`serve` runs in a worker with its number; it returns when the worker has stopped."""

    def __init__(self, count: int, serve: Callable[[int], None], *, on_check: Callable[[], None]) -> None:
        self._count = count
        self._serve = serve
        # Called about every second while the supervisor is alive.
        self._on_check = on_check
        # Process id → number of the worker, and when it was started.
        self._running: dict[int, tuple[int, float]] = {}
        # Number of the worker → when it is started, and the next delay.
        self._waiting: dict[int, float] = {}
        self._delays = [FIRST_DELAY_SECONDS] * count
        self._is_stopping = False
        self.on_end: Callable[[int], None] = lambda _process: None

    def run(self) -> None:
        """Until every worker has stopped after SIGTERM or SIGINT. A second signal does not wait for requests."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            for number in range(self._count):
                self._start(number)
            while self._running or not self._is_stopping:
                found = signal.sigtimedwait(WATCHED, CHECK_SECONDS)
                if found is not None and found.si_signo != signal.SIGCHLD:
                    self._stop()
                self._reap()
                self._restart()
                self._on_check()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, number: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        process = os.fork()
        if process:
            self._running[process] = (number, time.monotonic())
            return
        code = 1
        try:
            _end_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
            self._serve(number)
            code = 0
        except BaseException:
            log.exception("worker failed", worker=number)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not sys.exit: the stack of the supervisor must not be unwound here.
            os._exit(code)

    def _stop(self) -> None:
        self._is_stopping = True
        self._waiting.clear()
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def _reap(self) -> None:
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            if process not in self._running:
                continue
            number, started = self._running.pop(process)
            self.on_end(process)
            if self._is_stopping:
                continue
            lived = time.monotonic() - started
            delay = self._delays[number] if lived < SHORT_LIFE_SECONDS else FIRST_DELAY_SECONDS
            self._delays[number] = min(2 * delay, LONGEST_DELAY_SECONDS)
            self._waiting[number] = time.monotonic() + delay
            code = os.waitstatus_to_exitcode(status)
            log.error("worker ended, restarting", worker=number, pid=process, exit_code=code, delay_seconds=delay)

    def _restart(self) -> None:
        due = [number for number, at in self._waiting.items() if at <= time.monotonic()]
        for number in due:
            del self._waiting[number]
            self._start(number)


def _end_with_parent(parent: int) -> None:
    """A killed supervisor must not leave workers behind that hold the port."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def shared_metrics_directory(data_directory: Path) -> Iterator[Path]:
    """Where the workers of this supervisor keep their metrics. Removes those of supervisors that were killed."""
    for left in data_directory.glob("metrics-*"):
        if not Path(f"/proc/{left.name.removeprefix('metrics-')}").exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = data_directory / f"metrics-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)

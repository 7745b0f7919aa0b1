"""Starts the program by fork: a process that has imported all of it forks for each start, which takes milliseconds.

Starting `mainstay server` anew takes 0.56 s of CPU, mostly imports, and a fork 0.08 s; the tests start hundreds. A fork is a
process like any other: it has its own descriptors, environment, directory, signals and exit code. Tests about starting,
command lines in /proc, imports and terminals start the installed program itself (`PROGRAM`)."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

PROGRAM = Path(sys.executable).with_name("mainstay")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
# Request, stdin, stdout, stderr, and the pipe for process id and exit code.
DESCRIPTORS = 5
# By process: a test may fork itself.
_servers: dict[int, socket.socket] = {}
# How often each command was started, for the table of times.
started: Counter[str] = Counter()


class ForkedProcess:
    """Like `subprocess.Popen`, as far as tests use it."""

    def __init__(self, words: Sequence[str], status: int) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        self._status = status
        self.pid = int.from_bytes(os.read(status, 4), "little")
        assert self.pid, "the fork server ended"

    def poll(self) -> int | None:
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _read_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int.from_bytes(os.read(self._status, 4), "little", signed=True)
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedProcess


def run_program(
    words: Sequence[str | Path],
    *,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs the program with these words to its end."""
    texts = [str(word) for word in words]
    # Files, not pipes: no thread is needed to read two of them.
    with _memory(stdin.encode()) as given, _memory() as out, _memory() as errors:
        process = start_program(
            texts, stdin=given, stdout=out, stderr=errors, environment=environment, directory=directory
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess([str(PROGRAM), *texts], code, _content(out), _content(errors))


def start_program(
    words: Sequence[str | Path],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    installed: bool = False,
) -> Process:
    """`installed`: starts the installed program, not a fork, for tests and measurements that see the difference."""
    texts = [str(word) for word in words]
    started[texts[0]] += 1
    if installed or not can_fork(environment or os.environ):
        return subprocess.Popen(
            [PROGRAM, *texts], stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=directory
        )
    request = {
        "words": texts,
        "environment": dict(os.environ if environment is None else environment),
        "directory": str(directory or os.getcwd()),
        "umask": _umask(),
    }
    reading, writing = os.pipe()
    with _memory(json.dumps(request).encode()) as document, _memory() as nothing:
        streams = [document, stdin or nothing, stdout, stderr]
        socket.send_fds(_server(), [b"."], [*(each.fileno() for each in streams), writing])
    os.close(writing)
    return ForkedProcess([str(PROGRAM), *texts], reading)


def can_fork(environment: Mapping[str, str]) -> bool:
    """A fork has the namespaces, the identity and the interpreter of the fork server, with the modules it has loaded."""
    return _identity() == _identity_at_start and _interpreter(environment) == _interpreter(os.environ)


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def _identity() -> tuple[object, ...]:
    return (os.getresuid(), os.getresgid(), *(os.readlink(f"/proc/thread-self/ns/{name}") for name in NAMESPACES))


_identity_at_start = _identity()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _memory(content: bytes = b"") -> IO[bytes]:
    file = open(os.memfd_create("stream"), "r+b", buffering=0)  # noqa: SIM115  # closed by the caller
    file.write(content)
    file.seek(0)
    return file


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _server() -> socket.socket:
    """The connection to the fork server of this process, which is started with the first use."""
    found = _servers.get(os.getpid())
    if found is None:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        theirs.close()
        found = _servers[os.getpid()] = ours
        atexit.register(_stop, ours, process)
    return found


def _stop(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    process.wait()


def serve(connection: socket.socket) -> None:
    """Forks for each request until the tests close the connection. Then its processes are killed."""
    _import_program()
    gc.collect()
    gc.freeze()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Ctrl-C in a terminal reaches all processes; the tests end this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            _reap(running)
        if connection.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(connection, 1, DESCRIPTORS)
            if not message:
                break
            *streams, status = descriptors
            process = os.fork()
            if process == 0:
                os.close(status)
                _become_program(streams)
            for descriptor in streams:
                os.close(descriptor)
            running[process] = status
            os.write(status, process.to_bytes(4, "little"))
    for process in running:
        os.kill(process, signal.SIGKILL)


def _reap(running: dict[int, int]) -> None:
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        report = running.pop(process)
        # The test may have forgotten it.
        with contextlib.suppress(BrokenPipeError):
            os.write(report, os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
        os.close(report)


def _become_program(streams: Sequence[int]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(streams[0], "rb") as document:
            request = json.load(document)
        for number, descriptor in enumerate(streams[1:]):
            os.dup2(descriptor, number)
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        os.umask(request["umask"])
        os.chdir(request["directory"])
        sys.argv = [str(PROGRAM), *request["words"]]
        sys.stdin, sys.stdout, sys.stderr = (_text_stream(number) for number in range(3))
        import_module("mainstay.cli.main").program()
    except SystemExit as error:
        # As the interpreter does; `program` ends without it except after `--help`.
        sys.stdout.flush()
        code = int(error.code or 0)
    except BaseException:  # noqa: BLE001  # the child must not return into the fork server
        traceback.print_exc()
    finally:
        os._exit(code)


def _text_stream(number: int) -> io.TextIOWrapper:
    """As the interpreter opens it at its start."""
    file = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    if number == 0:
        return io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8")
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors=errors, line_buffering=number == 2)


def _import_program() -> None:
    import mainstay

    for module in pkgutil.walk_packages(mainstay.__path__, "mainstay."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

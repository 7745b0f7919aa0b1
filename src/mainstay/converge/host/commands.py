"""Runs commands without a terminal, in their own process group, with bounded output and time."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from mainstay.converge.failures import CommandFailed, Missing, StopFlag, Stopped, TimedOut
from mainstay.foundation import Struct
from mainstay.foundation.private_files import Closing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mainstay.converge.host.files import Files
    from mainstay.converge.host.interruption import Interruption
    from mainstay.converge.host.running_command import RunningCommand

DEFAULT_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILTINS = {".", "alias", "cd", "eval", "exec", "exit", "export", "set", "source", "ulimit", "umask", "unset"}
TAIL_BYTES = 32 * 1024
# The smallest capacity of a pipe.
LARGEST_STDIN_BYTES = 4096
LONGEST_LINE_BYTES = 8 * 1024
GRACE_SECONDS = 5.0
# A daemon that the command started may keep its output open; the run does not wait for it.
OUTPUT_AFTER_END_SECONDS = 1.0
STOP_CHECK_SECONDS = 0.1
# Python 3.11 sets the process group without running code of ours in the child.
OWN_GROUP: Mapping[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
NO_INTERPRETER = "command cannot be executed: {}: the interpreter in its first line does not exist"


class NotRunnable(Missing):
    """The program does not exist or cannot be executed."""


class NotExecutable(NotRunnable):
    """The file of the program exists."""

    kind = CommandFailed.kind


class Finished(Struct):
    """A command that exited."""

    exit_code: int
    stdout: str
    output: str


class Commands(Struct):
    stop: StopFlag
    about_to_wait: Callable[[], None]
    interruption: Interruption
    # The number of commands that may have changed something.
    count: int = 0
    # Records a command that the next run must end if this run is killed.
    running: RunningCommand | None = None

    def run(
        self,
        arguments: Sequence[str],
        *,
        program: str | None = None,
        cwd: str = "/",
        environment: Mapping[str, str],
        timeout_seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
        read_only: bool = False,
        ends_with_run: bool = False,
        must_finish: bool = False,
        keep_bytes: int = TAIL_BYTES,
        stdin: bytes | None = None,
    ) -> Finished:
        """Waits for the exit code; raises `Failure` if there is none.

        `stdin` must fit into a pipe; None: empty.

        `ends_with_run`: if this run is killed, the next run of the same identity first ends the command.

        `must_finish`: a run that is asked to stop waits for the command."""
        name = arguments[0]
        self.about_to_wait()
        if not read_only:
            self.count += 1

        def finish(child: subprocess.Popen[bytes]) -> Finished:
            stop = None if must_finish else self.stop
            tails = Tail(keep_bytes), Tail(keep_bytes)
            process = ChildProcess(
                child, self.interruption, timeout_seconds, on_line, self.about_to_wait, *tails, {}, stop
            )
            return process.finish(name)

        self.interruption.has_command = True
        try:
            if self.running is None or not ends_with_run:
                return finish(self._start(arguments, program, cwd, environment, stdin))
            with self.running.noted(arguments) as started:
                child = self._start(arguments, program, cwd, environment, stdin)
                started(child.pid)
                return finish(child)
        finally:
            self.interruption.has_command = False

    def _start(
        self,
        arguments: Sequence[str],
        program: str | None,
        cwd: str,
        environment: Mapping[str, str],
        stdin: bytes | None,
    ) -> subprocess.Popen[bytes]:
        # Imported only when a command runs; most are skipped.
        import subprocess

        name = arguments[0]
        incoming = subprocess.DEVNULL if stdin is None else _pipe_with(stdin)
        try:
            return subprocess.Popen(
                list(arguments),
                executable=program,
                cwd=cwd,
                env=dict(environment),
                stdin=incoming,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                **OWN_GROUP,
            )
        except FileNotFoundError as error:
            raise NotRunnable(self._explain_missing(program or name, cwd, error)) from None
        except (PermissionError, NotADirectoryError) as error:
            raise NotExecutable(f"command cannot be executed: {program or name}: {error.strerror}") from None
        except ValueError as error:
            raise CommandFailed(f"command cannot be executed: {name}: {error}") from None
        except OSError as error:
            raise CommandFailed(f"command cannot be executed: {program or name}: {error.strerror}") from None
        finally:
            if incoming >= 0:
                os.close(incoming)

    def _explain_missing(self, program: str, cwd: str, error: OSError) -> str:
        """Names what is missing, which the kernel does not: the program, the directory, or the interpreter."""
        if error.filename == cwd and not os.path.isdir(cwd):
            return f"cwd {cwd} does not exist"
        if os.path.isfile(program):
            return NO_INTERPRETER.format(program)
        return f"command not found: {program}"


class ChildProcess(Struct):
    """Reads the output of a running command until it ends."""

    child: subprocess.Popen[bytes]
    interruption: Interruption
    timeout_seconds: float | None
    on_line: Callable[[str], None] | None
    about_to_wait: Callable[[], None]
    stdout: Tail
    output: Tail
    # Descriptor → what was read of its next line.
    lines: dict[int, bytearray]
    # None: the command is not ended when the run is asked to stop.
    stop: StopFlag | None
    ended: str | None = None

    def finish(self, name: str) -> Finished:
        try:
            self._read_until_end()
        except BaseException:
            self._end_group(signal.SIGKILL)
            raise
        finally:
            for stream in (self.child.stdout, self.child.stderr):
                if stream is not None:
                    stream.close()
            self.child.wait()
        output = self.output.text()
        if self.ended == "stop":
            raise Stopped
        if self.ended == "limit":
            raise TimedOut(f"{self.interruption.message()}, with this command: {name}", output=output)
        if self.ended == "timeout":
            raise TimedOut(f"command timed out after {self.timeout_seconds:g}s: {name}", output=output)
        code = self.child.returncode
        if code < 0:
            raise CommandFailed(
                f"command was killed by signal {-code} ({_signal_name(-code)}): {name}", output=output
            )
        return Finished(code, self.stdout.text(), output)

    def _read_until_end(self) -> None:
        child = self.child
        poll = select.poll()
        streams = {stream.fileno(): stream for stream in (child.stdout, child.stderr) if stream is not None}
        first = next(iter(streams))
        for descriptor in streams:
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
            self.lines[descriptor] = bytearray()
        started = time.monotonic()
        deadline = None if self.timeout_seconds is None else started + self.timeout_seconds
        kill_at: float | None = None
        grace_until = 0.0
        output_until: float | None = None
        running = True
        with Closing(os.pidfd_open(child.pid)) as process:
            poll.register(process, select.POLLIN)
            while running or streams:
                now = time.monotonic()
                if output_until is not None and now >= output_until:
                    break
                if running and kill_at is None and self._over(now, deadline):
                    self._end_group(signal.SIGTERM)
                    kill_at = grace_until = now + GRACE_SECONDS
                if kill_at is not None and now >= kill_at:
                    self._end_group(signal.SIGKILL)
                    kill_at = None if not running else now + GRACE_SECONDS
                waits = [STOP_CHECK_SECONDS]
                waits += [moment - now for moment in (deadline if running else None, kill_at, output_until) if moment]
                ready = poll.poll(max(0.0, min(waits)) * 1000 + 1)
                if not ready:
                    # The command may be silent for long: show its output so far.
                    self.about_to_wait()
                for descriptor, _ in ready:
                    if descriptor == process:
                        running = False
                        poll.unregister(process)
                        output_until = time.monotonic() + OUTPUT_AFTER_END_SECONDS
                    elif not self._read(descriptor, is_stdout=descriptor == first):
                        poll.unregister(descriptor)
                        del streams[descriptor]
            if self.ended is not None:
                self._end_remaining(grace_until)
        for descriptor in self.lines:
            self._report_lines(descriptor, final=True)

    def _over(self, now: float, deadline: float | None) -> bool:
        if self.ended is None:
            if self.stop is not None and self.stop.at_once:
                self.ended = "stop"
            elif self.interruption.is_too_late(now):
                self.ended = "limit"
            elif deadline is not None and now >= deadline:
                self.ended = "timeout"
        return self.ended is not None

    def _read(self, descriptor: int, *, is_stdout: bool) -> bool:
        chunk = os.read(descriptor, 64 * 1024)
        if not chunk:
            return False
        self.output.add(chunk)
        if is_stdout:
            self.stdout.add(chunk)
        if self.on_line is not None:
            self.lines[descriptor] += chunk
            self._report_lines(descriptor)
        return True

    def _report_lines(self, descriptor: int, *, final: bool = False) -> None:
        if self.on_line is None:
            return
        pending = self.lines[descriptor]
        *complete, rest = pending.split(b"\n")
        while len(rest) > LONGEST_LINE_BYTES:
            complete.append(rest[:LONGEST_LINE_BYTES])
            rest = rest[LONGEST_LINE_BYTES:]
        if final and rest:
            complete.append(rest)
            rest = bytearray()
        self.lines[descriptor] = bytearray(rest)
        for line in complete:
            self.on_line(_readable(bytes(line)))

    def _end_group(self, number: int) -> None:
        try:
            os.killpg(self.child.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _end_remaining(self, until: float) -> None:
        """Gives the rest of the process group the remainder of the grace period after the command has ended."""
        self.child.wait()
        while time.monotonic() < until:
            try:
                os.killpg(self.child.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            time.sleep(0.02)
        self._end_group(signal.SIGKILL)


def _pipe_with(content: bytes) -> int:
    """Returns the reading end of a pipe that holds the content and ends after it."""
    if len(content) > LARGEST_STDIN_BYTES:
        raise CommandFailed(f"the input of a command is larger than {LARGEST_STDIN_BYTES} bytes")
    reading, writing = os.pipe()
    with Closing(writing):
        os.write(writing, content)
    return reading


class Tail:
    """The end of a stream, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self._dropped = False

    def add(self, chunk: bytes) -> None:
        self._kept += chunk[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            self._trim()
        self._dropped = self._dropped or len(chunk) > self._limit

    def text(self) -> str:
        if len(self._kept) > self._limit:
            self._trim()
        text = _readable(bytes(self._kept))
        return f"[… earlier output dropped]\n{text}" if self._dropped else text

    def _trim(self) -> None:
        del self._kept[: -self._limit]
        self._dropped = True


def _readable(content: bytes) -> str:
    """Decodes bytes to text that any report can contain."""
    return content.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def refuse_without_interpreter(files: Files, program: str) -> None:
    """Raises `NotRunnable` for a script whose interpreter does not exist, as a run would."""
    try:
        first_line = next(files.chunks(program), b"").split(b"\n", 1)[0]
    except OSError:
        # A program may be executable and not readable.
        return
    words = first_line.removeprefix(b"#!").split() if first_line.startswith(b"#!") else []
    if words and words[0].startswith(b"/") and not files.exists(os.fsdecode(words[0])):
        raise NotRunnable(NO_INTERPRETER.format(program))


def find_program(files: Files, name: str, search: str, cwd: str) -> str:
    """Returns the path of the program; raises `NotRunnable` with the reason if there is none."""
    if "/" in name:
        candidates = [name if name.startswith("/") else os.path.join(cwd, name)]
    else:
        candidates = [os.path.join(directory, name) for directory in search.split(":") if directory]
    denied = None
    for candidate in candidates:
        try:
            found = files.stat(candidate)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        if found.st_mode & 0o170000 == 0o100000:
            if found.st_mode & 0o111:
                return candidate
            denied = candidate
        elif "/" in name:
            denied = f"{candidate} is a directory" if found.st_mode & 0o170000 == 0o040000 else candidate
    if denied:
        raise NotExecutable(f"not executable: {denied}")
    if name in BUILTINS:
        raise NotRunnable(f"command not found: {name} is part of a shell; use `provider: shell`")
    where = "" if "/" in name else f" in {search or 'an empty path'}"
    raise NotRunnable(f"command not found: {name}{where}", path=candidates[0] if "/" in name else None)


def search_path(environ: Mapping[str, str]) -> str:
    return environ.get("PATH", DEFAULT_SEARCH_PATH)


def missing_programs(files: Files, search: str, *names: str, place: str = "on PATH") -> str | None:
    """Returns a message that names the missing programs, or None."""
    missing = []
    for name in names:
        try:
            find_program(files, name, search, "/")
        except NotRunnable:
            missing.append(name)
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not {place}" if missing else None

"""The push to one host: one ssh process, its conversation with the first stage and the receiver, and its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from mainstay.push.contents import SourceChanged
from mainstay.push.event_spool import EventSpool
from mainstay.push.frames import MARK, parse_frame, shown
from mainstay.push.outcome import STOPPED, HostFault, HostOutcome
from mainstay.push.ssh import NO_PYTHON, PASSWORD_PROMPT, READY, explain_ssh, last_line, remote_script, ssh_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Any

    from mainstay.push.contents import Content
    from mainstay.push.frames import Frame
    from mainstay.push.plan import PushPlan

OLDEST_PYTHON = (3, 9)
LONGEST_LINE_BYTES = 8 * 1024 * 1024
# What shell profiles may print before the first frame.
MOST_NOISE_BYTES = 256 * 1024
MOST_OUTPUT_BYTES = 256 * 1024 * 1024
MOST_EVENTS = 1_000_000
MOST_MESSAGES = 20
ERROR_TAIL_BYTES = 16 * 1024
READ_BYTES = 256 * 1024
# The most until a connection is ready, and the longest silence after that. A run that has started may be silent.
SILENCE_SECONDS = 30.0
WRITE_BYTES = 64 * 1024
EXIT_SECONDS = 10.0


# No repr: it would show the password.
@dataclass(repr=False, kw_only=True)
class Connection:
    """What every push of this program shares."""

    control_directory: str | None
    become: bool
    become_password: str | None
    first_stage: bytes


class HostPush:
    """`run` never raises for what a host does: the fault is in the outcome."""

    def __init__(
        self,
        outcome: HostOutcome,
        python: str | None,
        order: Mapping[str, Any],
        plan: PushPlan,
        connection: Connection,
        spool_path: str,
    ) -> None:
        self.outcome = outcome
        self._python = python
        self._order = order
        self._plan = plan
        self._connection = connection
        self._spool_path = spool_path
        self._process: asyncio.subprocess.Process | None = None
        self._errors = bytearray()
        self._prompts = 0
        self._refused_password = False
        self._output_bytes = 0
        self._hello: asyncio.Future[dict[str, Any]] | None = None
        self._needed: asyncio.Future[list[int]] | None = None
        self._ready = asyncio.Event()
        self._is_stopping = False
        # Why the files cannot be sent from here.
        self._unsendable: str | None = None
        self.started_at = monotonic()
        # When it last sent something, or took something that was sent to it.
        self._active_at = self.started_at
        # For the live table.
        self.phase = "connecting"
        self.total = 0
        self.position = 0
        self.resource = ""

    # ---- called by the runner ----
    async def run(self) -> None:
        self.started_at = monotonic()
        outcome = self.outcome
        try:
            await self._converse()
        except HostFault as fault:
            outcome.fault = fault
        except OSError as error:
            outcome.fault = HostFault("local", f"ssh cannot be started: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001  # a bug must not end the pushes to other hosts
            outcome.fault = HostFault("local", f"this is a bug in mainstay: {type(error).__name__}: {error}")
        finally:
            await self._end_process()
            outcome.duration_seconds = monotonic() - self.started_at
            for spool in (outcome.events, outcome.whole_events):
                if spool is not None:
                    spool.close()

    def stop(self) -> None:
        """Asks the remote run to stop in order; a host that has not begun is left alone."""
        self._is_stopping = True
        process = self._process
        if process is None or process.stdin is None:
            return
        if self.phase == "running":
            with contextlib.suppress(OSError, RuntimeError):
                process.stdin.write(b"stop\n")
        else:
            self.kill()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            # Only this process, not its group: the shared connection may be in it.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    # ---- the conversation ----
    async def _converse(self) -> None:
        connection = self._connection
        with_password = connection.become_password is not None
        script = remote_script(self._python, become=connection.become, with_password=with_password)
        self._process = await asyncio.create_subprocess_exec(
            *ssh_command(self.outcome.host, script, connection.control_directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C of the terminal must not end ssh: the remote run is asked to stop instead.
            start_new_session=True,
        )
        loop = asyncio.get_running_loop()
        self._hello, self._needed = loop.create_future(), loop.create_future()
        errors = asyncio.create_task(self._read_errors(self._process))
        sending = asyncio.create_task(self._send(self._process, self._hello, self._needed))
        try:
            is_complete = await self._read_frames(self._process)
            if self._unsendable is not None:
                raise HostFault("local", self._unsendable)
            if not is_complete:
                raise await self._explain_end(self._process, errors)
        finally:
            for task in (sending, errors):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task

    async def _send(
        self,
        process: asyncio.subprocess.Process,
        hello: asyncio.Future[dict[str, Any]],
        needed: asyncio.Future[list[int]],
    ) -> None:
        """Sends the first stage, then what the host lacks. Secrets leave this process only through this pipe."""
        if process.stdin is None:
            return
        if self._connection.become:
            # Otherwise sudo could take it for passwords.
            await self._ready.wait()
        try:
            await self._write(process.stdin, self._connection.first_stage)
            found = await hello
            if not (found["program"] and found["index"]):
                program = b"" if found["program"] else self._plan.program.travelling
                index = b"" if found["index"] else self._plan.index.travelling
                sizes = {"program_bytes": len(program), "index_bytes": len(index)}
                await self._write(process.stdin, _line(sizes), program, index)
            numbers = await needed
            await self._write(process.stdin, _line(self._order))
            for number in numbers:
                await self._send_content(process.stdin, self._plan.contents[number])
        except ConnectionError:
            # Reading finds out why.
            return
        except (OSError, SourceChanged) as error:
            self._unsendable = str(error)
            self.kill()

    async def _send_content(self, stdin: asyncio.StreamWriter, content: Content) -> None:
        size = await asyncio.to_thread(content.pack)
        await self._write(stdin, b"%d\n" % size)
        for piece in content.packed_pieces():
            await self._write(stdin, piece)

    async def _write(self, stdin: asyncio.StreamWriter, *pieces: bytes) -> None:
        for piece in pieces:
            for start in range(0, len(piece), WRITE_BYTES):
                stdin.write(piece[start : start + WRITE_BYTES])
                await stdin.drain()
                self._active_at = monotonic()
            self.outcome.sent_bytes += len(piece)

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        """Keeps the end of what ssh, sudo and the host print as errors."""
        if process.stderr is None:
            return
        while piece := await process.stderr.read(READ_BYTES):
            self._errors += piece
            if self._connection.become_password is not None and self._errors.count(PASSWORD_PROMPT.encode()):
                self._answer_prompt(process)
            del self._errors[:-ERROR_TAIL_BYTES]

    def _answer_prompt(self, process: asyncio.subprocess.Process) -> None:
        self._errors[:] = self._errors.replace(PASSWORD_PROMPT.encode(), b"")
        self._prompts += 1
        if self._prompts > 1 or process.stdin is None or self._ready.is_set():
            self._refused_password = True
            self.kill()
            return
        process.stdin.write((self._connection.become_password or "").encode() + b"\n")

    async def _read_frames(self, process: asyncio.subprocess.Process) -> bool:
        """Returns whether the report is complete."""
        noise_bytes = 0
        async for line in self._lines(process):
            if line.startswith(MARK):
                if self._take(parse_frame(line)):
                    return True
            elif line == READY:
                self._ready.set()
            elif line.startswith(NO_PYTHON.encode()):
                wanted = self._python or "Python"
                raise HostFault("no_python", f"it has no {wanted}; {_way_to_python()}")
            else:
                noise_bytes += len(line)
                if noise_bytes > MOST_NOISE_BYTES:
                    raise HostFault("protocol", f"it prints text instead of responses, such as {shown(line)}")
        return False

    async def _lines(self, process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
        if process.stdout is None:
            return
        buffer = bytearray()
        while True:
            silent_until = self._silent_until()
            try:
                timeout = None if silent_until is None else max(0.0, silent_until - monotonic())
                piece = await asyncio.wait_for(process.stdout.read(READ_BYTES), timeout)
            except TimeoutError:
                if silent_until == self._silent_until():
                    raise HostFault("unreachable", f"it did not respond within {SILENCE_SECONDS:.0f} s") from None
                continue
            if not piece:
                return
            self._active_at = monotonic()
            self._output_bytes += len(piece)
            if self._output_bytes > MOST_OUTPUT_BYTES:
                raise HostFault("protocol", f"it sent more than {MOST_OUTPUT_BYTES // 1024 // 1024} MB")
            buffer += piece
            *lines, rest = buffer.split(b"\n")
            for line in lines:
                yield bytes(line) + b"\n"
            buffer = rest
            if len(buffer) > LONGEST_LINE_BYTES:
                raise HostFault("protocol", f"it sent a line of more than {LONGEST_LINE_BYTES // 1024 // 1024} MB")

    def _silent_until(self) -> float | None:
        if self.phase == "running":
            return None
        if self.phase == "connecting":
            return self.started_at + SILENCE_SECONDS
        # It may wait for the lock of another run.
        return self._active_at + SILENCE_SECONDS + float(self._order.get("lock_wait_seconds", 0))

    def _take(self, frame: Frame) -> bool:
        """Keeps what a frame reports. Returns whether it is the last one."""
        outcome = self.outcome
        if frame.kind == "hello":
            self._take_hello(frame.value)
        elif self._hello is None or self._needed is None or not self._hello.done():
            raise HostFault("protocol", "it sent a report before it was asked")
        elif frame.kind == "need":
            self._take_need(frame.value, self._needed)
        elif not self._needed.done():
            raise HostFault("protocol", "it sent a report before it was asked")
        elif frame.kind == "start":
            self.phase, self.total = "running", frame.value
            self._open_spool()
        elif frame.kind == "at":
            self.position, self.resource = frame.value
        elif frame.kind in ("event", "report"):
            self._take_event(frame)
        elif frame.kind == "stable":
            outcome.stable += frame.value
            _require_bounded(len(outcome.stable))
        elif frame.kind == "message":
            if len(outcome.messages) < MOST_MESSAGES:
                outcome.messages.append(frame.value)
        else:
            outcome.summary, outcome.ending = frame.value["summary"], frame.value
            return True
        return False

    def _take_hello(self, hello: dict[str, Any]) -> None:
        if self._hello is None or self._hello.done():
            raise HostFault("protocol", "it sent its greeting twice")
        if hello["python"] < OLDEST_PYTHON:
            version = ".".join(map(str, hello["python"]))
            raise HostFault("old_python", f"Python {version} is too old; {_way_to_python()}")
        self.phase = "preparing"
        self._hello.set_result(hello)

    def _take_need(self, numbers: list[int], needed: asyncio.Future[list[int]]) -> None:
        if needed.done() or any(number >= len(self._plan.contents) for number in numbers):
            raise HostFault("protocol", "it asked for files that this manifest does not have")
        needed.set_result(numbers)

    def _open_spool(self) -> EventSpool:
        if self.outcome.events is None:
            self.outcome.events = EventSpool(self._spool_path)
        return self.outcome.events

    def _take_event(self, frame: Frame) -> None:
        outcome = self.outcome
        if frame.kind == "report":
            outcome.whole_events = outcome.whole_events or EventSpool(f"{self._spool_path}.whole")
            outcome.whole_events.add(len(outcome.whole_events), frame.value)
            _require_bounded(len(outcome.whole_events))
            return
        events = self._open_spool()
        events.add(frame.index, frame.value)
        _require_bounded(len(events))

    # ---- the end ----
    async def _explain_end(self, process: asyncio.subprocess.Process, errors: asyncio.Task[None]) -> HostFault:
        """Why the connection ended without a complete report."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(errors), 1.0)
        text = self._errors.decode("utf-8", "replace")
        if self._refused_password:
            return HostFault("become", "sudo refuses the password")
        if self._is_stopping:
            return HostFault(STOPPED, "stopped before the run began")
        if self.phase == "connecting":
            explained = explain_ssh(self.outcome.host, process.returncode or 0, text)
            return explained or HostFault("protocol", f"the shell ended without a response: {last_line(text)}")
        where = f" at {self.resource}" if self.resource else ""
        return HostFault("lost", f"the connection ended in the middle of the run{where}: {last_line(text)}")

    async def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if self.outcome.summary is None:
            self.kill()
        try:
            await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        except TimeoutError:
            self.kill()
            await process.wait()


def _require_bounded(events: int) -> None:
    """What is known of each event stays in memory."""
    if events > MOST_EVENTS:
        raise HostFault("protocol", f"it sent more than {MOST_EVENTS:,} events")


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode("ascii") + b"\n"


def _way_to_python() -> str:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return f"install Python {oldest} or newer, or name one with `python:` in the inventory"

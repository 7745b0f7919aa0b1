"""The host's side of a push: asks for missing files, runs the manifest, and sends its events as frames. Python 3.9.

Standard input carries the operator's stop request. Its end means that the pushing program is gone: the run stops in
order, as on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from shutil import rmtree

from mainstay.converge.apply import Options
from mainstay.converge.contract import Resource
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.bundles import BundleRefused, unpacking_directory
from mainstay.converge.host.state import StateDirectory, Unusable, state_path
from mainstay.converge.json_lines import event_lines, finite
from mainstay.converge.manifest.hierarchy import DataLayer
from mainstay.converge.report import STABLE, Event, Observer, Report
from mainstay.converge.run import Locked, RunRequest, Session, run
from mainstay.converge.value_kinds import conceal
from mainstay.foundation import IO, Any
from mainstay.foundation.faults import DoesNotLoad
from mainstay.push.content_store import ContentStore, TransferRefused
from mainstay.push.delivery import Delivery

MARK = b"mainstay-push "
STOP = b"stop\n"
# Frames in quick succession are written together.
FLUSH_INTERVAL_SECONDS = 0.1
PROGRESS_INTERVAL_SECONDS = 0.5
MAX_BUFFERED_BYTES = 64 * 1024
NAMES_PER_FRAME = 500
MOST_FAULTS = 200


def receive(
    contents: str, digest: str, index: bytes | None, packed_index: bytes, reader: IO[bytes], output: int
) -> int:
    """Receives the files of an index and runs their manifest as ordered. Returns the exit code."""
    import gc

    # The objects of a run live until it ends, so collections find nothing.
    gc.disable()
    stop = StopFlag()
    channel = Channel(output, stop)
    try:
        delivery = Delivery(ContentStore(contents), digest, index, packed_index)
        needed = delivery.needed()
        channel.send({"need": needed})
        channel.flush()
        order = _read_order(reader)
        target = os.path.join(
            unpacking_directory(StateDirectory(state_path(os.environ))), f"{order['run_id']}-{os.getpid()}"
        )
        os.mkdir(target, 0o700)
        try:
            delivery.receive(reader, needed, target)
            _watch(reader, stop)
            _run(order, os.path.join(target, "files"), channel, stop)
        finally:
            os.chdir("/")
            rmtree(target, ignore_errors=True)
    except (BundleRefused, TransferRefused) as refusal:
        channel.send({"fault": {"kind": "refused", "message": str(refusal)}})
    except DoesNotLoad as refusal:
        channel.send({"faults": [fault.as_json() for fault in refusal.faults[:MOST_FAULTS]]})
    except Stopped:
        channel.send({"stopped": stop.reason})
    except Locked as refusal:
        channel.send({"locked": str(refusal)})
    except Unusable as refusal:
        channel.send({"fault": {"kind": "system", "message": str(refusal)}})
    except OSError as error:
        kind = "disk_full" if error.errno in (28, 122) else "system"
        place = f"{error.filename}: " if error.filename else ""
        channel.send({"fault": {"kind": kind, "message": f"{place}{error.strerror or error}"}})
    channel.flush()
    return 0


def _read_order(reader: IO[bytes]) -> Mapping[str, Any]:
    import json

    line = reader.readline()
    if not line.endswith(b"\n"):
        raise TransferRefused("the connection ended early")
    order: Mapping[str, Any] = json.loads(line)
    return order


def _run(order: Mapping[str, Any], folder: str, channel: Channel, stop: StopFlag) -> None:
    os.chdir(folder)
    session, report = run(_request(order, folder, channel, stop))
    channel.send_report(session, report, whole=order["whole_report"])


def _request(order: Mapping[str, Any], folder: str, observer: Observer, stop: StopFlag) -> RunRequest:
    return RunRequest(
        order["manifest"],
        options=Options(noop=order["noop"], differences=order["diff"], tags=order["tags"]),
        data_layers=[DataLayer(values, origin) for origin, values in order["data_layers"]],
        facts_layers=order["facts_layers"],
        roots=order["roots"],
        identity=order["identity"],
        observer=observer,
        stop=stop,
        lock_wait_seconds=order["lock_wait_seconds"],
        bundle=folder,
        run_id=order["run_id"],
    )


def _watch(reader: IO[bytes], stop: StopFlag) -> None:
    """Stops the run on a signal, a stop request on standard input, or its end."""
    import threading

    def request_stop(number: int, _frame: object) -> None:
        stop.request(signal.Signals(number).name, at_once=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, request_stop)

    def follow() -> None:
        is_stop = reader.readline() == STOP
        # A signal, because it also interrupts a wait of the main thread.
        os.kill(os.getpid(), signal.SIGINT if is_stop else signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


class Channel(Observer):
    """Sends frames to the pushing program. The run continues to its orderly stop if they cannot be sent."""

    def __init__(self, output: int, stop: StopFlag) -> None:
        from json import JSONEncoder

        self._encode = JSONEncoder().encode
        self._output = output
        self._stop = stop
        self._buffer = bytearray()
        self._flushed_at = 0.0
        self._progress_at = 0.0
        self._is_broken = False
        self._pending: Event | None = None
        # One generator for all events: it reuses the text around values that differ.
        self._lines = event_lines(self._pending_events())

    def _pending_events(self) -> Iterator[Event]:
        while self._pending is not None:
            yield self._pending

    def send(self, frame: Mapping[str, Any]) -> None:
        self._append(self._encode(frame))

    def _append(self, text: str) -> None:
        self._buffer += MARK + text.encode("utf-8", "backslashreplace") + b"\n"
        if len(self._buffer) > MAX_BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        left = memoryview(bytes(self._buffer))
        self._buffer.clear()
        self._flushed_at = time.monotonic()
        while left and not self._is_broken:
            try:
                left = left[os.write(self._output, left) :]
            except InterruptedError:
                continue
            except OSError:
                self._is_broken = True
                self._stop.request("SIGPIPE", at_once=True)

    # ---- notifications of the run ----
    def run_started(self, total: int) -> None:
        self.send({"start": total})
        self.flush()

    def resource_started(self, index: int, resource: Resource) -> None:
        now = time.monotonic()
        if now - self._progress_at > PROGRESS_INTERVAL_SECONDS:
            self._progress_at = now
            self.send({"at": [index, resource.id]})
            self.flush()

    def event(self, index: int, event: Event) -> None:
        if event.outcome == STABLE and not event.warnings:
            return
        self._pending = event
        self._append(f'{{"event": {next(self._lines)}, "index": {index}}}')
        if time.monotonic() - self._flushed_at > FLUSH_INTERVAL_SECONDS:
            self.flush()

    def about_to_wait(self) -> None:
        self.flush()

    def message(self, text: str) -> None:
        self.send({"message": text})

    # ---- the report ----
    def send_report(self, session: Session, report: Report, *, whole: bool) -> None:
        if whole:
            report.complete(session.host.files)
            for line in event_lines(report.events):
                self._append(f'{{"report": {line}}}')
        stable = [event.resource.id for event in report.events if event.outcome == STABLE and not event.warnings]
        for start in range(0, len(stable), NAMES_PER_FRAME):
            self.send({"stable": stable[start : start + NAMES_PER_FRAME]})
        self.send(
            {
                "end": {
                    "summary": report.summary(),
                    "outputs": finite(conceal(report.outputs)),
                    "errors": report.output_errors,
                    "warnings": report.warnings,
                    "stopped_by": report.stopped_by,
                }
            }
        )

"""State between runs: owed refreshes, directories with temporary files of a killed run, and past reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mainstay.converge.contract import Resource
from mainstay.converge.host.state import AppendOnly, StateDirectory, read_text, run_ids, statuses
from mainstay.converge.json_lines import document_pieces, event_lines
from mainstay.converge.report import CHANGED, REFRESHED, STABLE, Event, Report
from mainstay.foundation import Any, Struct
from mainstay.foundation.private_files import is_abandoned, remove
from mainstay.foundation.text import shorten

MOST_REPORTS = 1000
LARGEST_HISTORY_BYTES = 100 * 1024 * 1024
# Every 20th run checks the sizes of all reports and what killed runs left.
SIZES_CHECKED_EVERY = 20

KEPT_KEYS = {"run_id", "manifest", "noop", "summary", "errors", "events"}


def _read_entry(line: str, length: int) -> list[Any] | None:
    """Parses a line; None if it is damaged, for example by a power cut."""
    import json

    try:
        entry: Any = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, list) and len(entry) == length else None


def _line(entry: list[Any]) -> str:
    import json

    return json.dumps(entry)


class Ledger:
    """Owed refreshes: recorded durably before the trigger is changed, and removed when paid.

    The file only grows during a run; at the end of the run it contains what is still owed, or is removed.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else AppendOnly(path)
        self.owed: dict[str, set[str]] = {}
        self._at_start: dict[str, set[str]] = {}
        # Trigger → the resources that subscribe to it.
        self._subscribers: dict[str, list[str]] = {}
        # Called before a resource changes.
        self.about_to_change: Callable[[str], None] = _without_record

    def load(self, subscriptions: Mapping[str, Sequence[str]]) -> None:
        """Reads the refreshes that earlier runs owe, and drops those without a subscription."""
        for subscriber, triggers in subscriptions.items():
            for trigger in triggers:
                self._subscribers.setdefault(trigger, []).append(subscriber)
        if self._file is None:
            return
        is_damaged = False
        for line in self._file.lines():
            entry = _read_entry(line, 3)
            if entry is None or not isinstance(entry[2], list):
                is_damaged = True
                continue
            verb, trigger, subscribers = entry
            for subscriber in subscribers:
                if verb == "owe":
                    self.owed.setdefault(subscriber, set()).add(trigger)
                elif verb == "void":
                    self.owed.get(subscriber, set()).discard(trigger)
                else:
                    self.owed.pop(subscriber, None)
        if is_damaged:
            # The content is lost: one refresh too many is better than one too few.
            self.owed = {subscriber: set(triggers) for subscriber, triggers in subscriptions.items()}
        for subscriber, owed in list(self.owed.items()):
            owed.intersection_update(subscriptions.get(subscriber, ()))
            if not owed:
                del self.owed[subscriber]
        self._at_start = {subscriber: set(triggers) for subscriber, triggers in self.owed.items()}

    def is_owed(self, subscriber: str) -> bool:
        return subscriber in self.owed

    def has_subscribers(self, trigger: str) -> bool:
        return trigger in self._subscribers

    def owe(self, trigger: str) -> None:
        """Call it before the trigger changes, so that the next run knows of the refresh if this run is killed."""
        self.about_to_change(trigger)
        subscribers = self._subscribers.get(trigger)
        if not subscribers or all(trigger in self.owed.get(name, ()) for name in subscribers):
            return
        self._write("owe", trigger, subscribers, durable=True)
        for subscriber in subscribers:
            self.owed.setdefault(subscriber, set()).add(trigger)

    def void(self, trigger: str) -> None:
        """The trigger did not change; refreshes that were owed before this run stay owed."""
        undone = [
            name
            for name in self._subscribers.get(trigger, ())
            if trigger in self.owed.get(name, ()) and trigger not in self._at_start.get(name, ())
        ]
        for subscriber in undone:
            self.owed[subscriber].discard(trigger)
            if not self.owed[subscriber]:
                del self.owed[subscriber]
        if undone:
            self._write("void", trigger, undone, durable=False)

    def pay(self, subscriber: str) -> None:
        if self.owed.pop(subscriber, None) is not None:
            self._at_start.pop(subscriber, None)
            self._write("paid", "", [subscriber], durable=False)

    def close(self, state: StateDirectory) -> None:
        if self._file is None:
            return
        self._file.close()
        if not self.owed:
            remove(self._file.path)
            return
        lines = (
            _line(["owe", trigger, [subscriber]])
            for subscriber, triggers in self.owed.items()
            for trigger in sorted(triggers)
        )
        try:
            state.write(self._file.path, ("\n".join(lines) + "\n").encode(), durable=True)
        except OSError:
            # No space for a shorter file: the existing file means the same.
            return

    def _write(self, verb: str, trigger: str, subscribers: Sequence[str], *, durable: bool) -> None:
        if self._file is not None:
            self._file.append(_line([verb, trigger, list(subscribers)]), durable=durable)


def _without_record(trigger: str) -> None:
    """Resources of a manifest need no record of their own: their subscribers are in the same manifest."""


class SingleResources(Struct):
    """What runs of `mainstay ensure` leave for later ones that require or subscribe to their resource.

    A record has the `outcome` of the last run, a `change` that differs after each change, and the changes of other
    resources that this one has `seen`. The change is recorded before it is made: after a kill, one refresh too many.
    """

    _state: StateDirectory
    # The record before the change of this run; None: this run has changed nothing.
    _before: dict[str, Any] | None = None

    @staticmethod
    def identity(reference: str) -> str:
        return f"ensure:{reference}"

    def reference_problem(self, reference: str) -> str | None:
        if self._read(reference) is not None:
            return None
        type_name, _, name = reference.partition("#")
        return f"`mainstay ensure {shorten(type_name)} {shorten(name)}` has not run on this host; run it before"

    def earlier_events(self, resource: Resource) -> dict[str, Event]:
        """The results of the resources that this one requires or subscribes to."""
        seen = (self._read(resource.id) or {}).get("seen") or {}
        found = {}
        for reference in (*resource.require, *resource.subscribe):
            record = self._read(reference) or {}
            found[reference] = event = Event(resource)
            event.outcome = str(record.get("outcome"))
            event.changed = record.get("change") not in (None, seen.get(reference))
        return found

    def about_to_change(self, reference: str, change: str) -> None:
        record = self._read(reference) or {}
        self._before = record
        self._write(reference, {**record, "change": change}, durable=True)

    def save(self, resource: Resource, event: Event) -> None:
        """Records the result. A resource that did not fail has seen all changes that it subscribes to."""
        record = self._read(resource.id) or {}
        if self._before is not None and not event.changed:
            record["change"] = self._before.get("change")
        record["outcome"] = event.outcome
        if event.outcome in (STABLE, CHANGED, REFRESHED):
            changes = {reference: (self._read(reference) or {}).get("change") for reference in resource.subscribe}
            record["seen"] = {**(record.get("seen") or {}), **changes}
        self._write(resource.id, record, durable=False)

    def _read(self, reference: str) -> dict[str, Any] | None:
        import json

        text = read_text(f"{self._state.identity_path(self.identity(reference))}/ensured")
        try:
            record = json.loads(text or "null")
        except ValueError:
            # Damaged: the next run of the resource writes it anew.
            return None
        return record if isinstance(record, dict) else None

    def _write(self, reference: str, record: dict[str, Any], *, durable: bool) -> None:
        import json

        directory = self._state.identity_directory(self.identity(reference))
        self._state.write(f"{directory}/ensured", json.dumps(record).encode(), durable=durable)


class TempFileJournal:
    """Records each directory before a temporary file is created in it, so that the next run can clean up."""

    def __init__(self, path: str, run_id: str) -> None:
        self._file = AppendOnly(path)
        self._run_id = run_id

    def clean_up(self, remove_temps: Callable[[str, str], None]) -> None:
        """Removes the temporary files of dead runs. The caller holds the lock, so all entries are of dead runs."""
        for line in self._file.lines():
            entry = _read_entry(line, 2)
            if entry is not None and all(isinstance(part, str) for part in entry):
                remove_temps(entry[1], entry[0])
        remove(self._file.path)

    def announce(self, directory: str) -> None:
        self._file.append(_line([self._run_id, directory]), durable=False)

    def close(self) -> None:
        self._file.close()
        remove(self._file.path)


class History(Struct):
    """Past reports: whole events of resources that were not stable, names of those that were."""

    state: StateDirectory

    def save(self, report: Report) -> None:
        """Stores the states as the run knows them, without the checksums of large files."""
        kept = {
            "run_id": report.run_id,
            "manifest": report.manifest,
            "noop": report.noop,
            "stopped_by": report.stopped_by,
            "summary": report.summary(),
            "errors": report.output_errors,
            "stable": [event.resource.id for event in report.events if event.outcome == STABLE],
        }
        lines = event_lines(event for event in report.events if event.outcome != STABLE)
        self.keep(kept, lines)

    def keep(self, kept: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Stores the document of a report: all but its events, and these as JSON."""
        folder = self.state.directory("history")
        run_id: str = kept["run_id"]
        self.state.write(f"{folder}/{run_id}.json", document_pieces(kept, lines, {}))
        self._prune(folder, run_id)

    def runs(self) -> list[str]:
        """Returns the ids of stored runs, newest first."""
        return run_ids(f"{self.state.path}/history")[::-1]

    def show(self, run_id: str) -> dict[str, Any] | None:
        text = read_text(f"{self.state.path}/history/{run_id}.json")
        if text is None:
            return None
        import json

        try:
            kept: Any = json.loads(text)
        except ValueError:
            return None
        return kept if isinstance(kept, dict) and kept.keys() >= KEPT_KEYS else None

    def _prune(self, folder: str, newest_run_id: str) -> None:
        runs = self.runs()
        for run_id in runs[MOST_REPORTS:]:
            remove(f"{folder}/{run_id}.json")
        # Selected by the random part of the id, because the number of reports is constant at its limit.
        if int(newest_run_id.rpartition("-")[2], 16) % SIZES_CHECKED_EVERY:
            return
        total = 0
        # The newest name first.
        for path, found in sorted(statuses(folder), key=lambda each: each[0], reverse=True):
            if is_abandoned(path):
                remove(path)
                continue
            total += found.st_size
            if total > LARGEST_HISTORY_BYTES and total != found.st_size:
                remove(path)

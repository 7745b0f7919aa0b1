"""The shared words of host convergence: resources and their types, providers, changes, events, reports.

Nothing here touches a host. Types decide (pure), providers do; both meet in `apply.py`.
"""

from __future__ import annotations

import stat as modes
from abc import ABC, abstractmethod
from functools import lru_cache
from json import dumps
from json.encoder import encode_basestring as quoted

from mainstay.converge.value_kinds import conceal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.converge.host.host import Host
    from mainstay.converge.value_kinds import ValueKind
    from mainstay.foundation.faults import DocumentPath

STABLE, CHANGED, REFRESHED = "stable", "changed", "refreshed"
SKIPPED, UNMET, FAILED = "skipped", "unmet", "failed"
OUTCOMES = (STABLE, CHANGED, REFRESHED, SKIPPED, UNMET, FAILED)


# ---- what can go wrong ----
class Failure(Exception):
    """A resource cannot be brought to its state; the text names the thing and the reason."""

    def __init__(self, message: str, *, output: str | None = None) -> None:
        super().__init__(message)
        self.output = output


class Missing(Failure):
    """Something the resource needs is not there; in a dry run an earlier exec or package might bring it."""


class NotYetThere(Missing):
    """A dry run would have to run something that an earlier resource only would have put there."""


class DesiredStateFailed(Failure):
    """The change was made, and the host still is not as wanted."""


class Stopped(Exception):
    """The caller asked the run to end while a command was running."""


# ---- what is wanted ----
class Property:
    """One property of a resource type; loader, JSON Schema, command line and reference derive from it."""

    __slots__ = ("alias_of", "choices", "deferred", "kind", "summary")

    def __init__(
        self,
        kind: ValueKind,
        summary: str,
        *,
        choices: tuple[str, ...] = (),
        deferred: bool = False,
        alias_of: str | None = None,
    ) -> None:
        self.kind = kind
        self.summary = summary
        self.choices = choices
        self.deferred = deferred
        self.alias_of = alias_of


class HealthCheck:
    """A command that says how the thing is, after it was brought to its state."""

    __slots__ = ("command", "name", "timeout_seconds", "tries", "try_sleep_seconds")

    def __init__(
        self, command: str, name: str, tries: int, try_sleep_seconds: float, timeout_seconds: float | None
    ) -> None:
        self.command = command
        self.name = name
        self.tries = tries
        self.try_sleep_seconds = try_sleep_seconds
        self.timeout_seconds = timeout_seconds


class Resource:
    """What the manifest wants of one thing. Properties are attributes; the loader hands in the ones given."""

    type: str
    name: str
    id: str
    place: DocumentPath
    alias: str | None = None
    ensure: str = "present"
    provider: str | None = None
    require: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    # Expressions, kept whole so that they can be shown as they were written.
    control_if: Any = None
    control_unless: Any = None
    health_checks: tuple[HealthCheck, ...] = ()
    tags: tuple[str, ...] = ()
    sensitive: bool = False
    # Properties whose templates wait for the resource's turn: name → template.
    deferred: Mapping[str, Any] | None = None

    def __init__(self, given: dict[str, Any]) -> None:
        self.__dict__ = given


class State:
    """What a provider found. `ensure` is the word the manifest would use for it."""

    ensure: str = "absent"
    output: str | None = None

    def as_json(self, host: Host, *, hash_up_to_bytes: int | None = None) -> dict[str, Any]:
        """For reports; what is larger than asked to be hashed has no checksum."""
        return {"ensure": self.ensure}

    def as_json_text(self, host: Host, *, hash_up_to_bytes: int | None = None) -> str:
        """The same as text."""
        return dumps(self.as_json(host, hash_up_to_bytes=hash_up_to_bytes), ensure_ascii=False)


class Change:
    """One step from the actual to the wanted state, and why it is needed.

    Steps of one decision do not build on each other: each is tried, also when one before it failed.
    """

    __slots__ = ("pays", "reason", "refresh", "verb")

    def __init__(self, verb: str, reason: str, *, refresh: bool = False, pays: bool = False) -> None:
        self.verb = verb
        self.reason = reason
        self.refresh = refresh
        # Whether a refresh that is due is done with once this step is made: by it, or because it replaces it.
        self.pays = pays or refresh


class ResourceType(ABC):
    """Decides, and touches nothing. One file in `resources/` is one type.

    `wanted` is the type's own `Resource`, `actual` the `State` its providers give.
    """

    name: str
    resource: type[Resource]
    properties: Mapping[str, Property]
    ensures: tuple[str, ...] = ("present",)
    # Words beyond `ensures` may be wanted too, such as the version of a package.
    open_ensure: bool = False
    ensure_required: bool = False
    # Whether a change may bring things that a dry run cannot foresee (paths, users, programs).
    unforeseeable: bool = False
    # Whether `subscribe` means something here.
    refreshable: bool = False

    def check_name(self, name: str) -> Iterator[str]:
        """What is wrong with a name, whatever is wanted of it."""
        return iter(())

    def check(self, wanted: Any) -> Iterator[tuple[str | None, str]]:
        """Faults seen at load: (property or None for the whole resource, message)."""
        return ((None, problem) for problem in self.check_name(wanted.name))

    def check_rendered(self, wanted: Any) -> None:  # noqa: B027  # most types have nothing to add
        """Refuses what templates produced where it cannot be; raises `Failure`."""

    @abstractmethod
    def desired(self, wanted: Any, actual: Any) -> tuple[bool, str]:
        """Whether the actual state is the wanted one, and if not, why."""

    @abstractmethod
    def decide(self, wanted: Any, actual: Any, *, refresh: bool) -> tuple[Change, ...]:
        """What to do. Raises `Failure` where the wanted state must not be forced."""

    @abstractmethod
    def describe(self, wanted: Any, actual: Any, changes: tuple[Change, ...]) -> str:
        """What a dry run says about these changes."""

    @abstractmethod
    def was_altered(self, wanted: Any, before: Any, after: Any) -> bool:
        """Whether a failed change altered the host all the same, so that subscribers must hear of it."""


class Provider(ABC):
    """Does, through the host's door. `providers/<type>/<name>.py` is one provider."""

    name: str
    priority: int = 1
    # Whether `read_ahead` makes use of what comes later in the manifest.
    reads_ahead: bool = False
    # Whether neighbouring resources that need the same kind of change are given to `perform_together`.
    joins_neighbours: bool = False

    def unavailable(self, host: Host) -> str | None:
        """Why this provider cannot work here, or None."""
        return None

    def for_run(self) -> Provider:
        """The provider that serves one run; one that remembers things gives a new one."""
        return self

    def read_ahead(self, wanted: Any, upcoming: Callable[[], Iterator[Any]], host: Host) -> None:  # noqa: B027  # most have no use for it
        """May ask for several resources in one go: `wanted`, whose turn it is, and those that come later."""

    @abstractmethod
    def read(self, wanted: Any, host: Host, *, refresh: bool) -> Any:
        """The actual state."""

    @abstractmethod
    def perform(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        """Makes one change."""

    @abstractmethod
    def forecast(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        """Notes what `perform` would do, so that later resources see it; fails where `perform` would."""

    def perform_together(self, steps: Sequence[tuple[Any, Any, Change]], host: Host) -> None:
        """Makes one change of the same kind for each of several resources; a provider that joins them, in one go."""
        for wanted, actual, change in steps:
            self.perform(wanted, actual, change, host)

    def confirm(self, wanted: Any, actual: Any, host: Host) -> Any:
        """The state after the changes."""
        return self.read(wanted, host, refresh=False)

    def look_again(self, host: Host) -> Iterable[tuple[str, State, Failure]]:
        """At the end of the run: what was brought about and did not last, as (resource id, state, why)."""
        return ()

    def difference(self, wanted: Any, actual: Any, host: Host) -> str | None:
        """What would change in a file, as a unified diff."""
        return None


def file_word(mode: int) -> str:
    """What a file is that is neither regular, a directory nor a link."""
    for test, word in (
        (modes.S_ISFIFO, "a fifo"),
        (modes.S_ISSOCK, "a socket"),
        (modes.S_ISCHR, "a character device"),
        (modes.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return word
    return "of an unknown kind"


# ---- what happened ----
class Event:
    """What became of one resource."""

    refreshed: bool = False
    unmet: tuple[str, ...] = ()

    def __init__(self, resource: Resource) -> None:
        # What is asked of every event is kept in each: finding it in the class takes ten times as long.
        self.resource = resource
        self.outcome = STABLE
        self.provider: str | None = None
        self.noop = False
        self.changed = False
        self.noop_message: str | None = None
        self.reason: str | None = None
        self.output: str | None = None
        self.diff: str | None = None
        self.state: State | None = None
        self.duration_seconds = 0.0
        self.errors: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()

    def as_json(self, host: Host, *, hash_up_to_bytes: int | None = None) -> dict[str, Any]:
        resource = self.resource
        return {
            "type": resource.type,
            "name": resource.name,
            "alias": resource.alias,
            "provider": self.provider,
            "ensure": resource.ensure,
            "outcome": self.outcome,
            "changed": self.changed,
            "refreshed": self.refreshed,
            "failed": self.outcome == FAILED,
            "skipped": self.outcome == SKIPPED,
            "noop": self.noop,
            "noop_message": self.noop_message,
            "reason": self.reason,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
            "unmet": list(self.unmet),
            "output": self.output,
            "duration_seconds": round(self.duration_seconds, 6),
            "diff": self.diff,
            "state": None if self.state is None else self.state.as_json(host, hash_up_to_bytes=hash_up_to_bytes),
        }

    def as_json_text(self, host: Host, *, hash_up_to_bytes: int | None = None) -> str:
        """The same as text. What says no more than that it changed is put together here: the encoder takes longer
        than it takes to make a file, and there may be many."""
        resource, state, provider, reason = self.resource, self.state, self.provider, self.reason
        is_plain = self.outcome == CHANGED and not self.warnings and self.noop_message is None
        is_plain = is_plain and self.output is None and self.diff is None and resource.alias is None
        if not is_plain or state is None or provider is None or reason is None:
            return dumps(self.as_json(host, hash_up_to_bytes=hash_up_to_bytes), ensure_ascii=False)
        before_name, after_name = _plain_event_frame(resource.type, provider, resource.ensure, self.noop, reason)
        return (
            f"{before_name}{quoted(resource.name)}{after_name}{self.duration_seconds:.6f}, "
            f'"diff": null, "state": {state.as_json_text(host, hash_up_to_bytes=hash_up_to_bytes)}}}'
        )


@lru_cache(maxsize=64)
def _plain_event_frame(type_name: str, provider: str, ensure: str, noop: bool, reason: str) -> tuple[str, str]:  # noqa: FBT001  # a key of the cache
    """What many plain events share: the text before their name, and from there to their duration."""
    before = f'{{"type": {quoted(type_name)}, "name": '
    after = (
        f', "alias": null, "provider": {quoted(provider)}, "ensure": {quoted(ensure)}, '
        f'"outcome": "changed", "changed": true, "refreshed": false, "failed": false, "skipped": false, '
        f'"noop": {str(noop).lower()}, "noop_message": null, '
        f'"reason": {quoted(reason)}, "errors": [], "warnings": [], "unmet": [], "output": null, "duration_seconds": '
    )
    return before, after


class Report:
    """What became of a run."""

    def __init__(self, run_id: str, manifest: str, *, noop: bool) -> None:
        self.run_id = run_id
        self.manifest = manifest
        self.noop = noop
        self.events: list[Event] = []
        self.outputs: dict[str, Any] | None = None
        self.output_errors: list[str] = []
        self.warnings: list[str] = []
        self.duration_seconds = 0.0
        self.stopped_by: str | None = None
        self.owed: dict[str, list[str]] = {}

    def summary(self) -> dict[str, Any]:
        counts = dict.fromkeys(OUTCOMES, 0)
        for event in self.events:
            counts[event.outcome] += 1
        return {"total": len(self.events), **counts, "duration_seconds": round(self.duration_seconds, 6)}

    @property
    def failed(self) -> bool:
        return bool(self.output_errors) or any(event.outcome in (FAILED, UNMET) for event in self.events)

    @property
    def changed(self) -> bool:
        return any(event.changed for event in self.events)

    def as_json(self, host: Host) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "manifest": self.manifest,
            "noop": self.noop,
            "events": [event.as_json(host) for event in self.events],
            "outputs": conceal(self.outputs),
            "summary": self.summary(),
        }


class Observer:
    """Told what happens while a run goes on. The default hears nothing."""

    def begins(self, total: int) -> None:
        """The manifest is loaded and the run starts."""

    def resource_begins(self, index: int, resource: Resource) -> None:
        """A resource's turn has come."""

    def event(self, index: int, event: Event) -> None:
        """A resource is done."""

    def revised(self, index: int, event: Event) -> None:
        """What was brought about did not last: an event that was told before has failed after all."""
        self.event(index, event)

    def about_to_wait(self) -> None:
        """A command is about to run, and may take long: what was told so far should be seen by now."""

    def output(self, resource: Resource, line: str) -> None:
        """A command with `logoutput` said something."""

    def message(self, text: str) -> None:
        """The manifest's own words before and after the run."""


class StopFlag:
    """Asks a run to end: between two resources, or at once with the running command's process group."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.at_once = False

    def request(self, reason: str, *, at_once: bool = False) -> None:
        self.at_once = self.at_once or at_once
        self.reason = self.reason or reason

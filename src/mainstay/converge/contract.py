"""What resource types and providers share: properties, resources, states, changes, and what can go wrong.

Nothing here touches a host. Types decide (pure), providers do; both meet in `apply.py`, which makes events of it
(`report.py`).
"""

from __future__ import annotations

import stat as modes
from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.converge.host.files import Files
    from mainstay.converge.host.host import Host
    from mainstay.converge.value_kinds import ValueKind
    from mainstay.foundation.faults import DocumentPath


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
    """One property of a resource type; loader, redaction, JSON Schema, command line and reference derive from it.

    A `secret` property is hidden always, a `private` one when its resource is `sensitive`. Hidden means that no log,
    report, event, diff or fault shows the value. A hidden value that a provider finds on the host goes into the
    attribute of the same name of its `State`, where redaction finds it.
    """

    __slots__ = ("alias_of", "choices", "deferred", "kind", "private", "secret", "summary")

    def __init__(
        self,
        kind: ValueKind,
        summary: str,
        *,
        choices: tuple[str, ...] = (),
        deferred: bool = False,
        alias_of: str | None = None,
        private: bool = False,
        secret: bool = False,
    ) -> None:
        self.kind = kind
        self.summary = summary
        self.choices = choices
        self.deferred = deferred
        self.alias_of = alias_of
        self.private = private
        self.secret = secret

    def is_hidden(self, *, sensitive: bool) -> bool:
        return self.secret or (self.private and sensitive)


class HealthCheck:
    """One check of a resource that is in its desired state. `values` are those of the kind's own properties."""

    __slots__ = ("kind", "name", "timeout_seconds", "tries", "try_sleep_seconds", "values")

    def __init__(
        self,
        kind: HealthCheckKind,
        values: Mapping[str, Any],
        *,
        name: str,
        tries: int,
        try_sleep_seconds: float,
        timeout_seconds: float | None,
    ) -> None:
        self.kind = kind
        self.values = values
        self.name = name
        self.tries = tries
        self.try_sleep_seconds = try_sleep_seconds
        self.timeout_seconds = timeout_seconds


class HealthCheckKind(ABC):
    """One way to check. One file in `health_checks/` is one kind; loader, JSON Schema and reference derive from it."""

    # The property of this name is required; a check that has it is of this kind, and is called by its value.
    name: str
    properties: Mapping[str, Property]

    @abstractmethod
    def ask(self, check: HealthCheck, host: Host) -> tuple[str, str]:
        """Tries once. Returns OK, WARNING, CRITICAL or UNKNOWN, and the output; raises `Failure` if it cannot ask."""


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

    def complete(self, files: Files) -> None:  # most states are read whole
        """Adds what is too expensive to read in every run, such as a checksum. A report calls it before `as_json`."""

    def as_json(self) -> dict[str, Any]:
        return {"ensure": self.ensure}


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
        """The actual state, in a run that may change the host: unit files and package lists may be loaded again."""

    def read_forecast(self, wanted: Any, host: Host, *, refresh: bool) -> Any:
        """`read` in a dry run: changes nothing, and finds the host as earlier resources would leave it."""
        return self.read(wanted, host, refresh=refresh)

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

    def confirm_failed(self, wanted: Any, actual: Any, host: Host) -> Any:
        """The state after changes of which one failed; None where it cannot be read."""
        try:
            return self.confirm(wanted, actual, host)
        except (Failure, OSError):
            return None

    def recheck(self, host: Host) -> Iterable[tuple[str, State, Failure]]:
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


class StopFlag:
    """Asks a run to end: between two resources, or at once with the running command's process group."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.at_once = False

    def request(self, reason: str, *, at_once: bool = False) -> None:
        self.at_once = self.at_once or at_once
        self.reason = self.reason or reason

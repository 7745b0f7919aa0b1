"""The contract between resource types and providers: properties, resources, states and changes.

No code here touches a host. Types decide (pure), providers act; `apply.py` uses both and reports events (`report.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mainstay.converge.failures import Failure
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.converge.host.files import Files
    from mainstay.converge.host.host import Host
    from mainstay.converge.value_kinds import ValueKind
    from mainstay.foundation.faults import DocumentPath


# Which secrets a value comes from: none, only values that the manifest hides (`PrivateText`), kept ones (`KeptSecret`), or
# new ones too. Of several, the largest counts.
NO_SECRET, PRIVATE_VALUE, KEPT_SECRET, NEW_SECRET = 0, 1, 2, 3


class Property(Struct):
    """One property of a resource type; loader, redaction, JSON Schema, command line and reference derive from it.

    A `secret` property is hidden always, a `private` one when its resource is `sensitive`. Hidden means that no log,
    report, event, diff or fault shows the value. A hidden value that a provider finds on the host goes into the
    attribute of the same name of its `State`, where redaction finds it.
    """

    kind: ValueKind
    summary: str
    choices: tuple[str, ...] = ()
    deferred: bool = False
    alias_of: str | None = None
    private: bool = False
    secret: bool = False
    # Whether null from a template is an error; otherwise the property counts as not given.
    refuses_null: bool = False
    # Yields the parts of a value that are hidden always, although the rest is shown.
    hidden_parts: Callable[[str], Iterable[str]] | None = None

    def is_hidden(self, *, sensitive: bool) -> bool:
        return self.secret or (self.private and sensitive)


class HealthCheck(Struct):
    """One check of a resource that is in its desired state. `values` are those of the kind's own properties."""

    kind: HealthCheckKind
    values: Mapping[str, Any]
    name: str
    tries: int
    try_sleep_seconds: float
    timeout_seconds: float | None


class HealthCheckKind(ABC):
    """One way to check. One file in `health_checks/` is one kind; loader, JSON Schema and reference derive from it."""

    # The property of this name is required. A check with this property is of this kind; its value is the default name.
    name: str
    properties: Mapping[str, Property]

    @abstractmethod
    def run_once(self, check: HealthCheck, host: Host) -> tuple[str, str]:
        """Tries once. Returns OK, WARNING, CRITICAL or UNKNOWN, and the output; raises `Failure` if it cannot run."""


class Resource:
    """A resource as the manifest declares it. Properties are attributes; the loader passes the given ones."""

    type: str
    name: str
    id: str
    place: DocumentPath
    alias: str | None = None
    ensure: str = "present"
    provider: str | None = None
    require: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    # Expressions, which can be shown as written.
    control_if: Any = None
    control_unless: Any = None
    health_checks: tuple[HealthCheck, ...] = ()
    tags: tuple[str, ...] = ()
    sensitive: bool = False
    # Properties that come from secrets: name → `PRIVATE_VALUE`, `KEPT_SECRET` or `NEW_SECRET`.
    secrets: Mapping[str, int] = {}
    # The name as written, if it has expressions and is also the command.
    name_template: str = ""
    # Properties whose templates are rendered when the resource is reached: name → template.
    deferred: Mapping[str, Any] | None = None
    # `key` and `value` of its item of `for_each`; None: it is not repeated.
    each: dict[str, Any] | None = None
    # The manifest that declares it, and the `apply` resource that applies that manifest; None: the top manifest.
    declared_in: Any = None
    parent: Resource | None = None
    # The ids of all those `apply` resources, the outermost first.
    within: tuple[str, ...] = ()
    # The manifest that an `apply` resource applies.
    child: Any = None

    def __init__(self, given: dict[str, Any]) -> None:
        self.__dict__ = given

    def key_of(self, identity: str) -> str:
        """The name of a resource of the same manifest in the ledger of owed refreshes."""
        return "\0".join((*self.within, identity)) if self.within else identity


class State:
    """The actual state that a provider read. `ensure` is the corresponding value in a manifest."""

    ensure: str = "absent"
    output: str | None = None

    def complete(self, files: Files) -> None:  # most states are read whole
        """Adds what is too expensive to read in every run, such as a checksum. A report calls it before `as_json`."""

    def text(self, files: Files) -> str | None:
        """Returns the content of a small text file; None for everything else."""
        return None

    def as_json(self) -> dict[str, Any]:
        return {"ensure": self.ensure}


class NamedState(State):
    """The state of what several providers could manage, so that a report names the provider."""

    def __init__(self, name: str, provider: str) -> None:
        self.name = name
        self.provider = provider

    def as_json(self) -> dict[str, Any]:
        return {"ensure": self.ensure, "name": self.name, "provider": self.provider}


class Change:
    """One step from the actual to the desired state, with its reason.

    The steps of one decision are independent: each is tried, also if an earlier step failed or is refused.
    """

    __slots__ = ("pays", "reason", "refresh", "refusal", "verb")

    def __init__(
        self, verb: str, reason: str, *, refresh: bool = False, pays: bool = False, refusal: Failure | None = None
    ) -> None:
        self.verb = verb
        self.reason = reason
        self.refresh = refresh
        # Whether this step pays an owed refresh: it is the refresh, or replaces it.
        self.pays = pays or refresh
        # Why the host would refuse this step, or only pretend to make it: the step is not tried, and the event gets this.
        self.refusal = refusal


class ResourceType(ABC):
    """Decides, and changes nothing. One file in `resources/` is one type.

    `wanted` is the type's own `Resource`, `actual` the `State` that its providers return.
    """

    name: str
    resource: type[Resource]
    properties: Mapping[str, Property]
    # Resources that use every property, for the reference.
    example: str = ""
    ensures: tuple[str, ...] = ("present",)
    # Whether `ensure` may have other values, such as the version of a package.
    open_ensure: bool = False
    ensure_required: bool = False
    # Whether a change may have effects that a dry run cannot forecast: paths, users, programs.
    has_unknown_effects: bool = False
    # How long the work on one resource may take before it fails; None: no limit, because its commands have their own.
    time_limit_seconds: float | None = 600.0
    # Whether a resource of this type applies another manifest. It has no provider, and needs a manifest around it.
    composes: bool = False
    # Whether a resource of this type can subscribe to others.
    refreshable: bool = False
    # The command that the name is when it is not given. Its template is split before it is rendered.
    name_property: str | None = None
    # Whether `mainstay ensure` and `mainstay status` offer it.
    from_command_line: bool = True
    # Whether its resources change parts of a file. No other resource of the run may set the content of this file.
    edits_files: bool = False
    # Attributes of its states that differ after a failed change that has altered the host.
    altered_by: tuple[str, ...] = ()

    def splits_commands(self, wanted: Any) -> bool:
        """Whether commands are split into words; otherwise their text is passed to a shell."""
        return True

    def check_name(self, name: str) -> Iterator[str]:
        """Yields the faults of a name."""
        return iter(())

    def check(self, wanted: Any) -> Iterator[tuple[str | None, str]]:
        """Yields the faults of properties at load: (property or None for the whole resource, message)."""
        return iter(())

    def check_rendered(self, wanted: Any) -> None:  # noqa: B027  # most types have nothing to add
        """Raises `Failure` for an invalid value that a deferred template produced."""

    def warn(self, wanted: Any) -> Iterator[tuple[str, str]]:
        """Yields what is most likely not intended: (property, message)."""
        return iter(())

    def unknown_paths(self, wanted: Any) -> tuple[str, ...]:
        """The paths at which, or below which, a change may create what a dry run cannot forecast."""
        return ()

    def local_source(self, wanted: Any) -> tuple[str, str] | None:
        """Property and path of a local file that the resource reads; None if it is not known at load."""
        return None

    def written_path(self, wanted: Any) -> str | None:
        """Returns the path whose content the resource writes, wholly or in part; None if it writes no file."""
        return None

    def sets_content(self, wanted: Any) -> bool:
        """Whether the resource decides about all of the content of its path."""
        return False

    def compares(self, wanted: Any, names: frozenset[str]) -> bool:
        """Whether a dry run shows how these properties compare with the host, also if a provider assumes that they
        differ. If unsure: yes."""
        return True

    def manifest_entry(self, actual: Any) -> dict[str, Any] | None:
        """Returns the properties of a manifest that desires the actual state, without secrets; None: there are none.

        Raises `Failure` for a state that no manifest describes."""
        return None

    def summarize(self, events: Sequence[Any]) -> Any:
        """Returns the state of a resource that applies a manifest, from the events of that manifest's resources."""
        raise NotImplementedError

    @abstractmethod
    def desired(self, wanted: Any, actual: Any) -> tuple[bool, str]:
        """Returns whether the actual state is the desired state, and if not, why."""

    @abstractmethod
    def decide(self, wanted: Any, actual: Any, *, refresh: bool) -> tuple[Change, ...]:
        """Returns what to do. Raises `Failure` if the desired state must not be forced."""

    @abstractmethod
    def describe(self, wanted: Any, actual: Any, changes: tuple[Change, ...]) -> str:
        """Returns the message of a dry run about these changes."""

    def might_bring_more(self, changes: tuple[Change, ...]) -> bool:
        """Whether these changes may create what a dry run cannot forecast."""
        return self.has_unknown_effects

    def was_altered(self, wanted: Any, before: Any, after: Any) -> bool:
        """Whether a failed change has altered the host, so that subscribers must be refreshed."""
        return any(getattr(before, key) != getattr(after, key) for key in self.altered_by)


class Provider(ABC):
    """Reads and changes the host. `providers/<type>/<name>.py` is one provider."""

    name: str
    priority: int = 1
    # Whether `read_ahead` uses later resources of the manifest.
    reads_ahead: bool = False
    # Whether neighbouring resources that need the same kind of change are passed to `perform_together`.
    joins_neighbours: bool = False
    # Whether it joins neighbours in dry runs too.
    joins_forecasts: bool = False
    # Whether it joins neighbours to which other resources subscribe.
    joins_triggers: bool = True
    # Whether it changes nothing but files, through `host.files`, so that directories may stay open between resources.
    works_on_files: bool = False

    def unavailable(self, host: Host) -> str | None:
        """Returns why this provider is not available on the host, or None."""
        return None

    def may_appear(self, host: Host) -> bool:
        """Whether resources of a run may make an unavailable provider available."""
        return True

    def for_run(self) -> Provider:
        """Returns the provider for one run; a provider with state returns a new instance."""
        return self

    def read_ahead(self, wanted: Any, upcoming: Callable[[], Iterator[Any]], host: Host) -> None:  # noqa: B027  # most have no use for it
        """May read several resources with one command: `wanted`, the current one, and later ones."""

    @abstractmethod
    def read(self, wanted: Any, host: Host, *, refresh: bool) -> Any:
        """Returns the actual state in a real run, which may reload unit files and package lists."""

    def read_forecast(self, wanted: Any, host: Host, *, refresh: bool) -> Any:
        """Like `read`, for a dry run: changes nothing, and reads the host as earlier resources would leave it."""
        return self.read(wanted, host, refresh=refresh)

    def hide_comparison(self, wanted: Any, actual: Any, host: Host, *, with_new_secrets: bool) -> None:  # noqa: B027  # most compare no secrets
        """Changes the state of a plan as if secrets differed, where comparing them would answer a guess.

        `with_new_secrets`: the request of the plan gives or clears secrets."""

    @abstractmethod
    def perform(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        """Makes one change."""

    @abstractmethod
    def forecast(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        """Records what `perform` would do, so that later resources see it; fails if `perform` would fail."""

    def may_join(self, first: Any, later: Any) -> bool:
        """Whether a neighbour can be changed together with the first resource. Both are read with the same provider."""
        return True

    def read_joined(self, wanted: Any, steps: Sequence[tuple[Any, Any, Change]], host: Host) -> Any:
        """Returns the state of a neighbour as the steps before it, which are not made yet, will leave it."""
        return self.read(wanted, host, refresh=False)

    def forecast_together(self, steps: Sequence[tuple[Any, Any, Change]], host: Host) -> None:
        """Records what `perform_together` would do."""
        for wanted, actual, change in steps:
            self.forecast(wanted, actual, change, host)

    def perform_together(self, steps: Sequence[tuple[Any, Any, Change]], host: Host) -> None:
        """Makes changes of the same kind for several resources; a provider that joins neighbours, with one command."""
        for wanted, actual, change in steps:
            self.perform(wanted, actual, change, host)

    def confirm(self, wanted: Any, actual: Any, host: Host) -> Any:
        """Returns the state after the changes."""
        return self.read(wanted, host, refresh=False)

    def confirm_failed(self, wanted: Any, actual: Any, host: Host) -> Any:
        """Returns the state after a failed change; None if it cannot be read."""
        try:
            return self.confirm(wanted, actual, host)
        except (Failure, OSError):
            return None

    def recheck(self, host: Host) -> Iterable[tuple[str, State, Failure]]:
        """Yields resources that did not keep their state until the end of the run: (resource id, state, failure)."""
        return ()

    def difference(self, wanted: Any, actual: Any, host: Host) -> str | None:
        """Returns the changes of a file as a unified diff."""
        return None

"""The loop: gate → read → decide → describe or perform → verify → event. Whether a run is dry is asked here only."""

from __future__ import annotations

from mainstay.converge.contract import DesiredStateFailed, Failure, Missing, NotYetThere, Stopped
from mainstay.converge.manifest.expressions import Unresolved
from mainstay.converge.manifest.values import accept_secret, render_tree
from mainstay.converge.redaction import Redactor, clean_of, secret_names
from mainstay.converge.report import CHANGED, FAILED, REFRESHED, SKIPPED, UNMET, Event, Report
from mainstay.converge.value_kinds import Unfit, as_secret, conceal, to_text
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from mainstay.converge.contract import Change, Provider, Resource, ResourceType, State, StopFlag
    from mainstay.converge.history import Ledger
    from mainstay.converge.host.host import Host
    from mainstay.converge.manifest.expressions import Expression
    from mainstay.converge.manifest.resolve import Manifest
    from mainstay.converge.report import Observer


NOT_REACHED = "not reached"

# So far a provider may read ahead: looking through all of a long manifest again and again would cost more.
FARTHEST_AHEAD = 1000


class Options:
    """How a run is to be done."""

    def __init__(
        self,
        *,
        noop: bool = False,
        differences: bool = False,
        tags: Sequence[str] = (),
        monitor_only: bool = False,
    ) -> None:
        self.noop = noop
        self.differences = differences
        self.tags = frozenset(tags)
        self.monitor_only = monitor_only


class Run:
    """One run of a manifest: its resources in order, each to one event."""

    def __init__(
        self,
        manifest: Manifest,
        host: Host,
        *,
        find_type: Callable[[str], ResourceType | None],
        choose_provider: Callable[[str, str | None, Host], Provider],
        ledger: Ledger,
        observer: Observer,
        stop: StopFlag,
        clock: Callable[[], float],
        options: Options,
        redactor: Redactor,
    ) -> None:
        self.manifest = manifest
        self.host = host
        self.find_type = find_type
        self.choose_provider = choose_provider
        self.ledger = ledger
        self.observer = observer
        self.stop = stop
        self.clock = clock
        self.options = options
        self.redactor = redactor
        self.report = Report(host.run_id, manifest.file, noop=options.noop)
        self.events: dict[str, Event] = {}
        self.providers: dict[tuple[str, str | None], tuple[ResourceType, Provider]] = {}
        # What was done together with an earlier neighbour: resource id → the state before, the changes made.
        self.done_ahead: dict[str, tuple[Any, tuple[Change, ...]]] = {}
        self.refused_together: set[str] = set()
        # What was altered all the same when changes were refused together: resource id → the change.
        self.altered_ahead: dict[str, Change] = {}
        self.subscribers = _find_subscribers(manifest.resources)
        self.secret_types = {name for name, found in manifest.types.items() if secret_names(found.properties)}
        self.gave_up_after: str | None = None
        # Whose turn it is, with its templates filled in.
        self.current: Resource | None = None
        # The state before its changes.
        self.before: State | None = None

    def run(self) -> Report:
        manifest, report, observer = self.manifest, self.report, self.observer
        started = self.clock()
        observer.begins(len(manifest.resources))
        if manifest.pre_message:
            observer.message(self.redactor.clean(conceal(manifest.pre_message)))
        for index, resource in enumerate(manifest.resources):
            observer.resource_begins(index, resource)
            begun = self.clock()
            event = self._manage(resource)
            event.duration_seconds = self.clock() - begun
            self.events[resource.id] = event
            report.events.append(event)
            if event.outcome == FAILED and manifest.fail_on_error and self.gave_up_after is None:
                self.gave_up_after = resource.id
            observer.event(index, event)
        self.look_again()
        try:
            self.host.files.sync()
        except OSError as error:
            report.output_errors.append(f"what was changed may be lost in a power cut: {_describe_os_error(error)}")
        report.stopped_by = self.stop.reason
        self.finish()
        report.duration_seconds = self.clock() - started
        return report

    def finish(self) -> None:
        """What the manifest says once everything is as wanted."""
        manifest, report = self.manifest, self.report
        if report.failed or self.stop.reason is not None:
            return
        for name in ("outputs", "post_message"):
            tree = getattr(manifest, name)
            if tree is None or (name == "outputs" and self.options.noop):
                continue
            try:
                value = render_tree(tree, manifest.scope)
            except (Unresolved, Failure, OSError) as error:
                report.output_errors.append(self.redactor.clean(f"{name}: {error}"))
                continue
            if name == "outputs":
                report.outputs = value
            else:
                self.observer.message(self.redactor.clean(to_text(conceal(value))))

    def look_again(self) -> None:
        """Turns the events of what did not last into failed ones."""
        if self.stop.reason is not None:
            return
        for provider in {id(provider): provider for _, provider in self.providers.values()}.values():
            try:
                for identity, state, failure in provider.look_again(self.host):
                    self._revise(self.events[identity], state, failure)
            except Stopped:
                return
            except Exception as error:  # noqa: BLE001  # as in `manage`: what was done stands, and is reported
                text = f"looking again at what {provider.name} did: {error}"
                for event in self.report.events:
                    text = self.clean_of(event.resource, text)
                self.report.output_errors.append(text)

    def _revise(self, event: Event, state: State, failure: Failure) -> None:
        event.state = state
        event.output = failure.output or event.output
        _fail(event, str(failure))
        self.redact(event)
        self.observer.revised(self.report.events.index(event), event)

    # ---- one resource ----
    def _manage(self, resource: Resource) -> Event:
        event = Event(resource)
        host, noop = self.host, self.options.noop
        event.noop = noop
        self.current = resource
        self.before = None
        host.notes.clear()
        try:
            if resource.id in self.done_ahead or self._gate(resource, event):
                self.converge(resource, event)
        except Stopped:
            _fail(event, "interrupted while its command was running")
        except (Failure, Unfit, Unresolved) as error:
            self.failed(event, error)
        except OSError as error:
            _fail(event, _describe_os_error(error))
        except Exception as error:  # noqa: BLE001  # a bug in one provider must not keep the others from their work
            _fail(event, f"bug in the {event.provider} provider: {error.__class__.__name__}: {error}")
        if host.notes:
            event.warnings = (*event.warnings, *host.notes)
        if noop and event.changed:
            host.would_change = host.would_change or resource.id
        self.redact(event)
        return event

    def redact(self, event: Event) -> None:
        resource = event.resource
        if resource.sensitive or self.redactor.secrets or resource.type in self.secret_types:
            self.redactor.redact(event, self.manifest.types[resource.type].properties, self.before)

    def clean_of(self, resource: Resource, text: str) -> str:
        """Text about a resource, without its hidden values and the caller's secrets."""
        if resource.sensitive or resource.type in self.secret_types:
            text = clean_of(resource, self.manifest.types[resource.type].properties, text)
        return self.redactor.clean(text)

    def failed(self, event: Event, error: Exception) -> None:
        unknown = isinstance(error, NotYetThere) or (isinstance(error, Missing) and self.host.uncertain)
        if self.options.noop and unknown:
            event.outcome = CHANGED
            event.changed = True
            event.noop_message = f"Unknown until applied: {error}"
            event.reason = str(error)
            return
        event.output = getattr(error, "output", None) or event.output
        _fail(event, str(error))

    def _gate(self, resource: Resource, event: Event) -> bool:
        """Whether the resource is to be managed at all."""
        if self.stop.reason is not None:
            return _skip(event, f"{NOT_REACHED}: {self.stop.reason}")
        if self.gave_up_after is not None:
            return _skip(event, f"{NOT_REACHED}: {self.gave_up_after} failed and fail_on_error is set")
        if self.options.tags and not self.options.tags.intersection(resource.tags):
            return _skip(event, f"carries none of the tags {', '.join(sorted(self.options.tags))}")
        if resource.control_if is not None and not self._condition(resource.control_if, "control.if"):
            return _skip(event, "control.if is false")
        if resource.control_unless is not None and self._condition(resource.control_unless, "control.unless"):
            return _skip(event, "control.unless is true")
        if resource.require:
            unmet = [name for name in resource.require if self.events[name].outcome in (FAILED, UNMET)]
            if unmet:
                event.outcome = UNMET
                event.unmet = tuple(unmet)
                event.reason = f"requires {', '.join(unmet)}"
                return False
        return True

    def _condition(self, expression: Expression, name: str) -> bool:
        scope = self.manifest.scope
        scope.tainted = False
        try:
            value = expression.evaluate(scope)
        except Unresolved as error:
            raise Failure(f"{name}: {error}") from None
        if not isinstance(value, bool):
            shown = "what it makes of a secret" if scope.tainted else shorten(repr(value))
            raise Failure(f"{name} must give true or false, not {shown}")
        return value

    def converge(self, resource: Resource, event: Event) -> None:
        resource_type, provider = self._provider_of(resource, event)
        if self.options.monitor_only:
            if not resource.health_checks:
                _skip(event, "has no health checks")
            self._check_health(resource, event)
            return
        if resource.deferred:
            resource = self.render(resource, resource_type)
            # From here on it is known what of it is a secret, also where it is refused.
            event.resource = resource
            self.current = resource
            resource_type.check_rendered(resource)
        host, noop = self.host, self.options.noop
        refresh = bool(resource.subscribe) and self._is_refreshed(resource)
        done = self.done_ahead.get(resource.id)
        if done is None:
            if provider.reads_ahead:
                self.read_ahead(resource, provider)
            read = provider.read_forecast if noop else provider.read
            event.state = actual = read(resource, host, refresh=refresh)
            changes = resource_type.decide(resource, actual, refresh=refresh)
        else:
            actual, changes = done
            event.state = actual
        self.before = actual
        if changes:
            event.reason = changes[0].reason
            if self.options.differences:
                event.diff = provider.difference(resource, actual, host)
            if noop:
                self.describe(resource, event, changes, resource_type, provider)
            else:
                self.perform(resource, event, changes, resource_type, provider)
        elif self.altered_ahead and resource.id in self.altered_ahead:
            change = self.altered_ahead[resource.id]
            event.reason = change.reason
            _mark_changed(event, (change,))
        if refresh and not noop:
            self.ledger.pay(resource.id)
        if resource.health_checks:
            self._check_health(resource, event)

    def _provider_of(self, resource: Resource, event: Event) -> tuple[ResourceType, Provider]:
        key = (resource.type, resource.provider)
        known = self.providers.get(key)
        if known is None:
            resource_type = self.find_type(resource.type)
            if resource_type is None:
                raise Failure(f"unknown resource type {resource.type!r}")
            chosen = self.choose_provider(resource.type, resource.provider, self.host)
            # Asked for by name or not, it is one provider with one memory.
            known = self.providers.setdefault((resource.type, chosen.name), (resource_type, chosen))
            self.providers[key] = known
        event.provider = known[1].name
        return known

    def render(self, resource: Resource, resource_type: ResourceType) -> Resource:
        """The resource with the templates filled in that waited for its turn."""
        scope = self.manifest.scope
        rendered: dict[str, Any] = {**resource.__dict__, "deferred": None}
        for key, tree in (resource.deferred or {}).items():
            scope.tainted = False
            try:
                value = render_tree(tree, scope)
                entry = resource_type.properties[key]
                hidden = scope.tainted or resource.sensitive or entry.secret
                value = accept_secret(entry.kind, value) if hidden else entry.kind.accept(value)
            except (Unresolved, Unfit) as error:
                raise Failure(f"{key}: {error} ({self.manifest.position((*resource.place, key))})") from None
            if scope.tainted:
                rendered["sensitive"] = True
            if value is not None:
                rendered[key] = as_secret(value) if entry.secret else value
        return resource_type.resource(rendered)

    def _is_refreshed(self, resource: Resource) -> bool:
        return any(self.events[name].changed for name in resource.subscribe) or self.ledger.is_owed(resource.id)

    # ---- a dry run describes ----
    def describe(
        self,
        resource: Resource,
        event: Event,
        changes: tuple[Change, ...],
        resource_type: ResourceType,
        provider: Provider,
    ) -> None:
        before = event.state
        try:
            for change in changes:
                provider.forecast(resource, before, change, self.host)
        except (Failure, OSError):
            event.changed = self._altered_despite_failure(resource, event, provider, before)
            raise
        _mark_changed(event, changes)
        event.noop_message = resource_type.describe(resource, event.state, changes)
        if resource_type.unforeseeable:
            self.host.uncertain = True

    # ---- a real run performs ----
    def perform(
        self,
        resource: Resource,
        event: Event,
        changes: tuple[Change, ...],
        resource_type: ResourceType,
        provider: Provider,
    ) -> None:
        before, host = event.state, self.host
        subscribers = self.owe(resource)
        altered = host.files.altered
        try:
            self.make(resource, event, changes, provider)
            event.state = after = provider.confirm(resource, before, host)
            event.output = after.output
            reached, reason = resource_type.desired(resource, after)
            if not reached:
                raise DesiredStateFailed(reason, output=after.output)
        except BaseException:
            # What is seen from the resource's path tells little of a tree that was removed in part.
            event.changed = host.files.altered != altered or self._altered_despite_failure(
                resource, event, provider, before
            )
            if subscribers and not event.changed:
                self.ledger.void(resource.id, subscribers)
            raise
        finally:
            if resource_type.unforeseeable:
                host.accounts.forget()
        _mark_changed(event, changes)

    def owe(self, resource: Resource) -> list[str]:
        """Written down before anything is touched: should we be killed, the next run knows whom to tell."""
        subscribers = self.subscribers.get(resource.id, [])
        if subscribers:
            self.ledger.owe(resource.id, subscribers)
        return subscribers

    def make(self, resource: Resource, event: Event, changes: tuple[Change, ...], provider: Provider) -> None:
        """Every change is tried; what failed is told, all of it."""
        if self.done_ahead.pop(resource.id, None) is not None:
            return
        if provider.joins_neighbours and self._make_together(resource, event, changes, provider):
            return
        failures = []
        paid = False
        for change in changes:
            try:
                provider.perform(resource, event.state, change, self.host)
                paid = paid or change.pays
            except Failure as error:
                failures.append(error)
        if not failures:
            return
        if paid:
            # What failed is something else: the refresh is done, and the next run must not repeat it.
            self.ledger.pay(resource.id)
        *earlier, last = failures
        for failure in earlier:
            event.output = failure.output or event.output
            _fail(event, str(failure))
        raise last

    # ---- neighbours ----
    def read_ahead(self, resource: Resource, provider: Provider) -> None:
        provider.read_ahead(resource, lambda: self._following(resource), self.host)

    def _following(self, resource: Resource) -> Iterator[Resource]:
        """What comes soon of the same type, with the same provider."""
        resources = self.manifest.resources
        start = len(self.report.events) + 1
        for later in resources[start : start + FARTHEST_AHEAD]:
            if later.type == resource.type and later.provider == resource.provider:
                yield later

    def _make_together(
        self, resource: Resource, event: Event, changes: tuple[Change, ...], provider: Provider
    ) -> bool:
        """Makes the change together with those of the next neighbours; False leaves it to be made alone."""
        if resource.id in self.refused_together:
            return False
        steps = [(resource, event.state, changes[0]), *self._neighbours(resource, changes[0], provider)]
        if len(steps) == 1:
            return False
        owed = {neighbour.id: self.owe(neighbour) for neighbour, _, _ in steps[1:]}
        try:
            provider.perform_together(steps, self.host)
        except Failure:
            # One of them cannot be; each by itself shows which.
            self.refused_together.update(step[0].id for step in steps)
            for neighbour, actual, change in steps[1:]:
                subscribers = owed[neighbour.id]
                if self._altered_despite_failure(neighbour, Event(neighbour), provider, actual):
                    self.altered_ahead[neighbour.id] = change
                elif subscribers:
                    self.ledger.void(neighbour.id, subscribers)
            return False
        self.done_ahead.update((neighbour.id, (actual, (change,))) for neighbour, actual, change in steps[1:])
        return True

    def _neighbours(
        self, resource: Resource, change: Change, provider: Provider
    ) -> Iterator[tuple[Resource, Any, Change]]:
        """The resources right after this one that need the same kind of change and that nothing can hold back."""
        resource_type = self.find_type(resource.type)
        resources = self.manifest.resources
        for index in range(len(self.report.events) + 1, len(resources)):
            later = resources[index]
            if (later.type, later.provider) != (resource.type, resource.provider) or resource_type is None:
                return
            if later.control_if or later.control_unless or later.require or later.deferred:
                return
            if self.options.tags and not self.options.tags.intersection(later.tags):
                return
            try:
                actual = provider.read(later, self.host, refresh=False)
                changes = resource_type.decide(later, actual, refresh=False)
            except Failure:
                return
            if changes and changes[0].verb != change.verb:
                return
            if changes:
                yield later, actual, changes[0]

    def _altered_despite_failure(self, resource: Resource, event: Event, provider: Provider, before: Any) -> bool:
        """Whether a change that failed altered the host all the same."""
        try:
            event.state = after = provider.confirm(resource, before, self.host)
        except (Failure, OSError):
            return True
        resource_type = self.find_type(resource.type)
        return resource_type is None or resource_type.was_altered(resource, before, after)

    # ---- health ----
    def _check_health(self, resource: Resource, event: Event) -> None:
        from mainstay.converge.health_checks.command import ask

        if self.options.noop and (event.changed or self.host.would_change is not None):
            names = ", ".join(check.name for check in resource.health_checks)
            self.host.note(f"health checks not run in a dry run with changes: {names}")
            return
        problems = []
        for check in resource.health_checks:
            hidden = resource.sensitive or resource.type in self.secret_types
            problem = ask(check, self.host, self.stop, sensitive=hidden)
            if problem is not None:
                problems.append(problem)
        if problems:
            event.outcome = FAILED
            event.errors = tuple(problems)


def _find_subscribers(resources: Sequence[Resource]) -> dict[str, list[str]]:
    """Who is to be refreshed when a resource changes."""
    found: dict[str, list[str]] = {}
    for resource in resources:
        for name in resource.subscribe:
            found.setdefault(name, []).append(resource.id)
    return found


def _mark_changed(event: Event, changes: tuple[Change, ...]) -> None:
    event.changed = True
    event.outcome = CHANGED
    for change in changes:
        if change.refresh:
            event.refreshed = True
            event.outcome = REFRESHED


def _skip(event: Event, reason: str) -> bool:
    event.outcome = SKIPPED
    event.reason = reason
    return False


def _fail(event: Event, message: str) -> None:
    event.outcome = FAILED
    event.errors = (*event.errors, message)


def _describe_os_error(error: OSError) -> str:
    # The number of a descriptor tells nobody anything.
    where = f": {error.filename}" if isinstance(error.filename, str) else ""
    return f"{error.strerror or error}{where}"

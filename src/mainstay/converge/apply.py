"""The loop of a run: gate → read → decide → describe or perform → verify → event. Only this module knows dry runs."""

from __future__ import annotations

from mainstay.converge.batching import Batching, try_each
from mainstay.converge.contract import NEW_SECRET, NO_SECRET, Change, Provider, Resource, ResourceType, State
from mainstay.converge.failures import (
    CommandFailed,
    DesiredStateFailed,
    Failure,
    Interrupted,
    Missing,
    NotYetThere,
    Stopped,
    TemplateFailed,
    describe_os_error,
    kind_of,
)
from mainstay.converge.manifest.scope import Unresolved
from mainstay.converge.manifest.values import evaluate_condition, render_deferred, render_tree
from mainstay.converge.report import CHANGED, FAILED, NOT_REACHED, STABLE, UNMET, Event, Observer, Report
from mainstay.converge.value_kinds import Unfit, conceal, to_text
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from mainstay.converge.failures import StopFlag
    from mainstay.converge.history import Ledger
    from mainstay.converge.host.host import Host
    from mainstay.converge.manifest import Manifest
    from mainstay.converge.manifest.expressions import Expression
    from mainstay.converge.redaction import Redactor


# The `error_kind` of an error that no class of failures names.
BUG = "Bug"
HEALTH_CHECKS = "health_checks"
NOT_COMPARED = "the request gives a new secret, which a plan does not compare with the host"


class Options(Struct):
    """Options of a run."""

    noop: bool = False
    differences: bool = False
    tags: Sequence[str] = ()
    monitor_only: bool = False
    # A dry run whose report answers a request: it must not confirm a guess of a secret.
    is_plan: bool = False
    # Whether that request gives or clears secrets.
    with_new_secrets: bool = False


class Run:
    """One run of a manifest: manages its resources in order; each yields one event."""

    def __init__(
        self,
        manifest: Manifest,
        host: Host,
        *,
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
        self.choose_provider = choose_provider
        self.ledger = ledger
        self.observer = observer
        self.stop = stop
        self.clock = clock
        self.options = options
        host.shows_differences = options.differences
        self.redactor = redactor
        self.report = Report(host.run_id, manifest.file, noop=options.noop)
        self.events: dict[str, Event] = {}
        self._providers: dict[tuple[str, str | None], Provider] = {}
        self._tags = frozenset(options.tags)
        self._batching = Batching(manifest.resources, host, ledger, self._tags)
        # The manifest of the current resource: its scope and directory are in use.
        self.home = manifest
        # Manifests that ended early, by `id`: the resource whose failure ended them.
        self._gave_up_after: dict[int, str] = {}
        # `apply` resources that were reached: their event, and when. The event is complete after their resources.
        self._entered: dict[str, tuple[Event, float]] = {}
        # Those of which a resource has changed.
        self._changed_within: set[str] = set()
        # The current resource, with its templates rendered, and its state before the changes.
        self.current: Resource | None = None
        self._before: State | None = None

    def run(self) -> Report:
        manifest, report, observer = self.manifest, self.report, self.observer
        started = self.clock()
        observer.run_started(len(manifest.resources))
        if manifest.pre_message:
            observer.message(self.redactor.clean(conceal(manifest.pre_message)))
        for index, resource in enumerate(manifest.resources):
            observer.resource_started(index, resource)
            begun = self.clock()
            self._batching.position = index
            if resource.child is None:
                event = self._manage(resource)
                event.duration_seconds = self.clock() - begun
            else:
                event = self._conclude(resource)
            self.events[resource.id] = event
            report.events.append(event)
            if event.changed:
                self._changed_within.update(resource.within)
            if event.outcome == FAILED and (resource.declared_in or manifest).fail_on_error:
                self._gave_up_after.setdefault(id(resource.declared_in or manifest), resource.id)
            observer.event(index, event)
        self._recheck()
        try:
            self.host.files.sync()
        except OSError as error:
            report.output_errors.append(f"changes may be lost in a power cut: {describe_os_error(error)}")
        report.stopped_by = self.stop.reason
        self._finish()
        report.duration_seconds = self.clock() - started
        return report

    # ---- one resource ----
    def _manage(self, resource: Resource) -> Event:
        if resource.parent is not None:
            self._enter(resource.parent)
        event = Event(resource)
        self._attempt(event, self._converge)
        return event

    def _attempt(self, event: Event, step: Callable[[Event], object]) -> None:
        """Takes a step of a resource; whatever it raises becomes the failure of the resource."""
        host, resource = self.host, event.resource
        event.noop = self.options.noop
        self.current = resource
        self._go_to(resource.declared_in or self.manifest, resource.each)
        self._before = None
        host.notes.clear()
        try:
            try:
                host.interruption.start_work(self.manifest.types[resource.type].time_limit_seconds)
                step(event)
            finally:
                host.interruption.end_work()
        except Interrupted as interruption:
            event.fail(str(interruption), interruption.kind)
        except Stopped:
            event.fail("interrupted while its command was running", CommandFailed.kind)
        except (Failure, Unfit, Unresolved) as error:
            self._note_failure(event, error)
        except OSError as error:
            event.fail(describe_os_error(error), kind_of(error))
        except Exception as error:  # noqa: BLE001  # a bug in one provider must not end the run
            event.fail(f"bug in the {event.provider} provider: {error.__class__.__name__}: {error}", BUG)
        if host.notes:
            event.warnings = (*event.warnings, *host.notes)
        if event.noop and event.changed:
            host.would_change = host.would_change or resource.id
        self.redactor.redact(event, self._before)

    def _go_to(self, home: Manifest, each: dict[str, Any] | None) -> None:
        """Makes the scope, the item of `for_each` and the directory of a manifest the current ones."""
        if home is not self.home:
            self.home = home
            self.host.work_in(home.directory)
        home.scope.each = each

    # ---- an applied manifest ----
    def _enter(self, entry: Resource) -> Event:
        """Asks the gate of an `apply` resource, once, before the first resource of its manifest."""
        if entry.id in self._entered:
            return self._entered[entry.id][0]
        if entry.parent is not None:
            self._enter(entry.parent)
        event = Event(entry)
        self._entered[entry.id] = event, self.clock()
        self._attempt(event, lambda event: self._gate(entry, event))
        if event.outcome == STABLE and entry.child.pre_message:
            self.observer.message(self.redactor.clean(conceal(entry.child.pre_message)))
        return event

    def _conclude(self, entry: Resource) -> Event:
        """Completes the event of an `apply` resource after the resources of its manifest."""
        event = self._enter(entry)
        if event.outcome == STABLE:
            self._attempt(event, self._summarize)
        event.duration_seconds = self.clock() - self._entered[entry.id][1]
        return event

    def _summarize(self, event: Event) -> None:
        entry = event.resource
        resource_type = self.manifest.types[entry.type]
        state = event.state = resource_type.summarize([self.events[each.id] for each in entry.child.resources])
        changes = resource_type.decide(entry, state, refresh=False)
        if changes:
            event.mark_changed(changes)
            event.reason = changes[0].reason
            if self.options.noop:
                event.noop_message = resource_type.describe(entry, state, changes)
        reached, reason = resource_type.desired(entry, state)
        if not reached:
            raise DesiredStateFailed(reason)
        if self.stop.reason is not None:
            if not changes:
                event.skip(f"{NOT_REACHED}: {self.stop.reason}")
            return
        if entry.health_checks:
            self._check_health(entry, event)
        elif self.options.monitor_only and state.is_skipped:
            event.skip("has no health checks")
        if event.outcome != FAILED and not self.options.monitor_only:
            self._finish_child(event, entry.child)

    def _finish_child(self, event: Event, child: Manifest) -> None:
        """Renders `outputs` and `post_message` of an applied manifest."""
        self._go_to(child, None)
        for name in ("outputs", "post_message"):
            tree = getattr(child, name)
            # The changes of a dry run may be what the outputs depend on.
            if tree is None or (name == "outputs" and event.noop and event.changed):
                continue
            child.scope.tainted = NO_SECRET
            try:
                value = render_tree(tree, child.scope)
            except Unresolved as error:
                raise TemplateFailed(f"{name}: {error}") from None
            if name == "outputs":
                event.state.outputs = value  # type: ignore[union-attr]
            else:
                self.observer.message(self.redactor.clean(to_text(conceal(value))))

    def _note_failure(self, event: Event, error: Failure | Unfit | Unresolved) -> None:
        if self.options.noop and self._is_unknown(error) and event.outcome != FAILED:
            event.outcome = CHANGED
            event.changed = True
            event.noop_message = f"Unknown until applied: {error}"
            event.reason = str(error)
            if self.manifest.types[event.resource.type].has_unknown_effects:
                self.host.uncertain = True
            return
        event.output = getattr(error, "output", None) or event.output
        event.fail(str(error), error.kind)

    def _is_unknown(self, error: Failure | Unfit | Unresolved) -> bool:
        """Whether an earlier change of a dry run may provide what is missing."""
        return isinstance(error, NotYetThere) or (isinstance(error, Missing) and self.host.may_appear(error.path))

    def _raise_failures(self, event: Event, failures: Sequence[Failure]) -> NoReturn:
        """Raises the last failure; the event gets the others."""
        *earlier, last = failures
        for failure in earlier:
            self._note_failure(event, failure)
        raise last

    def _gate(self, resource: Resource, event: Event) -> bool:
        """Returns whether to manage the resource; if not, the event gets the reason."""
        if resource.parent is not None:
            entry = self._entered[resource.parent.id][0]
            if entry.outcome != STABLE:
                event.follow(entry)
                return False
        reason = self._reason_to_skip(resource)
        if reason is not None:
            event.skip(reason)
            return False
        if not resource.require:
            return True
        unmet = [name for name in resource.require if self.events[name].outcome in (FAILED, UNMET)]
        if unmet:
            event.outcome = UNMET
            event.unmet = tuple(unmet)
            event.reason = f"requires {', '.join(unmet)}"
        return not unmet

    def _reason_to_skip(self, resource: Resource) -> str | None:
        if self.stop.reason is not None:
            return f"{NOT_REACHED}: {self.stop.reason}"
        if self._gave_up_after and id(self.home) in self._gave_up_after:
            return f"{NOT_REACHED}: {self._gave_up_after[id(self.home)]} failed and fail_on_error is set"
        if self._tags and not self._has_tag(resource):
            return f"has none of the tags {', '.join(sorted(self._tags))}"
        if resource.control_if is not None and not self._is_met(resource, resource.control_if, "control.if"):
            return "control.if is false"
        if resource.control_unless is not None and self._is_met(resource, resource.control_unless, "control.unless"):
            return "control.unless is true"
        return None

    def _has_tag(self, resource: Resource) -> bool:
        """Whether a resource, or one of the manifest that it applies, has a tag of this run."""
        applied = () if resource.child is None else resource.child.resources
        return any(self._tags.intersection(each.tags) for each in (resource, *applied))

    def _is_met(self, resource: Resource, condition: Expression, name: str) -> bool:
        try:
            found = evaluate_condition(condition, name, self.home.scope, sensitive=resource.sensitive)
        except Failure:
            self._hide_touched_secret()
            raise
        self._hide_touched_secret()
        return found

    # ---- a plan does not answer guesses of secrets ----
    def _hide_touched_secret(self) -> None:
        """Call it after an evaluation that may have compared a new secret with the host."""
        if self.options.with_new_secrets and self.home.scope.tainted == NEW_SECRET:
            self._give_up_forecast()

    def _give_up_forecast(self) -> None:
        self.host.uncertain = True
        raise NotYetThere(NOT_COMPARED)

    def _new_secrets_in(self, resource: Resource) -> frozenset[str]:
        """The properties that come from secrets that the request of a plan gives or clears."""
        return frozenset(name for name, kind in resource.secrets.items() if kind == NEW_SECRET)

    def _render(self, resource: Resource) -> Resource:
        try:
            return render_deferred(resource, self.home)
        except Failure:
            self._hide_touched_secret()
            raise

    def _converge(self, event: Event) -> None:
        resource = event.resource
        if resource.id not in self._batching.done and not self._gate(resource, event):
            return
        resource_type = self.manifest.types[resource.type]
        provider = self._provider_of(resource)
        event.provider = provider.name
        if not provider.works_on_files:
            self.host.files.forget_directories()
        if self.options.monitor_only:
            if not resource.health_checks:
                event.skip("has no health checks")
            self._check_health(resource, event)
            return
        if resource.deferred:
            # The event needs the rendered values for redaction, also if the resource is refused.
            self.current = event.resource = resource = self._render(resource)
            resource_type.check_rendered(resource)
        if self.options.with_new_secrets:
            new_secrets = self._new_secrets_in(resource) - {HEALTH_CHECKS}
            if new_secrets and resource_type.compares(resource, new_secrets):
                self._give_up_forecast()
        refresh = bool(resource.subscribe) and self._is_refreshed(resource)
        changes = self._decide(event, resource_type, provider, refresh=refresh)
        if changes:
            self._change(event, changes, resource_type, provider)
        elif resource.id in self._batching.altered:
            change = self._batching.altered[resource.id]
            event.reason = change.reason
            event.mark_changed((change,))
        if refresh and not self.options.noop:
            self.ledger.pay(resource.key_of(resource.id))
        if resource.health_checks:
            self._check_health(resource, event)

    def _change(
        self, event: Event, changes: tuple[Change, ...], resource_type: ResourceType, provider: Provider
    ) -> None:
        refusals = [change.refusal for change in changes if change.refusal is not None]
        if len(refusals) == len(changes):
            self._raise_failures(event, refusals)
        event.reason = changes[0].reason
        if self.options.differences:
            event.diff = provider.difference(event.resource, event.state, self.host)
            if self.host.consumer_diff is not None:
                event.consumer_diff, self.host.consumer_diff = self.host.consumer_diff, None
        if self.options.noop:
            self._describe(event, changes, resource_type, provider)
        else:
            self._perform(event, changes, resource_type, provider)

    def _provider_of(self, resource: Resource) -> Provider:
        key = (resource.type, resource.provider)
        known = self._providers.get(key)
        if known is None:
            chosen = self.choose_provider(resource.type, resource.provider, self.host)
            # One instance serves the run, whether the manifest names the provider or not.
            known = self._providers.setdefault((resource.type, chosen.name), chosen)
            self._providers[key] = known
        return known

    def _is_refreshed(self, resource: Resource) -> bool:
        is_owed = self.ledger.is_owed(resource.key_of(resource.id))
        return is_owed or any(self.events[name].changed for name in resource.subscribe)

    def _decide(
        self, event: Event, resource_type: ResourceType, provider: Provider, *, refresh: bool
    ) -> tuple[Change, ...]:
        resource = event.resource
        done = self._batching.done.get(resource.id)
        if done is not None:
            event.state, changes = done
        else:
            if provider.reads_ahead:
                self._batching.read_ahead(resource, provider)
            read = provider.read_forecast if self.options.noop else provider.read
            event.state = read(resource, self.host, refresh=refresh)
            if self.options.is_plan:
                self._hide_comparison(event, provider)
            changes = resource_type.decide(resource, event.state, refresh=refresh)
        self._before = event.state
        return changes

    def _hide_comparison(self, event: Event, provider: Provider) -> None:
        with_new_secrets = self.options.with_new_secrets
        try:
            provider.hide_comparison(event.resource, event.state, self.host, with_new_secrets=with_new_secrets)
        except NotYetThere:
            # Nor can later resources see what this one would do.
            self.host.uncertain = True
            raise

    # ---- a dry run describes ----
    def _describe(
        self, event: Event, changes: tuple[Change, ...], resource_type: ResourceType, provider: Provider
    ) -> None:
        resource, before = event.resource, event.state
        made = changes
        failures: Sequence[Failure] = ()
        try:
            if not self._is_forecast_together(event, changes, resource_type, provider):
                made, failures = try_each(
                    changes, lambda change: provider.forecast(resource, before, change, self.host)
                )
            if failures and not made:
                self._raise_failures(event, failures)
        except (Failure, OSError):
            if provider.works_on_files:
                self._read_after_failure(event, resource_type, provider)
            raise
        event.mark_changed(made)
        event.noop_message = resource_type.describe(resource, event.state, made)
        if resource_type.might_bring_more(made):
            self.host.uncertain = True
        self.host.uncertain_paths += resource_type.unknown_paths(resource)
        if failures:
            self._raise_failures(event, failures)

    def _is_forecast_together(
        self, event: Event, changes: tuple[Change, ...], resource_type: ResourceType, provider: Provider
    ) -> bool:
        """Forecasts the change together with those of neighbours, or finds that an earlier neighbour did so."""
        batching = self._batching
        if batching.done.pop(event.resource.id, None) is not None:
            return True
        # A plan may assume differences, so that each resource must be read by itself.
        if not provider.joins_forecasts or self.options.is_plan:
            return False
        return batching.forecast((event.resource, event.state, changes[0]), resource_type, provider)

    # ---- a real run performs ----
    def _perform(
        self, event: Event, changes: tuple[Change, ...], resource_type: ResourceType, provider: Provider
    ) -> None:
        resource, before, host = event.resource, event.state, self.host
        self._owe(resource)
        altered = host.files.altered
        try:
            self._make(event, changes, resource_type, provider)
            event.state = after = provider.confirm(resource, before, host)
            event.output = after.output
            reached, reason = resource_type.desired(resource, after)
            if not reached:
                raise DesiredStateFailed(reason, output=after.output)
        except BaseException:
            if host.files.altered != altered:
                # The state of the path does not show that a tree was partly removed.
                event.changed = True
            else:
                self._read_after_failure(event, resource_type, provider)
            if not event.changed:
                self._void(resource)
            raise
        finally:
            if resource_type.has_unknown_effects:
                host.accounts.forget()
        event.mark_changed(changes)

    def _owe(self, resource: Resource) -> None:
        """Records the refreshes of resources that subscribe to this one, or to an `apply` resource around it."""
        trigger: Resource | None = resource
        while trigger is not None:
            self.ledger.owe(trigger.key_of(trigger.id))
            trigger = trigger.parent

    def _void(self, resource: Resource) -> None:
        """The resource did not change. Another one of the same manifest may have changed, or be changed with it."""
        self.ledger.void(resource.key_of(resource.id))
        trigger = resource.parent
        while trigger is not None and not self._batching.altered and trigger.id not in self._changed_within:
            self.ledger.void(trigger.key_of(trigger.id))
            trigger = trigger.parent

    def _make(
        self, event: Event, changes: tuple[Change, ...], resource_type: ResourceType, provider: Provider
    ) -> None:
        """Tries every change; the event gets all failures."""
        resource, batching = event.resource, self._batching
        if batching.done.pop(resource.id, None) is not None:
            return
        first = (resource, event.state, changes[0])
        if provider.joins_neighbours and batching.perform(first, resource_type, provider):
            return
        made, failures = try_each(changes, lambda change: provider.perform(resource, event.state, change, self.host))
        if not failures:
            return
        if any(change.pays for change in made):
            # The refresh succeeded and something else failed: the next run must not repeat the refresh.
            self.ledger.pay(resource.key_of(resource.id))
        if any(change.refresh for change in made):
            # The state of a restarted unit does not show the restart.
            event.changed = event.refreshed = True
        self._raise_failures(event, failures)

    def _read_after_failure(self, event: Event, resource_type: ResourceType, provider: Provider) -> None:
        """Finds out whether failed changes have altered the host."""
        before = self._before
        after = provider.confirm_failed(event.resource, before, self.host)
        event.state = event.state if after is None else after
        event.changed = event.changed or after is None or resource_type.was_altered(event.resource, before, after)

    def _check_health(self, resource: Resource, event: Event) -> None:
        from mainstay.converge.health_checks import check_health

        if self.options.noop and (event.changed or self.host.would_change is not None):
            names = ", ".join(check.name for check in resource.health_checks)
            self.host.note(f"health checks not run in a dry run with changes: {names}")
            return
        if self.options.with_new_secrets and HEALTH_CHECKS in self._new_secrets_in(resource):
            self.host.note(f"health checks not run: {NOT_COMPARED}")
            return
        hidden = self.redactor.has_hidden_values(resource)
        found = [check_health(check, self.host, self.stop, hide_output=hidden) for check in resource.health_checks]
        for problem in found:
            if problem is not None:
                event.output = problem.output or event.output
                event.fail(str(problem), problem.kind)

    # ---- after the last resource ----
    def _recheck(self) -> None:
        """Fails the events of resources that did not stay in their desired state."""
        if self.stop.reason is not None:
            return
        for provider in {id(provider): provider for provider in self._providers.values()}.values():
            try:
                for identity, state, failure in provider.recheck(self.host):
                    self._revise(self.events[identity], state, failure)
            except Stopped:
                return
            except Exception as error:  # noqa: BLE001  # as in `_manage`: the events so far must be reported
                text = f"the re-check by {provider.name} failed: {error}"
                for event in self.report.events:
                    text = self.redactor.clean_of(event.resource, text)
                self.report.output_errors.append(text)

    def _revise(self, event: Event, state: State | None, failure: Failure) -> None:
        event.state = state
        event.output = failure.output or event.output
        event.fail(str(failure), failure.kind)
        self.redactor.redact(event, self._before)
        self.observer.revised(self.report.events.index(event), event)
        parent = event.resource.parent
        if parent is not None and self.events[parent.id].outcome != FAILED:
            applied = self.events[parent.id]
            self._revise(applied, applied.state, DesiredStateFailed(f"{event.resource.id} failed"))

    def _finish(self) -> None:
        """Renders `outputs` and `post_message` after a run without failures."""
        manifest, report = self.manifest, self.report
        self._go_to(manifest, None)
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

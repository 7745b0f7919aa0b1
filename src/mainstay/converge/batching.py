"""Handles several neighbouring resources at once: reading ahead, and making changes of one kind together.

`apply.py` decides about each resource separately; this module only saves commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mainstay.converge.contract import Change, Provider, Resource, ResourceType
from mainstay.converge.failures import Failure
from mainstay.converge.history import Ledger
from mainstay.converge.host.host import Host
from mainstay.foundation import Any, Struct

Step = tuple[Resource, Any, Change]


# Bounds the search for resources to read ahead: scanning a long manifest for each resource would cost more.
FARTHEST_AHEAD = 1000


class Batching(Struct):
    """Records, for one run, the resources whose change was made, or failed, together with an earlier one."""

    _resources: Sequence[Resource]
    _host: Host
    _ledger: Ledger
    _tags: frozenset[str]
    # The index of the current resource.
    position: int = 0
    # Done together with an earlier neighbour: resource id → the state before, and the changes made.
    done: dict[str, tuple[Any, tuple[Change, ...]]] = {}
    # Altered although changes failed together: resource id → the change.
    altered: dict[str, Change] = {}
    _failed_together: set[str] = set()

    def read_ahead(self, resource: Resource, provider: Provider) -> None:
        provider.read_ahead(resource, lambda: self._upcoming(resource), self._host)

    def _upcoming(self, resource: Resource) -> Iterator[Resource]:
        """Later resources of the same type, with the same provider."""
        start = self.position + 1
        for later in self._resources[start : start + FARTHEST_AHEAD]:
            if later.type == resource.type and later.provider == resource.provider:
                yield later

    def perform(self, first: Step, resource_type: ResourceType, provider: Provider) -> bool:
        """Makes the change together with those of the next neighbours; returns False if it must be made alone."""
        steps = self._steps(first, resource_type, provider)
        if len(steps) == 1:
            return False
        for neighbour, _, _ in steps[1:]:
            self._ledger.owe(neighbour.key_of(neighbour.id))
        try:
            provider.perform_together(steps, self._host)
        except Failure:
            # Each is then made alone, which shows the one that fails.
            self._note_failure(steps, resource_type, provider)
            return False
        self._note_done(steps)
        return True

    def forecast(self, first: Step, resource_type: ResourceType, provider: Provider) -> bool:
        """Like `perform`, for a dry run."""
        steps = self._steps(first, resource_type, provider)
        if len(steps) == 1:
            return False
        try:
            provider.forecast_together(steps, self._host)
        except Failure:
            self._failed_together.update(each.id for each, _, _ in steps)
            return False
        self._note_done(steps)
        return True

    def _note_done(self, steps: Sequence[Step]) -> None:
        self.done.update((neighbour.id, (before, (made,))) for neighbour, before, made in steps[1:])

    def _steps(self, first: Step, resource_type: ResourceType, provider: Provider) -> list[Step]:
        """The change, and those of the resources right after it that need the same kind of change, unconditionally."""
        steps = [first]
        resource, _, change = first
        if resource.id in self._failed_together or not self._may_join(resource, resource, provider):
            return steps
        for index in range(self.position + 1, len(self._resources)):
            later = self._resources[index]
            if (later.type, later.provider, later.parent) != (resource.type, resource.provider, resource.parent):
                break
            if later.control_if or later.control_unless or later.require or later.deferred:
                break
            if self._tags and not self._tags.intersection(later.tags):
                break
            if not self._may_join(resource, later, provider):
                break
            try:
                actual = provider.read_joined(later, steps, self._host)
                changes = resource_type.decide(later, actual, refresh=False)
            except Failure:
                break
            if changes and changes[0].verb != change.verb:
                break
            if changes:
                steps.append((later, actual, changes[0]))
        return steps

    def _may_join(self, first: Resource, later: Resource, provider: Provider) -> bool:
        if not provider.joins_triggers and self._has_subscribers(later):
            return False
        return provider.may_join(first, later)

    def _has_subscribers(self, resource: Resource) -> bool:
        """Whether a change of the resource triggers others, also as a part of a manifest that is applied."""
        trigger: Resource | None = resource
        while trigger is not None:
            if self._ledger.has_subscribers(trigger.key_of(trigger.id)):
                return True
            trigger = trigger.parent
        return False

    def _note_failure(self, steps: Sequence[Step], resource_type: ResourceType, provider: Provider) -> None:
        self._failed_together.update(each.id for each, _, _ in steps)
        for neighbour, before, change in steps[1:]:
            after = provider.confirm_failed(neighbour, before, self._host)
            if after is None or resource_type.was_altered(neighbour, before, after):
                self.altered[neighbour.id] = change
            else:
                self._ledger.void(neighbour.key_of(neighbour.id))


def try_each(
    changes: Sequence[Change], act: Callable[[Change], None]
) -> tuple[tuple[Change, ...], Sequence[Failure]]:
    """Returns the changes that succeed, and the failures of the others."""
    made: list[Change] = []
    failures: list[Failure] = []
    for change in changes:
        try:
            if change.refusal is not None:
                raise change.refusal
            act(change)
            made.append(change)
        except Failure as error:
            failures.append(error)
    return tuple(made), failures

"""Handles several neighbouring resources at once: reading ahead, and making changes of one kind together.

`apply.py` decides about each resource separately; this module only saves commands.
"""

from __future__ import annotations

from mainstay.converge.contract import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from mainstay.converge.contract import Change, Provider, Resource, ResourceType
    from mainstay.converge.history import Ledger
    from mainstay.converge.host.host import Host

    Step = tuple[Resource, Any, Change]

# Bounds the search for resources to read ahead: scanning a long manifest for each resource would cost more.
FARTHEST_AHEAD = 1000


class Batching:
    """Records, for one run, the resources whose change was made, or failed, together with an earlier one."""

    def __init__(
        self,
        resources: Sequence[Resource],
        host: Host,
        ledger: Ledger,
        tags: frozenset[str],
    ) -> None:
        self._resources = resources
        self._host = host
        self._ledger = ledger
        self._tags = tags
        # The index of the current resource.
        self.position = 0
        # Done together with an earlier neighbour: resource id → the state before, and the changes made.
        self.done: dict[str, tuple[Any, tuple[Change, ...]]] = {}
        # Altered although changes failed together: resource id → the change.
        self.altered: dict[str, Change] = {}
        self._failed_together: set[str] = set()

    def read_ahead(self, resource: Resource, provider: Provider) -> None:
        provider.read_ahead(resource, lambda: self._upcoming(resource), self._host)

    def _upcoming(self, resource: Resource) -> Iterator[Resource]:
        """Later resources of the same type, with the same provider."""
        start = self.position + 1
        for later in self._resources[start : start + FARTHEST_AHEAD]:
            if later.type == resource.type and later.provider == resource.provider:
                yield later

    def perform(
        self, resource: Resource, actual: Any, change: Change, resource_type: ResourceType, provider: Provider
    ) -> bool:
        """Makes the change together with those of the next neighbours; returns False if it must be made alone."""
        if resource.id in self._failed_together:
            return False
        neighbours = list(self._neighbours(resource, change, resource_type, provider))
        if not neighbours:
            return False
        for neighbour, _, _ in neighbours:
            self._ledger.owe(neighbour.id)
        try:
            provider.perform_together([(resource, actual, change), *neighbours], self._host)
        except Failure:
            # Each is then made alone, which shows the one that fails.
            self._note_failure(resource, neighbours, resource_type, provider)
            return False
        self.done.update((neighbour.id, (before, (made,))) for neighbour, before, made in neighbours)
        return True

    def _neighbours(
        self, resource: Resource, change: Change, resource_type: ResourceType, provider: Provider
    ) -> Iterator[Step]:
        """The resources right after this one that need the same kind of change, unconditionally."""
        for index in range(self.position + 1, len(self._resources)):
            later = self._resources[index]
            if (later.type, later.provider) != (resource.type, resource.provider):
                return
            if later.control_if or later.control_unless or later.require or later.deferred:
                return
            if self._tags and not self._tags.intersection(later.tags):
                return
            try:
                actual = provider.read(later, self._host, refresh=False)
                changes = resource_type.decide(later, actual, refresh=False)
            except Failure:
                return
            if changes and changes[0].verb != change.verb:
                return
            if changes:
                yield later, actual, changes[0]

    def _note_failure(
        self, resource: Resource, neighbours: Sequence[Step], resource_type: ResourceType, provider: Provider
    ) -> None:
        self._failed_together.add(resource.id)
        for neighbour, before, change in neighbours:
            self._failed_together.add(neighbour.id)
            after = provider.confirm_failed(neighbour, before, self._host)
            if after is None or resource_type.was_altered(neighbour, before, after):
                self.altered[neighbour.id] = change
            else:
                self._ledger.void(neighbour.id)

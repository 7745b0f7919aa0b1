"""Providers of the `package` type, and what they share: when to ask what, and when to refresh the lists."""

from __future__ import annotations

from abc import abstractmethod
from itertools import islice

from mainstay.converge.contract import Change, Provider
from mainstay.converge.resources.package import ABSENT, LATEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstay.converge.host.host import Host
    from mainstay.converge.resources.package import Package, PackageState

MOST_PACKAGES_AT_ONCE = 200


class PackageManager(Provider):
    """Serves one run: remembers what was read ahead, what is offered, and whether the lists were refreshed."""

    reads_ahead = True
    joins_neighbours = True

    def __init__(self) -> None:
        self._ahead: dict[str, PackageState] = {}
        self._ahead_at = -1
        self._refreshed_lists = False
        # What to give the manager for a package → the version that it would install.
        self._offers: dict[str, str | None] = {}

    def for_run(self) -> PackageManager:
        return self.__class__()

    # ---- what each manager does its own way ----
    @abstractmethod
    def installed(self, names: Sequence[str], host: Host) -> dict[str, PackageState]:
        """The state of each package by the package database."""

    @abstractmethod
    def offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        """The version that the manager would install for a target. It may fetch its lists again only if `may_fetch`."""

    @abstractmethod
    def target(self, wanted: Package) -> str:
        """What to give the manager for a package."""

    @abstractmethod
    def lists_are_fresh(self, host: Host) -> bool:
        """Whether the lists are younger than a day."""

    @abstractmethod
    def refresh_lists(self, host: Host) -> None:
        """Fetches the lists; where that fails the event says so, and the old ones serve."""

    # ---- looking ----
    def read_ahead(self, wanted: Package, upcoming: Callable[[], Iterator[Package]], host: Host) -> None:
        if self._ahead_at == host.activity and wanted.name in self._ahead:
            return
        names = [wanted.name, *(later.name for later in islice(upcoming(), MOST_PACKAGES_AT_ONCE - 1))]
        self._ahead = self.installed(names, host)
        self._ahead_at = host.activity

    def read(self, wanted: Package, host: Host, *, refresh: bool) -> PackageState:
        return self._read(wanted, host, self._candidate)

    def read_forecast(self, wanted: Package, host: Host, *, refresh: bool) -> PackageState:
        return self._read(wanted, host, self._candidate_by_present_lists)

    def _read(
        self, wanted: Package, host: Host, find_candidate: Callable[[Package, Host], str | None]
    ) -> PackageState:
        known = self._ahead if self._ahead_at == host.activity else {}
        state = known.get(wanted.name) or self.installed([wanted.name], host)[wanted.name]
        is_there = wanted.version in state.versions if wanted.version else bool(state.versions)
        if wanted.ensure == LATEST or (wanted.ensure != ABSENT and not is_there):
            state.candidate = find_candidate(wanted, host)
        return state

    def _candidate(self, wanted: Package, host: Host) -> str | None:
        if not self.lists_are_fresh(host):
            self._refresh(host)
        target = self.target(wanted)
        found = self._offer(target, host, may_fetch=True)
        if found is None:
            self._refresh(host)
            found = self._offer(target, host, may_fetch=True)
        return found

    def _candidate_by_present_lists(self, wanted: Package, host: Host) -> str | None:
        found = self._offer(self.target(wanted), host, may_fetch=False)
        if found is None:
            # A run would refresh the lists; what they then contain is unknown.
            host.uncertain = True
        return found

    def _offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        if target not in self._offers:
            self._offers[target] = self.offer(target, host, may_fetch=may_fetch)
        return self._offers[target]

    def _refresh(self, host: Host) -> None:
        """At most once in a run."""
        if self._refreshed_lists:
            return
        self._refreshed_lists = True
        self._offers.clear()
        self.refresh_lists(host)

    # ---- doing ----
    def perform(self, wanted: Package, actual: PackageState, change: Change, host: Host) -> None:
        self.perform_together([(wanted, actual, change)], host)

    def forecast(self, wanted: Package, actual: PackageState, change: Change, host: Host) -> None:
        """What a package would bring is not known; the type says so."""

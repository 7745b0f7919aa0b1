"""Providers of the `package` type, and what they share: reading ahead, candidates, refreshing the lists."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mainstay.converge.contract import Change, Provider
from mainstay.converge.host.host import Host
from mainstay.converge.host.packages import error_lines, run_when_unlocked
from mainstay.converge.resources.package import ABSENT, LATEST, Package, PackageState

MOST_PACKAGES_AT_ONCE = 200


class PackageManager(Provider):
    """Serves one run: caches states that were read ahead and candidates, and refreshes the lists at most once."""

    reads_ahead = True
    joins_neighbours = True
    # Beginnings of the paths that name the sources of packages.
    sources: tuple[str, ...]
    # The command that fetches the lists, and the words of a manager that finds its lock taken.
    refresh_command: tuple[str, ...]
    locked_words: tuple[str, ...]

    def __init__(self) -> None:
        self._ahead: dict[str, PackageState] = {}
        self._ahead_at = -1
        self._refreshed_lists = False
        # Target, as the manager names a package → the version that it would install.
        self._offers: dict[str, str | None] = {}

    def for_run(self) -> PackageManager:
        return self.__class__()

    # ---- specific to each manager ----
    @abstractmethod
    def installed(self, names: Sequence[str], host: Host) -> dict[str, PackageState]:
        """Returns the state of each package from the package database."""

    @abstractmethod
    def offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        """Returns the version that the manager would install for a target. Fetches lists only if `may_fetch`."""

    @abstractmethod
    def target(self, wanted: Package) -> str:
        """Returns the argument that names a package to the manager."""

    @abstractmethod
    def lists_are_fresh(self, host: Host) -> bool:
        """Whether the lists are younger than a day."""

    def lists_are_current(self, host: Host) -> bool:
        """Whether a package that the present lists do not have would be missing in fetched lists too."""
        return self.lists_are_fresh(host)

    # ---- reading ----
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
        is_installed = wanted.version in state.versions if wanted.version else bool(state.versions)
        if wanted.ensure == LATEST or (wanted.ensure != ABSENT and not is_installed):
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
        if found is None and (not self.lists_are_current(host) or self._would_change_sources(host)):
            # A run would fetch the lists; what they then contain is unknown.
            host.uncertain = True
        return found

    def _would_change_sources(self, host: Host) -> bool:
        return any(path.startswith(self.sources) for path in host.files.touched)

    def _offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        if target not in self._offers:
            self._offers[target] = self.offer(target, host, may_fetch=may_fetch)
        return self._offers[target]

    def _refresh(self, host: Host) -> None:
        """Fetches the lists at most once in a run; if that fails, adds a warning and keeps the old lists."""
        if self._refreshed_lists:
            return
        self._refreshed_lists = True
        self._offers.clear()
        done = run_when_unlocked(host, self.refresh_command, self.locked_words)
        if done.exit_code != 0:
            host.note(f"the package lists could not be refreshed: {error_lines(done)}")

    # ---- changing ----
    def perform(self, wanted: Package, actual: PackageState, change: Change, host: Host) -> None:
        self.perform_together([(wanted, actual, change)], host)

    def forecast(self, wanted: Package, actual: PackageState, change: Change, host: Host) -> None:
        """Nothing to record: the effects of a package are unknown, as its type declares."""

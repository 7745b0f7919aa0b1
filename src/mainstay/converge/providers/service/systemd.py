"""Units of systemd, managed with `systemctl --system`."""

from __future__ import annotations

from itertools import islice

from mainstay.converge.contract import Change, CommandFailed, DesiredStateFailed, Failure, Missing, Provider, Stopped
from mainstay.converge.host.clock import monotonic, sleep
from mainstay.converge.host.systemctl import (
    UNIT_DIRECTORIES,
    UNIT_SUFFIXES,
    Systemctl,
    unit_name,
    why_unavailable,
)
from mainstay.converge.resources.service import RESTART, RUNNING, START, STOPPED, ServiceState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.converge.host.host import Host
    from mainstay.converge.resources.service import Service

ACTIVE_WORDS = {
    "active": RUNNING,
    "reloading": RUNNING,
    "refreshing": RUNNING,
    "inactive": STOPPED,
    "failed": STOPPED,
    "activating": STOPPED,
    "deactivating": STOPPED,
}
MOVING_WORDS = ("activating", "deactivating")
ENABLED_WORDS = {
    "enabled": True,
    "enabled-runtime": True,
    "alias": True,
    "static": True,
    "indirect": True,
    "generated": True,
    "transient": True,
    "linked": False,
    "linked-runtime": False,
    "masked": False,
    "masked-runtime": False,
    "disabled": False,
}
INSTALL_KEYS = ("WantedBy", "RequiredBy", "UpheldBy", "Alias", "Also")
# Directories of links by which a unit is enabled.
LINK_SUFFIXES = (".wants", ".requires", ".upholds")
MOST_UNITS_AT_ONCE = 100
LARGEST_UNIT_FILE_BYTES = 1024 * 1024
MOVING_SECONDS = 90.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
# A program that cannot run usually exits within this time.
EARLY_EXIT_SECONDS = 1.0
ONESHOT_REMARK = "it is a Type=oneshot unit that has finished, which counts as running only with RemainAfterExit=yes"


class UnitState(ServiceState):
    needs_reload: bool = False
    # A finished oneshot unit without RemainAfterExit.
    is_finished_oneshot: bool = False
    # A call failed; the run does not wait for retries of systemd.
    has_failed: bool = False


class SystemdUnits(Provider):
    name = "systemd"
    reads_ahead = True

    def __init__(self) -> None:
        self._systemctl = Systemctl()
        # States that were read ahead, and the activity of the host at that time.
        self._ahead: dict[str, dict[str, str]] = {}
        self._ahead_at = -1
        # Units that this run started: resource id → name.
        self._started: dict[str, str] = {}
        self._last_start = 0.0

    def for_run(self) -> SystemdUnits:
        return SystemdUnits()

    def unavailable(self, host: Host) -> str | None:
        return why_unavailable(host)

    # ---- reading ----
    def read_ahead(self, wanted: Service, upcoming: Callable[[], Iterator[Service]], host: Host) -> None:
        if self._ahead_at == host.activity and wanted.name in self._ahead:
            return
        names = list(
            dict.fromkeys([wanted.name, *(later.name for later in islice(upcoming(), MOST_UNITS_AT_ONCE - 1))])
        )
        try:
            shown = self._systemctl.show(names, host)
        except Failure:
            # Each unit is queried again when it is reached, and a failing query names its unit.
            return
        self._ahead = dict(zip(names, shown, strict=True))
        self._ahead_at = host.activity

    def read(self, wanted: Service, host: Host, *, refresh: bool) -> UnitState:
        shown = self._show(wanted, host)
        if _is_missing(shown) and self._systemctl.is_behind(host):
            self._systemctl.reload(host)
            shown = self._systemctl.show([wanted.name], host)[0]
        state = self._interpret_touched(wanted.name, shown, host)
        if _is_nothing_to_stop(wanted, state):
            host.note(f"service not found: {wanted.name}; there is nothing to stop")
        return state

    def read_forecast(self, wanted: Service, host: Host, *, refresh: bool) -> UnitState:
        state = self._interpret(wanted.name, self._show(wanted, host), host)
        _forecast_unit(state, self._systemctl.touched_unit_files(host), host)
        if _is_nothing_to_stop(wanted, state):
            if host.uncertain:
                raise Missing(f"service not found: {wanted.name}")
            host.note(f"service not found: {wanted.name}; there is nothing to stop")
        return state

    def _show(self, wanted: Service, host: Host) -> dict[str, str]:
        shown = self._ahead.pop(wanted.name, None) if self._ahead_at == host.activity else None
        return shown or self._systemctl.show([wanted.name], host)[0]

    def _interpret_touched(self, name: str, shown: dict[str, str], host: Host) -> UnitState:
        """For a loaded unit, `show` reports its files as systemd last read them."""
        is_touched = self._systemctl.touched(unit_name(name), host)
        return self._interpret(name, shown, host, is_touched=is_touched)

    def _interpret(self, name: str, shown: dict[str, str], host: Host, *, is_touched: bool = False) -> UnitState:
        state = UnitState(name, self.name)
        state.active_word = word = shown.get("ActiveState", "")
        if word not in ACTIVE_WORDS:
            raise CommandFailed(f'invalid systemctl is-active output: "{word}" for {name}')
        state.ensure = ACTIVE_WORDS[word]
        state.is_moving = word in MOVING_WORDS
        state.is_starting = word == "activating"
        state.needs_reload = shown.get("NeedDaemonReload") == "yes"
        state.is_finished_oneshot = (
            shown.get("Type") == "oneshot" and shown.get("RemainAfterExit") == "no" and word == "inactive"
        )
        if _is_missing(shown):
            state.found = False
            return state
        word = shown.get("UnitFileState", "")
        is_old = state.needs_reload or is_touched
        if word in ("", "generated") or shown.get("Id") != unit_name(name) or is_old:
            word = self._systemctl.is_enabled(name, host) or word
        if word in ("", "not-found"):
            # Older versions of systemd report a missing unit file like this; a running unit still exists.
            state.found = state.ensure == RUNNING
            return state
        if word not in ENABLED_WORDS:
            raise CommandFailed(f'invalid systemctl is-enabled output: "{word}" for {name}')
        state.enabled_word = word
        state.enabled = ENABLED_WORDS[word]
        return state

    def confirm(self, wanted: Service, actual: UnitState, host: Host) -> UnitState:
        """Waits for a unit in transition."""
        until = monotonic() + MOVING_SECONDS
        pause = FIRST_PAUSE_SECONDS
        state = self.read(wanted, host, refresh=False)
        while state.is_moving and not actual.has_failed and monotonic() < until:
            sleep(pause, host.stop)
            if host.stop.at_once:
                raise Stopped
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            state = self.read(wanted, host, refresh=False)
        if wanted.ensure == RUNNING and state.ensure != RUNNING:
            # Already known to be stopped: no re-check needed.
            self._started.pop(wanted.id, None)
            state.remark = ONESHOT_REMARK if state.is_finished_oneshot else ""
            state.output = self._systemctl.journal(wanted.name, host)
        return state

    # ---- changing ----
    def perform(self, wanted: Service, actual: UnitState, change: Change, host: Host) -> None:
        starts = change.verb in (START, RESTART)
        try:
            self._systemctl.change(change.verb, wanted.name, host, needs_reload=actual.needs_reload)
        except Failure as failure:
            actual.has_failed = True
            if starts:
                failure.output = self._systemctl.journal(wanted.name, host)
            raise
        finally:
            actual.needs_reload = False
        if starts:
            self._started[wanted.id] = wanted.name
            self._last_start = monotonic()

    def forecast(self, wanted: Service, actual: UnitState, change: Change, host: Host) -> None:
        """Nothing to record: no later resource depends on the state of a unit."""

    def recheck(self, host: Host) -> Iterator[tuple[str, UnitState, Failure]]:
        """Queries all started units in one call, after they had time to fail."""
        if not self._started:
            return
        sleep(self._last_start + EARLY_EXIT_SECONDS - monotonic(), host.stop)
        try:
            shown = self._systemctl.show(list(self._started.values()), host)
        except Failure as failure:
            for identity, name in self._started.items():
                yield identity, UnitState(name, self.name), failure
            return
        for (identity, name), unit in zip(self._started.items(), shown, strict=True):
            word = unit.get("ActiveState", "")
            if ACTIVE_WORDS.get(word) == RUNNING:
                continue
            problem = f"service did not stay running: it is {word} ({unit.get('SubState')}) after its start"
            output = self._systemctl.journal(name, host)
            yield identity, self._interpret_touched(name, unit, host), DesiredStateFailed(problem, output=output)


def _is_missing(shown: dict[str, str]) -> bool:
    """Whether the unit does not exist; a unit without a file that still runs exists."""
    return shown.get("LoadState") == "not-found" and shown.get("ActiveState") in ("inactive", "failed")


def _is_nothing_to_stop(wanted: Service, state: UnitState) -> bool:
    return not state.found and wanted.ensure == STOPPED and not wanted.enable


# ---- forecasting ----
def _forecast_unit(state: UnitState, unit_files: list[str], host: Host) -> None:
    """Updates the state of a unit by the unit files that a dry run would write."""
    unit = unit_name(state.name)
    touched = [path for path in unit_files if path.endswith(f"/{unit}")]
    if not touched:
        return
    places = (f"{directory}/{unit}" for directory in UNIT_DIRECTORIES)
    place = next((path for path in places if host.files.lexists(path)), None)
    if place is None:
        state.found = state.ensure == RUNNING
        return
    state.found = True
    state.enabled_word = _forecast_enablement(state.enabled_word, place, host)
    if state.enabled_word in ("disabled", "static") and _is_linked(unit, host):
        state.enabled_word = "enabled"
    elif (
        state.enabled_word == "enabled"
        and any(path.rpartition("/")[0].endswith(LINK_SUFFIXES) for path in touched)
        and not _is_linked(unit, host)
    ):
        state.enabled_word = _forecast_enablement("", place, host)
    state.enabled = ENABLED_WORDS.get(state.enabled_word, state.enabled)


def _forecast_enablement(word: str, place: str, host: Host) -> str:
    file = host.files.real_path(place)
    if file == "/dev/null" or host.files.stat(place).st_size == 0:
        return "masked"
    if file.endswith(UNIT_SUFFIXES) and file.rpartition("/")[2] != place.rpartition("/")[2]:
        return "alias"
    if word in ("", "static", "disabled") or word.startswith("masked"):
        return "disabled" if _has_install_section(place, host) else "static"
    return word


def _is_linked(unit: str, host: Host) -> bool:
    """Whether another unit wants this unit by a link."""
    return any(
        host.files.lexists(f"{directory}/{name}/{unit}")
        for directory in UNIT_DIRECTORIES
        if host.files.exists(directory)
        for name in host.files.listdir(directory)
        if name.endswith(LINK_SUFFIXES)
    )


def _has_install_section(place: str, host: Host) -> bool:
    content = b"\n" + (host.files.read(place, LARGEST_UNIT_FILE_BYTES) or b"")
    _, found, section = content.decode("utf-8", "replace").partition("\n[Install]")
    keys = {line.partition("=")[0].strip() for line in section.partition("\n[")[0].split("\n")}
    return bool(found) and not keys.isdisjoint(INSTALL_KEYS)


PROVIDER = SystemdUnits()

"""Units of systemd, managed with `systemctl --system`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from mainstay.converge.contract import Change, Provider
from mainstay.converge.failures import CommandFailed, DesiredStateFailed, Failure, Missing, Stopped
from mainstay.converge.host.clock import monotonic, sleep
from mainstay.converge.host.host import Host
from mainstay.converge.host.systemctl import Systemctl, is_running_init, unit_name, why_unavailable
from mainstay.converge.host.unit_files import (
    LINK_SUFFIXES,
    MASK_DIRECTORY,
    RUNTIME_MASK_DIRECTORY,
    find_behind_masks,
    find_unit_file,
    is_linked,
    is_mask,
    read_settings,
    unit_file_state,
)
from mainstay.converge.resources.service import (
    MASK,
    RELOAD,
    RESTART,
    RUNNING,
    START,
    STOPPED,
    UNMASK,
    Service,
    ServiceState,
)

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
# Load states with which systemd starts nothing.
REFUSED_LOAD_WORDS = ("bad-setting", "error")
STARTED_WORDS = {START: "started", RESTART: "restarted", RELOAD: "reloaded"}
TRUE_WORDS = ("1", "yes", "y", "true", "t", "on")
MOST_UNITS_AT_ONCE = 100
MOVING_SECONDS = 90.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
# A program that cannot run usually exits within this time.
EARLY_EXIT_SECONDS = 1.0
ONESHOT_REMARK = "it is a Type=oneshot unit that has finished, which counts as running only with RemainAfterExit=yes"


class UnitState(ServiceState):
    needs_reload: bool = False
    # In a dry run: an earlier resource would change a file of the unit.
    has_new_files: bool = False
    load_word: str = ""
    # `Type` and `RemainAfterExit`.
    type_word: str = ""
    remains: bool = False
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

    def may_appear(self, host: Host) -> bool:
        """A package may bring systemctl, but nothing replaces the init of a running host."""
        return is_running_init(host)

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
        self._ahead = dict(zip(names, shown))
        self._ahead_at = host.activity

    def read(self, wanted: Service, host: Host, *, refresh: bool) -> UnitState:
        shown = self._show(wanted, host)
        if _is_missing(shown) and self._systemctl.is_behind(host):
            self._systemctl.reload(host)
            shown = self._systemctl.show([wanted.name], host)[0]
        return self._complete(wanted, self._interpret_touched(wanted.name, shown, host), host)

    def read_forecast(self, wanted: Service, host: Host, *, refresh: bool) -> UnitState:
        state = self._interpret(wanted.name, self._show(wanted, host), host)
        _forecast_unit(state, self._systemctl.touched_unit_files(host), host)
        if _is_nothing_to_stop(wanted, state) and host.uncertain:
            raise Missing(f"service not found: {wanted.name}")
        return self._complete(wanted, state, host)

    def _complete(self, wanted: Service, state: UnitState, host: Host) -> UnitState:
        if _is_nothing_to_stop(wanted, state):
            host.note(_remark_missing(wanted))
        if wanted.mask is False and state.masked:
            state.behind_mask = _read_behind_mask(state, host)
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
        state.load_word = shown.get("LoadState", "")
        state.type_word = shown.get("Type", "")
        state.remains = shown.get("RemainAfterExit") != "no"
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
            state.remark = _remark_stopped(state)
            state.output = self._systemctl.journal(wanted.name, host)
        return state

    def confirm_failed(self, wanted: Service, actual: UnitState, host: Host) -> UnitState | None:
        """A unit that was started and is dead although another step failed is reported by the re-check."""
        started = self._started.get(wanted.id)
        state: UnitState | None = super().confirm_failed(wanted, actual, host)
        if started is not None:
            self._started[wanted.id] = started
        return state

    # ---- changing ----
    def perform(self, wanted: Service, actual: UnitState, change: Change, host: Host) -> None:
        starts = change.verb in (START, RESTART)
        calls: list[tuple[str, ...]] = [()]
        if change.verb == UNMASK:
            calls = _mask_options(wanted.name, host) or calls
        try:
            for options in calls:
                needs_reload = actual.needs_reload
                self._systemctl.change(change.verb, wanted.name, host, needs_reload=needs_reload, options=options)
                actual.needs_reload = False
        except Failure as failure:
            actual.has_failed = True
            if starts:
                failure.output = self._systemctl.journal(wanted.name, host)
            if change.verb == MASK:
                # In the words of the forecast, if this is the reason: they have the way out.
                _refuse_mask(actual, host)
            raise
        finally:
            actual.needs_reload = False
        if starts:
            self._started[wanted.id] = wanted.name
            self._last_start = monotonic()

    def forecast(self, wanted: Service, actual: UnitState, change: Change, host: Host) -> None:
        """Fails where the call is certain to fail. No later resource depends on the state of a unit."""
        if change.verb in STARTED_WORDS:
            _refuse_start(actual, change.verb, host)
        elif change.verb == MASK:
            _refuse_mask(actual, host)
        elif change.verb == UNMASK and not _mask_options(wanted.name, host):
            raise CommandFailed(
                f"{wanted.name} cannot be unmasked: {find_unit_file(unit_name(wanted.name), host.files)}"
                " is empty or a link to /dev/null; replace that file"
            )

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
        for (identity, name), unit in zip(self._started.items(), shown):
            word = unit.get("ActiveState", "")
            if ACTIVE_WORDS.get(word) == RUNNING:
                continue
            state = self._interpret_touched(name, unit, host)
            remark = _remark_stopped(state)
            problem = f"service did not stay running: it is {word} ({unit.get('SubState')}) after its start"
            problem += f": {remark}" if remark else ""
            yield identity, state, DesiredStateFailed(problem, output=self._systemctl.journal(name, host))


def _is_missing(shown: dict[str, str]) -> bool:
    """Whether the unit does not exist; a unit without a file that still runs exists."""
    return shown.get("LoadState") == "not-found" and shown.get("ActiveState") in ("inactive", "failed")


def _remark_stopped(state: UnitState) -> str:
    """Explains a finished oneshot unit."""
    is_finished = state.type_word == "oneshot" and not state.remains and state.active_word == "inactive"
    return ONESHOT_REMARK if is_finished else ""


def _remark_missing(wanted: Service) -> str:
    consequence = (
        "the mask keeps it from starting once it is installed" if wanted.mask else "there is nothing to stop"
    )
    return f"service not found: {wanted.name}; {consequence}"


def _is_nothing_to_stop(wanted: Service, state: UnitState) -> bool:
    return not state.found and wanted.ensure == STOPPED and not wanted.enable


# ---- forecasting ----
def _read_behind_mask(state: UnitState, host: Host) -> UnitState:
    """Returns the state that a masked unit has without its masks."""
    unit = unit_name(state.name)
    found = UnitState(state.name, state.provider)
    found.ensure, found.active_word = state.ensure, state.active_word
    found.is_moving, found.is_starting = state.is_moving, state.is_starting
    place = find_behind_masks(unit, host.files)
    if place is None:
        found.found = state.ensure == RUNNING
        return found
    found.enabled_word = unit_file_state(place, unit, host.files)
    found.enabled = ENABLED_WORDS.get(found.enabled_word, False)
    return found


def _forecast_unit(state: UnitState, unit_files: list[str], host: Host) -> None:
    """Updates the state of a unit by the unit files that a dry run would write."""
    unit = unit_name(state.name)
    touched = [path for path in unit_files if path.endswith(f"/{unit}")]
    if touched or any(f"/{unit}.d/" in path for path in unit_files):
        state.has_new_files = True
    if not touched:
        return
    place = find_unit_file(unit, host.files)
    if place is None:
        state.found = state.ensure == RUNNING
        return
    state.found = True
    state.enabled_word = unit_file_state(place, unit, host.files, state.enabled_word)
    if (
        state.enabled_word == "enabled"
        and any(path.rpartition("/")[0].endswith(LINK_SUFFIXES) for path in touched)
        and not is_linked(unit, host.files)
    ):
        state.enabled_word = unit_file_state(place, unit, host.files)
    state.enabled = ENABLED_WORDS.get(state.enabled_word, state.enabled)


def _refuse_start(state: UnitState, verb: str, host: Host) -> None:
    """Raises `Failure` if the start is certain to fail."""
    unit = unit_name(state.name)
    type_word, remains = state.type_word, state.remains
    if state.masked or state.has_new_files or state.needs_reload:
        # systemd has not read the files that decide.
        settings = read_settings(unit, "Service", host.files)
        type_word, remains = settings.get("Type", ""), settings.get("RemainAfterExit", "").lower() in TRUE_WORDS
    elif state.load_word in REFUSED_LOAD_WORDS:
        raise CommandFailed(
            f"{state.name} cannot be {STARTED_WORDS[verb]}: systemd refuses its unit file ({state.load_word});"
            f" `systemd-analyze verify {unit}` shows why"
        )
    if verb != RELOAD and type_word == "oneshot" and not remains:
        raise DesiredStateFailed(f"service is stopped, expected running: {ONESHOT_REMARK}")


def _refuse_mask(state: UnitState, host: Host) -> None:
    place = f"{MASK_DIRECTORY}/{unit_name(state.name)}"
    # Disabling an alias removes its link.
    if state.enabled_word != "alias" and host.files.lexists(place) and not is_mask(place, host.files):
        raise CommandFailed(
            f"{state.name} cannot be masked: its unit file {place} is where the mask has to be;"
            " remove it, or move it to /usr/local/lib/systemd/system"
        )


def _mask_options(name: str, host: Host) -> list[tuple[str, ...]]:
    """The options of each `systemctl unmask` that is needed."""
    unit = unit_name(name)
    places = ((MASK_DIRECTORY, ()), (RUNTIME_MASK_DIRECTORY, ("--runtime",)))
    return [options for directory, options in places if is_mask(f"{directory}/{unit}", host.files)]


PROVIDER = SystemdUnits()

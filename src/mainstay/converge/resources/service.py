"""The `service` type: whether a unit runs, starts at boot, and is masked. Only decides; providers act."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mainstay.converge.contract import Change, NamedState, Property, Resource, ResourceType
from mainstay.converge.failures import Failure, Missing
from mainstay.converge.value_kinds import BOOLEAN, TEXT, TEXTS
from mainstay.foundation import Any
from mainstay.foundation.text import shorten

RUNNING, STOPPED = "running", "stopped"
START, STOP, RESTART, RELOAD, ENABLE, DISABLE = "start", "stop", "restart", "reload", "enable", "disable"
MASK, UNMASK = "mask", "unmask"
IGNORE = "none"
NAME = re.compile(r"[A-Za-z0-9._+:~][A-Za-z0-9._+:~-]*")
# The limit of systemd, without the longest suffix.
LONGEST_NAME = 255 - len(".service")
CANNOT_BE_DISABLED = {
    "static": "it has no [Install] section, so other units decide whether it starts",
    "generated": "it is generated at boot",
    "transient": "it was created at run time and is gone after a reboot",
    "indirect": "its [Install] section only names other units, so they decide whether it starts",
    "enabled-runtime": "it is enabled until the next reboot only; `systemctl disable --runtime` ends that",
}
DONE_WORDS = {
    START: "started",
    STOP: "stopped",
    RESTART: "restarted via subscribe",
    RELOAD: "reloaded via subscribe",
    ENABLE: "enabled",
    DISABLE: "disabled",
    MASK: "masked",
    UNMASK: "unmasked",
}
REFUSED_BY_A_MASK = {START: "started", RESTART: "restarted", RELOAD: "reloaded", ENABLE: "enabled"}


class Service(Resource):
    ensure: str = RUNNING
    enable: bool | None = None
    mask: bool | None = None
    on_refresh: str = RESTART


class ServiceState(NamedState):
    """The actual state of a unit. `ensure` and `enabled` are the many states of systemd in terms of the manifest."""

    ensure: str = STOPPED
    enabled: bool = False
    found: bool = True
    # In transition: neither running nor stopped.
    is_moving: bool = False
    is_starting: bool = False
    # The states as systemd names them, for messages and reports.
    active_word: str = ""
    enabled_word: str = ""
    # Why a started unit does not run, if known.
    remark: str = ""
    # The state of a masked unit without its mask; None if it was not read.
    behind_mask: ServiceState | None = None

    @property
    def masked(self) -> bool:
        return self.enabled_word.startswith("masked")

    def as_json(self) -> dict[str, Any]:
        return {
            **super().as_json(),
            "running": self.ensure == RUNNING,
            "enabled": self.enabled,
            "masked": self.masked,
            "found": self.found,
            "active_state": self.active_word or None,
            "unit_file_state": self.enabled_word or None,
        }


class ServiceType(ResourceType):
    name = "service"
    resource = Service
    ensures = (RUNNING, STOPPED)
    refreshable = True
    altered_by = ("ensure", "enabled", "masked")
    properties = {
        "enable": Property(BOOLEAN, "whether it starts at boot; left as it is when not given"),
        "mask": Property(
            BOOLEAN, "whether nothing can start it, not even another unit; true needs `ensure: stopped`"
        ),
        "subscribe": Property(TEXTS, "resources (`type#name`) whose change refreshes the running service"),
        "on_refresh": Property(TEXT, "what a refresh does", choices=(RESTART, RELOAD, IGNORE)),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        if not NAME.fullmatch(name):
            yield f'service name contains dangerous characters: "{shorten(ascii(name)[1:-1])}"'
        elif len(name) > LONGEST_NAME:
            yield f"service name is longer than {LONGEST_NAME} characters"

    def check(self, wanted: Service) -> Iterator[tuple[str | None, str]]:
        if wanted.mask and wanted.ensure != STOPPED:
            yield "mask", "mask: true needs `ensure: stopped`, because a masked service cannot be started"
        if wanted.mask and wanted.enable:
            yield "mask", "mask: true and `enable: true` exclude each other: a masked service does not start at boot"

    # ---- in a run ----
    def manifest_entry(self, actual: ServiceState) -> dict[str, Any]:
        if not actual.found:
            raise Missing(f"service not found: {actual.name}")
        properties: dict[str, Any] = {"ensure": actual.ensure}
        if actual.masked and actual.ensure == STOPPED:
            properties["mask"] = True
        elif actual.enabled_word in ("enabled", "disabled"):
            # Other units decide about the rest.
            properties["enable"] = actual.enabled
        return properties

    def desired(self, wanted: Service, actual: ServiceState) -> tuple[bool, str]:
        if not actual.found:
            if wanted.ensure == RUNNING or wanted.enable:
                return False, f"service not found: {wanted.name}"
            problem = self._not_as_masked(wanted, actual)
            return not problem, problem
        problem = (
            self._not_in_state(wanted, actual)
            or self._not_as_enabled(wanted, actual)
            or self._not_as_masked(wanted, actual)
        )
        return not problem, problem

    def _not_in_state(self, wanted: Service, actual: ServiceState) -> str:
        if wanted.ensure == actual.ensure and (wanted.ensure == RUNNING or not actual.is_moving):
            return ""
        word = actual.ensure if actual.active_word in ("", "active", "inactive") else actual.active_word
        because = f": {actual.remark}" if actual.remark else ""
        return f"service is {word}, expected {wanted.ensure}{because}"

    def _not_as_enabled(self, wanted: Service, actual: ServiceState) -> str:
        if wanted.enable is None or wanted.enable == actual.enabled:
            return ""
        expected = "enabled" if wanted.enable else "disabled"
        return f"service is {actual.enabled_word or 'not ' + expected}, expected {expected}"

    def _not_as_masked(self, wanted: Service, actual: ServiceState) -> str:
        if wanted.mask is None or wanted.mask == actual.masked:
            return ""
        return "service is masked, expected not masked" if actual.masked else "service is not masked, expected masked"

    def decide(self, wanted: Service, actual: ServiceState, *, refresh: bool) -> tuple[Change, ...]:
        mask_problem = self._not_as_masked(wanted, actual)
        unmask = (Change(UNMASK, mask_problem),) if mask_problem and actual.masked else ()
        mask = (Change(MASK, mask_problem),) if mask_problem and not actual.masked else ()
        # What the phases find after the mask is removed.
        found = (actual.behind_mask or actual) if unmask else actual
        return (*unmask, *self._phases(wanted, found, refresh=refresh), *mask)

    def _phases(self, wanted: Service, actual: ServiceState, *, refresh: bool) -> Iterator[Change]:
        """Running first, then enabled: independent of each other, each done as far as it can be."""
        if actual.found:
            yield from self._running_changes(wanted, actual, refresh=refresh)
            yield from self._enabled_changes(wanted, actual)
        elif wanted.ensure == RUNNING or wanted.enable:
            reason = f"service not found: {wanted.name}"
            yield Change(START if wanted.ensure == RUNNING else ENABLE, reason, refusal=Missing(reason))

    def _running_changes(self, wanted: Service, actual: ServiceState, *, refresh: bool) -> Iterator[Change]:
        problem = self._not_in_state(wanted, actual)
        if problem and wanted.ensure == STOPPED:
            yield Change(STOP, problem)
        elif refresh and actual.is_starting and wanted.on_refresh != IGNORE:
            # A start would only join the start in progress, which may have read the old configuration.
            yield self._refresh(RESTART, wanted, actual)
        elif problem:
            # A start already applies the change; a restart after it would only cause an outage.
            yield Change(START, problem, pays=refresh, refusal=self._refusal(wanted, actual, START))
        elif refresh and wanted.ensure == RUNNING and wanted.on_refresh != IGNORE:
            yield self._refresh(wanted.on_refresh, wanted, actual)

    def _refresh(self, verb: str, wanted: Service, actual: ServiceState) -> Change:
        refusal = self._refusal(wanted, actual, verb)
        return Change(verb, "a subscribed resource changed", refresh=True, refusal=refusal)

    def _enabled_changes(self, wanted: Service, actual: ServiceState) -> Iterator[Change]:
        problem = self._not_as_enabled(wanted, actual)
        if problem and wanted.mask and actual.enabled_word in CANNOT_BE_DISABLED:
            # Its mask keeps it from starting at boot.
            return
        if actual.enabled_word == "transient" and wanted.ensure == STOPPED and self._not_in_state(wanted, actual):
            # systemd forgets it when it stops.
            return
        if problem:
            verb = ENABLE if wanted.enable else DISABLE
            yield Change(verb, problem, refusal=self._refusal(wanted, actual, verb))

    def _refusal(self, wanted: Service, actual: ServiceState, verb: str) -> Failure | None:
        """Returns the failure of a change that the host would refuse or only pretend to make."""
        word = actual.enabled_word
        if verb in REFUSED_BY_A_MASK and actual.masked:
            return Failure(
                f"{wanted.name} is masked, so it cannot be {REFUSED_BY_A_MASK[verb]}; `mask: false` removes the mask"
            )
        if verb == DISABLE and word in CANNOT_BE_DISABLED:
            return Failure(
                f"{wanted.name} is {word} and cannot be disabled: {CANNOT_BE_DISABLED[word]}; "
                "leave `enable` out, or set `mask: true` with `ensure: stopped`"
            )
        if verb == DISABLE and word == "alias" and wanted.ensure == RUNNING:
            return Failure(
                f"{wanted.name} is an alias, and disabling would only remove that name: "
                "disable the unit by its own name, or leave `enable` out"
            )
        return None

    def describe(self, wanted: Service, actual: ServiceState, changes: tuple[Change, ...]) -> str:
        text = ", would have ".join(DONE_WORDS[change.verb] for change in changes)
        return f"Would have {text}"


TYPE = ServiceType()

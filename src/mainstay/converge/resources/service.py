"""The `service` type: whether a unit runs, and whether it starts at boot. Only decides; providers act."""

from __future__ import annotations

import re

from mainstay.converge.contract import Change, Failure, Missing, Property, Resource, ResourceType, State
from mainstay.converge.value_kinds import BOOLEAN, TEXT, TEXTS
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


RUNNING, STOPPED = "running", "stopped"
START, STOP, RESTART, RELOAD, ENABLE, DISABLE = "start", "stop", "restart", "reload", "enable", "disable"
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
}


class Service(Resource):
    ensure: str = RUNNING
    enable: bool | None = None
    on_refresh: str = RESTART


class ServiceState(State):
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

    def __init__(self, name: str, provider: str) -> None:
        self.name = name
        self.provider = provider

    def as_json(self) -> dict[str, Any]:
        return {
            "ensure": self.ensure,
            "name": self.name,
            "provider": self.provider,
            "running": self.ensure == RUNNING,
            "enabled": self.enabled,
            "found": self.found,
            "active_state": self.active_word or None,
            "unit_file_state": self.enabled_word or None,
        }


class ServiceType(ResourceType):
    name = "service"
    resource = Service
    ensures = (RUNNING, STOPPED)
    refreshable = True
    properties = {
        "enable": Property(BOOLEAN, "whether it starts at boot; left as it is when not given"),
        "subscribe": Property(TEXTS, "resources (`type#name`) whose change refreshes the running service"),
        "on_refresh": Property(TEXT, "what a refresh does", choices=(RESTART, RELOAD, IGNORE)),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        if not NAME.fullmatch(name):
            yield f'service name contains dangerous characters: "{shorten(ascii(name)[1:-1])}"'
        elif len(name) > LONGEST_NAME:
            yield f"service name is longer than {LONGEST_NAME} characters"

    # ---- in a run ----
    def desired(self, wanted: Service, actual: ServiceState) -> tuple[bool, str]:
        if not actual.found:
            if wanted.ensure == STOPPED and not wanted.enable:
                return True, ""
            return False, f"service not found: {wanted.name}"
        problem = self._not_in_state(wanted, actual) or self._not_as_enabled(wanted, actual)
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

    def decide(self, wanted: Service, actual: ServiceState, *, refresh: bool) -> tuple[Change, ...]:
        if not actual.found:
            reached, reason = self.desired(wanted, actual)
            if reached:
                return ()
            raise Missing(reason)
        changes = (*self._running_changes(wanted, actual, refresh=refresh), *self._enabled_changes(wanted, actual))
        for change in changes:
            self._refuse(wanted, actual, change)
        return changes

    def _running_changes(self, wanted: Service, actual: ServiceState, *, refresh: bool) -> Iterator[Change]:
        problem = self._not_in_state(wanted, actual)
        if problem and wanted.ensure == STOPPED:
            yield Change(STOP, problem)
        elif refresh and actual.is_starting and wanted.on_refresh != IGNORE:
            # A start would only join the start in progress, which may have read the old configuration.
            yield Change(RESTART, "a subscribed resource changed", refresh=True)
        elif problem:
            # A start already applies the change; a restart after it would only cause an outage.
            yield Change(START, problem, pays=refresh)
        elif refresh and wanted.ensure == RUNNING and wanted.on_refresh != IGNORE:
            yield Change(wanted.on_refresh, "a subscribed resource changed", refresh=True)

    def _enabled_changes(self, wanted: Service, actual: ServiceState) -> Iterator[Change]:
        problem = self._not_as_enabled(wanted, actual)
        if problem:
            yield Change(ENABLE if wanted.enable else DISABLE, problem)

    def _refuse(self, wanted: Service, actual: ServiceState, change: Change) -> None:
        """Raises `Failure` for a change that the host would refuse or only pretend to make."""
        word = actual.enabled_word
        if change.verb in (START, ENABLE) and word.startswith("masked"):
            done = "started" if change.verb == START else "enabled"
            raise Failure(
                f"{wanted.name} is masked, so it cannot be {done}; `systemctl unmask {wanted.name}` removes the mask"
            )
        if change.verb == DISABLE and word in CANNOT_BE_DISABLED:
            raise Failure(
                f"{wanted.name} is {word} and cannot be disabled: {CANNOT_BE_DISABLED[word]}; "
                "leave `enable` out, or mask it"
            )
        if change.verb == DISABLE and word == "alias" and wanted.ensure == RUNNING:
            raise Failure(
                f"{wanted.name} is an alias, and disabling would only remove that name: "
                "disable the unit by its own name, or leave `enable` out"
            )

    def describe(self, wanted: Service, actual: ServiceState, changes: tuple[Change, ...]) -> str:
        text = ", would have ".join(DONE_WORDS[change.verb] for change in changes)
        return f"Would have {text}"

    def was_altered(self, wanted: Service, before: ServiceState, after: ServiceState) -> bool:
        return (before.ensure, before.enabled) != (after.ensure, after.enabled)


TYPE = ServiceType()

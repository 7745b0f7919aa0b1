"""Health checks of resources. One file is one kind; this folder is the registry."""

from __future__ import annotations

from importlib import import_module

from mainstay.converge.contract import HealthCheck, HealthCheckKind
from mainstay.converge.failures import CommandFailed, Failure, StopFlag
from mainstay.converge.host.clock import sleep
from mainstay.converge.host.host import Host
from mainstay.foundation.module_names import module_names, registered
from mainstay.foundation.text import REDACTED, keep_end

LONGEST_SHOWN_OUTPUT = 300


def kinds() -> dict[str, HealthCheckKind]:
    """Returns all kinds by name. The name of a kind is the key that selects it in a check."""
    return {name: registered(import_module(f"{__name__}.{name}"), "KIND") for name in module_names(__path__)}


def check_health(check: HealthCheck, host: Host, stop: StopFlag, *, hide_output: bool) -> Failure | None:
    """Tries until the check succeeds or its tries are used up; returns the last problem, or None."""
    problem = None
    for attempt in range(check.tries):
        if attempt:
            sleep(check.try_sleep_seconds, stop)
            if stop.reason is not None:
                break
        problem = _try_once(check, host, hide_output=hide_output)
        if problem is None:
            break
    return problem


def _try_once(check: HealthCheck, host: Host, *, hide_output: bool) -> Failure | None:
    try:
        status, output = check.kind.run_once(check, host)
    except Failure as error:
        return error.__class__(f"health check {check.name} is UNKNOWN: {error}")
    if status == "OK":
        return None
    whole = REDACTED if hide_output else output.strip()
    shown = keep_end(whole, LONGEST_SHOWN_OUTPUT)
    message = f"health check {check.name} is {status}" + (f": {shown}" if shown else "")
    return CommandFailed(message, output=None if shown == whole else whole)

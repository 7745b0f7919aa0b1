"""Health checks: commands in the manner of Nagios, asked until they are content or the tries are used up."""

from __future__ import annotations

from mainstay.converge.command_words import split_words
from mainstay.converge.contract import Failure
from mainstay.converge.host.clock import sleep
from mainstay.converge.host.commands import DEFAULT_SEARCH_PATH, find_program
from mainstay.converge.value_kinds import Unfit
from mainstay.foundation.text import REDACTED, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.converge.contract import HealthCheck, StopFlag
    from mainstay.converge.host.host import Host

WORDS = {0: "OK", 1: "WARNING", 2: "CRITICAL"}


def ask(check: HealthCheck, host: Host, stop: StopFlag, *, sensitive: bool) -> str | None:
    """None when the check is content, else what it said."""
    problem = None
    for attempt in range(check.tries):
        if attempt:
            sleep(check.try_sleep_seconds, stop)
            if stop.reason is not None:
                break
        problem = _ask_once(check, host, sensitive=sensitive)
        if problem is None:
            break
    return problem


def _ask_once(check: HealthCheck, host: Host, *, sensitive: bool) -> str | None:
    try:
        words = split_words(check.command)
        program = find_program(host.files, words[0], host.environ.get("PATH", DEFAULT_SEARCH_PATH), "/")
        done = host.commands.run(words, program=program, timeout_seconds=check.timeout_seconds)
    except (Failure, Unfit) as error:
        return f"health check {check.name} is UNKNOWN: {error}"
    if done.exit_code == 0:
        return None
    said = REDACTED if sensitive else shorten(done.output.strip(), 300)
    word = WORDS.get(done.exit_code, "UNKNOWN")
    return f"health check {check.name} is {word}" + (f": {said}" if said else "")

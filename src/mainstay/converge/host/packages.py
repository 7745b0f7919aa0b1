"""Runs package managers non-interactively, and waits while another process holds their lock."""

from __future__ import annotations

from mainstay.converge.failures import CommandFailed, Stopped
from mainstay.converge.host.clock import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.converge.host.commands import Finished
    from mainstay.converge.host.host import Host

QUERY_TIMEOUT_SECONDS = 300.0
CHANGE_TIMEOUT_SECONDS = 3600.0
LOCK_WAIT_SECONDS = 600.0
LOCK_PAUSE_SECONDS = 0.5
ERROR_PREFIXES = ("E:", "Error:", "dpkg: error")
KEEP_BYTES = 4 * 1024 * 1024
# No prompts, and messages that do not depend on the user's locale.
ENVIRONMENT = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "APT_LISTCHANGES_FRONTEND": "none"}


def query(host: Host, words: Sequence[str]) -> Finished:
    return host.commands.run(
        words,
        environment={**host.environ, **ENVIRONMENT},
        timeout_seconds=QUERY_TIMEOUT_SECONDS,
        read_only=True,
        keep_bytes=KEEP_BYTES,
    )


def run_when_unlocked(host: Host, words: Sequence[str], locked_words: Sequence[str]) -> Finished:
    """Runs a changing command, and retries while another process holds the lock."""
    until = monotonic() + LOCK_WAIT_SECONDS
    while True:
        done = host.commands.run(
            words,
            environment={**host.environ, **ENVIRONMENT},
            timeout_seconds=CHANGE_TIMEOUT_SECONDS,
            # Interrupted, it would leave packages half installed.
            must_finish=True,
        )
        is_locked = done.exit_code != 0 and any(word in done.output for word in locked_words)
        if not is_locked or monotonic() >= until:
            return done
        sleep(LOCK_PAUSE_SECONDS, host.stop)
        if host.stop.at_once:
            raise Stopped


def require_success(done: Finished, what: str) -> None:
    """Raises `CommandFailed` for a command that did not succeed."""
    if done.exit_code != 0:
        errors = error_lines(done)
        raise CommandFailed(
            f"{what} failed (exit {done.exit_code}){': ' if errors else ''}{errors}", output=done.output
        )


def error_lines(done: Finished) -> str:
    """Returns the error lines in the output of a command, or the end of the output."""
    lines = [line.strip() for line in done.output.split("\n")]
    return "; ".join(line for line in lines if line.startswith(ERROR_PREFIXES)) or done.output.strip()[-500:]

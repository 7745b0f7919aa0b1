"""Runs systemctl: queries units, changes them under a host-wide lock, and reads their journal."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.converge.failures import CommandFailed, Failure, TimedOut
from mainstay.converge.host.commands import Finished, missing_programs, search_path
from mainstay.converge.host.host import Host
from mainstay.converge.host.state import Busy, Lock
from mainstay.foundation import Struct

RUNTIME_DIRECTORY = "/run/systemd/system"
SHOWN = "Id,Names,LoadState,ActiveState,SubState,UnitFileState,Type,RemainAfterExit,NeedDaemonReload"
# Where systemd finds unit files, in order of precedence.
UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
# A generator creates units for the scripts in /etc/init.d.
READ_BY_A_RELOAD = (*(f"{directory}/" for directory in UNIT_DIRECTORIES), "/etc/init.d/")
UNIT_SUFFIXES = (
    ".service",
    ".socket",
    ".timer",
    ".target",
    ".path",
    ".mount",
    ".automount",
    ".swap",
    ".slice",
    ".scope",
    ".device",
)
# systemd has a timeout for every job; this one only ends calls that would never end.
CHANGE_TIMEOUT_SECONDS = 900.0
QUERY_TIMEOUT_SECONDS = 60.0
LOCK_WAIT_SECONDS = 900.0
KEEP_BYTES = 1024 * 1024
JOURNAL_LINES = 10


def unit_name(name: str) -> str:
    """Returns the name as systemd completes it: with its suffix, and unsupported characters escaped."""
    escaped = name.replace("+", "\\x2b").replace("~", "\\x7e")
    return escaped if escaped.endswith(UNIT_SUFFIXES) else f"{escaped}.service"


def is_running_init(host: Host) -> bool:
    return host.files.exists(RUNTIME_DIRECTORY)


def why_unavailable(host: Host) -> str | None:
    missing = missing_programs(host.files, search_path(host.environ), "systemctl")
    if missing is None and not is_running_init(host):
        return f"systemd is not the running init ({RUNTIME_DIRECTORY} does not exist)"
    return missing


def _parse_show(text: str) -> list[dict[str, str]]:
    """Parses the output of `systemctl show`: one map per unit, in the order of the arguments."""
    blocks = text.strip("\n").split("\n\n")
    split = ([line.partition("=") for line in block.split("\n")] for block in blocks if block)
    return [{key: value for key, _, value in lines} for lines in split]


class Systemctl(Struct):
    """Runs `systemctl --system` for one run."""

    _reloaded: bool = False
    # Unit files that this run changed, the number of changed paths scanned for them, and how many were reloaded.
    _touched: list[str] = []
    _scanned: int = 0
    _reloaded_count: int = 0

    # ---- queries ----
    def show(self, names: Sequence[str], host: Host) -> list[dict[str, str]]:
        done = self._query(host, "systemctl", "show", "--system", "-p", SHOWN, *names)
        units = _parse_show(done.stdout)
        if done.exit_code != 0 or len(units) != len(names):
            raise CommandFailed(
                f"systemctl show failed for {', '.join(names)} (exit {done.exit_code}): {done.output.strip()[-500:]}"
            )
        return units

    def is_enabled(self, name: str, host: Host) -> str:
        """Returns the unit file state that `show` does not report: of an alias, or of a generated unit."""
        done = self._query(host, "systemctl", "is-enabled", "--system", name)
        return done.stdout.strip()

    def journal(self, name: str, host: Host) -> str | None:
        """Returns the last lines that the unit, or systemd about it, logged."""
        try:
            # Recent lines may not be written yet.
            self._query(host, "journalctl", "--sync")
            done = self._query(
                host, "journalctl", "--system", "--quiet", "--no-pager", "--lines", str(JOURNAL_LINES), "--unit", name
            )
        except Failure:
            return None
        return done.stdout.strip() or None

    def _query(self, host: Host, *words: str) -> Finished:
        return host.commands.run(
            words,
            environment=_quiet_environment(host),
            timeout_seconds=QUERY_TIMEOUT_SECONDS,
            read_only=True,
            keep_bytes=KEEP_BYTES,
        )

    # ---- changes ----
    def change(self, verb: str, name: str, host: Host, *, needs_reload: bool, options: Sequence[str] = ()) -> None:
        """Makes one changing call with current unit files; raises `Failure` with the output."""
        with self._lock(host):
            if needs_reload or not self._reloaded or self.is_behind(host):
                self._reload(host)
            self._change(host, verb, "--system", *options, name)

    def reload(self, host: Host) -> None:
        """Makes systemd read the unit files again."""
        with self._lock(host):
            self._reload(host)

    def is_behind(self, host: Host) -> bool:
        """Whether this run changed a unit file that systemd has not reloaded."""
        return len(self.touched_unit_files(host)) > self._reloaded_count

    def touched(self, unit: str, host: Host) -> bool:
        """Whether this run changed a file of that unit, or a link to it, that systemd has not reloaded."""
        return any(f"/{unit}" in path for path in self.touched_unit_files(host)[self._reloaded_count :])

    def touched_unit_files(self, host: Host) -> list[str]:
        paths = host.files.touched
        self._touched += [path for path in paths[self._scanned :] if path.startswith(READ_BY_A_RELOAD)]
        self._scanned = len(paths)
        return self._touched

    def _reload(self, host: Host) -> None:
        count = len(self.touched_unit_files(host))
        self._change(host, "daemon-reload", "--system")
        self._reloaded = True
        self._reloaded_count = count

    def _change(self, host: Host, *words: str) -> None:
        done = host.commands.run(
            ("systemctl", *words), environment=_quiet_environment(host), timeout_seconds=CHANGE_TIMEOUT_SECONDS
        )
        if done.exit_code != 0:
            output = done.output.strip()
            raise CommandFailed(
                f"systemctl {' '.join(words)} failed (exit {done.exit_code}){': ' if output else ''}{output}"
            )

    def _lock(self, host: Host) -> Lock:
        """Allows one caller on this host at a time, for any manifest."""
        path = "/run/mainstay-systemctl.lock"
        if host.files.effective_uid != 0:
            path = f"{host.state.directory()}/systemctl.lock"
        try:
            return host.state.lock(path, wait_seconds=LOCK_WAIT_SECONDS, stop=host.stop)
        except Busy as busy:
            raise TimedOut(
                f"another run has used systemctl for more than {LOCK_WAIT_SECONDS / 60:.0f} minutes ({busy})"
            ) from None


def _quiet_environment(host: Host) -> dict[str, str]:
    """Output that does not depend on the user's locale or on a terminal."""
    return {**host.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}

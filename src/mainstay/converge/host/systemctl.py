"""The door to systemd: asks about units, changes them one caller at a time, and reads what they logged."""

from __future__ import annotations

from mainstay.converge.contract import Failure
from mainstay.converge.host.commands import DEFAULT_SEARCH_PATH, NotRunnable, find_program
from mainstay.converge.host.state import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.converge.host.commands import Finished
    from mainstay.converge.host.host import Host
    from mainstay.converge.host.state import Lock

RUNTIME_DIRECTORY = "/run/systemd/system"
SHOWN = "Id,Names,LoadState,ActiveState,SubState,UnitFileState,Type,RemainAfterExit,NeedDaemonReload"
# Where systemd finds unit files, first come first served.
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
# Of scripts a generator makes units.
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
# Every job has a time limit of its own in systemd; this one only ends what would never end.
CHANGE_TIMEOUT_SECONDS = 900.0
LOOK_TIMEOUT_SECONDS = 60.0
LOCK_WAIT_SECONDS = 900.0
KEEP_BYTES = 1024 * 1024
JOURNAL_LINES = 10


def unit_name(name: str) -> str:
    """The name as systemd completes it: with its suffix, and characters it does not know escaped."""
    escaped = name.replace("+", "\\x2b").replace("~", "\\x7e")
    return escaped if escaped.endswith(UNIT_SUFFIXES) else f"{escaped}.service"


def why_unavailable(host: Host) -> str | None:
    try:
        find_program(host.files, "systemctl", host.environ.get("PATH", DEFAULT_SEARCH_PATH), "/")
    except NotRunnable:
        return "systemctl is not on PATH"
    if not host.files.exists(RUNTIME_DIRECTORY):
        return f"systemd is not the running init ({RUNTIME_DIRECTORY} does not exist)"
    return None


def _parse_show(text: str) -> list[dict[str, str]]:
    """What `systemctl show` printed, one map per unit in the order they were asked for."""
    blocks = text.strip("\n").split("\n\n")
    split = ([line.partition("=") for line in block.split("\n")] for block in blocks if block)
    return [{key: value for key, _, value in lines} for lines in split]


class Systemctl:
    """Runs `systemctl --system` for one run."""

    def __init__(self) -> None:
        self._reloaded = False
        # Unit files that this run touched, up to so many touched paths, and how many of them systemd was told of.
        self._touched: list[str] = []
        self._scanned = 0
        self._told = 0

    # ---- asking ----
    def show(self, names: Sequence[str], host: Host) -> list[dict[str, str]]:
        done = self._look(host, "systemctl", "show", "--system", "-p", SHOWN, *names)
        units = _parse_show(done.stdout)
        if done.exit_code != 0 or len(units) != len(names):
            raise Failure(
                f"systemctl show failed for {', '.join(names)} (exit {done.exit_code}): {done.output.strip()[-500:]}"
            )
        return units

    def is_enabled(self, name: str, host: Host) -> str:
        """The word for a name that `show` cannot tell: of an alias, or of a script that a generator wrapped."""
        done = self._look(host, "systemctl", "is-enabled", "--system", name)
        return done.stdout.strip()

    def journal(self, name: str, host: Host) -> str | None:
        """The last lines that the unit, or systemd about it, logged."""
        try:
            # What was logged a moment ago may still be on its way.
            self._look(host, "journalctl", "--sync")
            done = self._look(
                host, "journalctl", "--system", "--quiet", "--no-pager", "--lines", str(JOURNAL_LINES), "--unit", name
            )
        except Failure:
            return None
        return done.stdout.strip() or None

    def _look(self, host: Host, *words: str) -> Finished:
        return host.commands.run(
            words,
            environment=_quiet_environment(host),
            timeout_seconds=LOOK_TIMEOUT_SECONDS,
            only_looks=True,
            keep_bytes=KEEP_BYTES,
        )

    # ---- changing ----
    def change(self, verb: str, name: str, host: Host, *, needs_reload: bool) -> None:
        """One changing call, with the unit files as they are now; raises `Failure` with what was said."""
        lock = self._lock(host)
        try:
            if needs_reload or not self._reloaded or self.is_behind(host):
                self._reload(host)
            self._change(host, verb, "--system", name)
        finally:
            lock.release()

    def reload(self, host: Host) -> None:
        """Lets systemd read the unit files again."""
        lock = self._lock(host)
        try:
            self._reload(host)
        finally:
            lock.release()

    def is_behind(self, host: Host) -> bool:
        """Whether this run touched a unit file that systemd was not told of."""
        return len(self.touched_unit_files(host)) > self._told

    def touched(self, unit: str, host: Host) -> bool:
        """Whether systemd was not told of a file of that unit, or a link to it."""
        return any(f"/{unit}" in path for path in self.touched_unit_files(host)[self._told :])

    def touched_unit_files(self, host: Host) -> list[str]:
        paths = host.files.touched
        self._touched += [path for path in paths[self._scanned :] if path.startswith(READ_BY_A_RELOAD)]
        self._scanned = len(paths)
        return self._touched

    def _reload(self, host: Host) -> None:
        told = len(self.touched_unit_files(host))
        self._change(host, "daemon-reload", "--system")
        self._reloaded = True
        self._told = told

    def _change(self, host: Host, *words: str) -> None:
        done = host.commands.run(
            ("systemctl", *words), environment=_quiet_environment(host), timeout_seconds=CHANGE_TIMEOUT_SECONDS
        )
        if done.exit_code != 0:
            said = done.output.strip()
            raise Failure(f"systemctl {' '.join(words)} failed (exit {done.exit_code}){': ' if said else ''}{said}")

    def _lock(self, host: Host) -> Lock:
        """One caller on this host at a time, whatever its manifest."""
        path = "/run/mainstay-systemctl.lock"
        if host.files.effective_uid != 0:
            path = f"{host.state.directory()}/systemctl.lock"
        try:
            return host.state.lock(path, wait_seconds=LOCK_WAIT_SECONDS, stop=host.stop)
        except Busy as busy:
            raise Failure(f"systemctl is in use by another run for too long ({busy})") from None


def _quiet_environment(host: Host) -> dict[str, str]:
    """Words that do not depend on who runs this, and on no terminal."""
    return {**host.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}

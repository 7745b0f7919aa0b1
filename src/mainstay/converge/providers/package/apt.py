"""Packages of Debian and its derivatives: states from the dpkg database, changes by apt-get."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.converge.contract import Change
from mainstay.converge.failures import CommandFailed
from mainstay.converge.host.clock import wall_time
from mainstay.converge.host.commands import missing_programs, search_path
from mainstay.converge.host.host import Host
from mainstay.converge.host.packages import query, require_success, run_when_unlocked
from mainstay.converge.providers.package import PackageManager
from mainstay.converge.resources.package import LATEST, PRESENT, Package, PackageState

DATABASE = "/var/lib/dpkg/status"
# Steps that dpkg has started and not finished; a running dpkg has some too.
UNFINISHED_DIRECTORY = "/var/lib/dpkg/updates"
LISTS_DIRECTORY = "/var/lib/apt/lists"
# Every refresh updates these, even if it finds nothing new.
STAMPS = ("/var/lib/apt/periodic/update-success-stamp", f"{LISTS_DIRECTORY}/partial", LISTS_DIRECTORY)
LISTS_FRESH_SECONDS = 86400.0
SHOWN = "${Package}\\t${Architecture}\\t${db:Status-Abbrev}\\t${Version}\\n"
# The second letter of dpkg's status.
INSTALLED_LETTERS = "iWt"
BROKEN_LETTERS = {"H": "half-installed", "U": "unpacked but not configured", "F": "half-configured"}
KEEP_CONFIGURATION = ("--force-confdef", "--force-confold")
DOWNGRADE_WORDS = "Packages were downgraded and -y was used without --allow-downgrades"


class AptPackages(PackageManager):
    name = "apt"
    sources = ("/etc/apt/",)
    refresh_command = ("apt-get", "--quiet", "update")
    locked_words = ("Could not get lock", "Unable to acquire the dpkg frontend lock", "was locked by another process")

    def unavailable(self, host: Host) -> str | None:
        missing = missing_programs(host.files, search_path(host.environ), "apt-get", "dpkg-query")
        if missing is None and not host.files.exists(DATABASE):
            return f"the package database {DATABASE} does not exist"
        return missing

    # ---- reading ----
    def installed(self, names: Sequence[str], host: Host) -> dict[str, PackageState]:
        """dpkg-query prints nothing about unknown packages, and then exits 1."""
        done = query(host, ("dpkg-query", "--show", f"--showformat={SHOWN}", *names))
        if done.exit_code not in (0, 1):
            output = done.output.strip()[-500:]
            raise CommandFailed(
                f"the package database cannot be read: dpkg-query failed (exit {done.exit_code}): {output}"
            )
        states = {name: PackageState(name, self.name) for name in names}
        for line in done.stdout.split("\n"):
            name, *rest = line.split("\t")
            if len(rest) != 3:
                continue
            architecture, status, version = rest
            for key in (name, f"{name}:{architecture}"):
                if key in states:
                    _set_status(states[key], status, version)
        return states

    def offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        """Checks the name, because apt takes an unknown name as a pattern and would install all matches."""
        done = query(host, ("apt-cache", "show", "--no-all-versions", target))
        if done.exit_code != 0:
            return None
        name = target.partition("=")[0].partition(":")[0]
        stanzas = (f"\n{stanza}\n" for stanza in done.stdout.split("\n\n"))
        found = next((stanza for stanza in stanzas if f"\nPackage: {name}\n" in stanza), "")
        return found.partition("\nVersion: ")[2].partition("\n")[0] or None

    def target(self, wanted: Package) -> str:
        return f"{wanted.name}={wanted.version}" if wanted.version else wanted.name

    def lists_are_fresh(self, host: Host) -> bool:
        files = host.files
        if not files.exists(LISTS_DIRECTORY) or not any(
            "Packages" in name for name in files.listdir(LISTS_DIRECTORY)
        ):
            return False
        newest = max((files.stat(stamp).st_mtime for stamp in STAMPS if files.exists(stamp)), default=0.0)
        return bool(newest > wall_time() - LISTS_FRESH_SECONDS)

    # ---- changing ----
    def perform_together(self, steps: Sequence[tuple[Package, PackageState, Change]], host: Host) -> None:
        if any(actual.broken for _, actual, _ in steps) or self._is_unfinished(host):
            self._repair(host)
        verb = steps[0][2].verb
        targets = [self.target(wanted) for wanted, _, _ in steps]
        options = [f"--option=Dpkg::Options::={option}" for option in KEEP_CONFIGURATION]
        if any(wanted.version for wanted, _, _ in steps):
            options.append("--allow-downgrades")
        words = ("apt-get", "--quiet", "--yes", *options, verb, *targets)
        done = run_when_unlocked(host, words, self.locked_words)
        if done.exit_code != 0 and DOWNGRADE_WORDS in done.output and any(_is_upgrade(*step) for step in steps):
            # By the preferences of the host the latest version may be an older one; apt has changed nothing yet.
            done = run_when_unlocked(host, (*words[:3], "--allow-downgrades", *words[3:]), self.locked_words)
        require_success(done, f"apt-get {verb} {' '.join(targets)}")

    def _is_unfinished(self, host: Host) -> bool:
        files = host.files
        return files.exists(UNFINISHED_DIRECTORY) and any(
            name.isdecimal() for name in files.listdir(UNFINISHED_DIRECTORY)
        )

    def _repair(self, host: Host) -> None:
        """Finishes the work of an interrupted dpkg; waits for a running one."""
        words = ("dpkg", *KEEP_CONFIGURATION, "--configure", "--pending")
        require_success(run_when_unlocked(host, words, self.locked_words), "dpkg --configure --pending")


def _is_upgrade(wanted: Package, actual: PackageState, _change: Change) -> bool:
    return wanted.ensure == LATEST and bool(actual.versions)


def _set_status(state: PackageState, status: str, version: str) -> None:
    letter = status[1:2]
    if letter in BROKEN_LETTERS or status[2:3] == "R":
        state.broken = BROKEN_LETTERS.get(letter, "in need of a reinstallation")
    if letter in INSTALLED_LETTERS or state.broken:
        state.ensure = PRESENT
        state.versions = (version,)
        state.release = f"apt-mark unhold {state.name}" if status[:1] == "h" else None


PROVIDER = AptPackages()

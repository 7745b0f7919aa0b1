"""Packages of Fedora and its derivatives: states from the rpm database, changes by dnf."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.converge.contract import Change
from mainstay.converge.host.clock import wall_time
from mainstay.converge.host.commands import missing_programs, search_path
from mainstay.converge.host.host import Host
from mainstay.converge.host.packages import query, require_success, run_when_unlocked
from mainstay.converge.providers.package import PackageManager
from mainstay.converge.resources.package import PRESENT, REMOVE, Package, PackageState

INSTALLED_FORMAT = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}\\t%{RELEASE}\\t%{ARCH}\\n"
OFFERED_FORMAT = "%{name}\\t%{epoch}\\t%{version}\\t%{release}\\t%{arch}\\n"
ARCHITECTURES = ("noarch", "x86_64", "aarch64", "i686", "ppc64le", "s390x", "riscv64")
LISTS_FRESH_SECONDS = 86400
# dnf itself fetches lists again after this time.
FRESH = f"--setopt=metadata_expire={LISTS_FRESH_SECONDS}"
# Where dnf 4 and dnf 5 keep the lists of repositories.
CACHES = (("/var/cache/dnf", ".solv"), ("/var/cache/libdnf5", ""))


class DnfPackages(PackageManager):
    name = "dnf"
    sources = ("/etc/yum.repos.d/", "/etc/dnf/", "/etc/yum.conf")
    refresh_command = ("dnf", "--quiet", "--refresh", "makecache")
    # dnf waits for its own lock, but fails on a lock of rpm.
    locked_words = ("can't create transaction lock", "Failed to obtain the transaction lock")

    def unavailable(self, host: Host) -> str | None:
        return missing_programs(host.files, search_path(host.environ), "dnf", "rpm")

    # ---- reading ----
    def installed(self, names: Sequence[str], host: Host) -> dict[str, PackageState]:
        """rpm prints a sentence for a package that is not installed; only lines in the query format count."""
        done = query(host, ("rpm", "--query", "--queryformat", INSTALLED_FORMAT, *names))
        states = {name: PackageState(name, self.name) for name in names}
        for name, versions, architecture in _rows(done.stdout):
            for key in (name, f"{name}.{architecture}"):
                if key in states:
                    states[key].ensure = PRESENT
                    # Some packages, such as kernels, have several installed versions.
                    states[key].versions = (*versions, *states[key].versions)
        return states

    def offer(self, target: str, host: Host, *, may_fetch: bool) -> str | None:
        lists = FRESH if may_fetch else "--cacheonly"
        words = ("dnf", "--quiet", lists, "repoquery", "--latest-limit=1", "--queryformat", OFFERED_FORMAT, target)
        done = query(host, words)
        found = _rows(done.stdout) if done.exit_code == 0 else []
        return found[0][1][0] if found else None

    def target(self, wanted: Package) -> str:
        return _with_version(wanted.name, wanted.version) if wanted.version else wanted.name

    def lists_are_fresh(self, host: Host) -> bool:
        return True

    def lists_are_current(self, host: Host) -> bool:
        """Whether the cache has repositories, and all of them are younger than a day."""
        files = host.files
        oldest = wall_time() - LISTS_FRESH_SECONDS
        times = [
            files.stat(f"{cache}/{name}").st_mtime
            for cache, suffix in CACHES
            if files.exists(cache)
            for name in files.listdir(cache)
            if name.endswith(suffix)
        ]
        return bool(times) and min(times) > oldest

    # ---- changing ----
    def perform_together(self, steps: Sequence[tuple[Package, PackageState, Change]], host: Host) -> None:
        verb = steps[0][2].verb
        # Without a version, `install` keeps an installed older version.
        targets = [
            wanted.name if verb == REMOVE else _with_version(wanted.name, wanted.version or actual.candidate or "")
            for wanted, actual, _ in steps
        ]
        words = ("dnf", "--quiet", "--assumeyes", FRESH, verb, *targets)
        require_success(run_when_unlocked(host, words, self.locked_words), f"dnf {verb} {' '.join(targets)}")


def _with_version(name: str, version: str) -> str:
    """Returns the name with its version as dnf writes it: before the architecture, if there is one."""
    base, dot, architecture = name.rpartition(".")
    return f"{base}-{version}.{architecture}" if dot and architecture in ARCHITECTURES else f"{name}-{version}"


def _rows(text: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Returns name, all spellings of the version with the longest first, architecture."""
    found: list[tuple[str, tuple[str, ...], str]] = []
    for line in text.split("\n"):
        name, *rest = line.split("\t")
        if len(rest) != 4:
            continue
        epoch, version, release, architecture = rest
        full = f"{version}-{release}"
        with_epoch = f"{epoch}:{full}"
        versions = (full, version, with_epoch) if epoch in ("0", "(none)") else (with_epoch, full, version)
        found.append((name, versions, architecture))
    return found


PROVIDER = DnfPackages()

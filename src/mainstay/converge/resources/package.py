"""The `package` type: whether a package is installed, and in which version. Only decides; providers act."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mainstay.converge.contract import Change, NamedState, Property, Resource, ResourceType
from mainstay.converge.failures import Failure, Missing
from mainstay.foundation import Any
from mainstay.foundation.text import shorten

PRESENT, ABSENT, LATEST = "present", "absent", "latest"
INSTALL, REMOVE = "install", "remove"
# A name may contain an architecture: libc6:amd64, glibc.x86_64.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:-]*")
# At the end of an argument `-` means removal to apt and `+` installation, also when packages are removed. Real names end
# with `++` (g++) or with `+` after a digit (memtest86+): apt prefers a package of that name, and the providers pass only
# names that the package database contains.
INSTRUCTION = re.compile(r".*(?:[-:]|(?<![0-9+])\+|:.*\+)", re.DOTALL)
VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+~^_:-]*[A-Za-z0-9.~^_:])?")
LONGEST_NAME = LONGEST_VERSION = 200


class Package(Resource):
    ensure: str = PRESENT

    @property
    def version(self) -> str | None:
        """The desired version; None if any or the latest version is fine."""
        return None if self.ensure in (PRESENT, ABSENT, LATEST) else self.ensure


class PackageState(NamedState):
    """The state in the package database. `versions` are all spellings of the installed version, the longest first."""

    versions: tuple[str, ...] = ()
    # The version that would be installed; None if it was not queried or no version is available.
    candidate: str | None = None
    # The database's status for a package that is neither installed nor removed.
    broken: str | None = None
    # The command that releases a held package.
    release: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            **super().as_json(),
            "version": self.versions[0] if self.versions else None,
            "candidate": self.candidate,
        }


class PackageType(ResourceType):
    name = "package"
    resource = Package
    ensures = (PRESENT, ABSENT, LATEST)
    open_ensure = True
    has_unknown_effects = True
    time_limit_seconds = None
    altered_by = ("versions", "broken")
    properties: Mapping[str, Property] = {}

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        if not NAME.fullmatch(name):
            yield f'package name contains dangerous characters: "{shorten(ascii(name)[1:-1])}"'
        elif INSTRUCTION.fullmatch(name):
            shown = shorten(name)
            yield f'package name contains dangerous characters: "{shown}" (apt reads "{name[-1]}" at the end as an instruction)'
        elif len(name) > LONGEST_NAME:
            yield f"package name is longer than {LONGEST_NAME} characters"

    def check(self, wanted: Package) -> Iterator[tuple[str | None, str]]:
        version = wanted.version
        if version is None:
            return
        # Every version has a digit, and a misspelt `latest` has none.
        is_version = VERSION.fullmatch(version) and any(character.isdigit() for character in version)
        if not is_version or len(version) > LONGEST_VERSION:
            from mainstay.converge.migration_hints import meant_ensure

            shown = shorten(ascii(version)[1:-1])
            yield (
                "ensure",
                f'ensure: must be present, absent, latest or a version, not "{shown}"{meant_ensure(version, self.ensures)}',
            )

    # ---- in a run ----
    def manifest_entry(self, actual: PackageState) -> dict[str, Any]:
        if actual.broken is not None:
            raise Failure(f"package {actual.name} is {actual.broken}, which no manifest desires")
        return {"ensure": actual.versions[0] if actual.versions else ABSENT}

    def desired(self, wanted: Package, actual: PackageState) -> tuple[bool, str]:
        if actual.broken is not None:
            return False, f"package is {actual.broken}, expected {wanted.ensure}"
        if wanted.ensure == ABSENT or not actual.versions:
            return actual.ensure == wanted.ensure, f"package is {actual.ensure}, expected {wanted.ensure}"
        expected = actual.candidate if wanted.ensure == LATEST else wanted.version
        if expected is None or expected in actual.versions:
            return True, ""
        return False, f"version is {actual.versions[0]}, expected {expected}"

    def decide(self, wanted: Package, actual: PackageState, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        if reached:
            return ()
        if actual.release is not None and actual.broken is None:
            raise Failure(f"{reason}, but held packages are not changed; `{actual.release}` releases it")
        if wanted.ensure == ABSENT:
            return (Change(REMOVE, reason),)
        if actual.candidate is None and actual.broken is None:
            version = f" in version {wanted.version}" if wanted.version else ""
            raise Missing(f"{actual.provider} has no package {wanted.name}{version}")
        return (Change(INSTALL, reason),)

    def describe(self, wanted: Package, actual: PackageState, changes: tuple[Change, ...]) -> str:
        if changes[0].verb == REMOVE:
            return "Would have removed"
        if actual.broken is not None:
            return "Would have repaired"
        version = wanted.version or actual.candidate
        if not actual.versions:
            return f"Would have installed version {version}" if version else "Would have installed"
        return f"Would have changed version {actual.versions[0]} to {version}"

    def might_bring_more(self, changes: tuple[Change, ...]) -> bool:
        return changes[0].verb != REMOVE


TYPE = PackageType()

"""Applies a manifest twice on a throw-away host, and shows both runs and what they changed in the tree.

The host is a real systemd in namespaces of this machine. It sees the files of this machine and writes to a layer of its
own, which is removed at the end: nothing here changes. It has no network, and its own /tmp and /run. It protects
against accidents, not against hostile code: root inside is root. Needs root.
Exit codes: 0 the second run is stable, 1 a resource failed or the second run changed something, 2 it cannot be tried."""
# ruff: noqa: N999  # the command is named `try`

from __future__ import annotations

import argparse
import os
import sys

from mainstay.cli.local_run import EXIT_FAILED, add_value_options, exit_on_faults, value_layers
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.views.run_display import Palette, printable
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from mainstay.converge.contract import Resource
    from mainstay.converge.host.overlay_diff import LayerEntry, TreeChange
    from mainstay.converge.host.throw_away_host import SystemdHost
    from mainstay.converge.manifest import Manifest
    from mainstay.foundation import Any

SUMMARY = "apply a manifest twice on a throw-away host"
GROUP = "this host"
PROGRAM = "from mainstay.cli.main import program; program()"
# Not in the compared layer: a file system of the host's own.
STATE = "/run/mainstay-try"
OWN_DIRECTORIES = ("/dev", "/proc", "/run", "/sys", "/tmp")  # noqa: S108  # names to compare with
PASSED_ON = ("NO_COLOR", "TERM", "LANG", "LC_ALL")
LAYER_SIZE = "4g"
LONGEST_SECONDS = 24 * 3600.0
MOST_SHOWN = 500
MOST_DIFFS = 20
LONGEST_DIFF = 40


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "manifest", "MANIFEST", "a YAML file or a bundle")
    add_switch(parser, "-v", "--verbose", "also show stable resources")
    add_switch(parser, "--json", "print one JSON document")
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from mainstay.converge.host.throw_away_host import HostError, SystemdHost, remove_dead_hosts, why_unavailable

    if os.geteuid() != 0:
        raise CommandRefused("`mainstay try` boots a throw-away host, which needs root: run it as root")
    reason = why_unavailable()
    if reason is not None:
        raise CommandRefused(f"a throw-away host cannot run here: {reason}")
    path = _manifest_path(arguments.manifest)
    manifest = _load(path, arguments)
    remove_dead_hosts()
    binds = _binds(path, arguments)
    # The name of this machine, because overrides and templates may depend on it.
    name = os.uname().nodename
    try:
        with SystemdHost(name, read_only_binds=binds, size=LAYER_SIZE, life_seconds=LONGEST_SECONDS) as host:
            return Trial(host, manifest, path, arguments, Palette(sys.stdout)).run()
    except HostError as error:
        raise CommandRefused(f"the throw-away host ended: {error}", exit_code=EXIT_FAILED) from None


def _manifest_path(written: str) -> str:
    from mainstay.converge.host.sources import is_url

    if written == "-":
        raise CommandRefused("standard input cannot be tried, because it is read twice; write the manifest to a file")
    if is_url(written):
        raise CommandRefused("a URL cannot be tried: the throw-away host has no network; download the bundle first")
    path = os.path.realpath(written)
    if os.path.dirname(path) in OWN_DIRECTORIES:
        raise CommandRefused(
            f"{path} is not visible on the throw-away host, which has its own {os.path.dirname(path)}; put the manifest"
            " into a directory of its own"
        )
    return path


def _load(path: str, arguments: argparse.Namespace) -> Manifest:
    """Loads the manifest here first: a fault needs no host."""
    from tempfile import TemporaryDirectory

    from mainstay.converge.run import RunRequest, load

    with TemporaryDirectory(prefix="mainstay-try-") as state, exit_on_faults(as_json=arguments.json):
        return load(RunRequest(path, state_directory=state, **value_layers(arguments)))[1]


def _binds(path: str, arguments: argparse.Namespace) -> list[Path]:
    """What the host needs and would not see, such as files below /tmp or on another file system."""
    from pathlib import Path

    from mainstay.converge.host.throw_away_host import is_visible_in_host

    folders = [os.path.dirname(path), sys.prefix, sys.base_prefix, *(each for each in sys.path if each)]
    files = [each for name in ("data", "values", "facts") for each in getattr(arguments, name)]
    needed = {Path(os.path.realpath(each)) for each in (*folders, *files) if os.path.exists(each)}
    hidden = sorted(each for each in needed if not is_visible_in_host(each))
    # A directory brings what is below it.
    return [each for each in hidden if not any(above in each.parents for above in hidden)]


class Trial(Struct):
    """Both runs on one host. `_users`, `_groups`: their names on the host after the runs, which may have created some."""

    _host: SystemdHost
    _manifest: Manifest
    _path: str
    _arguments: argparse.Namespace
    _palette: Palette
    _users: dict[int, str] = {}
    _groups: dict[int, str] = {}

    def run(self) -> int:
        from mainstay.converge.host.overlay_diff import TooManyEntries, find_changes, read_layer

        as_json: bool = self._arguments.json
        try:
            before = read_layer(self._host.upper_layer)
            first = self._apply(1, "First run")
            after = read_layer(self._host.upper_layer)
            changes = find_changes(before, after)
            second = None if first["summary"]["failed"] else self._apply(2, "Second run")
            later = [] if second is None else find_changes(after, read_layer(self._host.upper_layer))
            self._users = _names_by_id(self._host.read("/etc/passwd"))
            self._groups = _names_by_id(self._host.read("/etc/group"))
        except TooManyEntries as problem:
            raise CommandRefused(str(problem), exit_code=EXIT_FAILED) from None
        events = [] if second is None else second["events"]
        unstable = [event for event in events if event["outcome"] not in ("stable", "skipped")]
        is_stable = second is not None and not unstable
        if as_json:
            print_json(
                {
                    "manifest": self._path,
                    "stable": is_stable,
                    "first": first,
                    "second": second,
                    "differences": [self._as_json(change) for change in changes],
                    "later_differences": [self._as_json(change) for change in later],
                }
            )
        else:
            self._show_changes("Changed paths", changes)
            if later:
                self._show_changes("Changed in the second run", later)
            self._show_result(first, unstable, second)
        return 0 if is_stable else EXIT_FAILED

    def _apply(self, number: int, title: str) -> dict[str, Any]:
        """Runs `mainstay apply` on the host and returns its report."""
        import json
        import subprocess

        arguments = self._arguments
        report = f"{STATE}/{number}.json"
        words = [sys.executable, "-c", PROGRAM, "apply", self._path, "--diff", "--report", report]
        words += ["--json"] if arguments.json else ["--verbose"] if arguments.verbose else []
        for option in ("data", "values", "facts"):
            for file in getattr(arguments, option):
                words += [f"--{option}", os.path.realpath(file)]
        for option in ("set", "fact"):
            for text in getattr(arguments, option):
                words += [f"--{option}", text]
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment.update(
            MAINSTAY_STATE_DIR=STATE,
            MAINSTAY_CONFIG_DIR=os.environ.get("MAINSTAY_CONFIG_DIR", "/etc/mainstay"),
            PYTHONPATH=os.pathsep.join(each for each in sys.path if each),
            PYTHONDONTWRITEBYTECODE="1",
        )
        if not arguments.json:
            print(self._palette.paint(title, "bold"), flush=True)
        self._host.run("mkdir", "-p", "-m", "700", STATE, check=True)
        done = subprocess.run(
            self._host.command(words, environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if arguments.json else None,
            check=False,
        )
        if done.returncode not in (0, EXIT_FAILED):
            raise CommandRefused(f"the {title.lower()} ended with exit {done.returncode}", exit_code=done.returncode)
        found: dict[str, Any] = json.loads(self._host.read(report))
        return found

    # ---- output ----
    def _show_changes(self, title: str, changes: list[TreeChange]) -> None:
        print(self._palette.paint(f"{title}: {len(changes)}", "bold"))
        shown = changes[:MOST_SHOWN]
        width = min(60, max((len(printable(change.path)) for change in shown), default=0))
        diffs = 0
        for change in shown:
            sign = {"added": "+", "removed": "-"}.get(change.kind, "@")
            print(
                f"{self._palette.paint(f'{change.kind:<9}', sign)} {printable(change.path):<{width}}  {self._describe(change)}"
            )
            lines = self._diff(change) if diffs < MOST_DIFFS else []
            diffs += bool(lines)
            for line in lines:
                print("          " + self._palette.paint(printable(line), line[:1]))
        if len(changes) > len(shown):
            print(f"… and {len(changes) - len(shown)} more; --json lists all")

    def _show_result(
        self, first: dict[str, Any], unstable: list[dict[str, Any]], second: dict[str, Any] | None
    ) -> None:
        if second is None:
            for line in self._network_hint(first):
                print(line)
            count = first["summary"]["failed"]
            print(
                f"The first run failed: {count} {'resource' if count == 1 else 'resources'}. There was no second run."
            )
        elif unstable:
            names = ", ".join(f"{event['type']}#{event['name']}" for event in unstable[:10])
            print(f"Not stable: the second run changed or failed {len(unstable)}: {printable(names)}")
        else:
            print("Stable: the second run changed nothing. This machine was not changed.")

    def _network_hint(self, first: dict[str, Any]) -> list[str]:
        failed = {(event["type"], event["name"]) for event in first["events"] if event["outcome"] == "failed"}
        packages = sorted(name for kind, name in failed if kind == "package")
        if packages:
            hint = "packages must be in the cache of the package manager"
            if os.path.exists("/usr/bin/apt-get"):
                names = printable(" ".join(packages[:10]))
                hint += f": run `apt-get install --download-only {names}` on this machine, then try again"
            return [f"The throw-away host has no network; {hint}."]
        remote = [
            each.id for each in self._manifest.resources if (each.type, each.name) in failed and _is_download(each)
        ]
        if remote:
            return [
                "The throw-away host has no network; download the archive, and name the file in `url` for the trial."
            ]
        return []

    def _diff(self, change: TreeChange) -> list[str]:
        """The diff of a file that changed without a resource. Empty for private files and secrets."""
        from difflib import unified_diff

        resources = self._manifest.resources
        written = {self._manifest.types[each.type].written_path(each) for each in resources}
        if change.path in written or any(each.sensitive for each in resources):
            return []
        texts = [_public_text(entry) for entry in (change.before, change.after)]
        if None in texts or change.kind != "changed":
            return []
        old, new = ((text or "").splitlines() for text in texts)
        lines = list(unified_diff(old, new, lineterm="", n=1))[2:]
        return (
            [*lines[:LONGEST_DIFF], f"… {len(lines) - LONGEST_DIFF} more lines"]
            if len(lines) > LONGEST_DIFF
            else lines
        )

    def _describe(self, change: TreeChange) -> str:
        old, new = change.before, change.after
        if old is None or new is None:
            found = new or old
            return "" if found is None else self._describe_entry(found)
        parts = [self._owner_and_mode(new)]
        if not old.same_attributes(new):
            parts = [f"{self._owner_and_mode(old)} → {self._owner_and_mode(new)}"]
        if old.kind != new.kind:
            parts.append(f"{old.kind} → {new.kind}")
        elif not old.same_content(new):
            is_file = new.kind == "file"
            parts.append(f"{old.size} → {new.size} bytes" if is_file else f"→ {printable(new.target)}")
        return ", ".join(parts)

    def _describe_entry(self, entry: LayerEntry) -> str:
        extra = {"file": f", {entry.size} bytes", "link": f" → {printable(entry.target)}"}.get(entry.kind, "")
        return f"{entry.kind} {self._owner_and_mode(entry)}{extra}"

    def _owner_and_mode(self, entry: LayerEntry) -> str:
        owner = self._users.get(entry.uid, entry.uid)
        return f"{owner}:{self._groups.get(entry.gid, entry.gid)} {entry.mode:04o}"

    def _as_json(self, change: TreeChange) -> dict[str, Any]:
        return {
            "change": change.kind,
            "path": change.path,
            "before": self._entry_as_json(change.before),
            "after": self._entry_as_json(change.after),
        }

    def _entry_as_json(self, entry: LayerEntry | None) -> dict[str, Any] | None:
        if entry is None:
            return None
        return {
            "kind": entry.kind,
            "owner": str(self._users.get(entry.uid, entry.uid)),
            "group": str(self._groups.get(entry.gid, entry.gid)),
            "mode": f"{entry.mode:04o}",
            "size": entry.size if entry.kind == "file" else None,
            "target": entry.target or None,
        }


def _is_download(resource: Resource) -> bool:
    from mainstay.converge.host.sources import is_url

    url = getattr(resource, "url", None)
    return isinstance(url, str) and is_url(url)


def _public_text(entry: LayerEntry | None) -> str | None:
    if entry is None or entry.content is None or not entry.mode & 0o004:
        return None
    try:
        return entry.content.decode()
    except UnicodeDecodeError:
        return None


def _names_by_id(text: str) -> dict[int, str]:
    """Reads /etc/passwd or /etc/group; the first name of an id counts."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit():
            found.setdefault(int(fields[2]), fields[0])
    return found

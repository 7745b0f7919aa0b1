"""Throw-away hosts with a real systemd that run the installed `mainstay`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fork_server
from mainstay.converge.host.throw_away_host import SystemdHost, is_visible_in_host, why_unavailable
from required_parts import need

CLONE = Path(__file__).parents[2]
# Units have a /tmp of their own, so that hosts see a clone below /tmp at another place, too, with a program there.
IS_TEMPORARY = any(CLONE.is_relative_to(place) for place in ("/tmp", "/var/tmp"))
MOVED = Path("/opt/mainstay-under-test")
PROGRAM = MOVED / "bin" / "mainstay" if IS_TEMPORARY else fork_server.PROGRAM
MOVED_PROGRAM = f"""#!{MOVED}/tree/.venv/bin/python
import sys
sys.path.insert(0, "{MOVED}/tree/src")
from mainstay.cli.main import program
program()
"""
# Wrappers, first on PATH: each records its arguments, then runs the real program.
RECORDED = ("systemctl", "apt-get", "dpkg")
RECORDER = """#!/bin/sh
[ -z "$COMMAND_RECORD" ] || echo "PROGRAM $*" >>"$COMMAND_RECORD"
exec /usr/bin/PROGRAM "$@"
"""
SHOW = "show --system -p Id,Names,LoadState,ActiveState,SubState,UnitFileState,Type,RemainAfterExit,NeedDaemonReload "
ENVIRONMENT = {"MAINSTAY_STATE_DIR": "/var/lib/mainstay", "MAINSTAY_CONFIG_DIR": "/etc/mainstay"}


class Done:
    """A finished run of `mainstay` in a host."""

    def __init__(self, exit_code: int, document: dict[str, Any], commands: list[str]) -> None:
        self.exit_code = exit_code
        self.document = document
        # The calls of systemctl and of package managers, in order; a query of units is shortened to `show`.
        self.commands = commands

    @property
    def events(self) -> dict[str, dict[str, Any]]:
        return {f"{event['type']}#{event['name']}": event for event in self.document["events"]}

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: event["outcome"] for name, event in self.events.items()}

    @property
    def changing(self) -> list[str]:
        return [command for command in self.commands if command != "show" and not command.startswith("is-enabled")]


class ManagedHost:
    """A host, and the runs of `mainstay` in it."""

    def __init__(self, machine: SystemdHost) -> None:
        self.machine = machine
        for program in RECORDED:
            machine.write(f"/usr/local/sbin/{program}", RECORDER.replace("PROGRAM", program), mode=0o755)

    def apply(self, manifest: str, *options: str, path: str = "/home/manifest.yaml") -> Done:
        return self.mainstay("apply", path, "--json", *options, setup=f"cat >{path}", stdin=manifest)

    def mainstay(self, *words: str, setup: str = ":", stdin: str = "") -> Done:
        """Runs a command with `--json`. One script does everything, because entering a host is slow."""
        script = (
            f"{setup}; export COMMAND_RECORD=$(mktemp); code=0;"
            ' "$@" </dev/null || code=$?; echo; cat $COMMAND_RECORD; echo "exit $code"'
        )
        program = ["env", *(f"{key}={value}" for key, value in ENVIRONMENT.items()), str(PROGRAM)]
        output = self.machine.shell(script, *program, *words, stdin=stdin)
        try:
            document, end = json.JSONDecoder().raw_decode(output)
        except ValueError:
            raise AssertionError(f"{words}: {output}") from None
        *lines, last = output[end:].strip().split("\n")
        commands = [line.removeprefix("systemctl ") for line in lines if line]
        commands = ["show" if command.startswith(SHOW) else command for command in commands]
        return Done(int(last.removeprefix("exit ")), document, commands)

    def unit(self, name: str, text: str, directory: str = "/usr/local/lib/systemd/system") -> None:
        self.machine.write(f"{directory}/{name}.service", text.replace("NAME", name))

    def shell(self, script: str) -> str:
        return self.machine.shell(script)

    def snapshot(self) -> str:
        """Everything that a dry run must not change."""
        return self.shell(
            "find /etc /usr/local/lib/systemd /opt /srv /var/lib/dpkg /var/lib/apt -xdev -printf '%p %s %m %T@\\n' | sort;"
            " systemctl list-units --all --plain --no-legend; systemctl list-unit-files --plain --no-legend"
        )


def need_systemd() -> None:
    reason = why_no_host()
    need(present=reason is None, what=f"a host with a real systemd ({reason})")


@cache
def why_no_host() -> str | None:
    if not fork_server.PROGRAM.exists():
        return f"mainstay is not installed beside {sys.executable}"
    return why_unavailable()


@contextmanager
def boot(name: str, *, network: bool = False, disk: Path | None = None) -> Iterator[SystemdHost]:
    # The project and its interpreter may be below a directory that the host does not share, such as /tmp.
    needed = {CLONE, Path(sys.prefix), Path(sys.base_prefix)}
    binds = [path for path in sorted(needed) if not is_visible_in_host(path)]
    machine = SystemdHost(name, read_only_binds=binds, network=network, disk=disk)
    if IS_TEMPORARY:
        machine.binds += f"{CLONE}\t{MOVED}/tree\n"
    with machine:
        if IS_TEMPORARY:
            machine.write(str(PROGRAM), MOVED_PROGRAM, mode=0o755)
            machine.shell(f"ln -sf {MOVED}/tree/.venv/bin/python {PROGRAM.with_name('python')}")
        yield machine


@pytest.fixture(scope="session")
def shared_host() -> Iterator[ManagedHost]:
    """One host for all tests that use only their own units."""
    need_systemd()
    with boot("shared") as machine:
        yield ManagedHost(machine)


@pytest.fixture
def new_hosts() -> Iterator[Callable[..., ManagedHost]]:
    """Boots any number of hosts for one test."""
    need_systemd()
    with ExitStack() as stack:

        def make(name: str = "fresh", *, network: bool = False, disk: Path | None = None) -> ManagedHost:
            return ManagedHost(stack.enter_context(boot(name, network=network, disk=disk)))

        yield make


@pytest.fixture
def new_host(new_hosts: Callable[..., ManagedHost]) -> ManagedHost:
    return new_hosts()

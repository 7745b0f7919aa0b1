"""Installs the agent as a systemd unit, with the convergence engine."""

from __future__ import annotations

import os

from mainstay.cli.main import CommandRefused
from mainstay.cli.systemd_units import (
    apply_units,
    program_words,
    quoted_word,
    refuse_hidden_program,
    running_unit,
    unit_file,
    warn_of_temporary_program,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from mainstay.foundation.yaml.scalars import Node

NAME = "mainstay-agent.service"
UNIT_PATH = f"/etc/systemd/system/{NAME}"
# TimeoutStopSec: on SIGTERM the agent finishes the current resource, which may be a long command.
# KillMode=process: processes that commands left running stay alive.
UNIT = """\
[Unit]
Description=Mainstay agent
Documentation=man:systemd.service(5)
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=process
TimeoutStopSec=15min

[Install]
WantedBy=multi-user.target
"""


def packaged_unit(program: str) -> str:
    """The unit of a system package, with the defaults of `agent install`."""
    return UNIT.format(command=f"{program} agent run")


def install(arguments: argparse.Namespace) -> int:
    from mainstay.agent.enrolment import NotEnrolled, default_path, read_enrolment
    from mainstay.cli.commands.agent import check_trust
    from mainstay.cli.local_run import exit_on_faults

    place = os.path.abspath(arguments.config or default_path(os.environ))
    try:
        read_enrolment(place)
    except NotEnrolled as problem:
        raise CommandRefused(str(problem)) from None
    with exit_on_faults(as_json=False):
        check_trust(arguments.trust)
    if os.geteuid() != 0:
        raise CommandRefused("`mainstay agent install` creates a systemd system unit: run it as root")
    content = UNIT.format(command=" ".join(quoted_word(word) for word in _command(arguments, place)))
    refuse_hidden_program(NAME, content)
    warn_of_temporary_program(NAME)
    document: Node = [
        {"file": [unit_file(UNIT_PATH, content)]},
        {"service": [running_unit("mainstay-agent", [UNIT_PATH])]},
    ]
    return apply_units("agent install", document, noop=arguments.noop)


def _command(arguments: argparse.Namespace, place: str) -> list[str]:
    """The command of the unit: this program with the options of `agent install`."""
    words = [*program_words(), "agent", "run", "--config", place]
    words += ["--jobs", str(arguments.jobs), "--lease", arguments.lease, "--drift-interval", arguments.drift_interval]
    words += ["--log-format", arguments.log_format]
    for directory in arguments.blueprint:
        words += ["--blueprint", os.path.abspath(directory)]
    if arguments.trust:
        words += ["--trust", os.path.abspath(arguments.trust)]
    if arguments.root:
        words += ["--root", os.path.abspath(arguments.root)]
    if arguments.metrics_port is not None:
        words += ["--metrics-port", str(arguments.metrics_port)]
    return words

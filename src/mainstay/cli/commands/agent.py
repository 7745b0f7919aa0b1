"""Runs the agent of this host, which executes the jobs of a control plane.

`agent enroll URL CODE` enrolls this host with a code from `mainstay agents add` or `mainstay agents code`. `agent run`
executes jobs until SIGTERM, then finishes the current resource and releases its jobs. `agent install` installs the agent
as a systemd unit. Address, token, --ca-file and --insecure are stored in `agent.json` in the configuration directory, readable only by its
user."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, parse_seconds, whole_number
from mainstay.cli.remote.connection_options import add_connection_options, checked_ca_file

SUMMARY = "run the agent on this host"
GROUP = "many hosts"
# By the code of the refusal.
ENROLMENT_HINTS = {
    # The refusal does not reveal what kind of code it was.
    "bad_code": (
        "\nCreate a new code on a machine where you are logged in: for an agent that exists `mainstay agents code AGENT`,"
        " for new hosts `mainstay agents code --type AGENT-TYPE --count N`."
    ),
    "name_taken": "\nGive another name with --name, or use the code of that agent: `mainstay agents code AGENT`.",
}
UNIT_NAME = "mainstay-agent.service"
# TimeoutStopSec: on SIGTERM the agent ends within 30 seconds.
# KillMode=process: processes that commands left running stay alive, and so does a package manager at work.
UNIT = """\
[Unit]
Description=Mainstay agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=process
TimeoutStopSec=45s

[Install]
WantedBy=multi-user.target
"""
MIN_LEASE_SECONDS, MAX_LEASE_SECONDS = 10, 600
MAX_JOBS = 100


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="enroll|run|install")
    enroll = verbs.add_parser("enroll", help="enroll this host with a code", allow_abbrev=False)
    add_argument(enroll, "url", "URL", "address of the control plane")
    add_argument(enroll, "code", "CODE", "code from `mainstay agents add` or `mainstay agents code`")
    add_argument(
        enroll,
        "--name",
        "NAME",
        "name of the new agent, for a code of many hosts (default: name of this host); the prefix of the code comes"
        " before it",
    )
    add_connection_options(enroll)
    run = verbs.add_parser("run", help="run the agent until SIGTERM", allow_abbrev=False)
    add_switch(run, "--insecure", "allow plain HTTP to another host")
    install = verbs.add_parser("install", help="install the agent as a systemd unit and start it", allow_abbrev=False)
    add_switch(install, "--noop", "dry run: show what would change, change nothing")
    for verb in (enroll, run, install):
        add_argument(verb, "--config", "FILE", "enrollment file (default agent.json in the configuration directory)")
    for verb in (run, install):
        _add_run_options(verb)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    jobs = whole_number(1, MAX_JOBS, f"from 1 to {MAX_JOBS}")
    add_argument(parser, "--jobs", "N", "number of parallel jobs (default 4)", type=jobs, default=4)
    add_argument(parser, "--lease", "DURATION", "lease of a job (default 60s)", default="60s")
    add_argument(
        parser,
        "--drift-interval",
        "DURATION",
        "time between drift checks (default 5m); 0s turns them off",
        default="5m",
    )
    add_list_option(
        parser, "--blueprint", "DIR", "use this directory for its service type instead of the pushed blueprint"
    )
    add_argument(
        parser,
        "--trust",
        "KEYS",
        "run only blueprints that a key of this file signed: one public key per line; `min NAME VERSION`"
        " refuses older versions",
    )
    add_argument(parser, "--root", "DIR", "value of service.root in manifests (default empty)", default="")
    add_argument(parser, "--metrics-port", "N", "serve /metrics and /healthz on this loopback port", type=int)
    parser.add_argument("--log-format", choices=("lines", "json"), default="lines", help="log format (default lines)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "enroll":
        return _enroll(arguments)
    if arguments.verb == "install":
        return _install(arguments)
    return _work(arguments)


def _enroll(arguments: argparse.Namespace) -> int:
    from mainstay.agent.client import PlainHttpRefused, ServerRefusal, Unreachable
    from mainstay.agent.enrolment import default_path, enrol
    from mainstay.cli.views.run_display import printable

    place = arguments.config or default_path(os.environ)
    if not arguments.url.startswith(("http://", "https://")):
        raise CommandRefused(f"{arguments.url} is not a server address; it must begin with https:// or http://")
    try:
        enrolment = enrol(
            arguments.url,
            arguments.code,
            place,
            checked_ca_file(arguments.ca_file),
            insecure=arguments.insecure,
            name=arguments.name,
        )
    except PlainHttpRefused as refusal:
        raise CommandRefused(str(refusal)) from None
    except Unreachable as error:
        raise CommandRefused(f"{error}; is the server running there?", exit_code=1) from None
    except ServerRefusal as refusal:
        raise CommandRefused(f"the server refused: {refusal}{ENROLMENT_HINTS.get(refusal.code, '')}") from None
    name = f"{printable(enrolment.name)} ({enrolment.agent_id})" if enrolment.name else enrolment.agent_id
    print(f"Enrolled as agent {name}. The token is stored in {place}.")
    print("Start the agent with `mainstay agent run`, or install it as a systemd unit with `mainstay agent install`.")
    return 0


def _work(arguments: argparse.Namespace) -> int:
    from mainstay.agent.blueprint_cache import check_local
    from mainstay.agent.client import PlainHttpRefused
    from mainstay.agent.context import AgentContext, AgentSettings, WorkArea
    from mainstay.agent.enrolment import NotEnrolled, default_path, read_enrolment
    from mainstay.agent.log import Log
    from mainstay.agent.loop import AgentLoop, AlreadyRunning
    from mainstay.agent.metrics import serve_metrics
    from mainstay.cli.local_run import exit_on_faults
    from mainstay.converge.host.state import StateDirectory, state_path

    settings = AgentSettings(
        jobs=arguments.jobs,
        lease_seconds=_lease_seconds(arguments.lease),
        drift_seconds=_drift_seconds(arguments.drift_interval),
        blueprints=arguments.blueprint,
        trust=os.path.abspath(arguments.trust) if arguments.trust else None,
    )
    try:
        enrolment = read_enrolment(arguments.config or default_path(os.environ))
        enrolment.insecure |= arguments.insecure
        client = enrolment.client(connections=settings.jobs * 2 + 4)
    except (NotEnrolled, PlainHttpRefused) as problem:
        raise CommandRefused(str(problem)) from None
    with exit_on_faults(as_json=False):
        check_local(arguments.blueprint)
        _check_trust(settings.trust)
        state = StateDirectory(state_path(os.environ))
        root = os.path.abspath(arguments.root) if arguments.root else ""
        log = Log(as_json=arguments.log_format == "json")
        agent = AgentContext(client, state, WorkArea(state.path, root, os.environ), settings, log)
        loop = AgentLoop(agent)
        if arguments.metrics_port is not None:
            page = serve_metrics(agent.metrics, arguments.metrics_port)
            log.info("serving metrics", address=f"http://127.0.0.1:{page.server_port}/metrics")
        try:
            loop.run()
        except AlreadyRunning as problem:
            raise CommandRefused(str(problem), exit_code=3) from None
    return 0


def _check_trust(path: str | None) -> None:
    """Refuses a file that would fail every job. Raises `DoesNotLoad`."""
    if path is None:
        return
    from importlib.util import find_spec

    from mainstay.agent.signatures import read_trusted_keys

    if find_spec("cryptography") is None:
        raise CommandRefused("--trust needs the package `cryptography`: install Mainstay with its extra `trust`")
    read_trusted_keys(path)


def _drift_seconds(text: str) -> float:
    """0 turns drift checks off."""
    return 0.0 if text in ("0", "0s") else parse_seconds(text, "--drift-interval")


def _lease_seconds(text: str) -> int:
    found = parse_seconds(text, "--lease")
    if not MIN_LEASE_SECONDS <= found <= MAX_LEASE_SECONDS:
        raise CommandRefused(f"--lease must be from {MIN_LEASE_SECONDS}s to {MAX_LEASE_SECONDS // 60}m")
    return int(found)


# ---- the systemd unit ----
def packaged_unit(program: str) -> str:
    """The unit of a system package, with the defaults of `agent install`."""
    return UNIT.format(command=f"{program} agent run")


def _install(arguments: argparse.Namespace) -> int:
    from mainstay.agent.enrolment import NotEnrolled, default_path, read_enrolment
    from mainstay.cli.local_run import exit_on_faults
    from mainstay.cli.systemd_units import (
        install_units,
        quoted_word,
        refuse_hidden_program,
        warn_of_temporary_program,
    )

    place = os.path.abspath(arguments.config or default_path(os.environ))
    try:
        read_enrolment(place)
    except NotEnrolled as problem:
        raise CommandRefused(str(problem)) from None
    with exit_on_faults(as_json=False):
        _check_trust(arguments.trust)
    if os.geteuid() != 0:
        raise CommandRefused("`mainstay agent install` creates a systemd system unit: run it as root")
    content = UNIT.format(command=" ".join(quoted_word(word) for word in _command(arguments, place)))
    refuse_hidden_program(UNIT_NAME, content)
    warn_of_temporary_program(UNIT_NAME)
    return install_units("agent install", UNIT_NAME, {UNIT_NAME: content}, noop=arguments.noop)


def _command(arguments: argparse.Namespace, place: str) -> list[str]:
    """The command of the unit: this program with the options of `agent install`."""
    from mainstay.cli.systemd_units import program_words

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

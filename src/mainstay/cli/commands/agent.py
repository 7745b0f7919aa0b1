"""The agent of this host: carries out what is ordered in a control plane, and reports back.

`agent enroll URL CODE` lets this host in, once, with a code from the control plane; `agent run` then works until it is
told to stop (SIGTERM: the resource at hand is finished, the job is given back); `agent install` makes a systemd unit of
it. Address and token are kept in `agent.json` of the configuration directory, readable by its user only."""

from __future__ import annotations

import os

from mainstay.cli.main import CommandRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "work for a control plane on this host"
LEAST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 10, 600


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="enroll|run|install")
    enroll = verbs.add_parser("enroll", help="let this host in with a code", allow_abbrev=False)
    enroll.add_argument("url", metavar="URL", help="address of the control plane")
    enroll.add_argument("code", metavar="CODE", help="works once, within 15 minutes")
    enroll.add_argument("--ca-file", metavar="FILE", help="certificates to trust besides the system's")
    run = verbs.add_parser("run", help="work until told to stop", allow_abbrev=False)
    install = verbs.add_parser("install", help="make a systemd unit of it, and start that", allow_abbrev=False)
    install.add_argument("--noop", action="store_true", help="say what would be done; touch nothing")
    for verb in (enroll, run, install):
        verb.add_argument("--config", metavar="FILE", help="the enrolment; agent.json when not given")
    for verb in (run, install):
        _add_run_options(verb)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", metavar="N", type=int, default=4, help="how many jobs side by side; 4")
    parser.add_argument("--lease", metavar="DURATION", default="60s", help="how long a job is held unrenewed; 60s")
    parser.add_argument(
        "--drift-interval", metavar="DURATION", default="5m", help="how often drift is looked for; 5m, 0s never"
    )
    parser.add_argument(
        "--blueprint",
        metavar="DIR",
        action="append",
        default=[],
        help="use this directory for its service type; nothing is fetched then",
    )
    parser.add_argument("--root", metavar="DIR", default="", help="what manifests find as service.root; empty")
    parser.add_argument("--metrics-port", metavar="N", type=int, help="/metrics and /healthz on loopback")
    parser.add_argument("--log-format", choices=("lines", "json"), default="lines", help="lines or json")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "enroll":
        return _enroll(arguments)
    if arguments.verb == "install":
        from mainstay.cli.agent_unit import install

        return install(arguments)
    return _work(arguments)


def _enroll(arguments: argparse.Namespace) -> int:
    from mainstay.agent.client import ServerRefusal, Unreachable
    from mainstay.agent.enrolment import default_path, enrol

    place = arguments.config or default_path(os.environ)
    if not arguments.url.startswith(("http://", "https://")):
        raise CommandRefused(f"{arguments.url} is not an address; it begins with https:// or http://")
    try:
        enrolment = enrol(arguments.url, arguments.code, place, arguments.ca_file)
    except Unreachable as error:
        raise CommandRefused(f"{error}; is the server running there?", exit_code=1) from None
    except ServerRefusal as refusal:
        way_out = "\n`mainstay agents code AGENT`, where somebody is logged in, makes a new one."
        raise CommandRefused(
            f"the server refuses: {refusal}{way_out if 'this code' in str(refusal) else ''}"
        ) from None
    print(f"Enrolled as agent {enrolment.agent_id}; the token is kept in {place}.")
    print("`mainstay agent run` starts to work, `mainstay agent install` makes a unit of it.")
    return 0


def _work(arguments: argparse.Namespace) -> int:
    from mainstay.agent.blueprint_cache import check_local
    from mainstay.agent.enrolment import NotEnrolled, default_path, read_enrolment
    from mainstay.agent.job_runner import WorkArea
    from mainstay.agent.log import Log
    from mainstay.agent.loop import AgentLoop, AgentSettings, AlreadyRunning
    from mainstay.agent.metrics import serve_metrics
    from mainstay.cli.local_run import or_exit
    from mainstay.converge.host.state import StateDirectory, state_path

    settings = AgentSettings(
        jobs=_count(arguments.jobs),
        lease_seconds=_lease_seconds(arguments.lease),
        drift_seconds=_drift_seconds(arguments.drift_interval),
        blueprints=arguments.blueprint,
    )
    try:
        enrolment = read_enrolment(arguments.config or default_path(os.environ))
    except NotEnrolled as problem:
        raise CommandRefused(str(problem)) from None
    with or_exit(as_json=False):
        check_local(arguments.blueprint)
        state = StateDirectory(state_path(os.environ))
        root = os.path.abspath(arguments.root) if arguments.root else ""
        log = Log(as_json=arguments.log_format == "json")
        client = enrolment.client(connections=settings.jobs * 2 + 4)
        agent = AgentLoop(client, state, WorkArea(state.path, root, os.environ), settings, log)
        if arguments.metrics_port is not None:
            page = serve_metrics(agent.metrics, arguments.metrics_port)
            log.info("serving metrics", address=f"http://127.0.0.1:{page.server_port}/metrics")
        try:
            agent.run()
        except AlreadyRunning as problem:
            raise CommandRefused(str(problem), exit_code=3) from None
    return 0


def _count(jobs: int) -> int:
    if not 1 <= jobs <= 100:
        raise CommandRefused("--jobs must be from 1 to 100")
    return jobs


def _drift_seconds(text: str) -> float:
    """0: never."""
    return 0.0 if text in ("0", "0s") else _seconds(text, "--drift-interval")


def _lease_seconds(text: str) -> int:
    found = _seconds(text, "--lease")
    if not LEAST_LEASE_SECONDS <= found <= LONGEST_LEASE_SECONDS:
        raise CommandRefused(f"--lease must be from {LEAST_LEASE_SECONDS}s to {LONGEST_LEASE_SECONDS // 60}m")
    return int(found)


def _seconds(text: str, option: str) -> float:
    from mainstay.converge.value_kinds import Unfit, parse_duration

    try:
        return parse_duration(text)
    except Unfit as error:
        raise CommandRefused(f"{option}: {error}") from None

"""What `order`, `do` and `move` share: their options, how they send, and the output of dry runs and plans."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import EXIT_FAILED
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.job_progress import add_wait_options, follow_or_report
from mainstay.cli.remote.service_types import Members, hide_secrets
from mainstay.cli.views.reports import print_report
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BOLD, format_value, local_time, tree_lines

# The server waits up to 60 s for the agent.
PLAN_SECONDS = 90.0


def _digest_option(text: str) -> str:
    """Refuses an empty digest, which a broken script may pass: it would order without a plan."""
    if not text:
        raise CommandRefused("--plan-digest is empty; --plan prints a digest")
    return text


def add_order_options(parser: argparse.ArgumentParser) -> None:
    modes = parser.add_mutually_exclusive_group()
    add_switch(modes, "--dry-run", "only show what the control plane would do")
    add_switch(modes, "--plan", "also show what would change on the host")
    add_argument(
        modes, "--plan-digest", "DIGEST", "make exactly the changes of this plan, or fail", type=_digest_option
    )
    add_wait_options(parser)
    add_switch(parser, "-v", "--verbose", "in a plan, also show stable resources")
    add_remote_options(parser)


def send_order(client: Client, arguments: argparse.Namespace, method: str, path: str, body: Mapping[str, Any]) -> Any:
    """Sends an order, or asks for its forecast."""
    if arguments.plan_digest:
        body = {**body, "planDigest": arguments.plan_digest}
    return client.call(method, path, body, query=forecast_query(arguments), timeout_seconds=PLAN_SECONDS)


def finish_order(
    client: Client,
    arguments: argparse.Namespace,
    answer: Any,
    action: str,
    members: Members | None,
    *,
    agent: str = "",
) -> int:
    """Prints the forecast, or follows the job. `agent` is the name of the agent, if known."""
    if is_forecast(arguments):
        return _show_forecast(arguments, answer, members, agent)
    return follow_or_report(client, answer, action, arguments)


def forecast_query(arguments: argparse.Namespace) -> dict[str, object]:
    """A plan sets dryRun too: a server without plans must not execute the order."""
    if arguments.plan:
        return {"dryRun": "true", "plan": "true"}
    return {"dryRun": "true"} if arguments.dry_run else {}


def is_forecast(arguments: argparse.Namespace) -> bool:
    return bool(arguments.plan or arguments.dry_run)


def _show_forecast(
    arguments: argparse.Namespace, document: Mapping[str, Any], members: Members | None, agent: str
) -> int:
    """Prints a dry run or a plan. Returns exit code 1 if the plan fails on the host."""
    host = document.get("host")
    if arguments.plan and not isinstance(host, dict):
        raise CommandRefused(
            "this server does not support plans; --dry-run shows what the control plane would do", exit_code=1
        )
    failed = isinstance(host, dict) and any(
        isinstance(event, dict) and event.get("outcome") in ("failed", "unmet") for event in host.get("events") or ()
    )
    if arguments.json:
        print_json(document)
        return EXIT_FAILED if failed else 0
    bold = Palette(sys.stdout).paint
    print(f"{bold('states', BOLD)}  {printable(' → '.join(document.get('path') or []))}")
    if document.get("blueprintVersion"):
        print(f"{bold('blueprint', BOLD)}  {printable(str(document['blueprintVersion']))}")
    properties = hide_secrets(document.get("properties") or {}, members)
    if properties:
        print("\n".join([bold("properties", BOLD), *tree_lines(properties)]))
    values = {str(each.get("path")): format_value(each.get("value")) for each in document.get("poolValues") or ()}
    if values:
        print("\n".join([bold("pool values", BOLD), *tree_lines(values)]))
    _print_steps(document.get("steps") or ())
    if not isinstance(host, dict):
        print("Dry run, nothing was changed.")
        return 0
    _print_host_plan(arguments, document, host, agent)
    if failed:
        print("The run would fail. Correct the cause, then plan again.")
        return EXIT_FAILED
    expiry = local_time(document.get("expiresAt")) or "the plan expires"
    print(
        f"To make exactly these changes, run the same command before {expiry} with\n"
        f"  --plan-digest {printable(str(document.get('planDigest')))}\ninstead of --plan."
    )
    return 0


def _print_host_plan(
    arguments: argparse.Namespace, document: Mapping[str, Any], host: Mapping[str, Any], agent: str
) -> None:
    title = f"on the host of {printable(agent)}" if agent else "on the host"
    print(Palette(sys.stdout).paint(title, BOLD))
    print_report({"noop": True, **host}, verbose=arguments.verbose)
    for manifest in [name for step in (document.get("steps") or ())[:1] for name in step["manifests"][1:]]:
        print(f"  What {printable(manifest)} changes depends on these changes and is not forecast.")


def _print_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """The runs that an order causes on several hosts, in order."""
    if not steps:
        return
    print(Palette(sys.stdout).paint("what happens", BOLD))
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {printable(step['summary'])}")

"""What an order or an action would do: asks for a dry run or a plan, and shows it."""

from __future__ import annotations

import sys

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import EXIT_FAILED
from mainstay.cli.remote.service_types import conceal
from mainstay.cli.views.reports import print_report
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BOLD, clock, plain, tree_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.cli.remote.service_types import Members

# The server waits up to 60 s for the agent.
PLAN_SECONDS = 90.0


def _digest(text: str) -> str:
    """An empty one, as a script may have it by mistake, must not order without a plan."""
    if not text:
        raise CommandRefused("--plan-digest is empty; `--plan` tells one")
    return text


def add_forecast_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--dry-run", action="store_true", help="only tell what the control plane would do")
    ways.add_argument("--plan", action="store_true", help="also ask the agent what would change on its host")
    ways.add_argument(
        "--plan-digest", metavar="DIGEST", type=_digest, help="do exactly what this plan said, or refuse"
    )


def forecast_query(arguments: argparse.Namespace) -> dict[str, object]:
    """A plan is asked for as a dry run too: whoever does not know plans must not take it for the order itself."""
    if arguments.plan:
        return {"dryRun": "true", "plan": "true"}
    return {"dryRun": "true"} if arguments.dry_run else {}


def is_forecast(arguments: argparse.Namespace) -> bool:
    return bool(arguments.plan or arguments.dry_run)


def show_forecast(arguments: argparse.Namespace, document: Mapping[str, Any], members: Members | None) -> int:
    """Exit code 1 if the host says that it would fail."""
    host = document.get("host")
    if arguments.plan and not isinstance(host, dict):
        raise CommandRefused(
            "this server does not plan; --dry-run tells what the control plane would do", exit_code=1
        )
    failed = isinstance(host, dict) and any(
        isinstance(event, dict) and event.get("outcome") in ("failed", "unmet") for event in host.get("events") or ()
    )
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(document)
        return EXIT_FAILED if failed else 0
    bold = Palette(sys.stdout).paint
    print(f"{bold('states', BOLD)}  {printable(' → '.join(document.get('path') or []))}")
    properties = conceal(document.get("properties") or {}, members)
    if properties:
        print("\n".join([bold("properties", BOLD), *tree_lines(properties)]))
    values = {str(each.get("path")): plain(each.get("value")) for each in document.get("poolValues") or ()}
    if values:
        print("\n".join([bold("taken from pools", BOLD), *tree_lines(values)]))
    if not isinstance(host, dict):
        print("Nothing was ordered.")
        return 0
    print(bold("on the host", BOLD))
    print_report({"noop": True, **host}, verbose=arguments.verbose)
    print(
        f"To do exactly this, until {clock(document.get('expiresAt')) or 'the plan expires'}: the same command with\n"
        f"  --plan-digest {printable(str(document.get('planDigest')))}\ninstead of --plan."
    )
    return EXIT_FAILED if failed else 0

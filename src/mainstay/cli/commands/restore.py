"""Brings back what a file held before it was replaced, if its resource said `backup: true`.

What is there now is kept first, so that a restore can be undone by another."""

from __future__ import annotations

import os

from mainstay.cli.local_run import EXIT_FAILED, print_json
from mainstay.cli.main import CommandRefused
from mainstay.cli.views.run_display import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "bring back what a file held before"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    parser.add_argument(
        "--run", dest="run_id", metavar="RUN", help="what this run replaced; the newest when not given"
    )
    parser.add_argument("--list", action="store_true", help="list what is kept of the path; touch nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from mainstay.converge.contract import Failure
    from mainstay.converge.run import list_backups, restore_backup

    arguments.path = os.path.abspath(arguments.path)
    if arguments.list:
        kept = [
            {"run_id": found.run_id, "size": found.size, "mode": f"{found.mode:04o}"}
            for found in list_backups(arguments.path)
        ]
        if arguments.json:
            print_json(kept)
        elif not kept:
            print(
                f"Nothing is kept of {printable(arguments.path)}; files are kept when their resource says `backup: true`."
            )
        else:
            for row in kept:
                print(f"{row['run_id']}  {row['mode']}  {row['size']} bytes")
        return 0
    try:
        restored = restore_backup(arguments.path, arguments.run_id)
    except Failure as failure:
        raise CommandRefused(str(failure), exit_code=EXIT_FAILED) from None
    except OSError as error:
        raise CommandRefused(f"{error.strerror}: {arguments.path}", exit_code=EXIT_FAILED) from None
    if arguments.json:
        print_json({"path": arguments.path, "run_id": restored.run_id, "size": restored.size})
    else:
        print(f"{printable(arguments.path)} is as it was before run {restored.run_id} ({restored.size} bytes)")
    return 0

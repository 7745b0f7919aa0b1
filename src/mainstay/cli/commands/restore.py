"""Restores a file from the backup of a run. Files are backed up if their resource has `backup: true`.

The current file is backed up first, so a restore can be undone."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.local_run import EXIT_FAILED
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.views.run_display import printable
from mainstay.converge.failures import Failure
from mainstay.converge.run import list_backups, restore_backup

SUMMARY = "restore a file from its backup"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    add_argument(parser, "--run", "RUN", "backup of this run (default: the newest)", dest="run_id")
    add_switch(parser, "--list", "list the backups of the path; change nothing")
    add_switch(parser, "--json", "print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    arguments.path = os.path.abspath(arguments.path)
    if arguments.list:
        backups = [
            {"run_id": found.run_id, "size": found.size, "mode": f"{found.mode:04o}"}
            for found in list_backups(arguments.path)
        ]
        if arguments.json:
            print_json(backups)
        elif not backups:
            print(
                f"There is no backup of {printable(arguments.path)}; files are backed up if their resource has `backup: true`."
            )
        else:
            for row in backups:
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
        print(f"Restored {printable(arguments.path)} as it was before run {restored.run_id} ({restored.size} bytes).")
    return 0

"""Applies a manifest to many hosts over ssh.

Hosts are named on the command line or in an inventory; a host needs sshd and Python 3.9 or newer. The manifest and the
files that it names are copied, by digest, if the host lacks them. Keys, accounts and known hosts are those of ssh.
Exit codes: 0 success, 1 a host failed, was unreachable or stopped, 2 nothing was pushed, 3 another push holds a lock."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager

from mainstay.cli.local_run import add_value_options, exit_on_faults, parse_lock_wait, value_layers
from mainstay.cli.main import (
    CommandRefused,
    add_argument,
    add_list_option,
    add_switch,
    print_error,
    print_pieces,
    whole_number,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from mainstay.push.host_push import HostPush
    from mainstay.push.inventory import Inventory, InventoryHost
    from mainstay.push.outcome import HostOutcome
    from mainstay.push.plan import PushPlan

SUMMARY = "apply a manifest to many hosts over ssh"
GROUP = "many hosts"
DEFAULT_PARALLEL = 50
MOST_PARALLEL = 1000
MOST_HOSTS = 1_000_000
LONGEST_NAME = 100
SIGNAL_EXIT_BASE = 128


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    add_argument(parser, "hosts", "HOST", "a host as ssh knows it: name, user@name, address", nargs="*")
    parser.add_argument(
        "-i",
        "--inventory",
        metavar="FILE",
        help="hosts and their data: YAML, - for stdin, or a program that prints JSON",
    )
    add_list_option(parser, "--limit", "PATTERN", "only these hosts or groups: 'web*', '!web9'")
    add_argument(parser, "--name", "NAME", "name of this push on the hosts (default: the manifest's name)")
    add_switch(parser, "--noop", "dry run: show what would change, change nothing")
    add_switch(parser, "--diff", "show file changes as diffs")
    add_switch(parser, "-v", "--verbose", "also show skipped resources")
    add_switch(parser, "--json", "print one JSON document with the reports of all hosts")
    add_list_option(parser, "--tag", "TAG", "only resources with this tag")
    add_argument(parser, "--lock-wait", "DURATION", "how long to wait for another push of this name")
    group = parser.add_argument_group("order")
    count = whole_number(1, MOST_PARALLEL, f"from 1 to {MOST_PARALLEL}")
    shown = f"hosts at the same time (default {DEFAULT_PARALLEL})"
    add_argument(group, "--parallel", "N", shown, type=count, default=DEFAULT_PARALLEL)
    add_argument(group, "--batch", "N|N%", "batch size: finish 5 hosts, or 10%%, before the next batch")
    count = whole_number(1, MOST_HOSTS, "of at least 1")
    shown = "start no more hosts after N failures (default with --batch: 1)"
    add_argument(group, "--stop-after", "N", shown, type=count)
    group = parser.add_argument_group("privilege")
    add_switch(group, "--become", "run as root with sudo")
    add_switch(group, "--ask-become-pass", "ask once for the password of sudo")
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    _check_name(_push_name(arguments))
    with exit_on_faults(as_json=arguments.json):
        hosts = _selected(arguments)
        values = value_layers(arguments)
        with _work_folder() as folder:
            pushes, plan = _prepare(arguments, hosts, values, folder)
            for text in plan.computed[:1]:
                print_error(
                    f"warning: the path {text!r} is known only on the host; its files travel only if `data` names them."
                    " Begin it with a directory, such as files/, or push a bundle"
                )
            return _push(arguments, pushes)


@contextmanager
def _work_folder() -> Iterator[str]:
    """A private directory for what travels and for what hosts send; also removes those of killed pushes."""
    from shutil import rmtree

    from mainstay.converge.host.bundles import unpacking_directory
    from mainstay.converge.host.state import StateDirectory, new_run_id, state_path

    parent = unpacking_directory(StateDirectory(state_path(os.environ)))
    folder = os.path.join(parent, f"{new_run_id()}-{os.getpid()}")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _push_name(arguments: argparse.Namespace) -> str:
    name: str | None = arguments.name
    return name if name is not None else os.path.basename(arguments.manifest)


def _check_name(name: str) -> None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or "/" in name:
        raise CommandRefused(f"--name has 1 to {LONGEST_NAME} characters without slashes; got {name!r}")


def _selected(arguments: argparse.Namespace) -> list[InventoryHost]:
    from mainstay.push.selection import BadSelection, select

    if arguments.manifest == "-":
        raise CommandRefused("push needs the file of a manifest, because its sources are beside it")
    inventory = _inventory(arguments)
    try:
        return select(inventory, arguments.limit)
    except BadSelection as refusal:
        raise CommandRefused(str(refusal)) from None


def _inventory(arguments: argparse.Namespace) -> Inventory:
    from mainstay.push.inventory import inventory_of_names
    from mainstay.push.inventory_file import read_inventory

    if arguments.inventory is None:
        if not arguments.hosts:
            raise CommandRefused("name at least one HOST, or an inventory with --inventory FILE")
        return inventory_of_names(arguments.hosts)
    if arguments.hosts:
        raise CommandRefused("use HOST or --inventory, not both; --limit selects hosts of an inventory")
    return read_inventory(arguments.inventory)


def _prepare(
    arguments: argparse.Namespace, hosts: Sequence[InventoryHost], values: dict[str, Any], folder: str
) -> tuple[list[list[HostPush]], PushPlan]:
    from mainstay.push.host_push import Connection, HostPush
    from mainstay.push.outcome import HostOutcome
    from mainstay.push.plan import check_manifest, order_for, prepare
    from mainstay.push.selection import BadSelection, batch_size, in_batches
    from mainstay.push.ssh import control_directory

    try:
        size = batch_size(arguments.batch, len(hosts))
    except BadSelection as refusal:
        raise CommandRefused(str(refusal)) from None
    plan = prepare(arguments.manifest, folder)
    check_manifest(arguments.manifest, hosts[0], values)
    connection = Connection(
        control_directory=control_directory(os.environ),
        become=arguments.become or arguments.ask_become_pass,
        become_password=_become_password(arguments),
        first_stage=plan.first_stage(),
    )
    shared = {
        "identity": f"push:{_push_name(arguments)}",
        "noop": arguments.noop,
        "diff": arguments.diff,
        "tags": arguments.tag,
        "lock_wait_seconds": parse_lock_wait(arguments.lock_wait),
        "whole_report": arguments.json,
        "facts_layers": values["facts_layers"],
        "roots": values["roots"],
    }
    pushes = []
    for number, host in enumerate(hosts):
        order = order_for(host, plan, shared, values["data_layers"])
        outcome = HostOutcome(host.name, order["run_id"])
        pushes.append(HostPush(outcome, host.python, order, plan, connection, f"{folder}/{number}"))
    return [list(batch) for batch in in_batches(pushes, size)], plan


def _become_password(arguments: argparse.Namespace) -> str | None:
    if not arguments.ask_become_pass:
        return None
    from getpass import getpass

    if not sys.stdin.isatty() and not os.path.exists("/dev/tty"):
        raise CommandRefused("--ask-become-pass needs a terminal")
    return getpass("Password of sudo on the hosts: ")


def _push(arguments: argparse.Namespace, batches: Sequence[Sequence[HostPush]]) -> int:
    import asyncio
    from time import monotonic

    from mainstay.cli.views.push_table import PushTable
    from mainstay.push.outcome import exit_code
    from mainstay.push.reports import document_of_hosts
    from mainstay.push.runner import PushObserver, Runner

    _allow_open_files(arguments.parallel)
    stop_after = arguments.stop_after or (None if arguments.batch is None else 1)
    outcomes = [push.outcome for batch in batches for push in batch]
    table = None
    if not arguments.json:
        table = PushTable([outcome.host for outcome in outcomes], verbose=arguments.verbose)
    runner = Runner(batches, parallel=arguments.parallel, stop_after=stop_after, observer=table or PushObserver())
    started_at = monotonic()
    asyncio.run(runner.run())
    _keep_reports(arguments, outcomes)
    if table is None:
        print_pieces(document_of_hosts(outcomes, arguments.manifest, noop=arguments.noop))
    else:
        table.finish(outcomes, monotonic() - started_at, noop=arguments.noop)
    if runner.stopped_by is not None:
        return SIGNAL_EXIT_BASE + runner.stopped_by
    return exit_code(outcomes)


def _allow_open_files(parallel: int) -> None:
    """Each running host needs three pipes, two files of events and the descriptor of its process."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 100 + 8 * parallel
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _keep_reports(arguments: argparse.Namespace, outcomes: Sequence[HostOutcome]) -> None:
    """A full disk here is only a warning: the hosts are done, and keep their own reports."""
    from mainstay.converge.host.state import StateDirectory, Unusable, state_path
    from mainstay.push.reports import keep_reports

    state = StateDirectory(state_path(os.environ))
    try:
        keep_reports(outcomes, state, arguments.manifest, noop=arguments.noop)
    except (OSError, Unusable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print_error(f"warning: the reports could not be stored in {state.path}: {reason}")

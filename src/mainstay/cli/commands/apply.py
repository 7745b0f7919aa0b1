"""Applies a manifest to this host.

MANIFEST is a YAML file, a bundle (.tar.gz, .tgz, .zip with manifest.yaml at its root), or - for standard input. A bundle
may also be an https URL, with --sha256 DIGEST; all its entries may then be below one directory.
Exit codes: 0 success, 1 a resource failed, 2 wrong usage or the manifest does not load, 3 another run holds the lock."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.local_run import (
    add_bundle_options,
    add_value_options,
    bundle_trust,
    parse_lock_wait,
    run_and_report,
    value_layers,
)
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch
from mainstay.converge.apply import Options
from mainstay.converge.run import RunRequest

SUMMARY = "apply a manifest to this host"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    add_switch(parser, "--noop", "dry run: show what would change, change nothing")
    add_switch(parser, "--diff", "show file changes as diffs")
    add_switch(parser, "-v", "--verbose", "also show stable resources")
    add_switch(parser, "--json", "print one JSON document")
    add_argument(parser, "--report", "FILE", "write the JSON report to a file (mode 0600)")
    add_list_option(parser, "--tag", "TAG", "only resources with this tag")
    add_argument(parser, "--lock-wait", "DURATION", "how long to wait for another run of this manifest, such as 30s")
    add_switch(
        parser, "--detailed-exitcodes", "exit codes: 0 no change, 2 changed, 4 failed, 6 both, 1 does not load"
    )
    add_switch(parser, "--monitor-only", "run only the health checks")
    add_bundle_options(parser)
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.report is not None and not os.path.isdir(os.path.dirname(os.path.abspath(arguments.report))):
        raise CommandRefused(f"--report {arguments.report}: its directory does not exist")
    return run_and_report(
        lambda: _make_request(arguments),
        as_json=arguments.json,
        verbose=arguments.verbose,
        report_file=arguments.report,
        detailed=arguments.detailed_exitcodes,
    )


def _make_request(arguments: argparse.Namespace) -> RunRequest:
    return RunRequest(
        arguments.manifest,
        options=Options(
            noop=arguments.noop,
            differences=arguments.diff,
            tags=arguments.tag,
            monitor_only=arguments.monitor_only,
        ),
        lock_wait_seconds=parse_lock_wait(arguments.lock_wait),
        trust=bundle_trust(arguments),
        **value_layers(arguments),
    )

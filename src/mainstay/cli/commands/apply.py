"""Brings this host to what a manifest says.

MANIFEST is a YAML file, a bundle (.tar.gz, .tgz, .zip with manifest.yaml at its root), or - for standard input.
Exit codes: 0 nothing failed, 1 a resource failed, 2 bad usage or a manifest that does not load, 3 locked."""

from __future__ import annotations

import os

from mainstay.cli.local_run import add_value_options, carry_out, catch_signals, duration, value_layers
from mainstay.cli.main import CommandRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from mainstay.converge.contract import StopFlag
    from mainstay.converge.report import Observer
    from mainstay.converge.run import RunRequest

SUMMARY = "bring this host to what a manifest says"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    parser.add_argument("--noop", action="store_true", help="say what would be done; touch nothing")
    parser.add_argument("--diff", action="store_true", help="show what changes in files")
    parser.add_argument("-v", "--verbose", action="store_true", help="show stable resources too")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--report", metavar="FILE", help="write the JSON document to a file (0600)")
    parser.add_argument(
        "--tag", metavar="TAG", action="append", default=[], help="only resources that carry this tag"
    )
    parser.add_argument(
        "--lock-wait", metavar="DURATION", help="wait so long for another run of this manifest, such as 30s"
    )
    parser.add_argument(
        "--detailed-exitcodes", action="store_true", help="0 no change, 2 changed, 4 failed, 6 both, 1 did not load"
    )
    parser.add_argument("--monitor-only", action="store_true", help="run only the health checks")
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from mainstay.converge.apply import Options
    from mainstay.converge.report import Observer
    from mainstay.converge.run import RunRequest

    if arguments.report is not None and not os.path.isdir(os.path.dirname(os.path.abspath(arguments.report))):
        raise CommandRefused(f"--report {arguments.report}: its directory does not exist")
    if arguments.json:
        observer = Observer()
    else:
        from mainstay.cli.views.run_display import RunDisplay

        observer = RunDisplay(verbose=arguments.verbose)

    def make_request(observer: Observer, stop: StopFlag) -> RunRequest:
        return RunRequest(
            arguments.manifest,
            options=Options(
                noop=arguments.noop,
                differences=arguments.diff,
                tags=arguments.tag,
                monitor_only=arguments.monitor_only,
            ),
            observer=observer,
            stop=stop,
            starting=lambda: catch_signals(stop),
            lock_wait_seconds=duration(arguments.lock_wait),
            **value_layers(arguments),
        )

    return carry_out(
        make_request,
        observer,
        as_json=arguments.json,
        report_file=arguments.report,
        detailed=arguments.detailed_exitcodes,
    )

"""Shared by commands that run a manifest: value options, signal handling, the run, its output and its exit code."""

from __future__ import annotations

import argparse
from contextlib import contextmanager

from mainstay.cli.main import (
    CommandRefused,
    add_argument,
    add_list_option,
    parse_seconds,
    print_error,
    print_json,
    print_pieces,
)
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.sources import BundleTrust
from mainstay.converge.host.state import Unusable
from mainstay.converge.json_lines import report_pieces
from mainstay.converge.manifest.hierarchy import DataLayer, nest
from mainstay.converge.report import Observer
from mainstay.converge.run import Locked, RunRequest, read_values, run
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml.scalars import LONGEST_NUMBER, TOO_MANY_DIGITS, core_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mainstay.cli.views.run_display import RunDisplay
    from mainstay.converge.report import Report
    from mainstay.converge.run import Session

EXIT_FAILED, EXIT_DOES_NOT_LOAD, EXIT_LOCKED = 1, 2, 3
DETAILED_CHANGED, DETAILED_FAILED, DETAILED_DOES_NOT_LOAD = 2, 4, 1
SIGNAL_EXITS = {"SIGINT": 130, "SIGTERM": 143}


def add_bundle_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for a bundle from a URL."""
    add_argument(parser, "--sha256", "DIGEST", "digest of a bundle from a URL, as `sha256sum` prints it")
    add_argument(parser, "--ca-file", "FILE", "trust these CA certificates for a URL instead of the system's")


def bundle_trust(arguments: argparse.Namespace) -> BundleTrust | None:
    if arguments.sha256 is None and arguments.ca_file is None:
        return None
    return BundleTrust(arguments.sha256, arguments.ca_file)


def add_value_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for data and facts from outside the manifest."""
    group = parser.add_argument_group("values")
    add_list_option(group, "--data", "FILE", "data that overrides the manifest's data (YAML or JSON)")
    add_list_option(group, "--set", "KEY=VALUE", "one value that overrides all data; dotted keys nest")
    add_list_option(group, "--values", "FILE", "additional roots for lookups, one per top-level key")
    add_fact_options(group)


def add_fact_options(parser: argparse._ActionsContainer) -> None:
    add_list_option(parser, "--facts", "FILE", "facts that override the host's facts")
    add_list_option(parser, "--fact", "KEY=VALUE", "one fact that overrides all others")


def value_layers(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a RunRequest that the options of `add_value_options` set."""
    roots: dict[str, Any] = {}
    for path in arguments.values:
        roots.update(read_values(path))
    taken = sorted(roots.keys() & {"data", "each", "environ", "facts"})
    if taken:
        raise CommandRefused(f"--values: {', '.join(taken)} is a reserved root; use --data, --facts or another name")
    return {
        "data_layers": [DataLayer(read_values(path), f"--data {path}") for path in arguments.data]
        + [DataLayer(_parse_assignment(text, "--set"), f"--set {text.partition('=')[0]}") for text in arguments.set],
        "facts_layers": facts_layers(arguments),
        "roots": roots,
    }


def facts_layers(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    files = [read_values(path) for path in arguments.facts]
    return [*files, *(_parse_assignment(text, "--fact") for text in arguments.fact)]


def _parse_assignment(text: str, option: str) -> dict[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not all(key.split(".")):
        raise CommandRefused(f"{option} takes KEY=VALUE with a dotted key, such as web.port=80; got {text!r}")
    if value[:1] == "[" or (value[:1] == "{" and value[:2] != "{{"):
        raise CommandRefused(
            f"{option} {key} takes one value; put lists and maps into a file for --data, or quote the text"
        )
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return nest(key, value[1:-1])
    parsed = core_value(value)
    if isinstance(parsed, str) and len(value) > LONGEST_NUMBER and value.lstrip("+-").isdigit():
        raise CommandRefused(f"{option} {key}: {TOO_MANY_DIGITS}")
    return nest(key, parsed)


def parse_lock_wait(text: str | None) -> float:
    return 0.0 if text is None else parse_seconds(text, "--lock-wait")


def _catch_signals(stop: StopFlag) -> None:
    """On SIGINT or SIGTERM the run stops cleanly, and a running command is terminated."""
    import signal

    def request_stop(number: int, _frame: object) -> None:
        stop.request(signal.Signals(number).name, at_once=True)

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)


def run_and_report(
    make_request: Callable[[], RunRequest],
    *,
    as_json: bool,
    verbose: bool,
    report_file: str | None = None,
    detailed: bool = False,
) -> int:
    """Runs the request, prints its events and its report and returns the exit code."""
    import gc

    # The objects of a run live until it ends, so collections find nothing.
    gc.disable()
    display = None if as_json else _make_display(verbose=verbose)
    observer = display or Observer()
    stop = StopFlag()
    try:
        request = make_request()
        request.observer, request.stop = observer, stop
        request.starting = lambda: _catch_signals(stop)
        session, report = run(request)
    except DoesNotLoad as refusal:
        show_faults(refusal, as_json=as_json)
        return DETAILED_DOES_NOT_LOAD if detailed else EXIT_DOES_NOT_LOAD
    except Stopped:
        return SIGNAL_EXITS[stop.reason or "SIGINT"]
    except Locked as refusal:
        if as_json:
            print_json({"error": str(refusal)})
            return EXIT_LOCKED
        raise CommandRefused(str(refusal), exit_code=EXIT_LOCKED) from None
    except Unusable as refusal:
        raise CommandRefused(str(refusal)) from None
    finally:
        # Print buffered lines however the run ended.
        observer.about_to_wait()
    _show_report(session, report, display, report_file)
    return _exit_code(report, detailed=detailed)


def _make_display(*, verbose: bool) -> RunDisplay:
    from mainstay.cli.views.run_display import RunDisplay

    return RunDisplay(verbose=verbose)


@contextmanager
def exit_on_faults(*, as_json: bool, exit_code: int = EXIT_DOES_NOT_LOAD) -> Iterator[None]:
    """Prints the faults and exits if a document does not load."""
    try:
        yield
    except DoesNotLoad as refusal:
        show_faults(refusal, as_json=as_json)
        raise SystemExit(exit_code) from None
    except Unusable as refusal:
        raise CommandRefused(str(refusal)) from None


def show_faults(refusal: DoesNotLoad, *, as_json: bool) -> None:
    if as_json:
        print_json({"faults": [fault.as_json() for fault in refusal.faults]})
        return
    from mainstay.cli.views.run_display import print_faults

    print_faults(refusal.faults)


def _show_report(session: Session, report: Report, display: RunDisplay | None, report_file: str | None) -> None:
    if report_file is not None:
        try:
            session.write_report(report_file, report)
        except OSError as error:
            report.warnings.append(f"cannot write --report {report_file}: {error.strerror}")
    if display is None:
        report.complete(session.host.files)
        print_pieces(report_pieces(report))
    else:
        display.finish(report)
    warnings = [*report.warnings]
    if display is not None and display.verbose and session.current is not None:
        # `mainstay validate` shows them always.
        manifest = session.current.manifest
        warnings = [*manifest.warnings, *manifest.hierarchy.warnings(), *warnings]
    for warning in warnings:
        print_error(f"warning: {warning}")
    if display is not None and display.write_error is not None:
        raise display.write_error


def _exit_code(report: Report, *, detailed: bool) -> int:
    if report.stopped_by in SIGNAL_EXITS:
        return SIGNAL_EXITS[report.stopped_by]
    if detailed:
        return (DETAILED_CHANGED if report.changed else 0) + (DETAILED_FAILED if report.failed else 0)
    return EXIT_FAILED if report.failed else 0

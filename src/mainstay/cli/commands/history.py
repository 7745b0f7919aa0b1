"""Lists past runs, newest first; `history show RUN` prints the report of one. RUN is an id, an id prefix or `last`, which
is also what `history show` alone shows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from json import dumps

from mainstay.cli.local_run import EXIT_FAILED
from mainstay.cli.main import CommandRefused, add_argument, add_limit_option, add_switch, print_json, print_pieces
from mainstay.cli.views.reports import print_report
from mainstay.cli.views.run_display import printable
from mainstay.converge.history import History
from mainstay.converge.json_lines import document_pieces
from mainstay.converge.run import RunRequest, Session
from mainstay.foundation import Any

SUMMARY = "list past runs, or show one"
GROUP = "this host"
DEFAULT_LIMIT = 20
LAST = "last"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "words", "show RUN", "show one run; default: list runs", nargs="*")
    add_limit_option(parser, DEFAULT_LIMIT)
    add_switch(parser, "--json", "print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    history = History(Session(RunRequest()).state)
    if not arguments.words:
        return _list_runs(history, arguments.limit, as_json=arguments.json)
    if len(arguments.words) > 2 or arguments.words[0] != "show":
        raise CommandRefused("use `mainstay history` or `mainstay history show RUN`")
    return _show_run(history, *arguments.words[1:], as_json=arguments.json)


def _list_runs(history: History, limit: int, *, as_json: bool) -> int:
    runs = [found for run_id in history.runs()[:limit] if (found := history.show(run_id)) is not None]
    if as_json:
        keys = ("run_id", "manifest", "host", "noop", "summary")
        print_json([{key: found[key] for key in keys if key in found} for found in runs])
        return 0
    if not history.runs():
        print("There is no run yet.")
        return 0
    print(f"{'RUN':<31} {'KIND':<5} {'CHANGED':>8} {'FAILED':>7} {'TOTAL':>7} {'SECONDS':>8}  MANIFEST")
    for found in runs:
        counts = found["summary"]
        changed = counts["changed"] + counts["refreshed"]
        kind = "dry" if found["noop"] else "real"
        print(
            f"{found['run_id']:<31} {kind:<5} {changed:>8} {counts['failed']:>7} {counts['total']:>7} "
            f"{counts['duration_seconds']:>8.2f}  {printable(_manifest_of(found))}"
        )
    return 0


def _show_run(history: History, wanted: str = LAST, *, as_json: bool) -> int:
    runs = history.runs()
    matching = runs[:1] if wanted == LAST else [run_id for run_id in runs if run_id.startswith(wanted)]
    if len(matching) != 1:
        if not runs:
            raise CommandRefused("there is no run yet", exit_code=EXIT_FAILED)
        how_many = "no run" if not matching else f"{len(matching)} runs"
        raise CommandRefused(
            f"{how_many} with an id that begins with {wanted!r}; `mainstay history` lists all runs",
            exit_code=EXIT_FAILED,
        )
    found = history.show(matching[0])
    if found is None:
        raise CommandRefused(f"the stored report of run {matching[0]} is damaged", exit_code=EXIT_FAILED)
    if as_json:
        print_pieces(_as_pieces(found))
        return 0
    print(f"{found['run_id']}  {printable(_manifest_of(found))}{'  (dry run)' if found['noop'] else ''}")
    print_report(found, verbose=True)
    return 0


def _manifest_of(found: dict[str, Any]) -> str:
    """The manifest of a run, and the host of a run that was pushed from here."""
    host = found.get("host")
    return f"{found['manifest']} on {host}" if host else str(found["manifest"])


def _as_pieces(found: dict[str, Any]) -> Iterator[bytes]:
    """The document as stored: one event per line."""
    before = {key: value for key, value in found.items() if key != "events"}
    return document_pieces(before, (dumps(event, ensure_ascii=False) for event in found["events"]), {})

"""Prints the plan of a plane: creations, changes with old and new values, deletions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay.cli.main import print_error
from mainstay.cli.plane.difference import CHANGE, CREATE, DELETE, Difference, PlaneStep
from mainstay.cli.views.run_display import Palette, counted, indented, printable
from mainstay.cli.views.tables import BAD, BOLD, BUSY, GOOD, format_value, truncate

SIGNS = {CREATE: ("+", GOOD), CHANGE: ("~", BUSY), DELETE: ("-", BAD)}
MAX_VALUE_WIDTH = 60
MAX_LINES = 40
UNFINISHED = ("Pending", "Processing")


def print_plan(found: Difference) -> None:
    palette = Palette(sys.stdout)
    width = max((len(step.entry.kind.name) for step in found.steps), default=0)
    for step in found.steps:
        sign, colour = SIGNS[step.action]
        path = " / ".join(step.entry.path)
        print(
            f"{palette.paint(sign, colour)} {step.entry.kind.name:<{width}}  {palette.paint(printable(path), BOLD)}"
        )
        lines = list(_change_lines(step))
        for line in lines[:MAX_LINES]:
            print(f"    {printable(line)}")
        if len(lines) > MAX_LINES:
            print(f"    … {len(lines) - MAX_LINES} more lines; --json prints all")
    for notice in found.notices:
        print(f"note: {printable(notice)}")
    print(_summary(found))


def _summary(found: Difference) -> str:
    if not found.steps:
        return "The server is as the files say."
    counts = {action: sum(step.action == action for step in found.steps) for action in SIGNS}
    values = sum(len(step.old_values) for step in found.steps)
    also = f" and {counted(values, 'pool value')}" if values else ""
    return f"{counts[CREATE]} to create, {counts[CHANGE]} to change, {counts[DELETE]}{also} to delete."


def _change_lines(step: PlaneStep) -> Iterator[str]:
    for name, old, new in step.changes:
        if step.action == CREATE:
            yield f"{name}: {_shown(new)}"
            continue
        for path, before, after in _leaves(name, old, new):
            if before is None:
                yield f"{path}: {_shown(after)}"
            elif after is None:
                yield f"{path}: {_shown(before)} removed"
            else:
                yield f"{path}: {_shown(before)} → {_shown(after)}"


def _leaves(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The members that differ, as far inside as both sides are maps."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name) or (name in old) != (name in new):
                yield from _leaves(f"{path}.{name}", old.get(name), new.get(name))
    else:
        yield path, old, new


def _shown(value: Any) -> str:
    return truncate(format_value(value).replace("\n", "\\n"), MAX_VALUE_WIDTH)


def print_started(jobs: Sequence[Mapping[str, Any]], *, will_wait: bool) -> None:
    print(f"Started {counted(len(jobs), 'job')}:")
    for job in jobs[:MAX_LINES]:
        print(f"  {_job_name(job)}")
    if len(jobs) > MAX_LINES:
        print(f"  … {len(jobs) - MAX_LINES} more; --json prints all")
    if not will_wait:
        print("They may still fail: `mainstay jobs` lists them with their outcome.")
    sys.stdout.flush()


def print_outcome(jobs: Sequence[Mapping[str, Any]]) -> None:
    """The sum, then every job that has not completed."""
    others = [each for each in jobs if each["status"] != "Completed"]
    if not others:
        print(f"{counted(len(jobs), 'job')} completed.")
        return
    print(f"{len(jobs) - len(others)} of {counted(len(jobs), 'job')} completed.", flush=True)
    for job in others[:MAX_LINES]:
        reason = f": {indented(job['errorMessage'])}" if job["errorMessage"] else ""
        if job["status"] in UNFINISHED:
            print_error(f"{_job_name(job)} did not finish in time and continues: `mainstay watch {job['serviceId']}`")
        else:
            print_error(f"{_job_name(job)} {job['status'].lower()}{reason}")
    if len(others) > MAX_LINES:
        print_error(f"{len(others) - MAX_LINES} more have not completed; `mainstay jobs` lists them")


def _job_name(job: Mapping[str, Any]) -> str:
    return printable(f"{job['action']} of {' / '.join(job['path'])}")


def plan_document(found: Difference) -> dict[str, Any]:
    """The plan as JSON. Secrets are placeholders already."""
    return {
        "steps": [
            {
                "action": step.action,
                "kind": step.entry.kind.name,
                "path": list(step.entry.path),
                "id": None if step.actual is None else step.actual.id,
                "changes": [
                    {"attribute": name, "old": old, "new": new}
                    for name, before, after in step.changes
                    for name, old, new in (
                        [(name, before, after)] if step.action == CREATE else _leaves(name, before, after)
                    )
                ],
            }
            for step in found.steps
        ],
        "deletions": found.deletions,
        "notices": found.notices,
    }

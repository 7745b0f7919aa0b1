"""Applies manifest texts in this process and gives short access to the report."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

from mainstay.converge.apply import Options
from mainstay.converge.report import Event, Report
from mainstay.converge.run import RunRequest, Session, run

USER = pwd.getpwuid(os.geteuid()).pw_name
GROUP = grp.getgrgid(os.getegid()).gr_name


class Applied:
    """A finished run."""

    def __init__(self, session: Session, report: Report) -> None:
        self.session = session
        self.report = report

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.report.events]

    @property
    def messages(self) -> list[str | None]:
        return [event.noop_message for event in self.report.events]

    @property
    def errors(self) -> list[str]:
        return [error for event in self.report.events for error in event.errors]

    def event(self, identity: str) -> Event:
        return next(event for event in self.report.events if event.resource.id == identity)

    def as_json(self) -> dict[str, Any]:
        self.report.complete(self.session.host.files)
        return self.report.as_json()


def fill_in(text: str, root: Path) -> str:
    return text.replace("ROOT", str(root)).replace("USER", USER).replace("GROUP", GROUP)


def apply_text(
    text: str,
    root: Path,
    *,
    noop: bool = False,
    tags: tuple[str, ...] = (),
    name: str = "manifest.yaml",
    **request: Any,
) -> Applied:
    """Writes the manifest beside `root` and applies it."""
    path = root.parent / name
    path.write_text(fill_in(text, root), encoding="utf-8")
    if "environ" in request:
        # Always the state directory of the test, never that of the user.
        request["environ"] = {"MAINSTAY_STATE_DIR": os.environ["MAINSTAY_STATE_DIR"], **request["environ"]}
    differences = bool(request.pop("differences", False))
    monitor_only = bool(request.pop("monitor_only", False))
    options = Options(noop=noop, differences=differences, tags=tags, monitor_only=monitor_only)
    return Applied(*run(RunRequest(str(path), options=options, **request)))

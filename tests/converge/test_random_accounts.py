"""Random users and groups, also with files, lines and archives: a dry run forecasts every outcome, and what a run changed is stable in the next."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from applying import Applied
from archive_samples import make_app
from own_accounts import databases, own_accounts
from random_accounts import FOLDER, account_entries, programs
from scratch import describe_tree
from torture import count_of

Apply = Callable[..., Applied]


def listed(entries: list[str]) -> str:
    return "\n".join(f"- {each}" for each in entries)


@settings(max_examples=count_of(600))
@given(before=account_entries(), after=account_entries())
def test_a_dry_run_forecasts_the_run(before: list[str], after: list[str], apply: Apply) -> None:
    with own_accounts():
        apply(listed(before))
        text = listed(after)
        untouched = databases()
        forecast = apply(text, noop=True)
        assert databases() == untouched
        done = apply(text)
        for expected, found in zip(forecast.report.events, done.report.events, strict=True):
            for key in ("outcome", "errors", "reason", "warnings"):
                shown = (found.resource.id, key, before, after)
                assert getattr(expected, key) == getattr(found, key), shown


@settings(max_examples=count_of(500))
@given(data=st.data())
def test_programs_of_users_files_lines_archives_and_applied_manifests(data: st.DataObject, apply: Apply) -> None:
    with own_accounts(), tempfile.TemporaryDirectory(prefix="mainstay-test-") as scratch:
        os.mkdir(FOLDER)
        Path(f"{FOLDER}/lines").write_text("one\nlast")
        archive = f"{scratch}/app.tgz"
        top, below = data.draw(programs(archive, make_app(Path(archive))))
        if below:
            Path(f"{scratch}/child.yaml").write_text(listed(below))
            top.append(json.dumps({"apply": [{f"{scratch}/child.yaml": {}}]}))
        text = listed(top)
        before = (databases(), describe_tree(Path(FOLDER)), describe_tree(Path("/home")))
        forecast = apply(text, noop=True)
        assert (databases(), describe_tree(Path(FOLDER)), describe_tree(Path("/home"))) == before
        done = apply(text)
        unknown = False
        for expected, found in zip(forecast.report.events, done.report.events, strict=True):
            assert found.error_kind != "Bug", found.errors
            unknown = unknown or (expected.noop_message or "").startswith("Unknown until applied")
            if not unknown:
                assert (expected.outcome, expected.reason) == (found.outcome, found.reason), (text, below)
        again = apply(text)
        if not any(found.outcome == "failed" for found in done.report.events):
            assert {found.outcome for found in again.report.events} == {"stable"}, (text, below)

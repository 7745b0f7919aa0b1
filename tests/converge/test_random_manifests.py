"""Random manifests on random trees: the second run is stable, and a dry run is exact.

Their commands create nothing that a later resource reads, so a forecast may be unknown only if a resource misses
something after a command that would run.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import event, given, settings

from applying import Applied, apply_text, fill_in
from archive_samples import make_app
from mainstay.converge.contract import Resource
from random_manifests import RandomManifest, manifests, prior_trees
from scratch import Tree, describe_tree, fingerprint, make_entry, temps_below

pytestmark = pytest.mark.test_all


class Scratch:
    """A root and a state directory for each example."""

    def __init__(self, tree: Tree) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mainstay-test-"))
        self.root = self.folder / "root"
        self.root.mkdir()
        self.digest = make_app(self.folder / "app.tgz")
        (self.root / "unpacked").mkdir()
        for path, entry in tree.items():
            make_entry(self.root / path, {key: value.replace("ROOT", str(self.root)) for key, value in entry.items()})

    def apply(self, text: RandomManifest, **options: Any) -> Applied:
        for name, child in text.children.items():
            (self.folder / name).write_text(fill_in(child.replace("DIGEST", self.digest), self.root))
        written = text.replace("DIGEST", self.digest)
        return apply_text(written, self.root, state_directory=str(self.folder / "state"), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)


def related(resource: Resource) -> set[str]:
    """The resources on which the outcome of this one depends."""
    found = {*resource.require, *resource.subscribe}
    if resource.child is not None:
        found |= {each.id for each in resource.child.resources}
    return found if resource.parent is None else found | {*resource.parent.require} | related_gates(resource.parent)


def related_gates(entry: Resource) -> set[str]:
    return set() if entry.parent is None else {*entry.parent.require} | related_gates(entry.parent)


def runs_commands(resource: Resource) -> bool:
    return resource.type == "exec" or (
        resource.child is not None and any(each.type == "exec" for each in resource.child.resources)
    )


@settings(max_examples=300)
@given(tree=prior_trees(), text=manifests())
def test_a_dry_run_forecasts_the_run_exactly_and_changes_nothing(tree: Tree, text: RandomManifest) -> None:
    with Scratch(tree) as scratch:
        before = fingerprint(scratch.root)
        forecast = scratch.apply(text, noop=True)
        assert fingerprint(scratch.root) == before
        done = scratch.apply(text)
        unknown: set[str] = set()
        for expected, found in zip(forecast.report.events, done.report.events, strict=True):
            resource = expected.resource
            message = expected.noop_message or ""
            # The exit code of a command is unknown before it runs, and so is everything that depends on it.
            exits = resource.type == "exec" and expected.changed and found.outcome == "failed"
            if exits or message.startswith("Unknown until applied") or unknown & related(resource):
                unknown.add(resource.id)
                event("unknown until applied")
                continue
            assert expected.outcome == found.outcome, (text, expected.errors, found.errors)
            assert expected.reason == found.reason
            assert bool(expected.errors) == bool(found.errors)
            event(f"{resource.type} {found.outcome}")
        assert temps_below(scratch.root) == []


@settings(max_examples=200)
@given(tree=prior_trees(apart=True), text=manifests(apart=True))
def test_the_second_run_is_stable_and_failed_resources_fail_again(tree: Tree, text: RandomManifest) -> None:
    with Scratch(tree) as scratch:
        first = scratch.apply(text)
        before = describe_tree(scratch.root)
        second = scratch.apply(text)
        assert describe_tree(scratch.root) == before
        for earlier, later in zip(first.report.events, second.report.events, strict=True):
            resource = earlier.resource
            if runs_commands(resource):
                continue
            expected = earlier.outcome if earlier.outcome in ("failed", "unmet", "skipped") else "stable"
            if not related(resource) or resource.child is not None:
                assert later.outcome == expected, (text, earlier.errors, later.errors)
        assert temps_below(scratch.root) == []


@settings(max_examples=200)
@given(tree=prior_trees(), text=manifests())
def test_after_a_stable_run_further_runs_change_nothing(tree: Tree, text: RandomManifest) -> None:
    """Resources may alternate on one path; after a run in which all were stable, no run changes anything."""
    with Scratch(tree) as scratch:
        for _ in range(3):
            done = scratch.apply(text)
            if not any(found.changed for found in done.report.events):
                break
        else:
            event("resources alternate")
            return
        event("settled")
        before = fingerprint(scratch.root)
        again = scratch.apply(text)
        assert again.outcomes == done.outcomes
        assert again.errors == done.errors
        kept = fingerprint(scratch.root)
        assert {name: entry[:4] for name, entry in kept.items()} == {
            name: entry[:4] for name, entry in before.items()
        }

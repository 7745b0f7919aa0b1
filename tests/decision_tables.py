"""Runs the rows of a decision table: a tree and a manifest, in a dry run and a run."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from applying import Applied
from scratch import describe_tree, fingerprint, make_tree, temps_below


def load_tables(paths: Iterable[Path]) -> list[Any]:
    """The rows of these files, as parameters of a test."""
    return [
        pytest.param(case, id=f"{path.stem}: {case['case']}")
        for path in paths
        for case in yaml.load(path.read_text(), yaml.BaseLoader)
    ]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def without_directories(found: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    return {name: entry for name, entry in found.items() if not stat.S_ISDIR(entry[0])}


def check_errors(case: dict[str, Any], done: Applied) -> None:
    patterns = as_list(case.get("error", []))
    assert len(done.errors) == len(patterns), done.errors
    for pattern, error in zip(patterns, done.errors, strict=True):
        assert re.search(pattern, error), error


def follow_row(case: dict[str, Any], apply: Callable[..., Applied], root: Path) -> None:
    """Checks outcomes, messages and the resulting tree of one row."""
    make_tree(root, case.get("given", {}))
    before = fingerprint(root)

    forecast = apply(case["manifest"], noop=True)
    assert forecast.outcomes == as_list(case["outcome"])
    assert [message for message in forecast.messages if message] == as_list(case.get("message", []))
    check_errors(case, forecast)
    assert fingerprint(root) == before, "a dry run changed the tree"

    done = apply(case["manifest"])
    assert done.outcomes == as_list(case["outcome"])
    check_errors(case, done)
    reasons = as_list(case.get("reason", []))
    assert [event.reason for event in done.report.events if event.reason][: len(reasons)] == reasons
    if case["outcome"] == "stable":
        assert fingerprint(root) == before
    elif case["outcome"] == "failed":
        # A temporary file may have existed, so directories can have new times.
        assert without_directories(fingerprint(root)) == without_directories(before)
        assert describe_tree(root).keys() == before.keys() - {"."}
    else:
        assert describe_tree(root) == case.get("after", {})
    for name in as_list(case.get("same_inode", [])):
        assert (root / name).lstat().st_ino == before[name][3]
    assert temps_below(root) == []

    again = apply(case["manifest"])
    stable = [word if word in ("failed", "unmet") else "stable" for word in done.outcomes]
    assert again.outcomes == case.get("again", stable)
    check_errors(case, again)

"""Removal of trees: any depth, and refreshes after a partial removal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied

ABSENT = """
- file:
    - ROOT/tree: {ensure: absent, force: true}
- exec:
    - subscriber: {command: touch ROOT/refreshed, refresh_only: true, subscribe: ["file#ROOT/tree"]}
"""


def test_a_tree_of_any_depth_is_removed(apply: Callable[..., Applied], root: Path) -> None:
    before = os.getcwd()
    try:
        os.mkdir(root / "tree")
        os.chdir(root / "tree")
        for _ in range(700):
            Path("file").touch()
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
    assert apply(ABSENT, noop=True).outcomes == ["changed", "refreshed"]
    assert apply(ABSENT).outcomes == ["changed", "refreshed"]
    assert not (root / "tree").exists()


def test_a_partly_removed_tree_triggers_a_refresh(
    apply: Callable[..., Applied], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal is deep below, so that the path itself looks unchanged."""
    deep = root / "tree" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "1").touch()
    (deep / "stubborn").touch()
    make_stubborn(monkeypatch)
    applied = apply(ABSENT)
    assert applied.outcomes == ["failed", "refreshed"]
    assert applied.report.events[0].changed
    assert (root / "refreshed").exists()


def test_a_tree_that_cannot_be_removed_triggers_no_refresh(
    apply: Callable[..., Applied], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "tree").mkdir()
    (root / "tree" / "stubborn").touch()
    make_stubborn(monkeypatch)
    assert apply(ABSENT).outcomes == ["failed", "stable"]
    assert not (root / "refreshed").exists()


def make_stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of that name cannot be removed, as if they were immutable; others are removed before them."""
    unlink, listdir = os.unlink, os.listdir

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stubborn":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listdir(path)))

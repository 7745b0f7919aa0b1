"""Trees that are removed: how deep they may be, and what is said of those that are removed in part."""

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
    - tell: {command: touch ROOT/told, refresh_only: true, subscribe: ["file#ROOT/tree"]}
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


def test_a_tree_removed_in_part_is_a_change_that_triggers(
    apply: Callable[..., Applied], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep below, so that nothing of it is seen at the path itself."""
    deep = root / "tree" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "1").touch()
    (deep / "stubborn").touch()
    make_stubborn(monkeypatch)
    applied = apply(ABSENT)
    assert applied.outcomes == ["failed", "refreshed"]
    assert applied.report.events[0].changed
    assert (root / "told").exists()


def test_a_tree_that_cannot_be_removed_at_all_triggers_nobody(
    apply: Callable[..., Applied], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "tree").mkdir()
    (root / "tree" / "stubborn").touch()
    make_stubborn(monkeypatch)
    assert apply(ABSENT).outcomes == ["failed", "stable"]
    assert not (root / "told").exists()


def make_stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of that name cannot be removed, as if they were immutable; the others go before them."""
    unlink, listdir = os.unlink, os.listdir

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stubborn":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listdir(path)))

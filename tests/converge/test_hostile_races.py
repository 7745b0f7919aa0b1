"""A hostile user exchanges entries of its own directory while root's runs work in it; nothing outside may change."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostile_user import USER_ID, Scene, hostile_scene
from scratch import fingerprint
from torture import count_of

AT_FDCWD, RENAME_EXCHANGE = -100, 2
ATTEMPTS = 10_000


@pytest.fixture
def scene() -> Iterator[Scene]:
    with hostile_scene() as scene:
        yield scene


@contextmanager
def exchanging(first: Path, second: Path) -> Iterator[None]:
    """Another process, of the hostile user, exchanges two entries as fast as it can."""
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    one, other = os.fsencode(first), os.fsencode(second)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(USER_ID)
            os.setuid(USER_ID)
            while exchange(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0:
                pass
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the exchange failed"


# Pairs that undo each other, so that every run has something to change.
STEPS = (
    ('HOME/dir/victim: {ensure: present, owner: "65534", mode: "0666"}', "HOME/dir/victim: {ensure: absent}"),
    ("HOME/dir/new: {ensure: present, content: a}", "HOME/dir/new: {ensure: present, content: bb, backup: true}"),
    ("HOME/dir/made/deep: {ensure: directory, owner: '65534'}", "HOME/dir/made: {ensure: absent, force: true}"),
    (
        "HOME/dir/tree: {ensure: directory, source: files, recurse: true, purge: true}",
        "HOME/dir/tree: {ensure: absent, force: true}",
    ),
    ("HOME/dir/l: {ensure: link, target: x, owner: '65534'}", "HOME/dir/l: {ensure: absent}"),
    (
        "HOME/dir/checked: {ensure: present, content: x, validate: 'true %'}",
        "HOME/dir/checked: {ensure: present, content: yy, links: follow}",
    ),
    (
        "WORK/copy: {ensure: present, source: HOME/dir/victim, mode: '0600'}",
        "WORK/copy: {ensure: absent}",
    ),
)


def test_a_directory_exchanged_with_a_link_leads_no_run_outside(scene: Scene) -> None:
    def plant() -> None:
        (scene.home / "dir").mkdir()
        (scene.home / "link").symlink_to(scene.outside)

    scene.plant(plant)
    before = fingerprint(scene.outside)
    copy = scene.work / "copy"
    outcomes: list[str] = []
    steps = [step for half in zip(*STEPS, strict=True) for step in half]
    with exchanging(scene.home / "dir", scene.home / "link"):
        for attempt in range(count_of(ATTEMPTS)):
            scene.plant_file("dir/victim")
            # One resource per run, because resources of one run share the directory that was reached first.
            outcomes += scene.apply(f"    - {steps[attempt % len(steps)]}\n", keep_history=False).outcomes
            assert not copy.exists() or copy.read_text() != "secret"
    assert fingerprint(scene.outside) == before
    # Both sides of the race were met.
    assert outcomes.count("failed") > len(outcomes) / 20, set(outcomes)
    assert outcomes.count("changed") > len(outcomes) / 20, set(outcomes)


def test_a_file_exchanged_with_a_hard_link_is_never_given_away(scene: Scene) -> None:
    """The hard link is as another user can make it where `fs.protected_hardlinks` is off."""
    victim = scene.outside / "victim"
    os.link(victim, scene.home / "other")
    (scene.home / "file").write_text("secret")
    before = victim.stat()
    outcomes: list[str] = []
    with exchanging(scene.home / "file", scene.home / "other"):
        while len(outcomes) < count_of(ATTEMPTS):
            for mode in ("0666", "0644"):
                text = f'    - HOME/file: {{ensure: present, owner: "65534", group: "65534", mode: "{mode}"}}\n'
                outcomes += scene.apply(text, keep_history=False).outcomes
    after = victim.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert outcomes.count("failed") > len(outcomes) / 20

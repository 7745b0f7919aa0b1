"""A local user plants links in directories of its own; root's runs must not leave these directories through them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, apply_text
from isolation import as_plain_user
from required_parts import need_root
from scratch import fingerprint, temps_below

USER_ID = 65534


class Scene:
    """`home` belongs to the hostile user; `outside` belongs to root; manifests are in `work`."""

    def __init__(self, folder: Path) -> None:
        self.home, self.outside, self.work = folder / "home", folder / "outside", folder / "work"
        folder.chmod(0o755)
        for path in (self.home, self.outside, self.outside / "tree", self.work, self.work / "files"):
            path.mkdir(mode=0o755)
        os.chown(self.home, USER_ID, USER_ID)
        (self.outside / "victim").write_text("secret")
        (self.outside / "victim").chmod(0o600)
        (self.outside / "tree" / "kept").write_text("kept")
        (self.work / "files" / "new").write_text("new")

    def apply(self, text: str, **options: Any) -> Applied:
        for name in ("home", "outside", "work"):
            text = text.replace(name.upper(), str(getattr(self, name)))
        resources = f'- file:\n    - defaults: {{owner: root, group: root, mode: "0644"}}\n{text}'
        return apply_text(resources, self.work / "unused", **options)

    def plant(self, act: Callable[[], object]) -> None:
        """Runs `act` as the hostile user."""
        as_plain_user(lambda: act() and None)


@pytest.fixture
def scene() -> Iterator[Scene]:
    need_root()
    # Reachable for other users, unlike the temporary folders of pytest.
    folder = Path(tempfile.mkdtemp(prefix="mainstay-test-", dir="/tmp"))
    try:
        yield Scene(folder)
    finally:
        shutil.rmtree(folder)


THROUGH_A_PARENT = {
    "present": "HOME/dir/new: {ensure: present, content: x}",
    "present with source": "HOME/dir/new: {ensure: present, source: files/new}",
    "replaced": "HOME/dir/victim: {ensure: present, content: x}",
    "attributes": 'HOME/dir/victim: {ensure: present, owner: "65534", mode: "0666"}',
    "attributes of a directory": 'HOME/dir/tree: {ensure: directory, owner: "65534", mode: "0777"}',
    "stable": 'HOME/dir/victim: {ensure: present, content: secret, mode: "0600"}',
    "directory": "HOME/dir/made: {ensure: directory}",
    "missing levels": "HOME/dir/a/b: {ensure: directory}",
    "absent": "HOME/dir/victim: {ensure: absent}",
    "absent with backup": "HOME/dir/victim: {ensure: absent, backup: true}",
    "absent with force": "HOME/dir/tree: {ensure: absent, force: true}",
    "recurse": "HOME/dir/tree: {ensure: directory, source: files, recurse: true}",
    "recurse into a new directory": "HOME/dir/made: {ensure: directory, source: files, recurse: true}",
    "purge": "HOME/dir/tree: {ensure: directory, source: files, recurse: true, purge: true}",
    "link": "HOME/dir/new: {ensure: link, target: x}",
    "link with an owner": 'HOME/dir/victim: {ensure: link, target: x, owner: "65534"}',
    "backup": "HOME/dir/victim: {ensure: present, content: x, backup: true}",
    "validate": "HOME/dir/new: {ensure: present, content: x, validate: 'true %'}",
    "links: replace": "HOME/dir/victim: {ensure: present, content: x, links: replace}",
    "source": "OUTSIDE/copy: {ensure: present, source: HOME/dir/victim}",
    "source tree": "OUTSIDE/copy: {ensure: directory, source: HOME/dir/tree, recurse: true}",
    "file function": "OUTSIDE/copy: {ensure: present, content: \"{{ file('HOME/dir/victim') }}\"}",
    "source outside by ..": "OUTSIDE/copy: {ensure: present, source: ../home/dir/victim}",
}


@pytest.mark.parametrize("target", ["relative", "absolute"])
@pytest.mark.parametrize("case", THROUGH_A_PARENT)
def test_a_planted_parent_link_is_not_followed(case: str, target: str, scene: Scene) -> None:
    scene.plant(lambda: os.symlink("../outside" if target == "relative" else scene.outside, scene.home / "dir"))
    refuse_everywhere(scene, THROUGH_A_PARENT[case], f"{scene.home}/dir is a link")


AT_THE_PATH = {
    "follow": "HOME/l: {ensure: present, content: x, links: follow}",
    "follow attributes": 'HOME/l: {ensure: present, owner: "65534", mode: "0666", links: follow}',
    "source": "OUTSIDE/copy: {ensure: present, source: HOME/l}",
    "file function": "OUTSIDE/copy: {ensure: present, content: \"{{ file('HOME/l') }}\"}",
}


@pytest.mark.parametrize("case", AT_THE_PATH)
def test_a_planted_link_at_the_path_is_not_followed(case: str, scene: Scene) -> None:
    scene.plant(lambda: os.symlink(scene.outside / "victim", scene.home / "l"))
    refuse_everywhere(scene, AT_THE_PATH[case], f"{scene.home}/l is a link")


@pytest.mark.parametrize("properties", ["links: follow", "links: follow, source: files, recurse: true, purge: true"])
def test_a_planted_link_to_a_directory_is_not_followed(properties: str, scene: Scene) -> None:
    scene.plant(lambda: os.symlink("../outside/tree", scene.home / "l"))
    refuse_everywhere(scene, f"HOME/l: {{ensure: directory, {properties}}}", f"{scene.home}/l is a link")


def refuse_everywhere(scene: Scene, resource: str, message: str) -> None:
    """The run and the dry run, also with other changes before, fail with the message and touch nothing outside."""
    before = fingerprint(scene.outside)
    for text in (f"    - {resource}\n", f"    - HOME/first: {{ensure: present, content: x}}\n    - {resource}\n"):
        for noop in (True, False):
            done = scene.apply(text, noop=noop)
            assert done.outcomes[-1] == "failed", (noop, done.outcomes)
            assert message in done.errors[-1], done.errors
            assert fingerprint(scene.outside) == before
    assert temps_below(scene.home) == []

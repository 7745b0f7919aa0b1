"""A local user plants links in directories of its own; root's runs must not leave these directories through them."""

from __future__ import annotations

import gc
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from applying import apply_text
from hostile_user import USER_ID, Scene, hostile_scene
from isolation import as_plain_user, in_own_mounts
from mainstay.converge.failures import Failure
from mainstay.converge.host.files import Files
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.run import list_backups, restore_backup
from required_parts import need_program
from scratch import fingerprint, temps_below


@pytest.fixture
def scene() -> Iterator[Scene]:
    with hostile_scene() as scene:
        yield scene


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


# ---- which links are followed ----
def test_links_of_root_in_directories_of_root_are_followed(scene: Scene) -> None:
    (scene.work / "link").symlink_to(scene.outside)
    (scene.outside / "again").symlink_to("../outside/tree/../tree")
    text = (
        "    - WORK/link/new: {ensure: present, content: x}\n"
        "    - WORK/link/again/deep/er: {ensure: directory}\n"
        "    - WORK/link/again/kept: {ensure: absent}\n"
    )
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed"] * 3
    assert (scene.outside / "new").read_text() == "x"
    assert (scene.outside / "tree" / "deep" / "er").is_dir()
    assert not (scene.outside / "tree" / "kept").exists()


def test_in_a_sticky_directory_links_of_root_are_followed_and_others_are_not(scene: Scene) -> None:
    sticky = scene.work / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "own").symlink_to(scene.outside)
    scene.plant(lambda: (sticky / "foreign").symlink_to(scene.outside))
    text = "    - WORK/sticky/own/new: {ensure: present, content: x}\n"
    assert scene.apply(text).outcomes == ["changed"]
    refuse_everywhere(
        scene, "WORK/sticky/foreign/new: {ensure: absent}", f"{sticky}/foreign is a link to {scene.outside}"
    )
    # As another user can link it where `fs.protected_hardlinks` is off.
    os.link(sticky / "own", sticky / "chosen", follow_symlinks=False)
    refuse_everywhere(scene, "WORK/sticky/chosen/new: {ensure: absent}", "it has more than one hard link")


def test_links_of_root_are_not_followed_where_an_access_list_names_other_writers(scene: Scene) -> None:
    shared = scene.work / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    (shared / "link").symlink_to(scene.outside)
    resource = "WORK/shared/link/new: {ensure: absent}"
    assert scene.apply(f"    - {resource}\n").outcomes == ["stable"]
    subprocess.run([need_program("setfacl"), "-m", f"u:{USER_ID}:rwx", shared], check=True)
    refuse_everywhere(scene, resource, f"{shared}/link is a link")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_links_of_root_are_not_followed_where_others_can_replace_them(mode: int, scene: Scene) -> None:
    shared = scene.work / "shared"
    shared.mkdir()
    os.chown(shared, 0, USER_ID)
    shared.chmod(mode)
    (shared / "link").symlink_to(scene.outside)
    message = (
        f"{shared}/link is a link to {scene.outside} and is not followed, because other users may change {shared}"
    )
    refuse_everywhere(scene, "WORK/shared/link/new: {ensure: present, content: x}", message)


def test_a_link_of_root_below_a_directory_of_another_user_is_not_followed(scene: Scene) -> None:
    (scene.home / "own").mkdir()
    (scene.home / "own" / "link").symlink_to(scene.outside)
    message = f"{scene.home}/own/link is a link to {scene.outside} and is not followed"
    refuse_everywhere(scene, "HOME/own/link/new: {ensure: present, content: x}", message)


def test_a_link_that_an_earlier_resource_gives_away_is_not_followed(scene: Scene) -> None:
    (scene.work / "sticky").mkdir()
    (scene.work / "sticky").chmod(0o1777)
    for owner, outcome in (("0", "changed"), ("65534", "failed")):
        text = (
            f'    - WORK/sticky/l{owner}: {{ensure: link, target: OUTSIDE, owner: "{owner}"}}\n'
            f"    - WORK/sticky/l{owner}/{owner}: {{ensure: present, content: x}}\n"
        )
        assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed", outcome]


def test_a_directory_that_an_earlier_resource_gives_away_is_not_safe(scene: Scene) -> None:
    (scene.work / "given").mkdir()
    (scene.work / "given" / "link").symlink_to(scene.outside)
    text = (
        "    - WORK/given/link/before: {ensure: present, content: x}\n"
        '    - WORK/given: {ensure: directory, owner: "65534", mode: "0755"}\n'
        "    - WORK/given/link/after: {ensure: present, content: x}\n"
    )
    outcomes = ["changed", "changed", "failed"]
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == outcomes
    assert (scene.outside / "before").exists()
    assert not (scene.outside / "after").exists()


def test_real_directories_may_change_owner_from_step_to_step(scene: Scene) -> None:
    scene.plant((scene.home / "dir").mkdir)
    text = (
        '    - HOME/dir/own: {ensure: directory, mode: "0755"}\n'
        '    - HOME/dir/own/theirs: {ensure: directory, owner: "65534", mode: "0755"}\n'
        "    - HOME/dir/own/theirs/file: {ensure: present, content: x, backup: true}\n"
    )
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed"] * 3
    assert scene.apply(text).outcomes == ["stable"] * 3
    assert (scene.home / "dir" / "own" / "theirs" / "file").read_text() == "x"


def test_a_plain_user_follows_its_own_links_and_those_of_root(scene: Scene) -> None:
    own = scene.home / "own"
    scene.plant(own.mkdir)
    scene.plant(lambda: (scene.home / "link").symlink_to("own"))
    (scene.work / "to-home").symlink_to(scene.home)
    (scene.work / "passage").mkdir(mode=0o711)
    (scene.work / "passage" / "home").symlink_to(scene.home)
    (scene.work / "foreign").mkdir()
    os.chown(scene.work / "foreign", 1002, 1002)
    (scene.work / "foreign" / "home").symlink_to(scene.home)
    text = "- file:\n    - defaults: {ensure: present, content: x, owner: '65534', group: '65534', mode: '0644'}\n"
    for path in ("home/link/a", "work/to-home/link/b", "work/passage/home/own/c", "work/foreign/home/own/d"):
        text += f"    - {scene.home.parent}/{path}: {{}}\n"

    def act() -> tuple[list[str], list[str]]:
        done = apply_text(text, scene.home / "unused", state_directory=str(scene.home / "state"))
        return done.outcomes, done.errors

    outcomes, errors = as_plain_user(act)
    assert outcomes == ["changed", "changed", "changed", "failed"], errors
    assert f"{scene.work}/foreign/home is a link" in errors[0]
    assert sorted(os.listdir(own)) == ["a", "b", "c"]


def test_sources_below_the_working_directory_are_trusted_as_the_manifest_is(scene: Scene) -> None:
    os.chown(scene.work, USER_ID, USER_ID)
    scene.plant(lambda: (scene.work / "current").symlink_to("files"))
    scene.plant(lambda: (scene.work / "shortcut").symlink_to(scene.work / "current" / "new"))
    os.link(scene.work / "files" / "new", scene.work / "files" / "second")
    text = (
        "    - OUTSIDE/a: {ensure: present, source: current/new}\n"
        "    - OUTSIDE/b: {ensure: present, source: WORK/shortcut}\n"
        "    - OUTSIDE/c: {ensure: directory, source: current, recurse: true}\n"
        "    - OUTSIDE/d: {ensure: present, content: \"{{ file('shortcut') }}\"}\n"
    )
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed"] * 4
    assert [(scene.outside / name).read_text() for name in ("a", "b", "c/new", "d")] == ["new"] * 4
    assert scene.apply(text).outcomes == ["stable"] * 4


def test_a_directory_where_anyone_may_place_files_is_not_trusted(scene: Scene) -> None:
    """As in `cd /tmp; mainstay apply -`."""
    scene.work.chmod(0o1777)
    scene.plant(lambda: (scene.work / "planted").symlink_to(scene.outside / "victim"))
    (scene.work / "own").symlink_to("files/new")
    refuse_everywhere(scene, "HOME/copy: {ensure: present, source: planted}", f"{scene.work}/planted is a link")
    refuse_everywhere(scene, "HOME/copy: {ensure: present, source: WORK/planted}", f"{scene.work}/planted is a link")
    assert scene.apply("    - HOME/copy: {ensure: present, source: own}\n").outcomes == ["changed"]


def test_creates_accepts_a_link_that_leads_nowhere(scene: Scene) -> None:
    (scene.work / "mark").symlink_to("missing")
    assert scene.apply("- exec:\n    - 'true': {creates: WORK/mark}\n").outcomes == ["stable"]


# ---- hard links ----
SHARED = {"own directory": "HOME", "sticky directory": "WORK/sticky"}


@pytest.mark.parametrize("place", SHARED)
def test_a_hard_linked_file_is_replaced_but_never_changed_in_place(place: str, scene: Scene) -> None:
    (scene.work / "sticky").mkdir()
    (scene.work / "sticky").chmod(0o1777)
    path = f"{SHARED[place]}/file"
    os.link(scene.outside / "victim", scene.fill_in(path))
    attributes = f'{path}: {{ensure: present, owner: "65534", mode: "0666"}}'
    refuse_everywhere(scene, attributes, "has 2 hard links and other users may create files in its directory")
    same_content = f'{path}: {{ensure: present, content: secret, owner: "65534", mode: "0666"}}'
    refuse_everywhere(scene, same_content, "it is not changed in place")
    text = f'    - {path}: {{ensure: present, content: new, owner: "65534", mode: "0666"}}\n'
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed"]
    found = (scene.outside / "victim").stat()
    assert (found.st_uid, found.st_mode & 0o777, found.st_nlink) == (0, 0o600, 1)
    assert (scene.outside / "victim").read_text() == "secret"


def test_a_hard_linked_file_in_a_directory_of_root_is_changed_in_place(scene: Scene) -> None:
    os.link(scene.outside / "victim", scene.work / "file")
    text = '    - WORK/file: {ensure: present, mode: "0640"}\n'
    assert scene.apply(text, noop=True).outcomes == scene.apply(text).outcomes == ["changed"]
    assert (scene.outside / "victim").stat().st_mode & 0o777 == 0o640


def test_a_hard_linked_file_in_a_copied_tree_is_not_changed_in_place(scene: Scene) -> None:
    scene.plant((scene.home / "tree").mkdir)
    (scene.outside / "victim").write_text("new")
    os.link(scene.outside / "victim", scene.home / "tree" / "new")
    tree = 'HOME/tree: {ensure: directory, source: files, recurse: true, owner: "65534", mode: "0755"}'
    refuse_everywhere(scene, tree, f"{scene.home}/tree/new has 2 hard links")


def test_a_hard_linked_source_of_another_user_is_not_read(scene: Scene) -> None:
    os.link(scene.outside / "victim", scene.home / "file")
    message = f"source {scene.home}/file has 2 hard links"
    refuse_everywhere(scene, "OUTSIDE/copy: {ensure: present, source: HOME/file}", message)
    refuse_everywhere(scene, "OUTSIDE/copy: {ensure: present, content: \"{{ file('HOME/file') }}\"}", message)
    scene.plant((scene.home / "tree").mkdir)
    os.rename(scene.home / "file", scene.home / "tree" / "file")
    tree = "OUTSIDE/copy: {ensure: directory, source: HOME/tree, recurse: true}"
    refuse_everywhere(scene, tree, f"source {scene.home}/tree/file has 2 hard links")


def test_a_hard_linked_file_behind_a_mount_is_not_written_in_place(scene: Scene) -> None:
    os.link(scene.outside / "victim", scene.work / "linked")
    scene.plant((scene.home / "file").touch)
    manifest = scene.work / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {scene.home}/file: {{ensure: present, content: x, owner: root, group: root, mode: "0644"}}\n'
    )
    done = in_own_mounts(
        f'mount --bind {scene.work}/linked {scene.home}/file\n"$MAINSTAY" apply {manifest} --json || true'
    )
    assert "it is not changed in place" in json.loads(done.stdout)["events"][0]["errors"][0]
    assert (scene.outside / "victim").read_text() == "secret"
    assert temps_below(scene.home) == []


# ---- validate, backups, temporary files ----
@pytest.mark.parametrize(
    ("path", "is_private"),
    [("HOME/file", True), ("HOME/own/file", True), ("WORK/sticky/file", True), ("WORK/file", False)],
)
def test_validate_gets_a_private_copy_where_others_could_replace_the_file(
    path: str, is_private: bool, scene: Scene
) -> None:
    (scene.home / "own").mkdir()
    (scene.work / "sticky").mkdir()
    (scene.work / "sticky").chmod(0o1777)
    command = "sh -c 'echo $0 > OUTSIDE/seen; cat $0 >> OUTSIDE/seen; chmod 666 $0' %"
    text = f'    - {path}: {{ensure: present, content: "new", owner: "65534", validate: "{command}"}}\n'
    assert scene.apply(text).outcomes == ["changed"]
    seen, content = (scene.outside / "seen").read_text().split("\n")
    state = os.environ["MAINSTAY_STATE_DIR"]
    assert os.path.dirname(seen) == (f"{state}/scratch" if is_private else os.path.dirname(scene.fill_in(path)))
    assert content == "new"
    assert not os.path.exists(seen)
    refusing = text.replace('"new"', '"newer"').replace("chmod 666 $0", "exit 3")
    assert scene.apply(refusing).outcomes == ["failed"]
    assert Path(scene.fill_in(path)).read_text() == "new"


def test_the_access_list_of_a_stranger_is_not_kept(scene: Scene) -> None:
    """The hostile user would read the secret that replaces its file."""
    setfacl = need_program("setfacl")
    for name, owner in (("theirs", USER_ID), ("own", 0)):
        (scene.home / name).write_text("old")
        os.chown(scene.home / name, owner, owner)
        subprocess.run([setfacl, "-m", "u:12345:r", scene.home / name], check=True)
    text = "".join(
        f'    - HOME/{name}: {{ensure: present, content: secret, mode: "0640"}}\n' for name in ("theirs", "own")
    )
    assert scene.apply(text).outcomes == ["changed", "changed"]
    assert "system.posix_acl_access" not in os.listxattr(scene.home / "theirs")
    assert "system.posix_acl_access" in os.listxattr(scene.home / "own")


def test_new_entries_do_not_inherit_the_access_list_of_a_stranger(scene: Scene) -> None:
    """A default list of the directory would let the hostile user read what root writes there."""
    setfacl = need_program("setfacl")
    scene.plant(lambda: subprocess.run([setfacl, "-d", "-m", f"u:{USER_ID}:rwx", scene.home], check=True))
    text = (
        '    - HOME/file: {ensure: present, content: secret, mode: "0660"}\n'
        '    - HOME/dir: {ensure: directory, mode: "0770"}\n'
        '    - HOME/dir/file: {ensure: present, content: secret, mode: "0660"}\n'
        '    - HOME/tree: {ensure: directory, source: files, recurse: true, mode: "0770"}\n'
        f'    - HOME/own: {{ensure: present, content: x, owner: "{USER_ID}", mode: "0660"}}\n'
    )
    assert scene.apply(text).outcomes == ["changed"] * 5
    for name in ("file", "dir", "dir/file", "tree", "tree/new"):
        assert os.listxattr(scene.home / name) == [], name
    assert "system.posix_acl_access" in os.listxattr(scene.home / "own")


def test_entries_that_are_taken_from_a_stranger_lose_its_access_lists(scene: Scene) -> None:
    """Otherwise the hostile user reads what root writes into a directory that it created first."""
    setfacl = need_program("setfacl")
    (scene.work / "sticky").mkdir()
    (scene.work / "sticky").chmod(0o1777)

    def create_first() -> None:
        (scene.work / "sticky" / "dir").mkdir()
        (scene.work / "sticky" / "file").write_text("x")
        for options in (["-m"], ["-d", "-m"]):
            subprocess.run([setfacl, *options, f"u:{USER_ID}:rwx", scene.work / "sticky" / "dir"], check=True)
        subprocess.run([setfacl, "-m", f"u:{USER_ID}:rw", scene.work / "sticky" / "file"], check=True)

    scene.plant(create_first)
    text = (
        '    - WORK/sticky/dir: {ensure: directory, mode: "0770"}\n'
        '    - WORK/sticky/dir/file: {ensure: present, content: secret, mode: "0660"}\n'
        '    - WORK/sticky/file: {ensure: present, content: x, mode: "0660"}\n'
    )
    assert scene.apply(text).outcomes == ["changed"] * 3
    for name in ("dir", "dir/file", "file"):
        assert os.listxattr(scene.work / "sticky" / name) == [], name


def test_default_access_lists_of_root_are_inherited(scene: Scene) -> None:
    subprocess.run([need_program("setfacl"), "-d", "-m", "u:12345:r", scene.outside], check=True)
    assert scene.apply('    - OUTSIDE/file: {ensure: present, content: x, mode: "0640"}\n').outcomes == ["changed"]
    assert "system.posix_acl_access" in os.listxattr(scene.outside / "file")


def test_a_tree_that_is_filled_while_it_is_removed_does_not_hold_the_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = scene.home / "tree"
    tree.mkdir()
    (tree / "first").touch()
    unlink = os.unlink

    def refill(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        (tree / f"{len(name) % 100}{name[:90]}").touch()

    files = Files("run-1", StateDirectory(os.environ["MAINSTAY_STATE_DIR"]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refill)
        with pytest.raises(OSError, match="Directory not empty"):
            files.remove_tree(str(tree))


@pytest.mark.parametrize("case", ["at the path", "parent", "sticky directory", "pipe"])
def test_a_report_is_not_written_through_what_a_user_planted(case: str, scene: Scene) -> None:
    path, planted = scene.home / "report", scene.home / "report"
    if case == "sticky directory":
        path = planted = scene.work / "sticky" / "report"
        path.parent.mkdir()
        path.parent.chmod(0o1777)
    elif case == "parent":
        path, planted = scene.home / "dir" / "victim", scene.home / "dir"
    if case == "pipe":
        scene.plant(lambda: os.mkfifo(planted))
    else:
        scene.plant(lambda: planted.symlink_to(scene.outside if case == "parent" else scene.outside / "victim"))
    before = fingerprint(scene.outside)
    done = scene.apply("- exec:\n    - 'true': {}\n")
    if case == "pipe":
        done.session.write_report(str(path), done.report)
        assert json.loads(path.read_text())["events"]
    else:
        with pytest.raises(OSError, match=f"{planted} is a link"):
            done.session.write_report(str(path), done.report)
    assert fingerprint(scene.outside) == before


def test_a_report_goes_through_links_and_pipes_of_root(scene: Scene) -> None:
    done = scene.apply("- exec:\n    - 'true': {}\n")
    (scene.work / "link").symlink_to(scene.outside / "report")
    (scene.outside / "report").touch()
    inode = (scene.outside / "report").stat().st_ino
    done.session.write_report(str(scene.work / "link"), done.report)
    assert json.loads((scene.outside / "report").read_text())["events"]
    assert (scene.outside / "report").stat().st_ino == inode
    os.mkfifo(scene.work / "pipe")
    reader = os.open(scene.work / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    done.session.write_report(str(scene.work / "pipe"), done.report)
    assert json.loads(os.read(reader, 1 << 16))["events"]
    os.close(reader)


def test_restore_does_not_follow_a_planted_link(scene: Scene) -> None:
    scene.plant((scene.home / "dir").mkdir)
    scene.plant(lambda: (scene.home / "dir" / "victim").write_text("old"))
    path = f"{scene.home}/dir/victim"
    assert scene.apply("    - HOME/dir/victim: {ensure: present, content: new, backup: true}\n").outcomes == [
        "changed"
    ]
    restore_backup(path, None)
    assert Path(path).read_text() == "old"
    assert Path(path).stat().st_uid == USER_ID
    scene.plant(lambda: os.rename(scene.home / "dir", scene.home / "moved"))
    scene.plant(lambda: os.symlink("../outside", scene.home / "dir"))
    before = fingerprint(scene.outside)
    with pytest.raises(Failure, match=f"{scene.home}/dir is a link to ../outside"):
        restore_backup(path, None)
    assert fingerprint(scene.outside) == before


def test_a_backup_has_content_and_attributes_of_one_file(scene: Scene) -> None:
    """Else `restore` would give a file of root to the owner of the file that was there before."""
    scene.plant(lambda: (scene.home / "file").write_text("own"))
    path = str(scene.home / "file")
    old = os.lstat(path)
    os.unlink(path)
    os.link(scene.outside / "victim", path)
    files = Files("run-1", StateDirectory(os.environ["MAINSTAY_STATE_DIR"]))
    with pytest.raises(Failure, match="was replaced by another process"):
        files.keep_backup(path, old)
    assert list_backups(path) == []


def test_temporary_files_of_a_dead_run_are_not_removed_behind_a_planted_link(scene: Scene) -> None:
    text = "    - HOME/file: {ensure: present, content: x}\n"
    scene.apply(text)
    scene.plant((scene.home / "real").mkdir)
    scene.plant(lambda: (scene.home / "dir").symlink_to(scene.outside))
    left = [folder / ".mainstay-dead-1" for folder in (scene.outside, scene.home / "real")]
    for path in left:
        path.touch()
    folder = StateDirectory(os.environ["MAINSTAY_STATE_DIR"]).identity_path(str(scene.work / "manifest.yaml"))
    lines = [json.dumps(["dead", str(scene.home / name)]) for name in ("dir", "real", "missing")]
    Path(folder, "journal").write_text("\n".join(lines) + "\n")
    assert scene.apply(text).outcomes == ["stable"]
    assert [path.exists() for path in left] == [True, False]


def test_a_directory_in_place_of_a_new_one_is_not_given_away(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.home / "private").mkdir(mode=0o700)
    (scene.home / "private" / "key").touch()
    mkdir = os.mkdir

    def swap(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        os.rename(name, "aside", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename("private", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    files = Files("run-1", StateDirectory(os.environ["MAINSTAY_STATE_DIR"]))
    monkeypatch.setattr(os, "mkdir", swap)
    with pytest.raises(Failure, match="was replaced by another process"):
        files.make_directory(str(scene.home / "new"), uid=USER_ID, gid=USER_ID, mode=0o777)
    found = (scene.home / "new").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (0, 0o700)


def test_a_mounted_directory_that_was_moved_into_a_removed_tree_is_kept(scene: Scene) -> None:
    """A bind mount has the device of its surroundings, and only its own name cannot be moved."""
    (scene.home / "tree" / "data" / "mounted").mkdir(parents=True)
    program = (
        "import sys; from mainstay.converge.host.files import Files; from mainstay.converge.host.state import StateDirectory;"
        "Files('run-1', StateDirectory('/nonexistent')).remove_tree(sys.argv[1])"
    )
    done = in_own_mounts(
        f"mount --bind {scene.outside} {scene.home}/tree/data/mounted\n"
        f'{shlex.quote(sys.executable)} -c "{program}" {scene.home}/tree || true'
    )
    assert "nothing is removed across a mount point" in done.stderr
    assert sorted(os.listdir(scene.outside)) == ["tree", "victim"]


# ---- directories that stay open ----
def test_a_directory_that_a_command_replaces_is_reached_again(scene: Scene) -> None:
    text = (
        "    - WORK/dir: {ensure: directory, mode: '0755'}\n"
        "    - WORK/dir/first: {ensure: present, content: x}\n"
        "- exec:\n    - sh -c 'mv WORK/dir WORK/old && mkdir WORK/dir':\n"
        "- file:\n    - WORK/dir/second: {ensure: present, content: x, owner: root, group: root, mode: '0644'}\n"
    )
    assert scene.apply(text).outcomes == ["changed"] * 4
    assert sorted(os.listdir(scene.work / "dir")) == ["second"]
    assert sorted(os.listdir(scene.work / "old")) == ["first"]


def test_a_directory_that_a_resource_replaces_is_reached_again(scene: Scene) -> None:
    (scene.work / "dir").mkdir()
    (scene.work / "one").mkdir()
    (scene.work / "two").mkdir()
    text = (
        "    - WORK/dir/a: {ensure: present, content: x}\n"
        "    - WORK/dir: {ensure: absent, force: true, alias: gone}\n"
        "    - WORK/l: {ensure: link, target: one, alias: l1}\n"
        "    - WORK/l/b: {ensure: present, content: x}\n"
    )
    assert scene.apply(text).outcomes == ["changed"] * 4
    again = (
        "    - WORK/l/b: {ensure: present, content: x}\n"
        "    - WORK/l: {ensure: link, target: two}\n"
        "    - WORK/l/c: {ensure: present, content: x}\n"
        "    - WORK/dir/d: {ensure: absent}\n"
        "    - WORK/dir: {ensure: directory, mode: '0755'}\n"
        "    - WORK/dir/e: {ensure: present, content: x}\n"
    )
    outcomes = ["stable", "changed", "changed", "stable", "changed", "changed"]
    assert scene.apply(again, noop=True).outcomes == scene.apply(again).outcomes == outcomes
    assert [os.listdir(scene.work / name) for name in ("one", "two", "dir")] == [["b"], ["c"], ["e"]]


def test_a_command_can_unmount_what_files_were_written_to(scene: Scene) -> None:
    (scene.work / "disk" / "deep").mkdir(parents=True)
    manifest = scene.work / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {scene.work}/disk/file: {{ensure: present, content: x, owner: root, group: root, mode: "0644"}}\n'
        f"- exec:\n    - umount {scene.work}/disk:\n"
        f"- file:\n    - {scene.work}/disk/deep: {{ensure: absent}}\n"
    )
    done = in_own_mounts(f'mount -t tmpfs tmpfs {scene.work}/disk\n"$MAINSTAY" apply {manifest} --json || true')
    events = json.loads(done.stdout)["events"]
    assert [event["outcome"] for event in events] == ["changed"] * 3, events
    assert os.listdir(scene.work / "disk") == []


def test_a_run_leaves_no_directory_open(scene: Scene) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    done = scene.apply("".join(f"    - HOME/{number}/x: {{ensure: directory}}\n" for number in range(300)))
    assert done.outcomes == ["changed"] * 300
    assert len(os.listdir("/proc/self/fd")) == before
    done.as_json()
    assert len(os.listdir("/proc/self/fd")) == before

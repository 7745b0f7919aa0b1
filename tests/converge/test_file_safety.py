"""Files on a real host: permissions at every instant, other users, mounts, full disks and durability."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, apply_text
from fork_server import PROGRAM
from isolation import PLAIN_USER, as_plain_user, in_own_mounts, open_folder, traced
from mainstay.converge.host.file_attributes import owner_only_acl
from required_parts import need_program, need_root
from scratch import describe_tree, fingerprint, temps_below

Apply = Callable[..., Applied]
FILE = "- file:\n    - ROOT/x: {{ensure: present, owner: USER, group: GROUP, {}}}\n"


def file(properties: str) -> str:
    return FILE.format(properties)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# ---- permissions ----
@pytest.mark.parametrize("mask", [0o000, 0o027, 0o077, 0o277, 0o777])
@pytest.mark.parametrize("mode", ["0600", "0644", "0777"])
def test_no_umask_changes_a_mode(mask: int, mode: str, apply: Apply, root: Path) -> None:
    (root.parent / "state").mkdir()
    os.umask(mask)
    try:
        done = apply(
            file(f'content: x, mode: "{mode}"')
            + f'- file:\n    - ROOT/d/e: {{ensure: directory, owner: USER, group: GROUP, mode: "{mode}"}}\n'
        )
    finally:
        os.umask(0o022)
    assert done.outcomes == ["changed", "changed"], done.errors
    assert {mode_of(root / name) for name in ("x", "d", "d/e")} == {int(mode, 8)}


def test_a_change_of_attributes_keeps_inode_and_content(apply: Apply, root: Path) -> None:
    (root / "x").write_text("kept")
    inode = (root / "x").stat().st_ino
    assert apply(file('content: kept, mode: "0600"')).outcomes == ["changed"]
    assert (root / "x").stat().st_ino == inode


def test_a_new_owner_and_group_are_set_by_name_and_number(apply: Apply, root: Path) -> None:
    need_root()
    (root / "x").write_text("x")
    for owner, group, numbers in ((PLAIN_USER, "12345", (65534, 12345)), ("54321", "root", (54321, 0))):
        text = f'- file:\n    - ROOT/x: {{ensure: present, content: y, owner: {owner}, group: "{group}", mode: "0640"}}\n'
        assert apply(text).outcomes == ["changed"]
        found = (root / "x").stat()
        assert (found.st_uid, found.st_gid) == numbers
        assert apply(text).outcomes == ["stable"]
    done = apply('- file:\n    - ROOT/x: {ensure: present, owner: root, group: root, mode: "0640"}\n')
    assert done.report.events[0].reason == "owner is 54321, expected root"
    link = f"- file:\n    - ROOT/l: {{ensure: link, target: x, owner: {PLAIN_USER}}}\n"
    assert apply(link).outcomes == ["changed"]
    assert (root / "l").lstat().st_uid == 65534
    assert (root / "x").lstat().st_uid == 0


def test_a_new_owner_never_has_wider_permissions_than_asked_for(root: Path) -> None:
    """The mode is narrowed before the owner changes."""
    need_root()
    (root / "x").write_text("x")
    (root / "x").chmod(0o666)
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/x: {{ensure: present, owner: {PLAIN_USER}, group: root, mode: "0640"}}\n'
    )
    lines = traced("/^f?ch(mod|own)(at)?$", PROGRAM, "apply", manifest)
    steps = [line.split()[1].split("(")[0] + line[line.rindex(",") :] for line in lines if f"{root}/x" in line]
    assert steps == ["fchmod, 0640) = 0", "fchown, 0) = 0", "fchmod, 0640) = 0"]


# ---- attributes of a replaced file ----
def test_a_replaced_file_keeps_its_user_attributes_and_access_list(apply: Apply, root: Path) -> None:
    setfacl, getfacl = need_program("setfacl"), need_program("getfacl")
    (root / "x").write_text("old")
    os.setxattr(root / "x", "user.note", b"kept")
    subprocess.run([setfacl, "-m", "u:12345:rw,g:54321:r", root / "x"], check=True)
    before = (root / "x").stat().st_ino
    assert apply(file('content: new, mode: "0640"')).outcomes == ["changed"]
    assert (root / "x").stat().st_ino != before
    assert os.getxattr(root / "x", "user.note") == b"kept"
    listed = subprocess.run([getfacl, "-cpn", root / "x"], capture_output=True, text=True).stdout.split()
    assert "user:12345:rw-" in listed
    assert "group:54321:r--" in listed
    assert "mask::r--" in listed
    assert "other::---" in listed


def test_a_kept_access_list_does_not_widen_mode_0600(apply: Apply, root: Path) -> None:
    setfacl = need_program("setfacl")
    (root / "x").write_text("old")
    (root / "x").chmod(0o664)
    subprocess.run([setfacl, "-m", "u:12345:rw", root / "x"], check=True)
    assert apply(file('content: new, mode: "0600"')).outcomes == ["changed"]
    assert mode_of(root / "x") == 0o600


def test_an_access_list_is_closed_until_the_mode_is_set() -> None:
    def entry(tag: int, permissions: int) -> bytes:
        return tag.to_bytes(2, "little") + permissions.to_bytes(2, "little") + b"\xff" * 4

    version = b"\x02\0\0\0"
    long = version + entry(1, 6) + entry(2, 6) + entry(4, 6) + entry(16, 6) + entry(32, 4)
    assert owner_only_acl(long) == version + entry(1, 6) + entry(2, 6) + entry(4, 6) + entry(16, 0) + entry(32, 0)
    short = version + entry(1, 6) + entry(4, 6) + entry(32, 4)
    assert owner_only_acl(short) == version + entry(1, 6) + entry(4, 0) + entry(32, 0)


def test_a_replaced_file_loses_its_capabilities(apply: Apply, root: Path) -> None:
    need_root()
    setcap = need_program("setcap")
    (root / "x").write_text("old")
    subprocess.run([setcap, "cap_net_raw+ep", root / "x"], check=True)
    assert "security.capability" in os.listxattr(root / "x")
    assert apply(file('content: new, mode: "0755"')).outcomes == ["changed"]
    assert "security.capability" not in os.listxattr(root / "x")


# ---- a plain user ----
def plain(folder: Path, text: str, **options: Any) -> tuple[list[str], list[str]]:
    def act() -> tuple[list[str], list[str]]:
        done = apply_text(text, folder / "root", state_directory=str(folder / "state"), **options)
        return done.outcomes, done.errors

    return as_plain_user(act)


def plain_both(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """Runs the manifest, after a dry run that must have the same outcomes."""
    forecast = plain(folder, text, noop=True)
    done = plain(folder, text)
    assert forecast[0] == done[0], (forecast, done)
    return done


def test_a_plain_user_manages_its_own_files() -> None:
    with open_folder() as folder:
        as_plain_user((folder / "root").mkdir)
        text = (
            '- file:\n    - defaults: {owner: "65534", group: "65534"}\n'
            '    - ROOT/d: {ensure: directory, mode: "0700"}\n'
            '    - ROOT/d/x: {ensure: present, content: x, mode: "0400"}\n'
            '    - ROOT/d/y: {ensure: present, mode: "0000"}\n'
            "    - ROOT/d/l: {ensure: link, target: x}\n"
        )
        if os.geteuid() != 0:
            text = text.replace('owner: "65534", group: "65534"', f'owner: "{os.getuid()}", group: "{os.getgid()}"')
        assert plain_both(folder, text)[0] == ["changed"] * 4
        assert plain(folder, text)[0] == ["stable"] * 4
        assert plain_both(folder, "- file:\n    - ROOT/d: {ensure: absent, force: true}\n")[0] == ["changed"]
        assert mode_of(folder / "state") == 0o700


def test_a_plain_user_cannot_change_owners_and_a_dry_run_reports_it() -> None:
    need_root()
    with open_folder() as folder:
        as_plain_user((folder / "root").mkdir)
        as_plain_user(lambda: (folder / "root" / "own").write_text("own"))
        (folder / "root" / "foreign").write_text("foreign")
        text = (
            '- file:\n    - defaults: {ensure: present, owner: root, group: "65534", mode: "0644"}\n'
            "    - ROOT/new: {content: x}\n"
            "    - ROOT/own: {}\n"
            '    - ROOT/group: {content: x, owner: "65534", group: root}\n'
            '    - ROOT/directory: {ensure: directory, owner: "65534", group: root}\n'
            '    - ROOT/foreign: {owner: "65534", mode: "0600"}\n'
            "    - ROOT/link: {ensure: link, target: x, owner: root, group: null, mode: null}\n"
        )
        outcomes, errors = plain_both(folder, text)
        assert outcomes == ["failed"] * 6
        assert all("permitted" in error or "permission" in error.lower() for error in errors), errors
        assert temps_below(folder / "root") == []


def test_a_plain_user_without_permission_fails() -> None:
    need_root()
    with open_folder() as folder:
        (folder / "root").mkdir(mode=0o755)
        (folder / "root" / "closed").mkdir(mode=0o700)
        (folder / "root" / "sticky").mkdir()
        (folder / "root" / "sticky").chmod(0o1777)
        (folder / "root" / "sticky" / "x").write_text("foreign")
        text = (
            '- file:\n    - defaults: {ensure: present, content: x, owner: "65534", group: "65534", mode: "0644"}\n'
            "    - ROOT/x: {}\n"
            "    - ROOT/closed/x: {}\n"
            "    - ROOT/closed/deep/x: {}\n"
            "    - ROOT/sticky/x: {}\n"
            "    - ROOT/sticky/new: {}\n"
            "    - ROOT/closed: {ensure: absent, content: null}\n"
        )
        outcomes, errors = plain_both(folder, text)
        assert outcomes == ["failed", "failed", "failed", "failed", "changed", "failed"]
        assert "Permission denied" in errors[1]
        assert "Permission denied" in errors[2]


# ---- mounts ----
def test_a_bind_mounted_file_is_written_in_place(root: Path) -> None:
    (root / "x").write_text("old")
    (root / "real").write_text("old and longer than the new one")
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/x: {{ensure: present, content: new, owner: root, group: root, mode: "0640"}}\n'
    )
    done = in_own_mounts(f'mount --bind {root}/real {root}/x\n"$MAINSTAY" apply {manifest} --json')
    event = json.loads(done.stdout)["events"][0]
    assert event["outcome"] == "changed", event
    assert "written in place" in event["warnings"][0]
    assert (root / "real").read_text() == "new"
    assert mode_of(root / "real") == 0o640
    assert (root / "x").read_text() == "old"
    assert temps_below(root) == []


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("name", ["inner", "mit Leer und ü"])
def test_nothing_is_removed_across_a_mount_point(root: Path, through_link: bool, name: str) -> None:
    for folder in ("real", "elsewhere"):
        (root / folder).mkdir()
        (root / folder / "kept").write_text("kept")
    (root / "real" / "tree").mkdir()
    (root / "real" / "tree" / "first").write_text("kept")
    (root / "real" / "tree" / name).mkdir()
    (root / "link").symlink_to("real")
    manifest = root.parent / "manifest.yaml"
    place = root / ("link" if through_link else "real") / "tree"
    manifest.write_text(f"- file:\n    - {place}: {{ensure: absent, force: true}}\n")
    before = describe_tree(root)
    done = in_own_mounts(
        f'mount --bind {root}/elsewhere "{root}/real/tree/{name}"\n'
        f'"$MAINSTAY" apply {manifest} --noop --json || true\necho ---\n"$MAINSTAY" apply {manifest} --json || true'
    )
    for document in done.stdout.split("---"):
        event = json.loads(document)["events"][0]
        assert event["outcome"] == "failed"
        assert "is a mount point; nothing is removed across it" in event["errors"][0]
    assert describe_tree(root) == before


def test_an_empty_mount_point_is_refused_in_the_dry_run_too(root: Path) -> None:
    (root / "point").mkdir()
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(f"- file:\n    - {root}/point: {{ensure: absent}}\n")
    done = in_own_mounts(
        f"mount -t tmpfs tmpfs {root}/point\n"
        f'"$MAINSTAY" apply {manifest} --noop --json || true\necho ---\n"$MAINSTAY" apply {manifest} --json || true'
    )
    for document in done.stdout.split("---"):
        assert json.loads(document)["events"][0]["outcome"] == "failed", document


@pytest.mark.parametrize("in_place", [False, True])
def test_on_a_full_disk_the_old_file_stays_whole(root: Path, in_place: bool) -> None:
    (root / "disk").mkdir()
    (root / "plain").mkdir()
    (root / "plain" / "x").write_text("")
    (root / "big").write_bytes(b"new " * 500_000)
    manifest = root.parent / "manifest.yaml"
    path = f"{root}/plain/x" if in_place else f"{root}/disk/x"
    manifest.write_text(
        f'- file:\n    - {path}: {{ensure: present, source: {root}/big, owner: root, group: root, mode: "0644"}}\n'
    )
    bind = f"mount --bind {root}/disk/x {root}/plain/x" if in_place else "true"
    done = in_own_mounts(
        f"mount -t tmpfs -o size=256k tmpfs {root}/disk\nprintf old > {root}/disk/x\n{bind}\n"
        f'"$MAINSTAY" apply {manifest} --json || true\necho ---\ncat {root}/disk/x\necho ---\nls -A {root}/disk {root}/plain'
    )
    document, content, names = done.stdout.split("---\n")
    event = json.loads(document)["events"][0]
    assert event["outcome"] == "failed"
    assert event["changed"] is False
    assert "No space left on device" in event["errors"][0]
    assert content.strip() == "old"
    assert ".mainstay-" not in names


def test_a_dry_run_forecasts_a_read_only_disk(root: Path) -> None:
    (root / "disk").mkdir()
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/disk/x: {{ensure: present, content: x, owner: root, group: root, mode: "0644"}}\n'
    )
    done = in_own_mounts(
        f"mount -t tmpfs -o ro tmpfs {root}/disk\n"
        f'"$MAINSTAY" apply {manifest} --noop --json || true\necho ---\n"$MAINSTAY" apply {manifest} --json || true'
    )
    for document in done.stdout.split("---"):
        assert json.loads(document)["events"][0]["outcome"] == "failed", document


def test_a_device_is_never_opened(root: Path) -> None:
    need_root()
    os.mknod(root / "x", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/x: {{ensure: present, content: x, owner: root, group: root, mode: "0644"}}\n'
    )
    done = subprocess.run([PROGRAM, "apply", manifest, "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["events"][0]["errors"] == [f"{root}/x is a character device, not a regular file"]


def test_a_fifo_is_never_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/pipe: {{ensure: present, content: x, owner: "{os.getuid()}", group: "{os.getgid()}", mode: "0644"}}\n'
    )
    strace = need_program("strace")
    trace = root.parent / "trace"
    subprocess.run([strace, "-qq", "-e", "trace=open,openat", "-o", trace, PROGRAM, "apply", manifest])
    assert f'"{root}/pipe"' not in trace.read_text()


# ---- durability ----
def test_changed_files_are_synced_before_the_report(root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    (root / "old").write_text("old")
    (root / "gone").write_text("gone")
    manifest.write_text(
        f'- file:\n    - defaults: {{ensure: present, content: x, owner: "{os.getuid()}", group: "{os.getgid()}", mode: "0644"}}\n'
        f"    - {root}/new: {{}}\n    - {root}/old: {{}}\n    - {root}/gone: {{ensure: absent, content: null}}\n"
    )
    lines = traced("rename,renameat,fsync,fdatasync,write", PROGRAM, "apply", manifest)
    text = "\n".join(lines)
    renamed = next(index for index, line in enumerate(lines) if f'<{root}>, "old") = 0' in line)
    synced_before = [line for line in lines[:renamed] if "fsync(" in line and ".mainstay-" in line]
    assert len(synced_before) == 1, "a file that replaces another is durable before it takes its place"
    last_word = max(index for index, line in enumerate(lines) if "write(1<" in line and "Run: " in line)
    for path in (f"{root}/new", f"{root}"):
        at = [index for index, line in enumerate(lines) if "fsync(" in line and f"<{path}>" in line]
        assert at, text
        assert at[-1] < last_word
    assert "write(1<" in text


def test_many_files_are_synced_at_once(root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    lines = [f'    - defaults: {{ensure: present, owner: "{os.getuid()}", group: "{os.getgid()}", mode: "0644"}}']
    lines += [f"    - {root}/{index}: {{}}" for index in range(257)]
    manifest.write_text("- file:\n" + "\n".join(lines) + "\n")
    calls = traced("fsync,syncfs", PROGRAM, "apply", manifest)
    assert sum("syncfs(" in line for line in calls) == 1
    assert not any("fsync(" in line and f"<{root}" in line for line in calls)


# ---- size ----
def test_a_large_source_is_copied_and_compared_in_flat_memory(root: Path) -> None:
    with open(root / "source", "wb") as source:
        source.truncate(100 * 1024 * 1024)
        source.seek(99 * 1024 * 1024)
        source.write(b"end")
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        f'- file:\n    - {root}/x: {{ensure: present, source: {root}/source, owner: "{os.getuid()}", group: "{os.getgid()}", mode: "0644"}}\n'
    )
    for outcome in ("changed", "stable"):
        document, kilobytes = run_measured(PROGRAM, "apply", manifest, "--json")
        assert json.loads(document)["events"][0]["outcome"] == outcome
        assert kilobytes < 80_000, "memory grew with the file"
    assert (root / "x").stat().st_size == 100 * 1024 * 1024


def run_measured(*command: str | Path) -> tuple[str, int]:
    """Output and peak memory of a command."""
    measure = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", measure, *command], capture_output=True, text=True)
    return done.stdout, int(done.stderr.split()[-1])


# ---- backups ----
def test_replaced_and_removed_files_are_backed_up_and_can_be_restored(
    apply: Apply, root: Path, mainstay: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (root / "x").write_text("first")
    (root / "x").chmod(0o640)
    runs = []
    for content in ("second", "third"):
        runs.append(apply(file(f'content: {content}, backup: true, mode: "0644"')).report.run_id)
    apply("- file:\n    - ROOT/x: {ensure: absent, backup: true}\n")
    assert mainstay("restore", root / "x").returncode == 0
    assert (root / "x").read_text() == "third"
    assert mainstay("restore", root / "x", "--run", runs[0]).returncode == 0
    assert (root / "x").read_text() == "first"
    assert mode_of(root / "x") == 0o640
    assert mainstay("restore", root / "never").returncode == 1


def test_only_the_last_ten_backups_of_a_path_are_kept_and_they_are_private(apply: Apply, root: Path) -> None:
    for number in range(13):
        (root / "x").write_text(f"content {number}")
        apply(file('content: "", backup: true, mode: "0644"'))
    backups = Path(os.environ["MAINSTAY_STATE_DIR"]) / "backups"
    kept = sorted(path.read_text() for path in backups.glob("paths/*/*.content"))
    assert kept == sorted(f"content {number}" for number in range(3, 13))
    assert len(list((backups / "objects").iterdir())) == 10
    for path in backups.rglob("*"):
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600)


def test_runs_of_several_manifests_keep_backups_at_the_same_time(root: Path) -> None:
    """They share equal contents and remove each other's old backups."""
    manifests = []
    for number in range(3):
        lines = [
            f'    - defaults: {{ensure: present, content: "", backup: true, owner: "{os.getuid()}", group: "{os.getgid()}", mode: "0644"}}'
        ]
        for index in range(40):
            (root / f"{number}-{index}").write_text(f"same {index % 5}")
            lines.append(f"    - {root}/{number}-{index}: {{}}")
        path = root.parent / f"{number}.yaml"
        path.write_text("- file:\n" + "\n".join(lines) + "\n")
        manifests.append(path)
    running = [subprocess.Popen([PROGRAM, "apply", path], stdout=subprocess.PIPE, text=True) for path in manifests]
    for process in running:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    backups = Path(os.environ["MAINSTAY_STATE_DIR"]) / "backups"
    kept = [path.read_text() for path in backups.glob("paths/*/*.content")]
    assert sorted(kept) == sorted(f"same {index % 5}" for index in range(40) for _ in range(3))
    assert len(list((backups / "objects").iterdir())) == 5


def test_a_dry_run_keeps_no_backup(apply: Apply, root: Path) -> None:
    (root / "x").write_text("old")
    before = fingerprint(root)
    apply(file('content: new, backup: true, mode: "0644"'), noop=True)
    assert not (Path(os.environ["MAINSTAY_STATE_DIR"]) / "backups").exists()
    assert fingerprint(root) == before


# ---- validate ----
def test_a_validator_gets_a_private_copy_in_a_dry_run_and_the_new_file_in_a_run(apply: Apply, root: Path) -> None:
    seen = root.parent / "seen"
    check = root.parent / "check"
    check.write_text(f'#!/bin/sh\nstat -c "%a %n" "$1" >> {seen}\ncat "$1" >> {seen}\necho; echo no; exit 1\n')
    check.chmod(0o755)
    text = file(f'content: new, validate: "{check} %", mode: "0644"')
    forecast, done = apply(text, noop=True), apply(text)
    assert forecast.outcomes == done.outcomes == ["failed"]
    assert forecast.report.events[0].output == done.report.events[0].output == "\nno\n"
    dry, content, real, _ = seen.read_text().replace("new", "new\n").split("\n")[:4]
    assert dry.startswith(f"600 {root.parent}/state/scratch/")
    assert content == "new"
    assert real.startswith(f"600 {root}/.mainstay-")
    assert list((root.parent / "state" / "scratch").iterdir()) == []
    assert list(root.iterdir()) == []

"""Another process changes the same path: links, other files and pipes appear between two steps of a run."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from applying import Applied
from isolation import as_plain_user, open_folder
from mainstay.converge.failures import Failure
from mainstay.converge.host.backups import Backups
from mainstay.converge.host.files import Files, FileWrite
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.run import list_backups, restore_backup
from required_parts import need_root


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files("run-1", StateDirectory(str(tmp_path / "state")))


def test_a_link_in_place_of_a_new_directory_is_not_followed(
    files: Files, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "victim").mkdir(mode=0o700)
    mkdir = os.mkdir

    def swap(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        os.rmdir(name, dir_fd=dir_fd)
        os.symlink("victim", name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swap)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        files.make_directory(str(root / "new"), uid=os.geteuid(), gid=os.getegid(), mode=0o777)
    assert stat.S_IMODE((root / "victim").stat().st_mode) == 0o700


def test_a_hard_link_in_place_of_a_file_keeps_its_mode(files: Files, root: Path) -> None:
    (root / "victim").touch(mode=0o600)
    (root / "file").touch(mode=0o600)
    old = os.lstat(root / "file")
    (root / "file").unlink()
    os.link(root / "victim", root / "file")
    with pytest.raises(Failure, match="was replaced"):
        files.set_attributes(str(root / "file"), old, uid=os.geteuid(), gid=os.getegid(), mode=0o666)
    assert stat.S_IMODE((root / "victim").stat().st_mode) == 0o600


def test_a_pipe_in_place_of_a_file_does_not_end_the_run(apply: Callable[..., Applied], root: Path) -> None:
    applied = apply("""
    - file:
        - ROOT/file: {ensure: present, content: a, owner: USER, group: GROUP, mode: "0600"}
    - exec:
        - swap: {provider: shell, command: rm ROOT/file && mkfifo ROOT/file}
    """)
    assert applied.outcomes == ["changed", "changed"]
    assert not applied.report.failed


def test_a_change_that_cannot_be_made_durable_is_not_a_success(
    apply: Callable[..., Applied], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    applied = apply('- file: [{ROOT/new: {ensure: present, content: a, owner: USER, group: GROUP, mode: "0600"}}]')
    assert applied.outcomes == ["changed"]
    assert applied.report.failed
    assert "Input/output error" in applied.report.output_errors[0]


def test_backups_of_two_runs_do_not_interfere(root: Path, tmp_path: Path) -> None:
    backups = Backups(StateDirectory(str(tmp_path / "state")))
    file = root / "file"
    file.write_text("content")

    def slowly() -> Iterator[bytes]:
        yield b"con"
        Backups(backups.state).keep(str(root / "other"), "run-2", os.lstat(file), [b"other"])
        yield b"tent"

    backups.keep(str(file), "run-1", os.lstat(file), slowly())
    assert Path(backups.list(str(file))[0].content_path).read_text() == "content"


def test_a_file_that_grows_during_its_backup_is_restored_as_copied(root: Path, tmp_path: Path) -> None:
    file = root / "file"
    file.write_text("short")
    found = os.lstat(file)
    Backups(StateDirectory(str(tmp_path / "state"))).keep(str(file), "run-1", found, [b"short", b" and long"])
    restore_backup(str(file), None)
    assert file.read_text() == "short and long"


def test_a_damaged_backup_replaces_nothing(root: Path, tmp_path: Path) -> None:
    file = root / "file"
    file.write_text("now")
    Backups(StateDirectory(str(tmp_path / "state"))).keep(str(file), "run-1", os.lstat(file), [b"before"])
    with open(list_backups(str(file))[0].content_path, "ab") as kept:
        kept.write(b"garbage")
    with pytest.raises(Failure, match="damaged"):
        restore_backup(str(file), None)
    assert file.read_text() == "now"


def test_a_plain_user_makes_directories_under_any_umask() -> None:
    need_root()
    with open_folder() as folder:

        def make() -> None:
            os.umask(0o777)
            files = Files("run-1", StateDirectory(str(folder / "state")))
            files.make_directory(str(folder / "new"), uid=65534, gid=65534, mode=0o750)

        as_plain_user(make)
        assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o750


def written(files: Files, path: Path, content: bytes) -> str:
    files.replace(FileWrite(str(path), os.geteuid(), os.getegid(), 0o600, content))
    return str(path)


def test_written_content_is_known_until_another_process_writes(files: Files, root: Path) -> None:
    path = written(files, root / "file", b"ours")
    assert files.holds(path, os.lstat(path), b"ours")
    path = written(files, root / "other", b"ours")
    time.sleep(0.02)
    (root / "other").write_bytes(b"them")
    assert not files.holds(path, os.lstat(path), b"ours")


def test_another_file_in_place_of_the_written_file_is_read(files: Files, root: Path) -> None:
    path = written(files, root / "file", b"ours")
    status = os.lstat(path)
    (root / "theirs").write_bytes(b"them")
    os.utime(root / "theirs", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.rename(root / "theirs", path)
    assert not files.holds(path, os.lstat(path), b"ours")


def test_written_content_is_known_for_one_comparison_only(files: Files, root: Path) -> None:
    path = written(files, root / "file", b"ours")
    status = os.lstat(path)
    assert files.holds(path, status, b"ours")
    (root / "file").write_bytes(b"them")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not files.holds(path, os.lstat(path), b"ours")


def test_a_validator_that_changes_the_new_file_is_detected(apply: Callable[..., Applied], root: Path) -> None:
    applied = apply("""
    - file:
        - ROOT/file:
            {ensure: present, content: ours, owner: USER, group: GROUP, mode: "0600",
             validate: "sh -c 'printf them > $0' %"}
    """)
    assert applied.outcomes == ["failed"]
    assert applied.errors == ["content differs"]

"""A file from a source: copied within the kernel where that can be, and looked at again only where that can tell something."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstay.converge.host import files as module
from mainstay.converge.host.files import CHUNK_BYTES, Files
from mainstay.converge.host.forecast_files import ForecastFiles
from mainstay.converge.host.state import StateDirectory

CONTENT = os.urandom(2 * CHUNK_BYTES + 11)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files("run", StateDirectory(str(tmp_path / "state")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def copy(files: Files, source: Path) -> Path:
    target = source.with_name("target")
    files.replace(str(target), None, str(source), uid=os.getuid(), gid=os.getgid(), mode=0o644, old=None)
    return target


def refuse(*_: object) -> int:
    raise OSError(errno.EXDEV, "not here")


def copy_a_little(source: int, target: int, _count: int) -> int:
    """Gives up on its way, with the positions of both where it stopped."""
    if os.lseek(source, 0, os.SEEK_CUR):
        raise OSError(errno.EIO, "no more")
    return os.write(target, os.read(source, 1000))


@pytest.mark.parametrize("way", [None, refuse, copy_a_little, lambda *_: 0])
def test_whatever_the_kernel_can_do_the_copy_is_whole(
    way: Callable[..., int] | None, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way is not None:
        monkeypatch.setattr(os, "copy_file_range", way)
    assert copy(files, source).read_bytes() == CONTENT


def test_a_full_disk_is_told_also_by_the_short_way(
    files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", is_full)
    monkeypatch.setattr(module, "write_all", is_full)
    with pytest.raises(OSError, match="No space left"):
        copy(files, source)
    assert sorted(path.name for path in source.parent.iterdir()) == ["source"]


def test_a_source_that_stood_still_is_not_read_again(
    files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_NANOSECONDS", -1_000_000_000)
    target = copy(files, source)
    monkeypatch.setattr(files, "chunks", refuse)
    assert files.same(str(target), target.stat(), str(source))


@pytest.mark.parametrize("settled", [-1_000_000_000, 2_000_000_000])
@pytest.mark.parametrize("which", ["source", "target"])
def test_what_changed_after_the_copy_is_seen(
    settled: int, which: str, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_NANOSECONDS", settled)
    target = copy(files, source)
    changed = source if which == "source" else target
    changed.write_bytes(b"x" + CONTENT[1:])
    assert not files.same(str(target), target.stat(), str(source))


def change_secretly(path: Path) -> None:
    """Its time of change is what it was."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(bytes([CONTENT[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_source_that_was_just_written_is_read_again(files: Files, source: Path) -> None:
    """Its times may be the same after the next change."""
    target = copy(files, source)
    change_secretly(target)
    assert not files.same(str(target), target.stat(), str(source))


def test_the_later_of_both_times_tells_when_a_source_was_written(
    files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_NANOSECONDS", -1_000_000_000)
    soon = source.stat().st_mtime_ns + 3_600_000_000_000
    os.utime(source, ns=(soon, soon))
    target = copy(files, source)
    change_secretly(target)
    assert not files.same(str(target), target.stat(), str(source))


def test_a_source_that_does_not_tell_its_size_is_read(files: Files, tmp_path: Path) -> None:
    target, version = tmp_path / "version", Path("/proc/version")
    assert version.stat().st_size == 0
    target.write_bytes(b"")
    assert not files.same(str(target), target.stat(), str(version))
    files.replace(str(target), None, str(version), uid=os.getuid(), gid=os.getgid(), mode=0o644, old=target.stat())
    assert target.read_bytes() == version.read_bytes()
    assert files.same(str(target), target.stat(), str(version))
    target.write_bytes(target.read_bytes() + b"x")
    assert not files.same(str(target), target.stat(), str(version))


def test_a_dry_run_compares_with_a_source_that_does_not_tell_its_size(tmp_path: Path) -> None:
    target, version = tmp_path / "version", Path("/proc/version")
    target.write_bytes(version.read_bytes())
    files = ForecastFiles("run", StateDirectory(str(tmp_path / "state")))
    between = str(tmp_path / "between")
    files.replace(between, None, str(version), uid=os.getuid(), gid=os.getgid(), mode=0o644, old=None)
    assert files.same(str(target), target.stat(), between)
    assert files.same(between, files.stat(between), str(target))

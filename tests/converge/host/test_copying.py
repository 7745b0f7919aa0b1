"""Files from a source: copied within the kernel if possible, and read again only if they may have changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstay.converge.host import file_reading
from mainstay.converge.host import files as file_changes
from mainstay.converge.host.file_reading import CHUNK_BYTES
from mainstay.converge.host.files import Files, FileWrite
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
    files.replace(FileWrite(str(target), os.getuid(), os.getgid(), 0o644, source=str(source)))
    return target


def refuse(*_: object) -> int:
    raise OSError(errno.EXDEV, "not here")


def copy_a_little(source: int, target: int, _count: int) -> int:
    """Fails after the first part; both files keep their positions."""
    if os.lseek(source, 0, os.SEEK_CUR):
        raise OSError(errno.EIO, "no more")
    return os.write(target, os.read(source, 1000))


@pytest.mark.parametrize("way", [None, refuse, copy_a_little, lambda *_: 0])
def test_the_copy_is_whole_whatever_the_kernel_supports(
    way: Callable[..., int] | None, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way is not None:
        monkeypatch.setattr(os, "copy_file_range", way)
    assert copy(files, source).read_bytes() == CONTENT


def test_a_full_disk_is_reported_by_the_copy_within_the_kernel_too(
    files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", is_full)
    monkeypatch.setattr(file_changes, "write_all", is_full)
    with pytest.raises(OSError, match="No space left"):
        copy(files, source)
    assert sorted(path.name for path in source.parent.iterdir()) == ["source"]


def test_an_unchanged_source_is_not_read_again(files: Files, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "SETTLED_NANOSECONDS", -1_000_000_000)
    target = copy(files, source)
    monkeypatch.setattr(files, "chunks", refuse)
    assert files.same(str(target), target.stat(), str(source))


@pytest.mark.parametrize("settled", [-1_000_000_000, 2_000_000_000])
@pytest.mark.parametrize("which", ["source", "target"])
def test_a_change_after_the_copy_is_detected(
    settled: int, which: str, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reading, "SETTLED_NANOSECONDS", settled)
    target = copy(files, source)
    changed = source if which == "source" else target
    changed.write_bytes(b"x" + CONTENT[1:])
    assert not files.same(str(target), target.stat(), str(source))


def change_secretly(path: Path) -> None:
    """Changes the content and restores the modification time."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(bytes([CONTENT[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_source_that_was_just_written_is_read_again(files: Files, source: Path) -> None:
    """The next change may leave its times as they are."""
    target = copy(files, source)
    change_secretly(target)
    assert not files.same(str(target), target.stat(), str(source))


def test_the_later_of_both_times_counts_as_the_time_of_the_last_write(
    files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reading, "SETTLED_NANOSECONDS", -1_000_000_000)
    soon = source.stat().st_mtime_ns + 3_600_000_000_000
    os.utime(source, ns=(soon, soon))
    target = copy(files, source)
    change_secretly(target)
    assert not files.same(str(target), target.stat(), str(source))


def test_a_source_without_a_true_size_is_read(files: Files, tmp_path: Path) -> None:
    target, version = tmp_path / "version", Path("/proc/version")
    assert version.stat().st_size == 0
    target.write_bytes(b"")
    assert not files.same(str(target), target.stat(), str(version))
    files.replace(FileWrite(str(target), os.getuid(), os.getgid(), 0o644, source=str(version), old=target.stat()))
    assert target.read_bytes() == version.read_bytes()
    assert files.same(str(target), target.stat(), str(version))
    target.write_bytes(target.read_bytes() + b"x")
    assert not files.same(str(target), target.stat(), str(version))


def test_a_dry_run_compares_with_a_source_without_a_true_size(tmp_path: Path) -> None:
    target, version = tmp_path / "version", Path("/proc/version")
    target.write_bytes(version.read_bytes())
    files = ForecastFiles("run", StateDirectory(str(tmp_path / "state")))
    between = str(tmp_path / "between")
    files.replace(FileWrite(between, os.getuid(), os.getgid(), 0o644, source=str(version)))
    assert files.same(str(target), target.stat(), between)
    assert files.same(between, files.stat(between), str(target))

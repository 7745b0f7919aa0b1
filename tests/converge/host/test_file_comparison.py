"""Checksums and comparisons of files, at the sizes where the method of reading changes."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from applying import Applied
from mainstay.converge.history import History
from mainstay.converge.host.file_reading import CHUNK_BYTES, LOOK_BYTES
from mainstay.converge.host.files import Files
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.providers.file.posix import LARGEST_HASHED_AT_ONCE_BYTES

SIZES = (0, 1, LOOK_BYTES - 1, LOOK_BYTES, LOOK_BYTES + 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files("run", StateDirectory(str(tmp_path / "state")))


def filled(path: Path, size: int) -> Path:
    path.write_bytes((bytes(range(251)) * (size // 251 + 1))[:size])
    return path


@pytest.mark.parametrize("size", SIZES)
def test_a_checksum_is_the_sha256_of_the_content(size: int, tmp_path: Path, files: Files) -> None:
    path = filled(tmp_path / "a", size)
    assert files.checksum_of(str(path), path.stat()) == sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("size", SIZES)
def test_a_difference_in_the_last_byte_is_detected(size: int, tmp_path: Path, files: Files) -> None:
    ours, theirs = filled(tmp_path / "a", size), filled(tmp_path / "b", size)
    assert files.same(str(ours), ours.stat(), str(theirs))
    theirs.write_bytes(theirs.read_bytes()[:-1] + b"\xff")
    assert not files.same(str(ours), ours.stat(), str(theirs))


def test_history_keeps_no_checksum_of_a_large_file_and_the_report_does(
    tmp_path: Path, root: Path, apply: Callable[..., Applied]
) -> None:
    source = filled(tmp_path / "source", LARGEST_HASHED_AT_ONCE_BYTES + 1)
    applied = apply(
        "- file:\n"
        f"  - ROOT/large: {{ensure: present, owner: USER, group: GROUP, mode: '0644', source: {source}}}\n"
        "  - ROOT/small: {ensure: present, owner: USER, group: GROUP, mode: '0644', content: small}\n"
    )
    kept = History(StateDirectory(str(tmp_path / "state"))).show(applied.report.run_id)
    assert kept is not None
    in_history = [event["state"]["checksum"] for event in kept["events"]]
    in_report = [event["state"]["checksum"] for event in applied.as_json()["events"]]
    small = sha256(b"small").hexdigest()
    assert in_history == [None, small]
    assert in_report == [sha256(source.read_bytes()).hexdigest(), small]

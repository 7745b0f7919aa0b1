"""The memory of the files that a service wrote: a lost or damaged entry hides content, and never shows more."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.converge.host.state import StateDirectory
from mainstay.converge.host.written_files import WrittenFiles

FIRST, SECOND = "1" * 64, "2" * 64


@pytest.fixture
def memory(tmp_path: Path) -> str:
    return str(tmp_path / "written")


def test_only_the_last_content_of_a_path_is_the_services_own(memory: str) -> None:
    written = WrittenFiles(memory)
    written.record("/etc/x", FIRST)
    written.record("/etc/x", SECOND)
    for each in (written, WrittenFiles(memory)):
        assert each.holds("/etc/x", SECOND)
        assert not each.holds("/etc/x", FIRST)
        assert not each.holds("/etc/y", SECOND)
        assert not each.holds("/etc/y", None)
    assert Path(memory).stat().st_mode & 0o777 == 0o600


def test_a_damaged_line_hides_only_its_own_path(memory: str) -> None:
    WrittenFiles(memory).record("/etc/x", FIRST)
    text = Path(memory).read_text()
    Path(memory).write_text(f'{text}\0\0\0\n["/etc/half", "22')
    WrittenFiles(memory).record("/etc/y", SECOND)
    found = WrittenFiles(memory)
    assert found.holds("/etc/x", FIRST)
    assert found.holds("/etc/y", SECOND)
    assert not found.holds("/etc/half", "22")


def test_a_file_that_changes_often_does_not_make_the_memory_grow(memory: str, tmp_path: Path) -> None:
    for number in range(300):
        written = WrittenFiles(memory)
        written.record("/etc/x", f"{number:064d}")
        written.close(StateDirectory(str(tmp_path)))
    assert len(Path(memory).read_text().splitlines()) <= 102
    assert WrittenFiles(memory).holds("/etc/x", f"{299:064d}")

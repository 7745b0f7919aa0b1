"""Private files: never readable by others, written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainstay.foundation.private_files import is_abandoned, private_draft, write_private_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_private_from_its_first_byte_on(tmp_path: Path, durable: bool) -> None:
    place = tmp_path / "token"
    place.write_bytes(b"old")
    assert mode_of(place) == 0o666
    with private_draft(place, durable=durable) as descriptor:
        (draft,) = (path for path in tmp_path.iterdir() if path != place)
        assert mode_of(draft) == 0o600
        os.write(descriptor, b"new")
        assert place.read_bytes() == b"old"
    assert (place.read_bytes(), mode_of(place), os.listdir(tmp_path)) == (b"new", 0o600, ["token"])


def test_a_relative_path_is_made_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_private_file("token", (piece for piece in (b"a", b"b")), durable=True)
    assert Path("token").read_bytes() == b"ab"


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "token"
    write_private_file(place, b"old")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_private_file(place, pieces())
    assert (place.read_bytes(), os.listdir(tmp_path)) == (b"old", ["token"])


def test_the_first_of_many_writers_wins(tmp_path: Path) -> None:
    place = tmp_path / "vault.key"

    def write(number: int) -> bytes:
        write_private_file(place, b"%d" % number, durable=True, keep_existing=True)
        return place.read_bytes()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(write, range(32)))) == 1
    assert (mode_of(place), os.listdir(tmp_path)) == (0o600, ["vault.key"])


def test_a_draft_is_abandoned_when_its_process_is_gone(tmp_path: Path) -> None:
    with private_draft(tmp_path / "a.json"):
        (name,) = os.listdir(tmp_path)
        assert not is_abandoned(name)
    assert is_abandoned("a.json.0.01234567.new")
    assert not is_abandoned("a.json")

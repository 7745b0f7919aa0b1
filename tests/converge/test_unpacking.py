"""Archives are unpacked within bounds, and nothing is created outside the target."""

from __future__ import annotations

import io
import lzma
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mainstay.converge.failures import Failure
from mainstay.converge.host.unpacking import UnpackingLimits, unpack
from scratch import describe_tree

FORMATS = {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}


def member(name: str, content: bytes | None = b"x", **attributes: Any) -> tuple[tarfile.TarInfo, bytes | None]:
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.uname = 0o644, 4711, "stranger"
    for key, value in attributes.items():
        setattr(info, key, value)
    if content is not None and info.isreg():
        info.size = len(content)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, None]:
    return member(name, None, type=kind, linkname=target)  # type: ignore[return-value]


def make_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes | None], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, None if content is None else io.BytesIO(content))
    return path


def make_zip(path: Path, entries: dict[str, tuple[int, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (mode, content) in entries.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def unpack_here(path: Path, target: Path, **options: Any) -> None:
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    given = {"strip": 0, "uid": os.geteuid(), "gid": os.getegid(), "is_stopped": lambda: False, **options}
    try:
        with path.open("rb") as archive:
            unpack(archive, descriptor, **given)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_of_tar_is_unpacked(form: str, root: Path, tmp_path: Path) -> None:
    large = os.urandom(3_000_000)
    path = make_tar(
        tmp_path / "a",
        member("d", None, type=tarfile.DIRTYPE, mode=0o750),
        member("d/x", b"text", mode=0o4755),
        member("deep/er/y", large, mode=0o600),
        link("d/l", "../deep/er"),
        link("h", "d/x", tarfile.LNKTYPE),
        mode=FORMATS[form],
    )
    unpack_here(path, root)
    found = describe_tree(root)
    assert found["d"] == {"directory": "0750"}
    assert found["d/x"] == found["h"] == {"file": "text", "mode": "0755"}
    assert found["d/l"] == {"link": "../deep/er"}
    assert found["deep"] == {"directory": "0755"}
    assert (root / "deep/er/y").read_bytes() == large
    assert (root / "d/x").stat().st_ino == (root / "h").stat().st_ino
    assert {(root / name).lstat().st_uid for name in found} == {os.geteuid()}


def test_zip_is_unpacked_with_modes_and_links(root: Path, tmp_path: Path) -> None:
    path = make_zip(
        tmp_path / "a",
        {
            "d/": (stat.S_IFDIR | 0o700, b""),
            "d/x": (stat.S_IFREG | 0o6755, b"text"),
            "plain": (0o644, b"p"),
            "l": (stat.S_IFLNK | 0o777, b"d/x"),
        },
    )
    unpack_here(path, root)
    assert describe_tree(root) == {
        "d": {"directory": "0700"},
        "d/x": {"file": "text", "mode": "0755"},
        "l": {"link": "d/x"},
        "plain": {"file": "p", "mode": "0644"},
    }


def test_leading_directories_are_stripped(root: Path, tmp_path: Path) -> None:
    path = make_tar(
        tmp_path / "a",
        member("./app-1/", None, type=tarfile.DIRTYPE),
        member("app-1/bin/x"),
        link("app-1/bin/l", "../bin/x"),
        link("app-1/h", "app-1/bin/x", tarfile.LNKTYPE),
    )
    unpack_here(path, root, strip=1)
    assert sorted(describe_tree(root)) == ["bin", "bin/l", "bin/x", "h"]


def test_of_two_entries_with_one_name_the_last_counts(root: Path, tmp_path: Path) -> None:
    unpack_here(make_tar(tmp_path / "a", member("x", b"1"), member("x", b"2")), root)
    assert (root / "x").read_text() == "2"


HOSTILE: dict[str, list[Any]] = {
    "a parent": [member("../x")],
    "a parent inside": [member("d/../../x")],
    "an absolute name": [member("/tmp/x")],
    "an absolute link": [link("l", "/etc/passwd")],
    "a link out": [link("l", "../x")],
    "a link out from below": [link("d/l", "../../x")],
    "a link by way of a name": [link("d/e/l", "."), link("k", "d/e/l/../../..")],
    "a link with no target": [link("l", "")],
    "an entry through a link": [link("l", "."), member("l/x")],
    "a directory through a link": [link("l", "."), member("l/d", None, type=tarfile.DIRTYPE)],
    "a second name of a link": [link("d/e/l", "../../x"), link("m", "d/e/l", tarfile.LNKTYPE)],
    "a hard link out": [link("l", "../x", tarfile.LNKTYPE)],
    "an absolute hard link": [link("l", "/etc/passwd", tarfile.LNKTYPE)],
    "a hard link to nothing": [link("l", "nothing", tarfile.LNKTYPE)],
    "a hard link through a link": [link("l", "."), link("m", "l/x", tarfile.LNKTYPE)],
    "a device": [member("x", None, type=tarfile.CHRTYPE)],
    "a block device": [member("x", None, type=tarfile.BLKTYPE)],
    "a fifo": [member("x", None, type=tarfile.FIFOTYPE)],
    "a file over a directory": [member("d/x"), member("d")],
    "an entry below a file": [member("d"), member("d/x")],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_entry_is_refused(case: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("outside")
    with pytest.raises(Failure):
        unpack_here(make_tar(tmp_path / "a", *HOSTILE[case]), root)
    assert (tmp_path / "x").read_text() == "outside"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "root", "x"]


@pytest.mark.parametrize(
    "entries",
    [
        {"../x": (0, b"")},
        {"/x": (0, b"")},
        {"l": (stat.S_IFLNK | 0o777, b"../x")},
        {"l": (stat.S_IFLNK | 0o777, b"/etc/passwd")},
        {"l": (stat.S_IFLNK | 0o777, b"."), "l/x": (0, b"")},
        {"x": (stat.S_IFCHR | 0o644, b"")},
    ],
)
def test_a_hostile_entry_of_a_zip_is_refused(
    entries: dict[str, tuple[int, bytes]], root: Path, tmp_path: Path
) -> None:
    with pytest.raises(Failure):
        unpack_here(make_zip(tmp_path / "a", entries), root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "root"]


# ---- bounds ----
SMALL = {"unpacked_bytes": 100_000, "always_allowed_bytes": 10**9}


@pytest.mark.parametrize("form", FORMATS)
def test_a_decompression_bomb_is_stopped(form: str, root: Path, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a", member("zeros", bytes(1_000_000)), mode=FORMATS[form])
    with pytest.raises(Failure, match="unpacks to more than 100000 bytes"):
        unpack_here(path, root, limits=UnpackingLimits(**SMALL))
    if form != "tar":
        with pytest.raises(Failure, match="unpacks to more than"):
            unpack_here(path, root, limits=UnpackingLimits(ratio=10, always_allowed_bytes=1000))


def test_a_decompression_bomb_in_a_zip_is_stopped(root: Path, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a", {"zeros": (0, bytes(1_000_000))})
    with pytest.raises(Failure, match="unpacks to more than 100000 bytes"):
        unpack_here(path, root, limits=UnpackingLimits(**SMALL))


@pytest.mark.parametrize("form", FORMATS)
def test_the_holes_of_a_sparse_file_count(form: str, root: Path, tmp_path: Path) -> None:
    """A header of a few bytes may claim any number of zeros."""
    for size in (50_000, 10**15):
        headers = {"GNU.sparse.map": f"0,1,{size},0", "GNU.sparse.size": str(size)}
        path = make_tar(tmp_path / "a", member("zeros", b"x", pax_headers=headers), mode=FORMATS[form])
        if size < SMALL["unpacked_bytes"]:
            unpack_here(path, root, limits=UnpackingLimits(**SMALL))
            assert (root / "zeros").read_bytes() == b"x" + bytes(size - 1)
        else:
            with pytest.raises(Failure, match="unpacks to more than 100000 bytes"):
                unpack_here(path, root, limits=UnpackingLimits(**SMALL))


def test_directories_that_only_names_contain_are_counted_and_bounded(root: Path, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a", *(member(f"{number}/a/b/x") for number in range(3)))
    with pytest.raises(Failure, match="more than 8 entries"):
        unpack_here(path, root, limits=UnpackingLimits(entries=8))
    for name in ("d/" * 100_000 + "x", "d/" * 300 + "x"):
        with pytest.raises(Failure, match="is deeper than 200 directories"):
            unpack_here(make_tar(tmp_path / "a", member(name)), root)
    unpack_here(make_tar(tmp_path / "a", member("e/" * 150 + "x")), root)


def test_too_many_entries_are_refused(root: Path, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a", *(member(str(number)) for number in range(4)))
    with pytest.raises(Failure, match="more than 3 entries"):
        unpack_here(path, root, limits=UnpackingLimits(entries=3))


def test_a_header_of_many_megabytes_is_refused(root: Path, tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 50_000_000
    path = tmp_path / "a"
    path.write_bytes(info.tobuf() + bytes(1024))
    with pytest.raises(Failure):
        unpack_here(path, root)


def test_time_and_a_stop_end_unpacking(root: Path, tmp_path: Path) -> None:
    from mainstay.converge.failures import Stopped, TimedOut

    path = make_tar(tmp_path / "a", member("x"))
    with pytest.raises(TimedOut):
        unpack_here(path, root, limits=UnpackingLimits(seconds=-1))
    with pytest.raises(Stopped):
        unpack_here(path, root, is_stopped=lambda: True)


# ---- damage ----
@pytest.mark.parametrize("form", [*FORMATS, "zip"])
def test_a_damaged_archive_is_a_failure(form: str, root: Path, tmp_path: Path) -> None:
    path = tmp_path / "a"
    if form == "zip":
        make_zip(path, {"x": (0, os.urandom(50_000)), "y": (0, b"y" * 5000)})
    else:
        make_tar(path, member("x", os.urandom(50_000)), member("y", b"y" * 5000), mode=FORMATS[form])
    whole = path.read_bytes()
    # The end of a plain tar is padding.
    for cut in (600, len(whole) // 2, len(whole) - (2000 if form != "tar" else 8000)):
        path.write_bytes(whole[:cut])
        with pytest.raises(Failure):
            unpack_here(path, make_folder(root))
    if form != "tar":
        broken = bytearray(whole)
        broken[len(whole) // 2] ^= 0xFF
        path.write_bytes(broken)
        with pytest.raises(Failure):
            unpack_here(path, make_folder(root))


def make_folder(root: Path) -> Path:
    folder = root / str(len(list(root.iterdir())))
    folder.mkdir()
    return folder


def test_what_is_no_archive_is_refused(root: Path, tmp_path: Path) -> None:
    for content in (b"", b"hello", b"<html>" * 200):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(Failure, match=r"none of tar, tar\.gz, tar\.xz and zip"):
            unpack_here(tmp_path / "a", root)


def test_xz_that_needs_too_much_memory_is_refused(root: Path, tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1024 * 1024 * 1024, "preset": 0}]
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters, check=lzma.CHECK_CRC32)
    head = compressor.compress(b"")
    (tmp_path / "a").write_bytes(head + bytes(2000))
    with pytest.raises(Failure):
        unpack_here(tmp_path / "a", root)

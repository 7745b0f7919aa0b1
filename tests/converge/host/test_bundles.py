"""Valid bundles are unpacked and removed after the run; hostile bundles are refused and leave nothing."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from applying import GROUP, USER
from mainstay.converge.apply import Options
from mainstay.converge.run import RunRequest, run
from mainstay.foundation.faults import DoesNotLoad

MANIFEST = """
- file:
    - ROOT/out: {ensure: present, source: files/in.txt, owner: USER, group: GROUP, mode: "0644"}
- exec:
    - made: {command: "false", creates: ROOT/out}
"""
Member = tuple[str, bytes]


@pytest.fixture
def members(root: Path) -> list[Member]:
    text = MANIFEST.replace("ROOT", str(root)).replace("USER", USER).replace("GROUP", GROUP)
    return [("manifest.yaml", text.encode()), ("files/in.txt", b"from the bundle")]


def tar(path: Path, members: list[Member], *more: tarfile.TarInfo, prefix: str = "") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in more:
            archive.addfile(info, io.BytesIO(b"\0" * info.size) if info.size < 10_000 else None)
    return path


def zip_(path: Path, members: list[Member], *more: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
        for info, content in more:
            archive.writestr(info, content)
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.size = size
    return info


def unpacked(root: Path) -> list[Path]:
    """The remains of unpacked bundles in the state directory."""
    folder = root.parent / "state" / "unpacked"
    return list(folder.iterdir()) if folder.exists() else []


def refusal(path: Path, root: Path) -> str:
    with pytest.raises(DoesNotLoad) as refused:
        run(RunRequest(str(path)))
    assert unpacked(root) == []
    assert list(root.iterdir()) == []
    (fault,) = refused.value.faults
    assert fault.file == str(path)
    return fault.message


# ---- valid bundles ----
@pytest.mark.parametrize("name", ["site.tar.gz", "site.tgz", "site.zip"])
def test_a_bundle_is_applied_with_its_own_files_and_leaves_nothing(
    root: Path, members: list[Member], name: str
) -> None:
    path = root.parent / name
    (zip_ if name.endswith(".zip") else tar)(path, members)
    _, report = run(RunRequest(str(path)))
    assert [event.outcome for event in report.events] == ["changed", "stable"]
    assert (root / "out").read_bytes() == b"from the bundle"
    assert unpacked(root) == []
    assert report.manifest == f"{path}/manifest.yaml"


def test_directories_and_dot_names_are_unpacked(root: Path, members: list[Member]) -> None:
    path = tar(root.parent / "b.tgz", members, entry("./empty", tarfile.DIRTYPE), prefix="./")
    assert len(run(RunRequest(str(path), options=Options(noop=True)))[1].events) == 2


def test_a_bundle_behind_a_link_is_read_by_the_given_name(root: Path, members: list[Member]) -> None:
    stored = zip_(root.parent / "3f9a", members)
    link = root.parent / "site.zip"
    link.symlink_to(stored)
    assert len(run(RunRequest(str(link), options=Options(noop=True)))[1].events) == 2


def test_unpacked_files_are_private_and_programs_stay_executable(root: Path) -> None:
    seen = root.parent / "seen"
    here = f"{root.parent}/state/unpacked/*"
    command = f"sh -c 'stat -c %a {here} {here}/tool {here}/manifest.yaml > {seen}'"
    program = zipfile.ZipInfo("tool")
    program.external_attr = (stat.S_IFREG | 0o4755) << 16
    members = [("manifest.yaml", f'- exec:\n    - look: {{command: "{command}"}}\n'.encode())]
    run(RunRequest(str(zip_(root.parent / "b.zip", members, (program, b"#!/bin/sh\n")))))
    assert seen.read_text().split() == ["700", "700", "600"]


def test_the_unpacked_bundle_of_a_killed_run_is_removed_by_the_next_run(root: Path, members: list[Member]) -> None:
    folder = root.parent / "state" / "unpacked"
    folder.mkdir(parents=True)
    (folder / "20200101T000000-aaaaaa-999999999").mkdir()
    (folder / f"20200101T000000-bbbbbb-{os.getpid()}").mkdir()
    run(RunRequest(str(tar(root.parent / "b.tgz", members)), options=Options(noop=True)))
    assert [path.name for path in folder.iterdir()] == [f"20200101T000000-bbbbbb-{os.getpid()}"]


# ---- hostile bundles ----
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../evil", "'../evil'"),
        ("a/../../evil", "'a/../../evil'"),
        ("/etc/evil", "'/etc/evil'"),
        ("a\\..\\evil", "'a\\\\..\\\\evil'"),
    ],
)
def test_nothing_is_unpacked_outside_the_target(root: Path, members: list[Member], name: str, shown: str) -> None:
    message = f"the bundle cannot be unpacked: {shown} would be outside the target"
    assert refusal(tar(root.parent / "b.tgz", members, entry(name)), root) == message
    if "\\" not in name:
        assert refusal(zip_(root.parent / "b.zip", members, (zipfile.ZipInfo(name), b"")), root) == message


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE],
    ids=["link", "hard link", "character device", "block device", "fifo"],
)
def test_only_files_and_directories_are_unpacked_from_tar(root: Path, members: list[Member], kind: bytes) -> None:
    assert refusal(tar(root.parent / "b.tgz", members, entry("odd", kind, link="manifest.yaml")), root) == (
        "the bundle cannot be unpacked: 'odd' is neither a file nor a directory"
    )


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_only_files_and_directories_are_unpacked_from_zip(root: Path, members: list[Member], kind: int) -> None:
    for name in ("odd", "odd/"):
        info = zipfile.ZipInfo(name)
        info.external_attr = (kind | 0o777) << 16
        assert refusal(zip_(root.parent / "b.zip", members, (info, b"/etc/passwd")), root) == (
            f"the bundle cannot be unpacked: {name!r} is neither a file nor a directory"
        )


def test_a_file_below_a_file_and_a_repeated_file_are_refused(root: Path, members: list[Member]) -> None:
    below = tar(root.parent / "b.tgz", members, entry("manifest.yaml/below"))
    assert refusal(below, root) == "the bundle cannot be unpacked: 'manifest.yaml/below' is below a file"
    twice = tar(root.parent / "c.tgz", members, entry("manifest.yaml"))
    assert refusal(twice, root) == "the bundle cannot be unpacked: it contains 'manifest.yaml' twice"


@pytest.mark.test_all
def test_too_many_entries_are_refused(root: Path, members: list[Member]) -> None:
    many = [entry(f"d{index}", tarfile.DIRTYPE) for index in range(10_000)]
    assert refusal(tar(root.parent / "b.tgz", members, *many), root) == (
        "the bundle cannot be unpacked: it has more than 10000 entries"
    )


def test_a_bomb_is_refused_by_its_declared_size_before_it_is_written(root: Path, members: list[Member]) -> None:
    started = time.monotonic()
    half = 600 * 1024 * 1024
    one = tar(root.parent / "b.tgz", members, entry("big", size=2 * half))
    assert refusal(one, root) == "the bundle cannot be unpacked: it contains more than 1024 MB"

    # A zip that declares 1.2 GB in one entry of a few bytes.
    path = zip_(root.parent / "b.zip", members, (zipfile.ZipInfo("big"), b"x"))
    content = bytearray(path.read_bytes())
    directory = content.rfind(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (2 * half).to_bytes(4, "little")
    path.write_bytes(content)
    assert refusal(path, root) == "the bundle cannot be unpacked: it contains more than 1024 MB"
    assert time.monotonic() - started < 20


def test_a_header_of_gigabytes_is_refused(root: Path, members: list[Member]) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
        path = root.parent / "b.tgz"
        with gzip.open(path, "wb", compresslevel=1) as stream:
            stream.write(entry("header", kind, size=64 * 1024 * 1024).tobuf(tarfile.GNU_FORMAT))
            stream.write(b"\0" * (64 * 1024 * 1024))
        assert refusal(path, root) == "the bundle cannot be unpacked: a header in it is too large"


def test_a_bundle_without_a_manifest_is_refused(root: Path, members: list[Member]) -> None:
    message = "the bundle cannot be unpacked: it has no manifest.yaml at its root"
    inner = [(f"site/{name}", content) for name, content in members]
    assert refusal(tar(root.parent / "b.tgz", inner), root) == message
    assert refusal(zip_(root.parent / "b.zip", inner), root) == message
    folder = tar(root.parent / "c.tgz", members[1:], entry("manifest.yaml", tarfile.DIRTYPE))
    assert refusal(folder, root) == message


@pytest.mark.parametrize("name", ["b.tar.gz", "b.zip"])
def test_a_truncated_or_damaged_bundle_is_refused(root: Path, members: list[Member], name: str) -> None:
    path = root.parent / name
    members = [*members, ("noise", os.urandom(4000))]
    (zip_ if name.endswith(".zip") else tar)(path, members)
    whole = path.read_bytes()
    for damaged in (
        *(b"", b"x", b"PK", whole[:20], whole[: len(whole) // 2], whole[:-9]),
        *(
            whole[:300] + bytes(300) + whole[600:],
            whole[:-8] + bytes(8) if name != "b.zip" else whole[:-22],
            b"\x1f\x8b\x08\x00" + b"\xff" * 100,
        ),
        b"just text that is long enough to be a file of its own\n" * 20,
    ):
        path.write_bytes(damaged)
        assert refusal(path, root).startswith("the bundle cannot be unpacked: ")


def test_a_missing_bundle_and_a_directory_are_refused(root: Path) -> None:
    assert refusal(root.parent / "nope.tgz", root) == "the bundle cannot be unpacked: No such file or directory"
    (root.parent / "folder.zip").mkdir()
    assert refusal(root.parent / "folder.zip", root) == "the bundle cannot be unpacked: Is a directory"


def test_an_encrypted_zip_is_refused(root: Path, members: list[Member]) -> None:
    path = zip_(root.parent / "b.zip", members)
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = content.find(mark)
        content[place + offset] |= 1
    path.write_bytes(content)
    assert "is encrypted, password required" in refusal(path, root)


def test_faults_in_a_bundles_manifest_name_the_bundle(root: Path) -> None:
    path = tar(root.parent / "b.tgz", [("manifest.yaml", b"- fil: []\n")])
    with pytest.raises(DoesNotLoad) as refused:
        run(RunRequest(str(path)))
    assert str(refused.value).startswith(f"{path}/manifest.yaml:1:3: unknown resource type 'fil'")
    assert unpacked(root) == []

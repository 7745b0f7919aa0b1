"""Which files travel with a manifest, and that the archive depends on nothing else."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from mainstay.foundation.faults import DoesNotLoad
from mainstay.push.manifest_files import find_files, write_archive

CASES = [
    ("source: files/a", ["files/a"]),
    ("source: files", ["files/a", "files/b.conf", "files/c.conf", "files/deep/d"]),
    ("source: 'files/{{ lookup(\"facts.os.id\") }}.conf'", ["files/b.conf", "files/c.conf"]),
    ("content: \"{{ template('t.j2') }}\"", ["files/a", "files/b.conf", "t.j2"]),
    (
        "content: \"{{ file('files/' ~ lookup('facts.x')) }}\"",
        ["files/a", "files/b.conf", "files/c.conf", "files/deep/d"],
    ),
    ("source: ../beside/e", ["../beside/e"]),
    ("source: /etc/hostname", []),
    ("source: missing", []),
    ("source: .", []),
    ("source: ..", []),
    ("content: plain", []),
    ("source: \"{{ lookup('data.where') }}\"", ["files/a"]),
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in {
        "site/files/a": "a",
        "site/files/b.conf": "b",
        "site/files/c.conf": "c",
        "site/files/deep/d": "d",
        "site/t.j2": "{% include 'files/a' %}{{ file('files/b.conf') }}",
        "site/inventory.yaml": "hosts: {}",
        "beside/e": "e",
    }.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path / "site"


def names_of(manifest: Path) -> list[str]:
    found = find_files(str(manifest))
    paths = [os.path.relpath(path, manifest.parent) for path in found.paths]
    return sorted(path for path in paths if path != manifest.name)


@pytest.mark.parametrize(("line", "names"), CASES)
def test_only_files_that_the_manifest_names_travel(site: Path, line: str, names: list[str]) -> None:
    manifest = site / "site.yaml"
    manifest.write_text(
        "data: {where: files/a, other: text}\n"
        f"resources:\n- file:\n  - /srv/x:\n      ensure: present\n      owner: root\n      {line}\n"
    )
    assert names_of(manifest) == names


def test_applied_manifests_travel_with_their_own_files(site: Path) -> None:
    (site / "child").mkdir()
    (site / "child/f").write_text("f")
    (site / "child/m.yaml").write_text(
        "resources:\n- file:\n  - /srv/y: {ensure: present, source: f}\n- apply:\n  - ../two.yaml:\n"
    )
    (site / "two.yaml").write_text(
        "resources:\n- file: {name: /srv/z, source: files/a}\n- apply: {name: site.yaml}\n"
    )
    (site / "site.yaml").write_text("resources:\n- apply:\n  - shop: {manifest: child/m.yaml}\n")
    assert names_of(site / "site.yaml") == ["child/f", "child/m.yaml", "files/a", "two.yaml"]


def test_the_same_files_give_the_same_bytes(site: Path, tmp_path: Path) -> None:
    manifest = site / "site.yaml"
    manifest.write_text("resources:\n- file:\n  - /srv/x: {source: ../beside/e}\n  - /srv/y: {source: files}\n")
    for attempt in ("one", "two"):
        write_archive(find_files(str(manifest)), str(tmp_path / attempt))
        os.utime(site / "files/a", (1, 1))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as archive:
        assert archive.getnames() == [
            "beside/e",
            "site/files/a",
            "site/files/b.conf",
            "site/files/c.conf",
            "site/files/deep/d",
            "site/site.yaml",
        ]
    assert find_files(str(manifest)).name == "site/site.yaml"


def test_a_manifest_that_is_no_yaml_is_refused(site: Path) -> None:
    (site / "site.yaml").write_text("a: [\n")
    with pytest.raises(DoesNotLoad):
        find_files(str(site / "site.yaml"))

"""Which files travel with a manifest, which of them hosts must not keep, and that the index depends on nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mainstay.foundation.faults import DoesNotLoad
from mainstay.push.contents import ContentIndex
from mainstay.push.manifest_files import find_files

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


PRIVATE_CASES = [
    ("- file:\n  - /x: {source: files/a}\n  - /y: {source: files/b.conf}", []),
    ("- file:\n  - /x: {source: files/a, sensitive: false}", []),
    ("- file:\n  - /x: {source: files/a, sensitive: true}\n  - /y: {source: files/c.conf}", ["files/a", "site.yaml"]),
    ("- file:\n  - /x: {source: files/a, sensitive: '{{ lookup(\"data.other\") }}'}", ["files/a", "site.yaml"]),
    (
        "- file:\n  - /x: {content: \"{{ template('t.j2') }}\", sensitive: true}",
        ["files/a", "files/b.conf", "site.yaml", "t.j2"],
    ),
    # First named by a resource that is not sensitive.
    (
        "- file:\n  - /y: {content: \"{{ template('t.j2') }}\"}\n  - /x: {content: \"{{ template('t.j2') }}\", sensitive: true}",
        ["files/a", "files/b.conf", "site.yaml", "t.j2"],
    ),
    ("- file:\n  - defaults: {sensitive: true}\n  - /x: {source: files/a}", ["files/a", "site.yaml"]),
    ("- file:\n  - /x: {source: \"{{ lookup('data.where') }}\", sensitive: true}", ["files/a", "site.yaml"]),
    ("- apply:\n  - child.yaml: {sensitive: true}", ["child.yaml", "files/c.conf", "site.yaml"]),
    (
        "- apply:\n  - child.yaml:\n  - two: {manifest: child.yaml, sensitive: true}",
        ["child.yaml", "files/c.conf", "site.yaml"],
    ),
    ("- user:\n  - joe: {password_hash: $6$x$y}\n- file:\n  - /x: {source: files/a}", ["site.yaml"]),
]


@pytest.mark.parametrize(("text", "private"), PRIVATE_CASES)
def test_files_of_sensitive_resources_and_manifests_with_secrets_are_private(
    site: Path, text: str, private: list[str]
) -> None:
    (site / "child.yaml").write_text("resources:\n- file:\n  - /z: {source: files/c.conf}\n")
    manifest = site / "site.yaml"
    manifest.write_text(f"data: {{where: files/a, other: text}}\nresources:\n{text}\n")
    found = find_files(str(manifest))
    assert sorted(os.path.relpath(path, site) for path in found.private) == private
    assert found.private <= found.paths.keys()


def test_the_same_files_give_the_same_index(site: Path, tmp_path: Path) -> None:
    manifest = site / "site.yaml"
    manifest.write_text("resources:\n- file:\n  - /srv/x: {source: ../beside/e}\n  - /srv/y: {source: files}\n")
    documents = []
    for _ in range(2):
        files = find_files(str(manifest))
        index = ContentIndex(files.name, str(tmp_path))
        index.add(files.root, files.paths, files.private)
        documents.append(index.document())
        os.utime(site / "files/a", (1, 1))
    assert documents[0] == documents[1]
    assert [name for name, _, _ in json.loads(documents[0])["files"]] == [
        "beside/e",
        "site/files/a",
        "site/files/b.conf",
        "site/files/c.conf",
        "site/files/deep/d",
        "site/site.yaml",
    ]
    assert files.name == "site/site.yaml"


def test_a_manifest_that_is_no_yaml_is_refused(site: Path) -> None:
    (site / "site.yaml").write_text("a: [\n")
    with pytest.raises(DoesNotLoad):
        find_files(str(site / "site.yaml"))

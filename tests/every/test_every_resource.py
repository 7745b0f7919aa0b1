"""For every resource type and provider the second run is stable, and a dry run is exact and changes nothing.

Each type and provider needs a sample here; a missing sample fails a test.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from applying import Applied
from loading import load_text
from mainstay.converge import providers, resources
from mainstay.converge.history import History
from mainstay.converge.host.state import StateDirectory
from scratch import Tree, fingerprint, make_tree, temps_below

Apply = Callable[..., Applied]

# A manifest for samples of `apply`.
CHILD = """
data: {name: x}
resources:
  - file:
      - "{{ data.root }}/{{ data.name }}":
          {ensure: present, content: "{{ lookup('data.name') }}", owner: "{{ data.user }}", group: "{{ data.group }}", mode: "0640"}
  - exec:
      - "go {{ data.name }}": {command: "touch {{ data.root }}/{{ data.name }}.done", creates: "{{ data.root }}/{{ data.name }}.done"}
"""


def make_tar() -> str:
    """An archive that is text."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        info = tarfile.TarInfo("app/x")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    return written.getvalue().decode()


TAR = make_tar()
# (type, provider) → named samples: the tree before, and a manifest whose resources all change it.
SAMPLES: dict[tuple[str, str], dict[str, tuple[Tree, str]]] = {
    ("file", "posix"): {
        "a new file": (
            {},
            "- file:\n    - ROOT/x: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0640'}\n",
        ),
        "a replaced file": (
            {"x": {"file": "old", "mode": "0600"}},
            "- file:\n    - ROOT/x: {ensure: present, content: x, backup: true, validate: test -s %, owner: USER, group: GROUP, mode: '0640'}\n",
        ),
        "attributes": (
            {"x": {"file": "x", "mode": "0600"}},
            "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0640'}\n",
        ),
        "directories": (
            {},
            "- file:\n    - ROOT/a/b/c: {ensure: directory, owner: USER, group: GROUP, mode: '0750'}\n",
        ),
        "a link": ({"x": {"link": "old"}}, "- file:\n    - ROOT/x: {ensure: link, target: new}\n"),
        "a followed link": (
            {"x": {"link": "y"}, "y": {"file": "old"}},
            "- file:\n    - ROOT/x: {ensure: present, content: x, links: follow, owner: USER, group: GROUP, mode: '0640'}\n",
        ),
        "a tree": (
            {
                "from": {"directory": "0755"},
                "from/x": {"file": "x"},
                "to": {"directory": "0755"},
                "to/y": {"file": ""},
            },
            "- file:\n    - ROOT/to: {ensure: directory, source: ROOT/from, recurse: true, purge: true, owner: USER, group: GROUP, mode: '0750'}\n",
        ),
        "removed entries": (
            {"x": {"file": ""}, "d": {"directory": "0755"}, "d/e": {"directory": "0755"}, "l": {"link": "x"}},
            "- file:\n    - ROOT/x: {ensure: absent}\n    - ROOT/d: {ensure: absent, force: true}\n    - ROOT/l: {ensure: absent}\n",
        ),
        "a sensitive file": (
            {"x": {"file": "old"}},
            "- file:\n    - ROOT/x: {sensitive: true, ensure: present, content: x, owner: USER, group: GROUP, mode: '0600'}\n",
        ),
    },
    ("exec", "posix"): {
        "creates": ({}, "- exec:\n    - go: {command: touch ROOT/x, creates: ROOT/x}\n"),
        "unless": ({}, "- exec:\n    - go: {command: touch ROOT/x, unless: test -e ROOT/x}\n"),
        "onlyif": ({"x": {"file": ""}}, "- exec:\n    - go: {command: rm ROOT/x, onlyif: test -e ROOT/x}\n"),
        "a refresh": (
            {},
            "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0640'}\n- exec:\n    - go: {command: touch ROOT/y, refresh_only: true, subscribe: [file#ROOT/x]}\n",
        ),
    },
    ("archive", "posix"): {
        "a copied archive": ({"x": {"file": "text"}}, "- archive:\n    - ROOT/a.tgz: {url: ROOT/x}\n"),
        "a replaced archive": (
            {"x": {"file": "text"}, "a.tgz": {"file": "old"}},
            f"- archive:\n    - ROOT/a.tgz: {{url: ROOT/x, checksum: {sha256(b'text').hexdigest()}}}\n",
        ),
        "a removed archive": ({"a.tgz": {"file": "old"}}, "- archive:\n    - ROOT/a.tgz: {ensure: absent}\n"),
        "an unpacked archive": (
            {"opt": {"directory": "0755"}, "app.tar": {"file": TAR}},
            "- archive:\n    - ROOT/a.tar: {url: ROOT/app.tar, extract_parent: ROOT/opt, creates: ROOT/opt/app/x, cleanup: true}\n",
        ),
    },
    ("line", "posix"): {
        "a new line": ({"x": {"file": "a\n"}}, "- line:\n    - b: {path: ROOT/x, line: b, backup: true}\n"),
        "a matched line": (
            {"x": {"file": "a 1\r\nb\r\n"}},
            "- line:\n    - a: {path: ROOT/x, match: ^a, line: a 2, validate: test -s %}\n",
        ),
        "neighbours": (
            {"x": {"file": "[a]\nz"}},
            (
                "- line:\n    - a: {path: ROOT/x, line: one, after: '\\[a\\]'}\n    - b: {path: ROOT/x, line: two, before: one}\n"
                '    - c: {path: ROOT/x, block: "x\\ny\\n", comment: ;}\n    - d: {path: ROOT/x, line: z, ensure: absent}\n'
            ),
        ),
        "a block that differs": (
            {"x": {"file": "# BEGIN mainstay b\nold\n# END mainstay b"}},
            "- line:\n    - b: {path: ROOT/x, block: new}\n",
        ),
        "a followed link": (
            {"l": {"link": "x"}, "x": {"file": "a\n"}},
            "- line:\n    - b: {path: ROOT/l, line: b, links: follow}\n",
        ),
        "a sensitive line": ({"x": {"file": "a\n"}}, "- line:\n    - b: {path: ROOT/x, line: b, sensitive: true}\n"),
    },
    # Without a provider: it applies a manifest.
    ("apply", ""): {
        "a child": (
            {"child.yaml": {"file": CHILD}},
            "- apply:\n    - ROOT/child.yaml: {data: {root: ROOT, user: USER, group: GROUP}}\n",
        ),
        "a sensitive child": (
            {"child.yaml": {"file": CHILD}},
            "- apply:\n    - ROOT/child.yaml: {sensitive: true, data: {root: ROOT, user: USER, group: GROUP}}\n",
        ),
        "a child for each item": (
            {"child.yaml": {"file": CHILD}},
            (
                "- apply:\n    - '{{ each.value }}': {manifest: ROOT/child.yaml, for_each: [a, b], data: {name: '{{ each.value }}', root: ROOT, user: USER, group: GROUP}}\n"
                "- exec:\n    - go: {command: touch ROOT/y, refresh_only: true, subscribe: [apply#a]}\n"
            ),
        ),
    },
    ("exec", "shell"): {
        "creates": ({}, "- exec:\n    - go: {provider: shell, command: true && touch ROOT/x, creates: ROOT/x}\n"),
        "unless": ({}, "- exec:\n    - go: {provider: shell, command: touch ROOT/x, unless: '[ -e ROOT/x ]'}\n"),
    },
}
# Types whose providers need more than files and processes have suites of their own.
ELSEWHERE = {
    "group": "tests/converge/test_group_accounts.py",
    "package": "tests/system/test_packages.py",
    "service": "tests/system/test_services.py",
    "user": "tests/converge/test_user_accounts.py",
}


def samples() -> list[object]:
    return [
        pytest.param(*sample, id=f"{type_name}/{provider}: {name}")
        for (type_name, provider), named in SAMPLES.items()
        for name, sample in named.items()
    ]


def composes(type_name: str) -> bool:
    found = resources.find(type_name)
    return found is not None and found.composes


def test_every_provider_has_samples() -> None:
    known = {
        (type_name, provider)
        for type_name in resources.names()
        if type_name not in ELSEWHERE
        for provider in ([""] if composes(type_name) else providers.names(type_name))
    }
    for type_name, provider in known - SAMPLES.keys():
        pytest.fail(
            f"add samples of ({type_name!r}, {provider!r}) to SAMPLES, or the type with its suite to ELSEWHERE"
        )
    assert known == SAMPLES.keys()


def test_every_suite_elsewhere_exists_and_concerns_its_type() -> None:
    for type_name, place in ELSEWHERE.items():
        assert resources.find(type_name) is not None, f"ELSEWHERE: there is no resource type {type_name}; remove it"
        suite = Path(__file__).parents[2] / place
        assert suite.exists(), f"ELSEWHERE[{type_name!r}]: {place} does not exist"


def test_an_example_in_the_reference_loads_and_shows_every_property(root: Path) -> None:
    for type_name in resources.names():
        found = resources.find(type_name)
        if found is None or not found.example:
            continue
        manifest = load_text(found.example, root)
        used = {key for resource in manifest.resources for key in resource.__dict__}
        assert found.properties.keys() <= used, type_name


@pytest.mark.parametrize(("tree", "text"), samples())
def test_applied_twice_the_second_run_is_stable(tree: Tree, text: str, apply: Apply, root: Path) -> None:
    make_tree(root, tree)
    first = apply(text)
    assert set(first.outcomes) <= {"changed", "refreshed"}, first.errors
    assert temps_below(root) == []
    settled = fingerprint(root)
    assert set(apply(text).outcomes) == {"stable"}
    assert fingerprint(root) == settled
    assert set(apply(text, noop=True).outcomes) == {"stable"}


@pytest.mark.parametrize(("tree", "text"), samples())
def test_a_dry_run_changes_nothing_and_forecasts_the_run(tree: Tree, text: str, apply: Apply, root: Path) -> None:
    make_tree(root, tree)
    before = fingerprint(root)
    forecast = apply(text, noop=True, differences=True)
    assert fingerprint(root) == before
    assert all(event.noop for event in forecast.report.events)
    assert all((event.noop_message or "").startswith("Would have ") for event in forecast.report.events)
    done = apply(text, differences=True)
    assert not any(event.noop for event in done.report.events)
    for expected, found in zip(forecast.report.events, done.report.events, strict=True):
        for key in ("outcome", "changed", "refreshed", "reason", "provider", "diff", "errors"):
            assert getattr(expected, key) == getattr(found, key), key


@pytest.mark.parametrize(("tree", "text"), samples())
def test_every_event_can_be_written_as_json(tree: Tree, text: str, apply: Apply, root: Path) -> None:
    make_tree(root, tree)
    for noop in (True, False):
        for event in apply(text, noop=noop).as_json()["events"]:
            assert event["state"]["ensure"] in ("present", "absent", "directory", "link")


@pytest.mark.parametrize(("tree", "text"), samples())
def test_history_stores_every_event_of_the_report(
    tree: Tree, text: str, apply: Apply, root: Path, tmp_path: Path
) -> None:
    make_tree(root, tree)
    for options in ({"noop": True}, {"differences": True}):
        applied = apply(text, **options)
        kept = History(StateDirectory(str(tmp_path / "state"))).show(applied.report.run_id)
        assert kept is not None
        assert kept["events"] == applied.as_json()["events"]

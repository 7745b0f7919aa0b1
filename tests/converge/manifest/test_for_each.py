"""`for_each` repeats a resource for each item of a list or a map."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from applying import apply_text
from loading import faults_of, load_text
from mainstay.converge.manifest.rendering import render_manifest
from mainstay.foundation.text import Tainted


def ids_of(text: str, root: Path, **request: Any) -> list[str]:
    return [resource.id for resource in load_text(text, root, **request).resources]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("[a, b]", ["exec#0-a", "exec#1-b"]),
        ("{x: a, y: b}", ["exec#x-a", "exec#y-b"]),
        ("\"{{ lookup('data.sites') }}\"", ["exec#shop-80", "exec#blog-81"]),
        ('"{{ range(3) }}"', ["exec#0-0", "exec#1-1", "exec#2-2"]),
        ("[a, \"{{ lookup('data.sites.shop') }}\"]", ["exec#0-a", "exec#1-80"]),
        ("[]", []),
        ("{}", []),
        ('"{{ [] }}"', []),
    ],
)
def test_each_item_is_a_resource_in_order(items: str, expected: list[str], root: Path) -> None:
    text = f"""
data: {{sites: {{shop: 80, blog: 81}}}}
resources:
  - exec:
      - "{{{{ lookup('each.key') }}}}-{{{{ each.value }}}}": {{for_each: {items}}}
"""
    assert ids_of(text, root) == expected


def test_items_may_come_from_the_command_line(root: Path) -> None:
    text = "data: {names: [a]}\nresources: [{exec: {name: '{{ each.value }}', for_each: '{{ data.names }}'}}]\n"
    assert ids_of(text, root, data_layers=[{"names": ["b", "c"]}]) == ["exec#b", "exec#c"]
    assert ids_of(text, root, data_layers=[{"names": []}]) == []


def test_a_run_without_items_does_nothing(root: Path) -> None:
    assert apply_text("- exec: [{x: {for_each: []}}]\n", root).outcomes == []


def test_every_field_reads_the_item_also_when_the_resource_is_reached(root: Path) -> None:
    text = """
- file:
    - defaults: {owner: USER, group: GROUP, mode: "0644"}
    - "ROOT/{{ lookup('each.key') }}":
        for_each: {a: {text: one, mode: "0600"}, b: {text: two, mode: "0640"}, c: {text: three, mode: "0640"}}
        ensure: present
        mode: "{{ lookup('each.value.mode') }}"
        content: "{{ lookup('each.value.text') }} {{ each.key }}"
        control: {unless: each.key == 'c'}
- exec:
    - "read-{{ each.value }}":
        for_each: [a, b]
        command: "grep -q {{ lookup('each.value') }} ROOT/{{ lookup('each.value') }}"
        subscribe: ["file#ROOT/{{ lookup('each.value') }}"]
        refresh_only: true
"""
    done = apply_text(text, root)
    assert done.outcomes == ["changed", "changed", "skipped", "refreshed", "refreshed"], done.errors
    assert (root / "a").read_text() == "one a"
    assert (root / "b").read_text() == "two b"
    assert (root / "a").stat().st_mode & 0o777 == 0o600
    assert apply_text(text, root).outcomes == ["stable", "stable", "skipped", "stable", "stable"]


def test_removing_an_item_leaves_what_it_created(root: Path) -> None:
    text = """
- file:
    - "ROOT/{{ each.value }}": {for_each: [ITEMS], ensure: directory, owner: USER, group: GROUP, mode: "0755"}
"""
    apply_text(text.replace("ITEMS", "a, b"), root)
    assert apply_text(text.replace("ITEMS", "a"), root).outcomes == ["stable"]
    assert (root / "b").is_dir()


def test_a_secret_item_stays_secret(root: Path) -> None:
    text = """
- file:
    - "ROOT/{{ each.key }}":
        for_each: "{{ vault.tokens }}"
        ensure: present
        content: "{{ lookup('each.value') }}"
        owner: USER
        group: GROUP
        mode: "0600"
"""
    roots = {"vault": {"tokens": [Tainted("s3cret-one"), Tainted("s3cret-two")]}}
    done = apply_text(text, root, roots=roots, differences=True)
    assert done.outcomes == ["changed", "changed"]
    assert (root / "1").read_text() == "s3cret-two"
    assert "s3cret" not in str(done.as_json())
    assert "s3cret" not in str(render_manifest(load_text(text, root, roots=roots)))
    named = "- exec: [{'{{ each.value }}': {for_each: '{{ vault.tokens }}'}}]\n"
    assert faults_of(named, root, roots=roots) == [
        "1:11 exec#{{ each.value }}: a name is shown in every report; it must not contain a secret"
    ]


def test_the_rendered_manifest_gives_the_same_result(root: Path) -> None:
    text = """
- file:
    - defaults: {owner: USER, group: GROUP, mode: "0644", ensure: present}
    - "ROOT/{{ each.value }}": {for_each: [a, b], content: "{{ each.value }} {{ lookup('each.key') }}"}
"""
    rendered = render_manifest(load_text(text, root))
    done = apply_text(yaml.safe_dump(rendered), root)
    assert done.outcomes == ["changed", "changed"], done.errors
    assert apply_text(text, root).outcomes == ["stable", "stable"]


def test_at_most_100_000_items_are_possible(root: Path) -> None:
    text = "- exec: [{'{{ each.key }}': {for_each: '{{ range(100000) | list + [COUNT] }}'}}]\n"
    assert faults_of(text.replace("COUNT", "1"), root) == [
        "1:40 exec#{{ each.key }}: for_each has 100,001 items; at most 100,000 are possible"
    ]


def test_a_fault_of_every_item_is_not_reported_a_thousand_times(root: Path) -> None:
    found = faults_of("- exec: [{'{{ each.key }}': {for_each: '{{ range(1000) }}', nope: 1}}]\n", root)
    assert len(found) < 100
    assert any("949 more items are not checked" in fault for fault in found)


def test_the_cost_grows_with_the_number_of_items(root: Path) -> None:
    text = """
- file:
    - "ROOT/{{ lookup('each.value') }}":
        for_each: "{{ range(COUNT) }}"
        ensure: present
        content: "{{ lookup('each.value') }}"
        owner: USER
        group: GROUP
        mode: "0644"
"""
    spent = {}
    for count in (2000, 20000):
        load_text(text.replace("COUNT", "10"), root)
        started = time.process_time()
        load_text(text.replace("COUNT", str(count)), root)
        spent[count] = time.process_time() - started
    assert spent[20000] < 25 * spent[2000]

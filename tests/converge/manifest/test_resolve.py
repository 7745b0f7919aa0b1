"""The parts of a manifest: its forms, sections, data and settings, and all faults that keep it from loading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from loading import cases, faults_of, load_text
from mainstay.converge import health_checks, resources

ONE = '\nresources: [{exec: ["true"]}]\n'


@pytest.mark.parametrize(
    "case", [*cases("manifest/faults"), *cases("manifest/habits")], ids=lambda case: case["case"]
)
def test_all_faults_of_a_manifest_are_reported(case: dict[str, Any], root: Path) -> None:
    places = {
        "TYPES": ", ".join(resources.names()),
        "KINDS": " or ".join(f"`{name}`" for name in health_checks.kinds()),
        "DIRECTORY": str(root.parent),
    }
    expected = [re.sub("|".join(places), lambda place: places[place[0]], fault) for fault in case["faults"]]
    assert faults_of(case["manifest"], root) == expected


@pytest.mark.parametrize(
    "text",
    [
        "- exec:\n    - a: {command: x}\n- exec:\n    - b:\n",
        "resources:\n  - exec:\n      - a: {command: x}\n  - exec:\n      - b: ~\n",
        "ccm:\n  resources:\n    - exec:\n        - a: {command: x}\n    - exec: [b]\n",
        "ccm:\n  fail_on_error: false\nresources:\n  - exec: {name: a, command: x}\n  - exec: {name: b}\n",
        "[{exec: [a: {command: x}]}, {exec: [b: {}]}]",
        '{"resources": [{"exec": [{"a": {"command": "x"}}, "b"]}]}',
    ],
    ids=["bare list", "resources", "ccm", "ccm beside resources", "flow", "JSON"],
)
def test_all_forms_of_a_manifest_give_the_same_resources_in_order(text: str, root: Path) -> None:
    assert [(found.id, vars(found).get("command")) for found in load_text(text, root).resources] == [
        ("exec#a", "x"),
        ("exec#b", None),
    ]


def test_settings_may_be_at_the_top_level_or_under_ccm(root: Path) -> None:
    for indent, head in (("", ""), ("  ", "ccm:\n")):
        lines = ["fail_on_error: true", "pre_message: 'a {{ 1 + 1 }}'", "post_message: b", "outputs: {c: 1}"]
        text = head + "".join(f"{indent}{line}\n" for line in [*lines, 'resources: [{exec: ["true"]}]'])
        manifest = load_text(text, root)
        assert manifest.fail_on_error is True
        assert (manifest.pre_message, manifest.post_message, manifest.outputs) == ("a 2", "b", {"c": 1})


def test_settings_that_are_not_given_have_their_defaults(root: Path) -> None:
    manifest = load_text("fail_on_error:\npre_message: ~\ndata:\noverrides: null" + ONE, root)
    assert manifest.fail_on_error is False
    assert manifest.pre_message is None
    assert manifest.data == {}


def test_data_is_read_by_the_yaml_core_schema(root: Path) -> None:
    manifest = load_text(
        """
data:
  texts: [yes, no, on, off, "1", "true", 1_000, 12:30:00, 2024-01-01, 0b1, .5x, "~", "", =, "<<"]
  numbers: [0, 010, 0o10, 0x10, -1, +1, 1e3, 1.5, .5, 5., .inf, -.INF]
  others: [~, null, NULL, true, TRUE, False]
  nothing:
  nested: {a: {1: [{b: "{{ 1 + 1 }}"}]}}
"""
        + ONE,
        root,
    )
    assert manifest.data["texts"] == [
        *("yes", "no", "on", "off", "1", "true", "1_000", "12:30:00", "2024-01-01", "0b1", ".5x", "~", "", "=", "<<"),
    ]
    infinity = float("inf")
    assert manifest.data["numbers"] == [0, 10, 8, 16, -1, 1, 1000.0, 1.5, 0.5, 5.0, infinity, -infinity]
    assert manifest.data["others"] == [None, None, None, True, True, False]
    assert manifest.data["nothing"] is None
    assert manifest.data["nested"] == {"a": {"1": [{"b": 2}]}}


def test_data_may_use_facts_and_the_environment(root: Path) -> None:
    manifest = load_text(
        'data: {host: "{{ lookup(\'facts.name\') }}", home: "{{ environ.HOME }}"}' + ONE,
        root,
        facts_layers=[{"name": "ada"}],
        environ={"HOME": "/home/ada"},
    )
    assert manifest.data == {"host": "ada", "home": "/home/ada"}


HIERARCHY = """
data: {a: base, deep: {x: base, y: base}, list: [base]}
hierarchy:
  order: ["host:{{ lookup('facts.name') }}", "os:{{ facts.os.family }}", default]
  merge: MERGE
overrides:
  default: {a: default, deep: {y: default}, list: [default]}
  os:debian: {a: os, deep: {x: os}, list: [os]}
  unused: {a: unused}
"""


def test_first_merges_the_first_existing_override_shallowly(root: Path) -> None:
    facts = [{"name": "ada", "os": {"family": "debian"}}]
    manifest = load_text(HIERARCHY.replace("MERGE", "first") + ONE, root, facts_layers=facts)
    assert manifest.data == {"a": "os", "deep": {"x": "os"}, "list": ["os"]}
    assert manifest.warnings == []


def test_deep_merges_all_overrides_in_order_and_the_later_wins(root: Path) -> None:
    facts = [{"name": "ada", "os": {"family": "debian"}}]
    manifest = load_text(HIERARCHY.replace("MERGE", "deep") + ONE, root, facts_layers=facts)
    assert manifest.data == {
        "a": "default",
        "deep": {"x": "os", "y": "default"},
        "list": ["base", "os", "default"],
    }
    assert manifest.hierarchy.used() == ["os:debian", "default"]
    assert manifest.hierarchy.warnings() == [
        "override 'unused' matches no level of hierarchy.order",
        (
            "hierarchy.merge is `deep`, where later levels win: 'default' replaces a of 'os:debian';"
            " list 'default' before the levels with expressions"
        ),
    ]


def test_a_deep_merge_with_the_general_level_first_gives_no_warning(root: Path) -> None:
    text = (
        "hierarchy: {order: [default, 'os:{{ facts.os.family }}', 'host:{{ facts.name }}'], merge: deep}\n"
        "overrides: {default: {a: 1, l: [1]}, 'os:debian': {a: 2}, 'host:ada': {a: 3, l: [2]}}"
    )
    facts = [{"name": "ada", "os": {"family": "debian"}}]
    manifest = load_text(text + ONE, root, facts_layers=facts)
    assert manifest.data == {"a": 3, "l": [1, 2]}
    assert manifest.hierarchy.warnings() == []


def test_a_level_with_an_undefined_fact_is_skipped_with_a_warning(root: Path) -> None:
    text = (
        "hierarchy: {order: [\"{{ lookup('facts.nope') }}\", '{{ facts.role | upper }}', default]}\n"
        "overrides: {default: {a: 1}, None: {a: 2}}"
    )
    manifest = load_text(text + ONE, root, facts_layers=[{"os": {}}])
    assert manifest.data == {"a": 1}
    assert manifest.warnings == [
        "hierarchy.order: the level \"{{ lookup('facts.nope') }}\" is skipped: facts.nope is not defined",
        (
            "hierarchy.order: the level '{{ facts.role | upper }}' is skipped:"
            " facts.role is not defined in {{ facts.role | upper }}"
        ),
    ]


def test_an_override_that_no_level_can_name_is_a_warning(root: Path) -> None:
    text = (
        "hierarchy: {order: ['os:{{ facts.os.family }}']}\n"
        "overrides: {'os:debain': {a: 1}, 'so:debian': {a: 2}, default: {}}"
    )
    manifest = load_text(text + ONE, root, facts_layers=[{"os": {"family": "debian"}}])
    assert manifest.hierarchy.notes() == ["overrides used: none"]
    assert manifest.hierarchy.warnings() == [
        "override 'so:debian' matches no level of hierarchy.order (did you mean 'os:debian'?)",
        "override 'default' matches no level of hierarchy.order",
    ]


def test_a_value_that_did_not_render_causes_no_second_fault(root: Path) -> None:
    text = """
data: {name: "{{ facts.nope }}", map: {a: "{{ nosuch }}"}}
data_schema: {properties: {name: {type: string}}}
resources:
  - package:
      - "{{ lookup('data.name') }}": {}
      - "{{ data.name }}": {ensure: "{{ data.map.a }}"}
      - "{{ data.nope }}": {}
  - exec:
      - x: {path: "{{ data.map | tojson }}", require: ["package#a"]}
"""
    assert faults_of(text, root) == [
        "2:14 data: facts.nope is not defined in {{ facts.nope }}",
        "2:43 data: unknown name 'nosuch'; for text write it in quotes, for data lookup('data.nosuch') in {{ nosuch }}",
        "8:9 package#{{ data.nope }}: name: data.nope is not defined in {{ data.nope }}",
    ]


def test_expressions_of_a_related_family_are_refused_where_they_would_be_taken_as_text(root: Path) -> None:
    text = """
hierarchy: {order: ["os:${ Facts.os.family }"]}
resources:
  - exec:
      - "a ${lookup('data.x')}": {}
      - b: {control: {if: "'${ data.x }' == 'x'"}, require: ["exec#${ environ.X }"]}
      - "c ${HOME} ${DATABASE} ${DATA_DIR} $(x)": {command: "echo ${ Data.x }"}
"""
    refused = "${ … } is not supported; write {{ … }}"
    assert faults_of(text, root) == [
        f"2:21 hierarchy.order: {refused}",
        f"5:9 exec#a ${{lookup('data.x')}}: name: {refused}",
        f"6:27 exec#b: control.if: {refused}",
        f"6:62 exec#b: require: {refused}",
    ]


def test_without_a_hierarchy_the_default_override_applies(root: Path) -> None:
    assert load_text("data: {a: 1, b: 2}\noverrides: {default: {a: 3}}" + ONE, root).data == {"a": 3, "b": 2}


def test_data_layers_of_the_caller_win_over_the_hierarchy_and_the_last_wins(root: Path) -> None:
    manifest = load_text(
        "data: {a: {x: 1, y: 1, z: 1}, list: [1, 2]}\noverrides: {default: {b: 2}}" + ONE,
        root,
        data_layers=[{"a": {"x": 2, "y": 2}, "b": 3, "list": [3]}, {"a": {"x": 3}}],
    )
    assert manifest.data == {"a": {"x": 3, "y": 2, "z": 1}, "b": 3, "list": [3]}


def test_faults_are_reported_in_the_order_of_the_file(root: Path) -> None:
    faults = faults_of("resources: [{fil: []}]\ndata: []\nbogus: 1\nhierarchy: 3\n", root)
    assert [fault.partition(" ")[0] for fault in faults] == ["1:14", "2:7", "3:1", "4:12"]


def test_a_fault_in_an_aliased_value_is_placed_at_the_alias(root: Path) -> None:
    text = "data: {shared: &shared {comand: x}}\nresources:\n  - exec:\n      - a: *shared\n"
    assert faults_of(text, root) == ["4:9 exec#a: unknown key 'comand' (did you mean 'command'?)"]


def test_aliases_may_be_keys_and_values(root: Path) -> None:
    text = "data: {name: &name greet, same: *name}\nresources:\n  - exec:\n      - *name : {timeout: 3}\n"
    assert faults_of(text, root) == [
        '4:27 exec#greet: timeout: "3" is not a duration (did you mean 3s?); write it like 500ms, 30s, 5m, 1h30m or 2d'
    ]

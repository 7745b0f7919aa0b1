"""Expressions that can never work are refused at load, wherever they are; those that may work are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from loading import cases, faults_of
from mainstay.converge.manifest.static_checks import RESULT_MEMBERS

HEAD = """
data: {web: {port: 80}, list: [a], text: x}
post_message: POST
outputs: {nested: [OUTPUT]}
resources:
  - exec:
      - first: {alias: one}
      - second: {command: COMMAND, control: {if: CONTROL}}
      - third: {environment: [ENVIRONMENT]}
"""
PLACES = {
    "POST": "post_message: ",
    "OUTPUT": "outputs: ",
    "COMMAND": "exec#second: command: ",
    "CONTROL": "exec#second: control.if: ",
    "ENVIRONMENT": "exec#third: environment: ",
}
CASES = cases("manifest/never_works")


def manifest_with(expression: str, place: str) -> str:
    written = expression.replace("'", "''")
    text = HEAD.replace(place, f"'{written}'" if place == "CONTROL" else f"'{{{{ {written} }}}}'")
    for each in PLACES:
        text = text.replace(each, "A=1" if each == "ENVIRONMENT" else "true")
    return text


def messages(text: str, root: Path, **request: Any) -> list[str]:
    return [fault.partition(" ")[2] for fault in faults_of(text, root, **request)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_an_expression_that_can_never_work_is_refused_at_load(case: dict[str, Any], root: Path) -> None:
    for place, prefix in PLACES.items():
        # A fact may be missing on hosts where `control` excludes the resource.
        is_conditional = place in ("COMMAND", "CONTROL") and any(
            word in case["expression"].lower() for word in ("facts.", "environ.")
        )
        expected = [] if "works" in case or is_conditional else [prefix + case["message"]]
        assert messages(manifest_with(case["expression"], place), root) == expected, place


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "message" in case and "(" not in case["expression"].partition("lookup")[0]],
    ids=lambda case: case["expression"],
)
def test_the_same_expression_is_refused_where_it_is_rendered_at_load(case: dict[str, Any], root: Path) -> None:
    text = "data: {web: {port: 80}, list: [a], text: x}\nresources:\n  - exec:\n      - a: {path: 'PATH'}\n"
    written = "{{ " + case["expression"].replace("'", "''") + " }}"
    assert messages(text.replace("PATH", written), root) == ["exec#a: path: " + case["message"]]


def test_values_of_callers_are_known(root: Path) -> None:
    text = "- exec:\n    - a: {command: \"echo {{ service.name | upper }} {{ lookup('service.nme') }}\"}\n"
    assert messages(text, root, roots={"service": {"name": "x"}}) == [
        "exec#a: command: service.nme is not defined (did you mean service.name?)"
    ]


def test_a_resource_cannot_read_its_own_result_or_that_of_a_later_resource(root: Path) -> None:
    text = "- exec:\n    - a: {command: \"echo {{ result('exec#b').stdout }} {{ result('exec#a') }}\"}\n    - b:\n"
    assert messages(text, root) == [
        "exec#a: command: result('exec#b'): exec#b must be declared earlier in the file; move it before exec#a",
        "exec#a: command: result('exec#a'): exec#a is the resource itself; name an earlier one",
    ]


def test_every_problem_of_a_template_is_reported(root: Path) -> None:
    text = "- exec:\n    - a: {command: \"{{ lookup('data.a') }} {{ nosuch + data.b }}\"}\n"
    assert len(messages(text, root)) == 3


def test_a_hidden_property_does_not_show_its_template(root: Path) -> None:
    text = "- exec:\n    - a: {sensitive: true, command: \"x {{ 's3cret' ~ nosuch }} {{ lookup('data.token') }}\"}\n"
    assert messages(text, root) == [
        "exec#a: command: the template fails",
        "exec#a: command: data.token is not defined",
    ]


def test_data_and_the_hierarchy_name_what_is_not_available_there(root: Path) -> None:
    text = (
        "data: {a: '{{ data.b }}', c: \"{{ file('x') }}\"}\nhierarchy: {order: ['{{ environ.HOME }}']}\n"
        "resources: [{exec: ['true']}]\n"
    )
    assert messages(text, root) == [
        "data: data is not available while data itself is read in {{ data.b }}",
        "data: file is not available here in {{ file('x') }}",
        "hierarchy.order: environ is not available here in {{ environ.HOME }}",
    ]


def test_the_result_of_a_resource_can_be_read_by_its_alias(apply: Callable[..., Applied]) -> None:
    text = (
        "- exec:\n    - a: {command: echo hi, alias: b}\n    - c: {command: \"echo {{ result('exec#b').stdout }}\"}\n"
    )
    assert apply(text).outcomes == ["changed", "changed"]


def test_a_look_up_accepts_the_filter_default(apply: Callable[..., Applied]) -> None:
    text = "outputs: {a: \"{{ lookup('data.no') | default('d') }}\", b: \"{{ lookup('data.no') is defined }}\"}\n"
    assert apply(text + "resources: [{exec: ['true']}]\n").report.outputs == {"a": "d", "b": False}


def test_the_members_of_results_are_those_that_a_run_sets(apply: Callable[..., Applied]) -> None:
    done = apply("outputs: {all: \"{{ result('exec#true') }}\"}\nresources: [{exec: ['true']}]\n")
    assert done.report.outputs is not None
    assert set(done.report.outputs["all"]) <= set(RESULT_MEMBERS)


def test_plain_look_ups_do_not_load_jinja(root: Path) -> None:
    import subprocess
    import sys

    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        "data: {a: 1}\nresources:\n  - exec:\n      - a: {command: \"echo {{ lookup('data.a') }}\"}\n"
    )
    program = (
        "import sys\nfrom mainstay.converge.run import RunRequest, load\n"
        "load(RunRequest(sys.argv[1]))\nassert 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(manifest)], check=True)

"""Secrets of the caller: which properties may use them, and that loading shows them nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from loading import faults_of, load_text
from mainstay.converge.manifest.rendering import render_manifest
from mainstay.converge.report import Observer
from mainstay.foundation.text import REDACTED, Tainted

SECRET = "s3cret-token"
ROOTS = {
    "vault": {"token": Tainted(SECRET), "short": Tainted("9z"), "mode": Tainted("0600"), "plain": "open", "yes": True}
}


def exec_with(properties: str) -> str:
    return "- exec:\n    - x:\n" + "".join(f"        {line}\n" for line in properties.split("\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- exec: [{\"a {{ vault.token }}\": {}}]", "exec#a {{ vault.token }}: a name is shown in every report; it must not contain a secret"),
        ("- exec: {name: \"{{ lookup('vault.token') }}\"}", "exec#{{ lookup('vault.token') }}: a name is shown in every report; it must not contain a secret"),
        ("- exec: [{\"{{ [vault.token] }}\": {}}]", "exec#{{ [vault.token] }}: a name is shown in every report; it must not contain a secret"),
        ("- exec: [{\"{{ vault.token | length }}\": {}}]", "exec#{{ vault.token | length }}: a name is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {alias: \"{{ vault.token }}\"}}]", "exec#x: alias: is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {tags: [a, \"{{ vault.token }}\"]}}]", "exec#x: tags: is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {require: [\"exec#{{ vault.token }}\"]}}]", "exec#x: require: is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {subscribe: [\"exec#{{ vault.token }}\"]}}]", "exec#x: subscribe: is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {ensure: \"{{ vault.token }}\"}}]", "exec#x: ensure: is shown in every report; it must not contain a secret"),
        ("- exec: [{x: {provider: \"{{ vault.token }}\"}}]", "exec#x: provider: is shown in every report; it must not contain a secret"),
    ],
)  # fmt: skip
def test_properties_that_every_report_shows_must_not_contain_a_secret(root: Path, text: str, message: str) -> None:
    (fault,) = faults_of(text, root, roots=ROOTS)
    assert fault.partition(" ")[2] == message


@pytest.mark.parametrize(
    "properties",
    [
        *("path: /{{ vault.token }}", "path: /{{ lookup('vault.token') }}", "path: /{{ vault.token | upper }}"),
        "timeout: '{{ (vault.token | length) ~ \"s\" }}'",
        *("health_checks: [{command: 'check {{ vault.token }}'}]", "sensitive: false\npath: /{{ vault.token }}"),
        *("path: /{{ vault.token }}\nsensitive: false", "path: /{{ vault.token }}\nsensitive: true"),
    ],
)
def test_a_property_that_comes_from_a_secret_makes_the_resource_sensitive(root: Path, properties: str) -> None:
    manifest = load_text(exec_with(properties), root, roots=ROOTS)
    assert manifest.resources[0].sensitive is True
    assert SECRET not in json.dumps(render_manifest(manifest)).lower()


@pytest.mark.parametrize("properties", ["path: /{{ vault.plain }}", "logoutput: '{{ vault.yes }}'", "command: a"])
def test_a_plain_value_beside_a_secret_does_not_make_the_resource_sensitive(root: Path, properties: str) -> None:
    assert load_text(exec_with(properties), root, roots=ROOTS).resources[0].sensitive is False


def test_a_secret_does_not_make_the_next_resource_sensitive(root: Path) -> None:
    text = '- exec:\n    - a: {path: "/{{ vault.token }}"}\n    - b: {path: "/{{ vault.plain }}"}\n    - c: {}\n'
    found = load_text(text, root, roots=ROOTS).resources
    assert [resource.sensitive for resource in found] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: '{{ vault.token }}'", "file#/x: mode: expected octal mode, got a secret value"),
        ("mode: '{{ vault.short }}'", "file#/x: mode: expected octal mode, got a secret value"),
        ("mode: 0644, backup: '{{ vault.token }}'", "file#/x: backup: expected true or false, got a secret value"),
        ("mode: 0644, links: '{{ vault.token }}'", "file#/x: links: must be refuse, follow or replace, not [redacted]"),
        ("mode: 0644, group: '{{ {}[vault.token] }}'", "file#/x: group: the evaluation fails on a secret value in {{ {}[vault.token] }}"),
    ],
)  # fmt: skip
def test_a_fault_about_a_secret_does_not_show_it(root: Path, text: str, message: str) -> None:
    manifest = "- file:\n    - /x: {ensure: present, owner: root, group: root, " + text + "}\n"
    if "group: '{{" in text:
        manifest = manifest.replace("group: root, ", "")
    (fault,) = faults_of(manifest, root, roots=ROOTS)
    assert fault.partition(" ")[2] == message


def test_a_fault_of_a_sensitive_resource_does_not_show_private_values(root: Path) -> None:
    text = """
- exec:
    - a: {sensitive: true, command: "login 'hunter2-open"}
    - b: {sensitive: true, environment: [hunter2-alone]}
    - c: {command: "login 'shown"}
"""
    faults = faults_of(text, root)
    assert faults[0] == "3:37 exec#a: command: the quote ' is never closed: [redacted]"
    assert faults[1] == "4:41 exec#b: environment: '[redacted]' is not KEY=value"
    assert faults[2] == "5:20 exec#c: command: the quote ' is never closed: login 'shown"


def test_a_mode_may_be_a_secret(root: Path) -> None:
    text = "- file:\n    - /x: {ensure: present, owner: root, group: root, mode: '{{ vault.mode }}'}\n"
    resource = load_text(text, root, roots=ROOTS).resources[0]
    assert (vars(resource)["mode"], resource.sensitive) == (0o600, True)


class Listener(Observer):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_messages_and_outputs_are_redacted_except_for_the_caller(apply: Callable[..., Applied], root: Path) -> None:
    text = """
pre_message: "before {{ vault.token | upper }}"
post_message: "after {{ vault.token | reverse }}"
outputs: {token: "{{ vault.token | upper }}", plain: "{{ vault.plain }}", deep: [{x: "{{ lookup('vault.token') }}"}]}
resources: [{exec: ["true"]}]
"""
    listener = Listener()
    done = apply(text, roots=ROOTS, observer=listener)
    assert listener.messages == [REDACTED, REDACTED]
    assert done.report.outputs == {"token": SECRET.upper(), "plain": "open", "deep": [{"x": SECRET}]}
    assert done.as_json()["outputs"] == {"token": REDACTED, "plain": "open", "deep": [{"x": REDACTED}]}


def test_a_secret_as_a_name_in_a_map_is_redacted_in_outputs(apply: Callable[..., Applied], root: Path) -> None:
    text = """
outputs:
  direct: "{{ {vault.token: 1} }}"
  computed: "{{ [{vault.token ~ 'x': {'deep': true}}] }}"
resources: [{exec: ["true"]}]
"""
    done = apply(text, roots=ROOTS)
    assert (done.report.outputs or {})["direct"] == {SECRET: "1"}
    assert done.as_json()["outputs"] == {"direct": {REDACTED: REDACTED}, "computed": [{REDACTED: {REDACTED: True}}]}


def test_no_report_and_no_state_file_contains_a_secret(apply: Callable[..., Applied], root: Path) -> None:
    text = """
pre_message: "with {{ vault.token }}"
resources:
  - file:
      - ROOT/a: {ensure: present, content: "{{ vault.token | upper }}\\n", owner: USER, group: GROUP, mode: "0600"}
  - exec:
      - bad: {command: "sh -c 'echo {{ vault.token }}; exit 1'"}
      - undefined: {command: "echo {{ {}[vault.token] }}"}
      - unfit: {command: "true", cwd: "{{ vault.token }}"}
      - blanks: {command: "{{ vault.token | upper }}' x'"}
      - health: {command: "true", health_checks: [{command: "sh -c 'echo {{ vault.token }}; exit 2'"}]}
      - asked: {command: "true", control: {if: "vault.token"}}
"""
    done = apply(text, roots=ROOTS, differences=True)
    assert done.outcomes == ["changed", *["failed"] * 6]
    assert (root / "a").read_text() == SECRET.upper() + "\n"
    report = json.dumps(done.as_json())
    stored = "".join(
        path.read_bytes().decode("utf-8", "replace") for path in (root.parent / "state").rglob("*") if path.is_file()
    )
    for text in (report, stored):
        assert SECRET not in text
        assert SECRET.upper() not in text


def test_a_caller_may_pass_secrets_of_any_shape(root: Path) -> None:
    roots: dict[str, Any] = {"token": Tainted(SECRET), "many": [Tainted(SECRET)]}
    text = '- exec:\n    - a: {path: "/{{ token }}"}\n    - b: {path: "/{{ many[0] }}"}\n    - c: {path: "/{{ many }}"}\n'
    assert [resource.sensitive for resource in load_text(text, root, roots=roots).resources] == [True, True, True]


@pytest.mark.parametrize("mistyped", ["yes", "on", '"true"'])
@pytest.mark.parametrize(
    "private", [f'command: "sh -c \'{SECRET}"', f"environment: [{SECRET}]", f'onlyif: "sh -c \'{SECRET}"']
)
def test_a_mistyped_sensitive_hides_private_values_in_faults(root: Path, mistyped: str, private: str) -> None:
    faults = faults_of(exec_with(f"sensitive: {mistyped}\n{private}"), root)
    assert len(faults) == 2
    assert SECRET not in "\n".join(faults)

"""Each failed event names the kind of its failure, so that programs need not read messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied
from mainstay.converge.failures import Failure
from mainstay.converge.json_lines import event_lines
from mainstay.converge.providers.exec.posix import PosixCommands
from mainstay.converge.report import Event

Apply = Callable[..., Applied]

KINDS = {
    "DesiredStateFailed",
    "CommandFailed",
    "NotFound",
    "Refused",
    "TemplateFailed",
    "Timeout",
    "Bug",
}
ATTRIBUTES = "owner: USER, group: GROUP, mode: '0644'"

# (what fails, resource, kind)
FAILURES = [
    ("an exit code that does not count as success", "exec: {name: 'false'}", "DesiredStateFailed"),
    ("a shell command", "exec: {name: 'exit 3', provider: shell}", "DesiredStateFailed"),
    ("a command killed by a signal", "exec: {name: 'kill -9 $$', provider: shell}", "CommandFailed"),
    ("a command that takes too long", "exec: {name: sleep 9, timeout: 50ms}", "Timeout"),
    ("a guard that takes too long", "exec: {name: 'true', onlyif: sleep 9, timeout: 50ms}", "Timeout"),
    ("a command that does not exist", "exec: {name: no-such-program}", "NotFound"),
    ("a guard that does not exist", "exec: {name: 'true', unless: no-such-program}", "NotFound"),
    ("a guard that a shell does not find", "exec: {name: 'true', onlyif: nope, provider: shell}", "NotFound"),
    ("a program that is not executable", "exec: {name: ROOT/plain}", "CommandFailed"),
    ("a working directory that does not exist", "exec: {name: 'true', cwd: /no/such}", "NotFound"),
    (
        "a parent that does not exist",
        f"file: {{name: ROOT/no/file, ensure: present, {ATTRIBUTES}}}",
        "NotFound",
    ),
    (
        "a source that does not exist",
        f"file: {{name: ROOT/f, ensure: present, source: ROOT/no, {ATTRIBUTES}}}",
        "NotFound",
    ),
    (
        "a user that does not exist",
        "file: {name: ROOT/f, ensure: present, owner: nosuchuser, group: GROUP, mode: '0644'}",
        "NotFound",
    ),
    ("a file over a directory", f"file: {{name: ROOT/full, ensure: present, {ATTRIBUTES}}}", "Refused"),
    ("a directory that is not empty", "file: {name: ROOT/full, ensure: absent}", "Refused"),
    ("a parent that is a file", "file: {name: ROOT/plain/x, ensure: absent}", "Refused"),
    (
        "a validation",
        f"file: {{name: ROOT/f, ensure: present, content: x, validate: 'false', {ATTRIBUTES}}}",
        "CommandFailed",
    ),
    (
        "an undefined value",
        f"file: {{name: ROOT/f, ensure: present, content: \"{{{{ lookup('environ.' ~ 'NOPE') }}}}\", {ATTRIBUTES}}}",
        "TemplateFailed",
    ),
    ("a rendered path", "exec: {name: 'true', cwd: \"{{ 'relative' | trim }}\"}", "TemplateFailed"),
    ("a condition", "exec: {name: 'true', control: {if: \"'text' | trim\"}}", "TemplateFailed"),
    ("a health check", "exec: {name: 'true', health_checks: [{command: 'false'}]}", "CommandFailed"),
    (
        "a health check that takes long",
        "exec: {name: 'true', health_checks: [{command: sleep 9, timeout: 50ms}]}",
        "Timeout",
    ),
    (
        "a health check that ends with a warning",
        "exec: {name: 'true', health_checks: [{command: sh -c 'exit 1'}]}",
        "CommandFailed",
    ),
    (
        "a health check of an unknown exit code",
        "exec: {name: 'true', health_checks: [{command: sh -c 'exit 9'}]}",
        "CommandFailed",
    ),
    (
        "a health check that is killed",
        "exec: {name: 'true', health_checks: [{command: sh -c 'kill -9 $$'}]}",
        "CommandFailed",
    ),
    ("a last try that takes too long", "exec: {name: sleep 9, timeout: 50ms, tries: 2, try_sleep: 1ms}", "Timeout"),
    ("a last try", "exec: {name: 'false', tries: 2, try_sleep: 1ms}", "DesiredStateFailed"),
    ("a provider that is not available", "package: {name: httpd, provider: dnf}", "NotFound"),
    (
        "a link that another user may have made",
        "file: {name: ROOT/link, ensure: present, owner: USER, group: GROUP, mode: '0644'}",
        "Refused",
    ),
    ("a health check that does not exist", "exec: {name: 'true', health_checks: [{command: nope}]}", "NotFound"),
]


@pytest.mark.parametrize(("resource", "kind"), [pytest.param(*rest, id=name) for name, *rest in FAILURES])
def test_a_failure_has_its_kind_in_the_event(resource: str, kind: str, apply: Apply, root: Path) -> None:
    (root / "full" / "inner").mkdir(parents=True)
    (root / "plain").write_text("")
    (root / "link").symlink_to(root / "plain")
    done = apply(f"- {resource}\n")
    (event,) = done.as_json()["events"]
    assert (event["outcome"], event["error_kind"]) == ("failed", kind), event["errors"]
    (line,) = event_lines(done.report.events)
    assert json.loads(line)["error_kind"] == kind


def test_an_event_without_a_failure_has_no_error_kind(apply: Apply) -> None:
    done = apply(
        "- exec:\n    - 'false': {}\n    - 'true': {require: ['exec#false']}\n"
        "    - '/bin/true': {}\n    - '/bin/echo': {control: {if: 'false'}}\n"
    )
    found = [(event["outcome"], event["error_kind"]) for event in done.as_json()["events"]]
    assert found == [("failed", "DesiredStateFailed"), ("unmet", None), ("changed", None), ("skipped", None)]


def test_an_unexpected_error_is_a_bug(apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(PosixCommands, "perform", fail)
    (event,) = apply("- exec: {name: 'true'}\n").as_json()["events"]
    assert event["error_kind"] == "Bug"


def _subclasses(parent: type[Failure]) -> set[type[Failure]]:
    return {parent}.union(*map(_subclasses, parent.__subclasses__()))


def test_every_class_of_failure_has_a_kind_of_the_contract() -> None:
    import mainstay.converge.host.commands
    import mainstay.converge.host.parents  # noqa: F401

    assert {each.kind for each in _subclasses(Failure)} <= KINDS


def test_the_first_of_several_failures_names_the_kind(apply: Apply) -> None:
    event = Event(apply("- exec: {name: 'true'}\n").report.events[0].resource)
    event.fail("first", "Timeout")
    event.fail("second", "NotFound")
    assert (event.errors, event.error_kind) == (("first", "second"), "Timeout")

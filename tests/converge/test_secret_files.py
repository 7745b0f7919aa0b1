"""Content of sensitive files and output of sensitive commands are never shown or stored, however they are read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied

SECRET = "hunter2-correct-horse"


def everything_shown(applied: Applied, state: Path) -> str:
    """The report, and all files that the run stored."""
    kept = [path.read_text() for path in state.rglob("*") if path.is_file()]
    return json.dumps(applied.as_json()) + "".join(kept)


@pytest.mark.parametrize(
    "copy",
    [
        "content: \"copy {{ file('ROOT/secret') }}\"",
        "content: \"copy {{ file('ROOT/../root/secret') }}\"",
        "content: \"copy {{ file('ROOT/link') }}\"",
        "source: ROOT/secret",
        "source: ROOT/link",
    ],
)
def test_a_copy_of_a_secret_file_is_redacted_also_if_the_file_is_stable(
    apply: Callable[..., Applied], root: Path, tmp_path: Path, copy: str
) -> None:
    text = f"""
    - file:
        - defaults: {{ensure: present, owner: USER, group: GROUP, mode: "0600"}}
        - ROOT/secret: {{content: "{SECRET}", sensitive: true}}
        - ROOT/copy: {{{copy}}}
    """
    (root / "link").symlink_to("secret")
    for outcome in ("changed", "stable"):
        (root / "copy").write_text("before\n")
        applied = apply(text, differences=True)
        assert applied.outcomes == [outcome, "changed"]
        assert SECRET in (root / "copy").read_text()
        assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_a_secret_file_that_tags_skip_is_redacted(apply: Callable[..., Applied], root: Path, tmp_path: Path) -> None:
    (root / "secret").write_text(SECRET)
    text = f"""
    - file:
        - defaults: {{ensure: present, owner: USER, group: GROUP, mode: "0600"}}
        - ROOT/secret: {{content: "{SECRET}", sensitive: true}}
        - ROOT/copy: {{source: ROOT/secret, tags: [copy]}}
    """
    applied = apply(text, differences=True, tags=("copy",))
    assert applied.outcomes == ["skipped", "changed"]
    assert SECRET not in everything_shown(applied, tmp_path / "state")


@pytest.mark.parametrize(
    "properties",
    [
        f"command: 'true', environment: PW={SECRET}",
        f"command: 'true', environment: ['{SECRET}']",
        f'command: "echo \'{SECRET} {"a" * 80}"',
        f'command: "echo \'{SECRET}\\\\n{"a" * 30}"',
        f"command: '{{{{ \"{SECRET}\" ~ nope }}}}'",
        f"command: '{{{{ \"{SECRET}\" ~ }}}}'",
        f"command: '{{{{ \"{SECRET}\" | int / 0 }}}}'",
        f"command: 'true', environment: '{{{{ \"{SECRET}\" }}}}'",
        f"command: 'true', environment: ['{{{{ \"{SECRET}\" }}}}']",
        f"command: 'true', health_checks: [{{command: \"echo '{SECRET}\"}}]",
        f"command: 'true', health_checks: [{{command: '{{{{ \"{SECRET}\" ~ }}}}'}}]",
        f"command: 'true', timeout: 1s, unless: ['{SECRET}']",
    ],
)
def test_a_fault_of_a_sensitive_resource_does_not_show_its_values(
    mainstay: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, properties: str
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(f"- exec:\n    - secret: {{sensitive: true, {properties}}}\n")
    for done in (mainstay("apply", manifest), mainstay("apply", "--json", manifest)):
        assert done.returncode in (1, 2)
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "properties",
    [
        "control: {if: \"{{ result('exec#secret').stdout ~ 'x' }}\"}",
        "control: {unless: \"result('exec#secret').stdout | trim\"}",
        "onlyif: \"{{ result('exec#secret').stdout }}' x'\"",
        "control: {if: \"{{ lookup('data.' ~ result('exec#secret').stdout) }}\"}",
        "control: {unless: \"lookup(result('exec#secret').stdout)\"}",
        "control: {if: \"file('/nope/' ~ (result('exec#secret').stdout | trim))\"}",
        "cwd: \"{{ lookup('facts.' ~ result('exec#secret').stdout) }}\"",
        "creates: \"{{ {}[result('exec#secret').stdout] }}\"",
        "onlyif: \"x {{ file('/nope/' ~ (result('exec#secret').stdout | trim)) }}\"",
        "environment: \"{{ result('exec#secret').stdout }}\"",
    ],
)
def test_the_output_of_a_sensitive_command_is_not_shown_in_a_failure(
    apply: Callable[..., Applied], tmp_path: Path, properties: str
) -> None:
    text = f"""
    - exec:
        - secret: {{command: echo {SECRET}, sensitive: true}}
        - reader: {{command: "true", {properties}}}
    """
    applied = apply(text)
    assert applied.outcomes == ["changed", "failed"]
    assert SECRET not in json.dumps(applied.as_json()) + "".join(
        path.read_text() for path in (tmp_path / "state" / "history").iterdir()
    )


@pytest.mark.parametrize(
    "properties",
    [
        "command: \"true {{ {}[lookup('data.word')] }}\"",
        "command: \"true {{ lookup('data.' ~ data.word) }}\"",
        "command: \"true {{ file('/nope/' ~ data.word) }}\"",
        "command: 'true', cwd: \"{{ {}[data.word] }}\"",
        "command: 'true', control: {if: \"{{ {}[data.word] }}\"}",
        "command: 'true', control: {if: \"data.word\"}",
        "command: 'true', control: {unless: \"file('/nope/' ~ data.word)\"}",
        "command: 'true', path: \"{{ {}[data.word] }}\"",
        "command: 'true', timeout: \"{{ lookup('data.' ~ data.word) }}\"",
        "command: 'true', health_checks: [{command: \"true {{ {}[data.word] }}\"}]",
        "command: 'true', health_checks: [{command: \"/nope/{{ data.word }}\"}]",
        'command: "/nope/{{ data.word }}"',
        "command: 'true', onlyif: \"/nope/{{ data.word }} x\"",
    ],
)
def test_an_error_of_a_sensitive_resource_does_not_quote_a_computed_value(
    mainstay: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, properties: str
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        f"data: {{word: {SECRET}}}\nresources:\n  - exec:\n      - secret: {{sensitive: true, {properties}}}\n"
    )
    for options in ([], ["--json"], ["--noop"]):
        done = mainstay("apply", *options, manifest)
        # A dry run with changes runs no health check.
        assert done.returncode in (1, 2) or options == ["--noop"]
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("word", [f"/nope/%{SECRET}", f"/nope/%{{{{ '{SECRET}' }}}}", f"{SECRET} %", f"{SECRET}%"])
def test_a_validate_command_that_cannot_run_does_not_show_a_private_value(
    apply: Callable[..., Applied], root: Path, word: str
) -> None:
    properties = "ensure: present, owner: USER, group: GROUP, mode: '0600', content: x, sensitive: true"
    applied = apply(f'- file:\n    - ROOT/x: {{{properties}, validate: "{word}"}}\n')
    assert applied.outcomes == ["failed"]
    assert SECRET not in json.dumps(applied.as_json())


def test_rendering_hides_the_health_checks_of_a_sensitive_resource(
    mainstay: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        f"- exec:\n    - a: {{command: 'true', sensitive: true, health_checks: [{{command: check {SECRET}}}]}}\n"
    )
    done = mainstay("render", manifest)
    assert done.returncode == 0
    assert SECRET not in done.stdout

"""Secrets appear nowhere: not in the state directory, documents, terminal, diffs, errors or history."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, fill_in
from fork_server import PROGRAM
from mainstay.cli.views.run_display import RunDisplay
from mainstay.converge.contract import Resource
from mainstay.converge.report import Observer
from mainstay.foundation.text import Tainted

Apply = Callable[..., Applied]
Mainstay = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "hunter2-Kq9"
LINES = "-----BEGIN KEY-----\nq7Zp0LxW\n'\"\\quoted\\ nb\n-----END KEY-----\n"
# Longer than messages quote, so that a shortened message would show a part.
LONG = "".join(f"{number:04x}Zq" for number in range(400))


def traces(text: str, secret: str) -> list[str]:
    """Parts of a secret that a text contains, as they are or as JSON and Python write them."""
    parts = [part for part in secret.splitlines() if len(part) >= 4] + [secret[:24], secret[-24:]]
    shapes = {shape for part in parts for shape in (part, json.dumps(part)[1:-1], repr(part)[1:-1])}
    return [shape for shape in shapes if len(shape) >= 4 and shape in text]


def everything_kept() -> str:
    found = []
    for path in Path(os.environ["MAINSTAY_STATE_DIR"]).rglob("*"):
        found.append(str(path))
        if path.is_file() and "/backups/" not in str(path):
            found.append(path.read_bytes().decode("utf-8", "backslashreplace"))
    return "\n".join(found)


class Everything(Observer):
    """Records everything that an observer receives."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def output(self, resource: Resource, line: str) -> None:
        self.received.append(line)

    def message(self, text: str) -> None:
        self.received.append(text)

    def event(self, index: int, event: Any) -> None:
        self.received.append(
            repr((event.errors, event.warnings, event.reason, event.output, event.diff, event.noop_message))
        )


# ---- sensitive: true ----
SENSITIVE = {
    "a file": "- file:\n    - ROOT/x: {sensitive: true, ensure: present, content: 'SECRET', owner: USER, group: GROUP, mode: '0600'}\n",
    "a file that is refused": "- file:\n    - ROOT/x: {sensitive: true, ensure: present, content: 'SECRET', validate: \"sh -c 'cat $0; false' %\", owner: USER, group: GROUP, mode: '0600'}\n",
    "a file with a check": "- file:\n    - ROOT/x: {sensitive: true, ensure: present, content: 'SECRET', owner: USER, group: GROUP, mode: '0600', health_checks: [{command: sh -c 'rev ROOT/x; cat ROOT/x; exit 1'}]}\n",
    "a command": "- exec:\n    - go: {sensitive: true, command: echo SECRET, logoutput: true}\n",
    "a command that fails": "- exec:\n    - go: {sensitive: true, command: \"sh -c 'echo SECRET; echo SECRET >&2; exit 1'\"}\n",
    "a command that is not found": "- exec:\n    - go: {sensitive: true, command: /nonexistent/SECRET}\n",
    "a command that is killed": "- exec:\n    - go: {sensitive: true, command: \"sh -c 'echo SECRET; kill -9 $$'\"}\n",
    "a command that times out": "- exec:\n    - go: {sensitive: true, timeout: 200ms, command: \"sh -c 'echo SECRET; sleep 60'\"}\n",
    "an environment": "- exec:\n    - go: {sensitive: true, command: sh -c 'env; exit 1', environment: [PASSWORD=SECRET], logoutput: true}\n",
    "a guard": "- exec:\n    - go: {sensitive: true, command: 'true', onlyif: /nonexistent/SECRET}\n",
}


@pytest.mark.parametrize("noop", [False, True], ids=["run", "dry run"])
@pytest.mark.parametrize("text", SENSITIVE.values(), ids=SENSITIVE.keys())
def test_a_sensitive_resource_shows_nothing(text: str, noop: bool, root: Path, mainstay: Mainstay) -> None:
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(fill_in(text, root).replace("SECRET", SECRET))
    (root / "x").write_text("before")
    for options in (["--diff", "-v"], ["--json", "--diff"]):
        done = mainstay("apply", manifest, *options, "--report", root.parent / "report", *(["--noop"] * noop))
        assert done.returncode in (0, 1), done.stderr
        shown = done.stdout + done.stderr + (root.parent / "report").read_text() + everything_kept()
        assert traces(shown, SECRET) == [], shown
        assert traces(shown, SECRET[::-1]) == [], shown
        (root / "x").write_text("before")


def test_a_sensitive_command_that_does_not_load_is_not_quoted(root: Path, mainstay: Mainstay) -> None:
    manifest = root.parent / "manifest.yaml"
    lines = []
    for secret in (SECRET, LONG):
        lines += [
            f'command: "tool \'{secret}"',
            f"command: 'true', onlyif: \"tool '{secret}\"",
            f"command: 'true', environment: ['{secret}']",
            f"command: 'true', cwd: relative, environment: ['={secret}']",
        ]
    resources = [f"    - go{index}: {{sensitive: true, {line}}}\n" for index, line in enumerate(lines)]
    manifest.write_text("- exec:\n" + "".join(resources))
    done = mainstay("apply", manifest)
    assert done.returncode == 2
    assert "10 faults" in done.stderr
    assert traces(done.stdout + done.stderr, SECRET) == []
    assert traces(done.stdout + done.stderr, LONG) == []


# ---- tainted values ----
TAINTED = {
    "content": "- file:\n    - ROOT/x: {ensure: present, content: \"{{ lookup('secrets.value') }}\", owner: USER, group: GROUP, mode: '0600'}\n",
    "part of content": "- file:\n    - ROOT/x: {ensure: present, content: \"a {{ Secrets.value | upper }} {{ secrets.value }} b\", owner: USER, group: GROUP, mode: '0600'}\n".replace(
        "Secrets.value | upper", "secrets.value"
    ),
    "a command": '- exec:\n    - go: {command: "sh -c \'echo \\"$1\\"; echo \\"$1\\" | rev; exit 1\' - {{ secrets.value }}", logoutput: true}\n',
    "a shell command": '- exec:\n    - go: {provider: shell, command: "echo {{ secrets.value }}; exit 1", logoutput: true}\n',
    "a program": '- exec:\n    - go: {command: "/nonexistent/{{ secrets.value }}"}\n',
    "an environment": '- exec:\n    - go: {command: "sh -c \'env; env | rev\'", environment: ["PASSWORD={{ secrets.value }}"], logoutput: true}\n',
    "a broken environment": '- exec:\n    - go: {command: "true", environment: ["{{ secrets.value }}"]}\n',
    "a broken command": '- exec:\n    - go: {command: "tool \'{{ secrets.value }}"}\n',
    "a working directory": '- exec:\n    - go: {command: "true", cwd: "/{{ secrets.value }}"}\n',
    "a relative directory": '- exec:\n    - go: {command: "true", cwd: "{{ secrets.value }}"}\n',
    "creates": '- exec:\n    - go: {command: "true", creates: "/{{ secrets.value }}"}\n',
    "a guard": "- exec:\n    - go: {command: 'true', unless: \"sh -c 'exit 0' {{ secrets.value }}\"}\n",
    "a source": "- file:\n    - ROOT/x: {ensure: present, source: \"{{ secrets.value }}\", owner: USER, group: GROUP, mode: '0600'}\n",
    "a target": '- file:\n    - ROOT/l: {ensure: link, target: "{{ secrets.value }}"}\n',
    "an owner": "- file:\n    - ROOT/x: {ensure: present, owner: \"{{ secrets.value }}\", group: GROUP, mode: '0600'}\n",
    "a mode": '- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: "{{ secrets.value }}"}\n',
    "a condition": "- exec:\n    - go: {command: 'true', control: {if: secrets.value}}\n",
    "a health check": '- exec:\n    - go: {command: "true", health_checks: [{name: check, command: "sh -c \'echo said; exit 2\' {{ secrets.value }}"}]}\n',
    "a name": '- exec:\n    - "echo {{ secrets.value }}":\n',
    "messages": 'pre_message: "before {{ secrets.value }}"\npost_message: "after {{ secrets.value }}"\nresources:\n  - exec:\n      - go: {command: "true"}\n',
    "outputs": 'outputs: {address: "x {{ secrets.value }}"}\nresources:\n  - exec:\n      - go: {command: "true"}\n',
    "what was read back": (
        "- file:\n    - ROOT/x: {ensure: present, content: \"{{ secrets.value }}\", owner: USER, group: GROUP, mode: '0600'}\n"
        "    - ROOT/y: {ensure: present, content: \"{{ file('ROOT/x') }}\", owner: USER, group: GROUP, mode: '0600'}\n"
        "- exec:\n    - cat ROOT/x ROOT/y: {logoutput: true}\n"
    ),
    "what a command said": (
        '- exec:\n    - say: {command: "printf %s {{ secrets.value }}"}\n'
        "    - again: {command: \"sh -c 'echo $0 | rev' {{ result('exec#say').stdout }}\", logoutput: true}\n"
    ),
}


@pytest.mark.parametrize("noop", [False, True], ids=["run", "dry run"])
@pytest.mark.parametrize("secret", [SECRET, LINES, LONG], ids=["short", "lines", "long"])
@pytest.mark.parametrize("text", TAINTED.values(), ids=TAINTED.keys())
def test_a_tainted_value_appears_only_on_the_host(
    text: str, secret: str, noop: bool, apply: Apply, root: Path
) -> None:
    recorder = Everything()
    screen = io.StringIO()
    shown = ""
    with redirect_stdout(screen):
        terminal = RunDisplay(verbose=True)
        for observer in (recorder, terminal):
            (root / "x").unlink(missing_ok=True)
            try:
                done = apply(
                    text,
                    noop=noop,
                    differences=True,
                    roots={"secrets": {"value": Tainted(secret)}},
                    observer=observer,
                )
            except Exception as error:  # noqa: BLE001  # faults must not quote the secret either
                shown += str(error) + repr(error)
                continue
            shown += json.dumps(done.as_json(), ensure_ascii=False)
            if observer is terminal:
                terminal.finish(done.report)
    shown += "\n".join(recorder.received) + screen.getvalue() + everything_kept()
    assert traces(shown, secret) == []
    assert traces(shown, secret[::-1]) == []


def test_a_tainted_value_reaches_its_file(apply: Apply, root: Path) -> None:
    for secret in (SECRET, LINES, LONG):
        done = apply(TAINTED["content"], roots={"secrets": {"value": Tainted(secret)}})
        assert done.outcomes == ["changed"]
        assert (root / "x").read_text() == secret
        assert done.as_json()["events"][0]["state"]["checksum"] == "[redacted]"


def test_no_process_has_a_secret_in_its_arguments(root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        fill_in(
            f"- file:\n    - ROOT/x: {{sensitive: true, ensure: present, content: {SECRET}, validate: \"sh -c 'sleep 0.7' %\", "
            "owner: USER, group: GROUP, mode: '0600'}\n",
            root,
        )
    )
    process = subprocess.Popen([PROGRAM, "apply", manifest], stdout=subprocess.DEVNULL)
    seen = ""
    while process.poll() is None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen += path.read_text()
            except OSError:
                continue
        time.sleep(0.05)
    assert process.returncode == 0
    assert "sleep 0.7" in seen
    assert SECRET not in seen


PLAIN = """
- file:
    - ROOT/shown: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "{{ lookup('given.text') }}"}
    - ROOT/hidden:
        ensure: present
        owner: USER
        group: GROUP
        mode: "0600"
        content: "{{ lookup('given.text') }}"
        sensitive: true
- exec:
    - made: {command: "true", creates: "ROOT/{{ lookup('given.text') }}"}
    - echoed: {command: "cat ROOT/echo", creates: "ROOT/never", logoutput: true}
"""


def test_a_plain_value_that_contains_a_secret_is_shown_and_the_secret_elsewhere_is_not(
    apply: Apply, root: Path
) -> None:
    """If it were redacted, a caller could find the secret by giving guesses as plain values."""
    (root / "echo").write_text(f"from elsewhere: {SECRET}\n")
    roots = {"given": {"text": f"a guess: {SECRET}"}, "secrets": {"value": Tainted(SECRET)}}
    done = apply(PLAIN, roots=roots, differences=True)
    shown, hidden, made, echoed = done.report.as_json()["events"]
    assert f"+a guess: {SECRET}" in shown["diff"]
    assert made["reason"] == f"{root}/a guess: {SECRET} does not exist"
    assert hidden["diff"] == "[redacted]"
    assert SECRET not in str(hidden)
    assert echoed["output"] == "from elsewhere: [redacted]\n"


def test_removed_lines_do_not_show_a_secret_that_a_plain_value_guesses_in_part(apply: Apply, root: Path) -> None:
    (root / "shown").write_text(f"old {SECRET}\n")
    text = '- file: [{ROOT/shown: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "new"}}]\n'
    done = apply(text, roots={"given": [f"another {SECRET}"], "s": Tainted(SECRET)}, differences=True)
    assert "-old [redacted]" in done.report.as_json()["events"][0]["diff"]

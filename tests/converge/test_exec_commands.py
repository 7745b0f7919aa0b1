"""Commands on a real host: words and environment, timeouts and signals, and output of any kind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, fill_in
from fork_server import PROGRAM
from loading import faults_of
from mainstay.converge.contract import Resource
from mainstay.converge.failures import StopFlag
from mainstay.converge.report import Observer
from mainstay.converge.run import RunRequest, run

Apply = Callable[..., Applied]


def command(text: str, **properties: Any) -> str:
    return "- exec:\n    - go: " + json.dumps({"command": text, **properties}) + "\n"


def script(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def wait_for(condition: Callable[[], object], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# ---- words and environment ----
@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("a  b\tc\nd", ["a", "b", "c", "d"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("a'b'\"c\"d", ["abcd"]),
        ("'' \"\" x", ["", "", "x"]),
        (r"a\ b \\ \' \"", ["a b", "\\", "'", '"']),
        (r"'a\b' "[:-1], ["a\\b"]),
        (r'"a\"b\\c\$d\`e\f"', ['a"b\\c$d`e\\f']),
        ("a # b", ["a", "#", "b"]),
        (
            "$HOME *.py ~ `id` $(id) a;b a|b a&&b >x",
            ["$HOME", "*.py", "~", "`id`", "$(id)", "a;b", "a|b", "a&&b", ">x"],
        ),
        ("ü 'ß\n'", ["ü", "ß\n"]),
        ("a\\\nb", ["ab"]),
        ("%s {} [x] --key=a=b", ["%s", "{}", "[x]", "--key=a=b"]),
    ],
)
def test_a_command_is_split_by_quoting_rules_alone(written: str, words: list[str], apply: Apply, root: Path) -> None:
    # No path with a space may follow `#!`.
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    show = script(root, "show", f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{code}' \"$@\"\n")
    done = apply(command(f"{show} {written}"))
    assert done.outcomes == ["changed"]
    assert json.loads(done.report.events[0].output or "") == words


def test_the_environment_is_inherited_and_extended(apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "kept")
    monkeypatch.setenv("REPLACED", "old")
    script(root, "tool", "#!/bin/sh\necho tool\n")
    done = apply(
        command(
            "sh -c 'echo $INHERITED,$REPLACED,$EMPTY.,$EQUALS,$PATH; pwd; tool; cat; umask'",
            environment=["REPLACED=new", "EMPTY=", "EQUALS=a=b"],
            path="ROOT:/usr/bin:/bin",
            cwd="ROOT",
        )
    )
    assert (done.report.events[0].output or "").split() == [
        f"kept,new,.,a=b,{root}:/usr/bin:/bin",
        str(root),
        "tool",
        "0022",
    ]


def test_the_working_directory_is_the_root_and_the_path_finds_the_program(apply: Apply, root: Path) -> None:
    script(root, "tool", "#!/bin/sh\npwd\n")
    assert apply(command("tool", path="ROOT")).report.events[0].output == "/\n"
    assert "command not found: tool in /usr/bin:/bin" in apply(command("tool", path="/usr/bin:/bin")).errors[0]
    assert apply(command("./tool", cwd="ROOT")).report.events[0].output == f"{root}\n"
    assert apply(command("./tool")).errors == ["command not found: ./tool"]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"command": "a 'b"}, "command: the quote ' is never closed"),
        ({"command": '""'}, "command is empty"),
        ({"command": " "}, "command is empty"),
        ({"command": "true", "onlyif": 'a "'}, 'onlyif: the quote " is never closed'),
        ({"command": "true", "environment": ["NOVALUE"]}, "'NOVALUE' is not KEY=value"),
        ({"command": "true", "environment": ["=x"]}, "'=x' is not KEY=value"),
        ({"command": "true", "path": "/bin:relative"}, "'relative' is not an absolute directory"),
        ({"command": "true", "path": "/bin::/usr/bin"}, "'' is not an absolute directory"),
        ({"command": "true", "timeout": "5"}, "timeout"),
    ],
)
def test_an_invalid_command_is_refused_at_load(
    properties: dict[str, Any], message: str, root: Path, mainstay: Callable[..., Any]
) -> None:
    manifest = root.parent / "manifest.yaml"
    touch = f"- exec:\n    - touch {root}/touched:\n"
    manifest.write_text(touch + "- exec:\n    - go: " + json.dumps(properties) + "\n")
    done = mainstay("apply", manifest)
    assert done.returncode == 2
    assert message in done.stderr
    assert f"{manifest}:4:" in done.stderr
    assert list(root.iterdir()) == []


# ---- commands that cannot run ----
def test_a_command_that_cannot_run_has_no_exit_code(apply: Apply, root: Path) -> None:
    bad = script(root, "bad", "#!/no/such/interpreter\n")
    empty = script(root, "noshebang", "echo hello\n")
    script(root, "plain", "").chmod(0o644)
    cases = {
        "no-such-program": "command not found: no-such-program in ",
        f"{root}/none": f"command not found: {root}/none",
        f"{root}/plain": f"not executable: {root}/plain",
        f"{bad}": f"command cannot be executed: {bad}: the interpreter in its first line does not exist",
        f"{empty}": f"command cannot be executed: {empty}: Exec format error",
        "sh -c 'kill -TERM $$'": "command was killed by signal 15 (SIGTERM): sh",
        "sh -c 'kill -SEGV $$'": "command was killed by signal 11 (SIGSEGV): sh",
    }
    for text, message in cases.items():
        done = apply(command(text, returns=list(range(256))))
        assert done.outcomes == ["failed"]
        assert done.errors[0].startswith(message), done.errors
        assert done.as_json()["events"][0]["state"]["exit_code"] is None


# ---- timeouts ----


def test_a_timeout_terminates_the_whole_process_group(apply: Apply, root: Path) -> None:
    text = "sh -c 'sleep 61 & echo $! >> ROOT/pids; sleep 61 & echo $! >> ROOT/pids; echo said; wait'"
    started = time.monotonic()
    done = apply(command(text, timeout="300ms"))
    assert time.monotonic() - started < 4
    assert done.errors == ["command timed out after 0.3s: sh"]
    assert done.report.events[0].output == "said\n"
    for pid in (root / "pids").read_text().split():
        assert not is_running(int(pid))


def test_a_timeout_kills_processes_that_ignore_sigterm_after_five_seconds(apply: Apply, root: Path) -> None:
    """The command, a child and a grandchild ignore SIGTERM; one of them has no output and no pipe."""
    deaf = script(
        root,
        "deaf",
        f"#!/bin/sh\ntrap '' TERM\necho $$ >> {root}/pids\n"
        'if [ "$1" -gt 0 ]; then "$0" $(($1 - 1)) >/dev/null 2>&1 & fi\n'
        "while true; do sleep 0.2; done\n",
    )
    started = time.monotonic()
    done = apply(command(f"{deaf} 2", timeout="300ms"))
    assert 5 <= time.monotonic() - started < 9
    assert done.errors == [f"command timed out after 0.3s: {deaf}"]
    pids = (root / "pids").read_text().split()
    assert len(pids) == 3
    wait_for(lambda: not any(is_running(int(pid)) for pid in pids), 2)


def test_a_child_that_ignores_sigterm_is_killed_after_the_command_has_ended(apply: Apply, root: Path) -> None:
    deaf = script(root, "deaf", f"#!/bin/sh\ntrap '' TERM\necho $$ > {root}/pid\nwhile true; do sleep 0.2; done\n")
    started = time.monotonic()
    done = apply(command(f"sh -c '{deaf} & wait'", timeout="300ms"))
    assert time.monotonic() - started < 9
    assert done.outcomes == ["failed"]
    wait_for(lambda: not is_running(int((root / "pid").read_text())), 2)


@pytest.mark.parametrize("guard", ["onlyif", "unless"])
@pytest.mark.parametrize("noop", [True, False])
def test_guards_obey_the_timeout(guard: str, noop: bool, apply: Apply, root: Path) -> None:
    done = apply(command("touch ROOT/ran", timeout="200ms", **{guard: "sleep 60"}), noop=noop)
    assert done.errors == [f"{guard}: command timed out after 0.2s: sleep"]
    assert list(root.iterdir()) == []


def test_a_command_that_ends_in_time_does_not_time_out(apply: Apply) -> None:
    assert apply(command("sleep 0.2", timeout="30s")).outcomes == ["changed"]


# ---- output ----
class Listener(Observer):
    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def output(self, resource: Resource, line: str) -> None:
        self.lines.append((time.monotonic(), line))


def test_a_daemon_that_keeps_the_output_open_does_not_delay_the_run(apply: Apply, root: Path) -> None:
    started = time.monotonic()
    done = apply(command("sh -c 'sleep 60 & echo $! > ROOT/pid; echo said'"))
    assert 0.9 <= time.monotonic() - started < 3
    assert done.outcomes == ["changed"]
    assert done.report.events[0].output == "said\n"
    pid = int((root / "pid").read_text())
    assert is_running(pid), "a daemon that was left behind on purpose lives on"
    os.kill(pid, signal.SIGKILL)


def test_output_is_streamed_line_by_line_with_logoutput(apply: Apply) -> None:
    listener = Listener()
    text = "sh -c 'echo one; sleep 0.4; echo two >&2; printf three'"
    apply(command(text, logoutput=True), observer=listener)
    assert [line for _, line in listener.lines] == ["one", "two", "three"]
    assert listener.lines[1][0] - listener.lines[0][0] > 0.3
    quiet = Listener()
    apply(command(text), observer=quiet)
    assert quiet.lines == []


def test_a_hundred_megabytes_of_output_keep_memory_flat(root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    flood = "head -c 104857600 /dev/zero"
    lines = {"command": f"sh -c '{flood} | tr \"\\0\" x; echo; echo end'", "logoutput": True}
    manifest.write_text(command(flood) + "    - lines: " + json.dumps(lines) + "\n")
    measure = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure, PROGRAM, "apply", manifest, "--report", root / "report"],
        capture_output=True,
        text=True,
    )
    kilobytes, code = (int(word) for word in done.stdout.split())
    assert code == 0
    assert kilobytes < 60_000, "memory grew with the output"
    first, second = json.loads((root / "report").read_text())["events"]
    assert first["output"].startswith("[… earlier output dropped]\n")
    assert len(first["output"]) < 200_000
    assert second["output"].endswith("x\nend\n")


def test_binary_output_is_shown_as_text_in_every_report(root: Path, mainstay: Callable[..., Any]) -> None:
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(command(r"printf '\377\000\033[31mred\n\303\244 \355\240\200'", returns=[0], logoutput=True))
    done = mainstay("apply", manifest, "--json")
    output = json.loads(done.stdout)["events"][0]["output"]
    assert output == "\\xff\\x00\x1b[31mred\nä \\xed\\xa0\\x80"
    shown = mainstay("apply", manifest).stdout
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown


def test_output_of_a_failed_command_is_kept_and_shown(root: Path, mainstay: Callable[..., Any]) -> None:
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(command("sh -c 'echo to stdout; echo to stderr >&2; exit 3'"))
    done = mainstay("apply", manifest)
    assert done.returncode == 1
    assert "exit code is 3, expected 0" in done.stdout
    assert "| to stdout" in done.stdout
    assert "| to stderr" in done.stdout


# ---- signals to the run ----
SIGNALLED = """
- file:
    - ROOT/trigger: {ensure: present, owner: USER, group: GROUP, mode: "0644"}
- exec:
    - slow:
        command: "sh -c 'echo begun; sleep 62 & echo $! > ROOT/pid; wait'"
        refresh_only: true
        subscribe: ["file#ROOT/trigger"]
    - never: {command: touch ROOT/never}
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_the_run_in_order(number: int, code: int, root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(fill_in(SIGNALLED, root))
    process = subprocess.Popen([PROGRAM, "apply", manifest, "--json"], stdout=subprocess.PIPE)
    wait_for((root / "pid").exists)
    time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == code
    events = json.loads(output)["events"]
    assert [event["outcome"] for event in events] == ["changed", "failed", "skipped"]
    assert events[1]["errors"] == ["interrupted while its command was running"]
    assert not is_running(int((root / "pid").read_text()))
    state = Path(os.environ["MAINSTAY_STATE_DIR"])
    kept = json.loads(next((state / "history").iterdir()).read_text())
    assert kept["stopped_by"] == signal.Signals(number).name
    owed = next((state / "manifests").glob("*/owed")).read_text()
    assert json.loads(owed) == ["owe", f"file#{root}/trigger", ["exec#slow"]]
    (root / "pid").unlink()
    manifest.write_text(manifest.read_text().replace("sleep 62", "sleep 0"))
    done = subprocess.run([PROGRAM, "apply", manifest, "--json"], capture_output=True)
    assert [event["outcome"] for event in json.loads(done.stdout)["events"]] == ["stable", "refreshed", "changed"]


def test_validate_and_health_checks_see_only_the_environment_of_the_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent removes its token from the environment of a run; no command may inherit it from the process."""
    monkeypatch.setenv("MAINSTAY_TOKEN", "canary")
    check = tmp_path / "check"
    check.write_text("#!/bin/sh\n! printenv MAINSTAY_TOKEN\n")
    check.chmod(0o755)
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        f"- file:\n    - {root}/a:\n        ensure: present\n        owner: '{os.geteuid()}'\n"
        f"        group: '{os.getegid()}'\n        mode: '0600'\n        content: x\n"
        f"        validate: {check} %\n        health_checks: [{{command: {check}}}]\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "MAINSTAY_TOKEN"}
    _, report = run(RunRequest(str(manifest), environ=environ))
    assert [event.errors for event in report.events] == [()]


def run_program(root: Path, manifest: str) -> list[str]:
    path = root.parent / "manifest.yaml"
    path.write_text(fill_in(manifest, root))
    done = subprocess.run([PROGRAM, "apply", path], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_streamed_output_is_below_the_heading_of_its_resource_and_not_repeated(root: Path) -> None:
    text = "sh -c 'echo one; echo two; exit 3'"
    shown = run_program(
        root, command(text, logoutput=True) + "- exec:\n    - second: {command: echo x, logoutput: true}\n"
    )
    assert shown[:7] == [
        "running   exec#go",
        "  | one",
        "  | two",
        "failed    exec#go  no guard: it runs every time",
        "  error: exit code is 3, expected 0",
        "running   exec#second",
        "  | x",
    ]


def test_output_that_was_not_streamed_is_shown_with_the_failure(root: Path) -> None:
    shown = run_program(root, command("sh -c 'echo one; exit 3'"))
    assert shown[:3] == [
        "failed    exec#go  no guard: it runs every time",
        "  error: exit code is 3, expected 0",
        "  | one",
    ]
    guard = command("true", provider="shell", onlyif="echo broken; exit 127", logoutput=True)
    assert run_program(root, guard)[2] == "  | broken"


# ---- tries ----
def test_the_event_has_the_output_of_the_last_try(apply: Apply) -> None:
    text = "sh -c 'echo x >>ROOT/tries; echo try $(wc -l <ROOT/tries); exit 1'"
    (event,) = apply(command(text, tries=3, try_sleep="1ms")).report.events
    assert event.output == "try 3\n"
    assert event.errors == ("exit code is 1, expected 0",)
    assert event.warnings == ("all 3 tries failed",)
    assert not event.changed


def test_a_request_to_stop_is_honoured_between_two_tries(apply: Apply, root: Path) -> None:
    stop = StopFlag()

    class Stopper(Observer):
        def output(self, resource: Resource, line: str) -> None:
            stop.request("enough")

    text = "sh -c 'echo x | tee -a ROOT/tries; exit 1'"
    begun = time.monotonic()
    done = apply(command(text, tries=5, try_sleep="1h", logoutput=True), stop=stop, observer=Stopper())
    assert time.monotonic() - begun < 30
    assert (root / "tries").read_text() == "x\n"
    assert done.outcomes == ["failed"]
    assert done.report.events[0].warnings == ("stopped by enough after try 1 of 5",)


@pytest.mark.parametrize("tries", ["0", "-1", "1001", "many", "1.5"])
def test_an_invalid_number_of_tries_is_refused_at_load(tries: str, root: Path) -> None:
    (fault,) = faults_of(f"- exec:\n    - go: {{command: 'true', tries: {tries}}}\n", root)
    assert fault.endswith(f"tries: expected a number from 1 to 1000, got '{tries}'")

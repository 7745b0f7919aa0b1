"""The run as a whole: gates, outcomes, health, locks, history, exit codes, and the engine as a library."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, apply_text, fill_in
from fork_server import PROGRAM
from isolation import in_own_mounts
from mainstay.converge import providers
from mainstay.converge.apply import Options, Run
from mainstay.converge.contract import Change, Provider, Resource
from mainstay.converge.failures import StopFlag
from mainstay.converge.history import LARGEST_HISTORY_BYTES, MOST_REPORTS, History, Ledger
from mainstay.converge.host.clock import monotonic
from mainstay.converge.host.host import Host
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.providers.file.posix import PosixFiles
from mainstay.converge.redaction import Redactor
from mainstay.converge.report import Event, Observer, Report
from mainstay.converge.run import Locked, RunRequest, load
from scratch import fingerprint

Apply = Callable[..., Applied]
Mainstay = Callable[..., subprocess.CompletedProcess[str]]


def write(root: Path, text: str, name: str = "manifest.yaml") -> Path:
    path = root.parent / name
    path.write_text(fill_in(text, root))
    return path


# ---- gates ----
def test_a_resource_that_requires_a_failed_or_unmet_resource_is_unmet(apply: Apply, root: Path) -> None:
    done = apply(
        "- exec:\n"
        "    - fails: {command: 'false'}\n"
        "    - works: {command: 'true', alias: fine}\n"
        "    - skipped: {command: 'false', control: {if: 'false'}}\n"
        "    - child: {command: touch ROOT/a, require: [exec#works, exec#fails]}\n"
        "    - grandchild: {command: touch ROOT/b, require: [exec#child]}\n"
        "    - after skipped: {command: 'true', require: [exec#skipped, exec#fine]}\n"
    )
    assert done.outcomes == ["failed", "changed", "skipped", "unmet", "unmet", "changed"]
    assert done.event("exec#child").unmet == ("exec#fails",)
    assert done.event("exec#grandchild").reason == "requires exec#child"
    assert list(root.iterdir()) == []
    assert done.report.failed


@pytest.mark.parametrize(
    ("control", "outcome"),
    [
        ("{if: 'true'}", "changed"),
        ("{if: 'false'}", "skipped"),
        ("{unless: 'true'}", "skipped"),
        ("{unless: 'false'}", "changed"),
        ("{if: 'true', unless: 'true'}", "skipped"),
        ("{if: 1 + 1 == 2, unless: lookup('data.off')}", "changed"),
        ("{if: '1'}", "failed"),
        ("{if: \"'yes'\"}", "failed"),
        ("{if: lookup('environ.NO_SUCH_VARIABLE')}", "failed"),
    ],
)
def test_control_is_evaluated_when_the_resource_is_reached(
    control: str, outcome: str, apply: Apply, root: Path
) -> None:
    text = f"data: {{off: false}}\nresources:\n  - exec:\n      - go: {{command: 'true', control: {control}}}\n"
    for noop in (True, False):
        assert apply(text, noop=noop).outcomes == [outcome]


def test_control_comes_before_require_and_a_skipped_resource_is_never_evaluated(apply: Apply, root: Path) -> None:
    done = apply(
        "- exec:\n    - fails: {command: 'false'}\n"
        "    - go: {command: \"{{ file('/no/such/file') }}\", control: {if: 'false'}, require: [exec#fails]}\n"
    )
    assert done.outcomes == ["failed", "skipped"]


def test_control_sees_results_of_earlier_resources(apply: Apply, root: Path) -> None:
    text = (
        "- file:\n    - ROOT/x: {ensure: present, content: 'yes', owner: USER, group: GROUP, mode: '0644'}\n"
        "- exec:\n    - go: {command: 'true', control: {if: file('ROOT/x') == 'yes'}}\n"
        "    - stay: {command: 'true', control: {unless: file('ROOT/x') == 'yes'}}\n"
    )
    assert apply(text, noop=True).outcomes == ["changed", "changed", "skipped"]
    assert apply(text).outcomes == ["changed", "changed", "skipped"]


def test_fail_on_error_stops_the_run_and_the_rest_is_skipped(apply: Apply, root: Path) -> None:
    text = (
        "fail_on_error: true\npost_message: all well\nresources:\n  - exec:\n      - one: {command: 'true'}\n"
        "      - two: {command: 'false'}\n      - three: {command: touch ROOT/x}\n      - four: {command: 'true', require: [exec#two]}\n"
    )
    done = apply(text)
    assert done.outcomes == ["changed", "failed", "skipped", "skipped"]
    assert done.report.events[2].reason == "not reached: exec#two failed and fail_on_error is set"
    assert list(root.iterdir()) == []


def test_tags_select_resources_and_the_rest_is_skipped(apply: Apply, root: Path) -> None:
    text = (
        "- exec:\n    - a: {command: 'true', tags: [web]}\n    - b: {command: 'true', tags: [web, db]}\n"
        "    - c: {command: 'true', tags: [db]}\n    - d: {command: 'true'}\n"
    )
    assert apply(text).outcomes == ["changed"] * 4
    assert apply(text, tags=("web",)).outcomes == ["changed", "changed", "skipped", "skipped"]
    done = apply(text, tags=("web", "db"))
    assert done.outcomes == ["changed", "changed", "changed", "skipped"]
    assert done.report.events[3].reason == "has none of the tags db, web"


# ---- unknown until applied ----
def test_only_missing_things_that_a_command_could_create_are_unknown(apply: Apply, root: Path) -> None:
    missing = (
        "- file:\n    - defaults: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
        "    - ROOT/none/x: {content: x}\n    - ROOT/y: {source: ROOT/source}\n"
        "    - ROOT/z: {owner: no-such-user}\n    - ROOT/d: {ensure: directory}\n    - ROOT/d: {}\n"
    ).replace("    - ROOT/d: {}\n", "")
    command = "- exec:\n    - bring: {command: 'true', creates: ROOT/never}\n"
    tool = "- exec:\n    - tool: {command: no-such-program}\n"
    without = apply(missing + tool, noop=True)
    assert without.outcomes == ["failed", "failed", "failed", "changed", "failed"]
    forecast = apply(command + missing + tool, noop=True)
    assert forecast.outcomes == ["changed"] * 6
    assert [message for message in forecast.messages if message and "Unknown" in message] == [
        f"Unknown until applied: parent directory {root}/none does not exist",
        f"Unknown until applied: source {root}/source does not exist",
        "Unknown until applied: user 'no-such-user' does not exist",
        f"Unknown until applied: command not found: no-such-program in {os.environ['PATH']}",
    ]
    (root / "never").write_text("")
    assert apply(command + missing + tool, noop=True).outcomes == ["stable", *without.outcomes]


def test_a_conflicting_kind_of_file_is_never_unknown(apply: Apply, root: Path) -> None:
    (root / "x").mkdir()
    text = (
        "- exec:\n    - go: {command: 'true'}\n"
        "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
    )
    assert apply(text, noop=True).outcomes == ["changed", "failed"]


def test_guards_that_run_before_a_forecast_change_are_a_warning(apply: Apply, root: Path) -> None:
    text = (
        "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
        "- exec:\n    - go: {command: 'true', onlyif: cat ROOT/x}\n"
    )
    forecast = apply(text, noop=True)
    assert forecast.outcomes == ["changed", "stable"]
    assert forecast.report.events[1].warnings == (
        f"onlyif ran on the host as it is, before file#{root}/x would change it",
    )
    assert apply(text).outcomes == ["changed", "changed"]
    assert apply(text, noop=True).report.events[1].warnings == ()


# ---- health ----
@pytest.mark.parametrize(
    ("code", "result"), [(0, None), (1, "WARNING"), (2, "CRITICAL"), (3, "UNKNOWN"), (77, "UNKNOWN")]
)
def test_a_health_check_has_four_results(code: int, result: str | None, apply: Apply) -> None:
    text = f"- exec:\n    - go: {{command: 'true', health_checks: [{{name: check, command: \"sh -c 'echo said; exit {code}'\"}}]}}\n"
    done = apply(text)
    assert done.outcomes == (["failed"] if result else ["changed"])
    assert done.errors == ([f"health check check is {result}: said"] if result else [])


def test_a_health_check_is_retried_with_pauses(apply: Apply, root: Path) -> None:
    check = "sh -c 'echo x >> ROOT/tries; test $(wc -l < ROOT/tries) -ge 3'"
    text = f'- exec:\n    - go: {{command: "true", health_checks: [{{command: "{check}", tries: TRIES, try_sleep: 200ms}}]}}\n'
    started = time.monotonic()
    assert apply(text.replace("TRIES", "5")).outcomes == ["changed"]
    assert 0.4 <= time.monotonic() - started < 2
    assert len((root / "tries").read_text().split()) == 3
    (root / "tries").unlink()
    assert apply(text.replace("TRIES", "2")).outcomes == ["failed"]
    assert len((root / "tries").read_text().split()) == 2


def test_a_health_check_that_cannot_run_or_end_is_unknown(apply: Apply) -> None:
    for command, problem in (
        ("no-such-program", "command not found: no-such-program"),
        ("sleep 60", "command timed out after 0.2s"),
    ):
        text = f"- exec:\n    - go: {{command: 'true', health_checks: [{{command: {command}, timeout: 200ms}}]}}\n"
        assert f"is UNKNOWN: {problem}" in apply(text).errors[0]


def test_health_checks_run_in_a_dry_run_only_while_everything_is_stable(apply: Apply, root: Path) -> None:
    (root / "x").write_text("")
    text = (
        "- file:\n    - defaults: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
        "    - ROOT/x: {health_checks: [{command: 'false', name: first}]}\n"
        "    - ROOT/y: {health_checks: [{command: touch ROOT/a, name: second}]}\n"
        "    - ROOT/x2: {ensure: absent, owner: null, group: null, mode: null, health_checks: [{command: touch ROOT/b, name: third}]}\n"
    )
    forecast = apply(text, noop=True)
    assert forecast.outcomes == ["failed", "changed", "stable"]
    assert forecast.errors == ["health check first is WARNING"]
    assert [event.warnings for event in forecast.report.events[1:]] == [
        ("health checks not run in a dry run with changes: second",),
        ("health checks not run in a dry run with changes: third",),
    ]
    assert sorted(path.name for path in root.iterdir()) == ["x"]


def test_no_health_check_after_a_failed_apply(apply: Apply, root: Path) -> None:
    apply("- exec:\n    - go: {command: 'false', health_checks: [{command: touch ROOT/x}]}\n")
    assert list(root.iterdir()) == []


def test_monitor_only_runs_health_checks_and_nothing_else(apply: Apply, root: Path) -> None:
    text = (
        "- exec:\n    - go: {command: touch ROOT/x, health_checks: [{command: 'true'}]}\n"
        "    - sick: {command: \"{{ file('/no/such/file') }}\", health_checks: [{command: sh -c 'exit 2', name: sick}]}\n"
        "    - bare: {command: touch ROOT/x}\n"
    )
    done = apply(text, monitor_only=True)
    assert done.outcomes == ["stable", "failed", "skipped"]
    assert done.errors == ["health check sick is CRITICAL"]
    assert list(root.iterdir()) == []


def test_a_stop_ends_the_pause_of_a_health_check(apply: Apply) -> None:
    stop = StopFlag()
    threading.Timer(0.5, stop.request, ["enough"]).start()
    started = time.monotonic()
    apply(
        "- exec:\n    - go: {command: 'true', health_checks: [{command: 'false', tries: 9, try_sleep: 60s}]}\n",
        stop=stop,
    )
    assert time.monotonic() - started < 5


# ---- locks ----
SLOW = "- exec:\n    - slow: {command: \"sh -c 'touch ROOT/begun; while ! [ -e ROOT/go ]; do sleep 0.05; done'\"}\n"


@pytest.fixture
def running(root: Path) -> Any:
    """A run that continues until `go` exists."""
    manifest = write(root, SLOW)
    process = subprocess.Popen([PROGRAM, "apply", manifest], stdout=subprocess.DEVNULL)
    while not (root / "begun").exists():
        time.sleep(0.01)
    yield process
    (root / "go").write_text("")
    assert process.wait(10) == 0


def test_two_runs_of_one_manifest_exclude_each_other(running: Any, root: Path, mainstay: Mainstay) -> None:
    manifest = root.parent / "manifest.yaml"
    (root.parent / "link.yaml").symlink_to(manifest)
    for path in (manifest, root.parent / "link.yaml"):
        done = mainstay("apply", path)
        assert done.returncode == 3
        assert re.search(rf"pid {running.pid}, started \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", done.stderr), done.stderr
    assert mainstay("apply", manifest, "--noop").returncode == 0
    other = write(root, "- exec:\n    - a: {command: 'true'}\n", "other.yaml")
    assert mainstay("apply", other).returncode == 0


def test_a_run_can_wait_for_the_lock(running: Any, root: Path, mainstay: Mainstay) -> None:
    started = time.monotonic()
    assert mainstay("apply", root.parent / "manifest.yaml", "--lock-wait", "300ms").returncode == 3
    assert time.monotonic() - started >= 0.3
    threading.Timer(0.3, (root / "go").write_text, [""]).start()
    assert mainstay("apply", root.parent / "manifest.yaml", "--lock-wait", "20s").returncode == 0


def open_files(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # The process may close it at any moment.
        with suppress(FileNotFoundError):
            yield os.readlink(descriptor)


def test_a_signal_ends_the_wait_for_the_lock(running: Any, root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    waiting = subprocess.Popen([PROGRAM, "apply", manifest, "--lock-wait", "60s"], stderr=subprocess.DEVNULL)
    while not any("/lock" in path for path in open_files(waiting.pid)):
        time.sleep(0.01)
    waiting.terminate()
    assert waiting.wait(10) == 143


def test_a_killed_run_holds_no_lock(running: Any, root: Path, mainstay: Mainstay) -> None:
    second = write(root, SLOW.replace("begun", "begun2"), "second.yaml")
    process = subprocess.Popen([PROGRAM, "apply", second], stdout=subprocess.DEVNULL)
    while not (root / "begun2").exists():
        time.sleep(0.01)
    process.kill()
    process.wait()
    (root / "go").write_text("")
    assert mainstay("apply", second).returncode == 0


def test_a_library_caller_gets_locked_for_a_held_lock(running: Any, root: Path) -> None:
    with pytest.raises(Locked, match=f"pid {running.pid}"):
        apply_text(SLOW, root)


# ---- exit codes ----
@pytest.mark.parametrize(
    ("commands", "plain", "detailed"),
    [
        ([], 0, 0),
        (["true"], 0, 2),
        (["false"], 1, 4),
        (["true", "false"], 1, 6),
    ],
)
def test_exit_codes_follow_the_outcomes(
    commands: list[str], plain: int, detailed: int, root: Path, mainstay: Mainstay
) -> None:
    lines = [f"    - {index}: {{command: '{command}'}}\n" for index, command in enumerate(commands)]
    stable = f"    - stable: {{command: 'true', creates: {root}}}\n"
    manifest = write(root, "- exec:\n" + stable + "".join(lines))
    assert mainstay("apply", manifest).returncode == plain
    assert mainstay("apply", manifest, "--detailed-exitcodes").returncode == detailed


def test_exit_codes_of_a_manifest_that_does_not_load(root: Path, mainstay: Mainstay) -> None:
    manifest = write(root, "- exec:\n    - a: {comand: 'true'}\n")
    assert mainstay("apply", manifest).returncode == 2
    assert mainstay("apply", manifest, "--detailed-exitcodes").returncode == 1
    assert mainstay("apply", manifest, "--no-such-option").returncode == 2
    document = json.loads(mainstay("apply", manifest, "--json").stdout)
    assert list(document) == ["faults"]
    assert sorted(document["faults"][0]) == ["column", "file", "line", "message"]


# ---- reports ----
EVENT_KEYS = [
    "type",
    "name",
    "alias",
    "provider",
    "ensure",
    "outcome",
    "changed",
    "refreshed",
    "failed",
    "skipped",
    "noop",
    "noop_message",
    "reason",
    "errors",
    "warnings",
    "unmet",
    "output",
    "duration_seconds",
    "diff",
    "within",
    "error_kind",
    "state",
]
SUMMARY_KEYS = ["total", "stable", "changed", "refreshed", "skipped", "unmet", "failed", "duration_seconds"]
FILE_STATE_KEYS = ["ensure", "name", "checksum", "owner", "group", "mode", "provider", "mtime", "size", "type"]
REPORTED = """
outputs: {answer: "{{ 6 * 7 }}"}
resources:
  - file:
      - ROOT/x: {ensure: present, content: hello, owner: USER, group: GROUP, mode: "0644", alias: greeting}
  - exec:
      - go: {command: echo said, subscribe: ["file#greeting"]}
      - skipped: {command: 'true', control: {if: 'false'}}
"""


def test_the_json_document_has_the_specified_shape(root: Path, mainstay: Mainstay) -> None:
    manifest = write(root, REPORTED)
    done = mainstay("apply", manifest, "--json", "--diff", "--report", root.parent / "report.json")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert json.loads((root.parent / "report.json").read_text()) == document
    assert stat.S_IMODE((root.parent / "report.json").stat().st_mode) == 0o600
    assert list(document) == ["run_id", "manifest", "noop", "events", "outputs", "summary"]
    assert document["manifest"] == str(manifest)
    assert document["noop"] is False
    assert document["outputs"] == {"answer": 42}
    assert list(document["summary"]) == SUMMARY_KEYS
    counts = {key: value for key, value in document["summary"].items() if key != "duration_seconds"}
    assert counts == {"total": 3, "stable": 0, "changed": 1, "refreshed": 1, "skipped": 1, "unmet": 0, "failed": 0}
    file, command, skipped = document["events"]
    for event in document["events"]:
        assert list(event) == EVENT_KEYS
        assert isinstance(event.pop("duration_seconds"), float)
    state = file.pop("state")
    assert list(state) == FILE_STATE_KEYS
    assert state["checksum"] == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert (state["ensure"], state["mode"], state["size"], state["type"]) == ("present", "0644", 5, "file")
    assert file.pop("diff").startswith(f"--- {root}/x (actual)\n+++ {root}/x (desired)\n")
    assert file == {
        "type": "file",
        "name": f"{root}/x",
        "alias": "greeting",
        "provider": "posix",
        "ensure": "present",
        "outcome": "changed",
        "changed": True,
        "refreshed": False,
        "failed": False,
        "skipped": False,
        "noop": False,
        "noop_message": None,
        "reason": "path is absent, expected present",
        "errors": [],
        "warnings": [],
        "unmet": [],
        "output": None,
        "within": [],
        "error_kind": None,
    }
    assert (command["outcome"], command["changed"], command["refreshed"], command["output"]) == (
        "refreshed",
        True,
        True,
        "said\n",
    )
    assert command["state"] == {
        "ensure": "absent",
        "exit_code": 0,
        "creates_satisfied": False,
        "onlyif_satisfied": False,
        "unless_satisfied": False,
    }
    assert (skipped["skipped"], skipped["provider"], skipped["state"]) == (True, None, None)


def test_a_report_has_the_state_right_after_each_resource(apply: Apply, root: Path) -> None:
    """Even if later resources change or remove the file."""
    done = apply(
        "- file:\n    - defaults: {ensure: present, content: hello, owner: USER, group: GROUP, mode: '0644'}\n"
        "    - ROOT/x: {}\n    - ROOT/y: {}\n"
        "- exec:\n    - rm ROOT/x:\n    - sh -c 'echo more >> ROOT/y':\n"
    )
    for event in done.as_json()["events"][:2]:
        assert event["state"]["checksum"].startswith("2cf24dba")


def test_a_file_that_a_command_removes_again_does_not_break_the_report_of_a_stable_run(
    apply: Apply, root: Path
) -> None:
    (root / "x").write_text("")
    done = apply(
        "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n- exec:\n    - rm ROOT/x:\n"
    )
    assert done.outcomes == ["stable", "changed"]
    assert done.as_json()["events"][0]["state"]["checksum"] is None


# ---- history ----
def test_history_stores_whole_events_unless_they_are_stable(apply: Apply, root: Path, mainstay: Mainstay) -> None:
    run_id = apply(REPORTED).report.run_id
    state = StateDirectory(os.environ["MAINSTAY_STATE_DIR"])
    kept = History(state).show(run_id)
    assert kept is not None
    assert [event["outcome"] for event in kept["events"]] == ["changed", "refreshed", "skipped"]
    apply(REPORTED)
    assert run_id in mainstay("history").stdout
    assert mainstay("history", "show", run_id).returncode == 0
    for path in Path(state.path).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_summary_in_history_equals_that_of_the_run(mainstay: Mainstay, tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text("- file:\n    - /nowhere/x: {ensure: absent}\n- exec:\n    - 'true': {}\n")
    output = mainstay("apply", str(manifest)).stdout.splitlines()
    [run_id] = History(StateDirectory(os.environ["MAINSTAY_STATE_DIR"])).runs()
    assert mainstay("history", "show", run_id).stdout.splitlines()[1:] == output
    for words in (["last"], []):
        assert mainstay("history", "show", *words).stdout.splitlines()[1:] == output
    assert "1 changed, 1 stable" in output[-1]


def test_history_shows_what_stopped_a_run(mainstay: Mainstay) -> None:
    history = History(StateDirectory(os.environ["MAINSTAY_STATE_DIR"]))
    report = make_report(1)
    report.stopped_by = "SIGTERM"
    history.save(report)
    assert mainstay("history", "show", report.run_id).stdout.endswith(", stopped: SIGTERM\n")


def test_history_stores_events_as_in_the_report(apply: Apply) -> None:
    done = apply(
        "- file:\n    - defaults: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0640'}\n"
        "    - ROOT/plain: {}\n    - 'ROOT/a \"quoted\" \\ ü': {}\n    - ROOT/named: {alias: other}\n"
        "    - ROOT/d: {ensure: directory, content: null, mode: '0750'}\n"
    )
    kept = History(StateDirectory(os.environ["MAINSTAY_STATE_DIR"])).show(done.report.run_id)
    assert kept is not None
    reported = done.as_json()["events"]
    assert json.dumps(kept["events"]) == json.dumps(reported)
    assert [event["outcome"] for event in reported] == ["changed"] * 4


def make_report(number: int, size: int = 0) -> Report:
    report = Report(f"20260101T{number:012d}Z-000000", "m" * size, noop=False)
    report.events = []
    return report


def test_history_keeps_the_last_thousand_runs(tmp_path: Path) -> None:
    state = StateDirectory(str(tmp_path / "state"))
    folder = Path(state.directory("history"))
    for number in range(MOST_REPORTS + 5):
        (folder / f"20250101T{number:012d}Z-abcdef.json").write_text("{}")
    History(state).save(make_report(1))
    runs = History(state).runs()
    assert len(runs) == MOST_REPORTS == 1000
    assert runs[0] == make_report(1).run_id
    assert runs[-1].startswith(f"20250101T{6:012d}Z")


def test_the_size_of_the_history_is_bounded(tmp_path: Path) -> None:
    state = StateDirectory(str(tmp_path / "state"))
    folder = Path(state.directory("history"))
    for number in range(MOST_REPORTS):
        with open(folder / f"20250101T{number:012d}Z-abcdef.json", "wb") as file:
            file.truncate(1024 * 1024)
    History(state).save(make_report(1))
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LARGEST_HISTORY_BYTES == 100 * 1024 * 1024
    assert History(state).runs()[0] == make_report(1).run_id
    assert len(History(state).runs()) == 100


def test_the_incomplete_report_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    state = StateDirectory(str(tmp_path / "state"))
    folder = Path(state.directory("history"))
    report = make_report(1)

    def killed() -> Iterator[bytes]:
        yield b"{"
        os._exit(9)

    child = os.fork()
    if not child:
        state.write(f"{folder}/20250101T000000000000Z-abcdef.json", killed())
    os.waitpid(child, 0)
    assert len(list(folder.iterdir())) == 1
    at_work = folder / f"20250101T000000000001Z-abcdef.json.{os.getpid()}.01234567.new"
    at_work.write_text("{")
    History(state).save(report)
    assert sorted(folder.iterdir()) == [at_work, folder / f"{report.run_id}.json"]


def test_run_ids_are_ordered_in_time(apply: Apply, root: Path) -> None:
    text = "- exec:\n    - go: {command: 'true', creates: ROOT}\n"
    identities = [apply(text).report.run_id for _ in range(20)]
    assert identities == sorted(set(identities))


# ---- a full state directory ----
OWING = """
- file:
    - ROOT/x: {ensure: present, content: x, owner: USER, group: GROUP, mode: "0644"}
- exec:
    - subscriber: {command: COMMAND, refresh_only: true, subscribe: ["file#ROOT/x"]}
"""


def test_a_trigger_is_not_changed_if_the_owed_refresh_cannot_be_recorded(root: Path) -> None:
    manifest = write(root, OWING.replace("COMMAND", "touch ROOT/refreshed"))
    state = Path(os.environ["MAINSTAY_STATE_DIR"])
    state.mkdir()
    done = in_own_mounts(
        f"mount -t tmpfs -o size=16k tmpfs {state}\nhead -c 100000 /dev/zero > {state}/fill || true\n"
        f'"$MAINSTAY" apply {manifest} || echo exit $?'
    )
    assert done.stdout.endswith("exit 1\n")
    assert "error: No space left on device" in done.stdout
    assert f"the report could not be stored in {state}: No space left on device" in done.stderr
    assert list(root.iterdir()) == []


def test_a_disk_that_fills_up_during_a_run_loses_no_refresh(root: Path) -> None:
    state = Path(os.environ["MAINSTAY_STATE_DIR"])
    state.mkdir()
    manifest = write(root, OWING.replace("COMMAND", f"sh -c 'head -c 100000 /dev/zero > {state}/fill; exit 1'"))
    later = OWING.replace("COMMAND", "touch ROOT/refreshed").replace("ROOT", str(root)).replace("USER", "root")
    done = in_own_mounts(
        f"mount -t tmpfs -o size=64k tmpfs {state}\n"
        f'"$MAINSTAY" apply {manifest} --json || true\necho ---\nrm {state}/fill\n'
        f"cat > {manifest} <<'END'\n{later.replace('GROUP', 'root')}END\n"
        f'"$MAINSTAY" apply {manifest} --json'
    )
    first, second = (json.loads(part) for part in done.stdout.split("---"))
    assert [event["outcome"] for event in first["events"]] == ["changed", "failed"]
    assert [event["outcome"] for event in second["events"]] == ["stable", "refreshed"]
    assert "Traceback" not in done.stderr


# ---- as a library ----
class Recorder(Observer):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run_started(self, total: int) -> None:
        self.calls.append(total)

    def resource_started(self, index: int, resource: Resource) -> None:
        self.calls.append((index, resource.id))

    def event(self, index: int, event: Event) -> None:
        self.calls.append((index, event.outcome))

    def message(self, text: str) -> None:
        self.calls.append(text)


def test_an_observer_is_called_in_order(apply: Apply, root: Path) -> None:
    recorder = Recorder()
    apply(
        "pre_message: hello\npost_message: bye\nresources:\n  - exec:\n      - a: {command: 'true'}\n      - b: {command: 'true', creates: ROOT}\n",
        observer=recorder,
    )
    assert recorder.calls == [2, "hello", (0, "exec#a"), (0, "changed"), (1, "exec#b"), (1, "stable"), "bye"]


def test_a_failed_run_shows_no_post_message(apply: Apply, root: Path) -> None:
    recorder = Recorder()
    apply("post_message: bye\nresources:\n  - exec:\n      - a: {command: 'false'}\n", observer=recorder)
    assert "bye" not in recorder.calls


def test_a_stop_flag_ends_a_run_between_two_resources(apply: Apply, root: Path) -> None:
    stop = StopFlag()

    class Stopper(Observer):
        def event(self, index: int, event: Event) -> None:
            stop.request("enough")

    text = "- exec:\n    - a: {command: touch ROOT/a}\n    - b: {command: touch ROOT/b}\n"
    done = apply(text, stop=stop, observer=Stopper())
    assert done.outcomes == ["changed", "skipped"]
    assert done.report.events[1].reason == "not reached: enough"
    assert done.report.stopped_by == "enough"
    assert [path.name for path in root.iterdir()] == ["a"]


def run_with(provider: Provider, root: Path, text: str) -> Report:
    """Runs a manifest with another provider for files."""
    session, manifest = load(RunRequest(str(write(root, text)), options=Options()))

    def choose(type_name: str, wanted: str | None, host: Host) -> Provider:
        return provider if type_name == "file" else providers.choose(type_name, wanted, host)

    return Run(
        manifest,
        session.host,
        choose_provider=choose,
        ledger=Ledger(None),
        observer=Observer(),
        stop=StopFlag(),
        clock=monotonic,
        options=Options(),
        redactor=Redactor((), manifest.types),
    ).run()


class Buggy(PosixFiles):
    def perform(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        raise KeyError("a slip")


class Idle(PosixFiles):
    """Reports success without a change."""

    def perform(self, wanted: Any, actual: Any, change: Change, host: Host) -> None:
        return


class Impatient(PosixFiles):
    validate_timeout_seconds = 0.3


FILE_THEN_EXEC = (
    "- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: '0644'VALIDATE}\n"
    "- exec:\n    - go: {command: touch ROOT/went}\n"
)


def test_a_bug_in_a_provider_does_not_end_the_run(root: Path) -> None:
    report = run_with(Buggy(), root, FILE_THEN_EXEC.replace("VALIDATE", ""))
    assert [event.outcome for event in report.events] == ["failed", "changed"]
    assert report.events[0].errors == ("bug in the posix provider: KeyError: 'a slip'",)
    assert (root / "went").exists()


def test_a_change_that_did_not_reach_the_state_is_failed(root: Path) -> None:
    (root / "x").write_text("")
    (root / "x").chmod(0o600)
    report = run_with(Idle(), root, FILE_THEN_EXEC.replace("VALIDATE", ""))
    assert report.events[0].outcome == "failed"
    assert report.events[0].errors == ("mode is 0600, expected 0644",)
    assert report.events[0].changed is False


def test_a_validator_has_a_time_limit(root: Path) -> None:
    assert PosixFiles.validate_timeout_seconds == 60
    (root / "x").write_text("old")
    report = run_with(
        Impatient(), root, FILE_THEN_EXEC.replace("VALIDATE", ", content: new, validate: sh -c 'sleep 60' %")
    )
    assert report.events[0].errors == ("command timed out after 0.3s: sh",)
    assert (root / "x").read_text() == "old"


def test_a_dry_run_writes_only_into_the_state_directory(apply: Apply, root: Path) -> None:
    before = fingerprint(root)
    done = apply(REPORTED, noop=True)
    assert done.report.outputs is None
    assert fingerprint(root) == before
    state = Path(os.environ["MAINSTAY_STATE_DIR"])
    assert sorted(path.name for path in state.iterdir()) == ["format", "history"]
    assert list((state / "manifests").glob("*/*")) == []

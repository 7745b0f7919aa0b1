"""`line` in runs: batches, dry runs, secrets, backups, injected values, other processes and killed runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, apply_text
from fork_server import PROGRAM
from hostile_user import Scene, hostile_scene
from mainstay.converge.host.files import Files, FileWrite
from mainstay.converge.providers.line.posix import PosixLines
from mainstay.converge.run import list_backups, restore_backup
from required_parts import need_program
from scratch import fingerprint, temps_below

Apply = Callable[..., Applied]
SECRET = "hunter2-correct-horse"


# ---- batches ----
class Counter:
    """Counts how often files are read and replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.writes = 0
        read, replace = os.read, os.rename

        def counted_read(descriptor: int, size: int) -> bytes:
            chunk = read(descriptor, size)
            self.reads += bool(chunk) and os.readlink(f"/proc/self/fd/{descriptor}").endswith("/root/x")
            return chunk

        def counted_rename(old: str, new: str, **options: Any) -> None:
            self.writes += new == "x"
            replace(old, new, **options)

        monkeypatch.setattr(os, "read", counted_read)
        monkeypatch.setattr(os, "rename", counted_rename)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


def many(count: int, more: str = "") -> str:
    entries = "".join(f"    - l{number}: {{line: entry {number}{more}}}\n" for number in range(count))
    return f"- line:\n    - defaults: {{path: ROOT/x}}\n{entries}"


def test_neighbours_on_one_file_are_one_read_and_one_write(apply: Apply, root: Path, counter: Counter) -> None:
    (root / "x").write_text("old\n")
    done = apply(many(200))
    assert set(done.outcomes) == {"changed"}
    assert (counter.reads, counter.writes) == (1, 1)
    assert (root / "x").read_text() == "old\n" + "".join(f"entry {number}\n" for number in range(200))
    assert set(apply(many(200)).outcomes) == {"stable"}
    assert (counter.reads, counter.writes) == (2, 1)


def test_ten_thousand_lines_in_ten_megabytes_are_one_read_and_one_write(
    apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "x").write_bytes(b"".join(b"%099d\n" % number for number in range(100_000)))
    written: list[int] = []
    read: list[int] = []
    replace, read_whole = Files.replace, Files.read_whole

    def counted_replace(files: Files, write: FileWrite) -> Any:
        written.append(len(write.content or b""))
        return replace(files, write)

    def counted_read(files: Files, path: str, limit: int) -> Any:
        found = read_whole(files, path, limit)
        read.append(len(found[1]))
        return found

    monkeypatch.setattr(Files, "replace", counted_replace)
    monkeypatch.setattr(Files, "read_whole", counted_read)
    done = apply(many(10_000), keep_history=False)
    assert set(done.outcomes) == {"changed"}
    assert (len(read), len(written)) == (1, 1)
    assert len((root / "x").read_bytes().splitlines()) == 110_000
    before = apply(many(10_000), noop=True, keep_history=False)
    assert set(before.outcomes) == {"stable"}
    assert (len(read), len(written)) == (2, 1)


def test_the_work_of_a_batch_grows_with_the_number_of_lines(apply: Apply, root: Path) -> None:
    """Counted in source lines of our own code that run: twice as many resources must not be four times the work."""

    def work_of(count: int, *, noop: bool) -> int:
        (root / "x").write_text("old\n" * count)
        ran = 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal ran
            if "/mainstay/converge/" not in frame.f_code.co_filename:
                return None
            ran += event == "line"
            return trace

        old = sys.gettrace()
        sys.settrace(trace)
        try:
            assert set(apply(many(count), noop=noop, differences=True).outcomes) == {"changed"}
        finally:
            sys.settrace(old)
        return ran

    for noop in (True, False):
        small, large = work_of(100, noop=noop), work_of(200, noop=noop)
        assert large < 2.3 * small


@pytest.mark.parametrize(
    ("entry", "writes"),
    [
        ("b: {line: b}", 1),
        ("b: {line: b, after: ^a$}", 1),
        ("b: {block: b}", 1),
        ("b: {line: old, ensure: absent}", 1),
        ("b: {line: b, match: ^b}", 2),
        ("b: {line: b, validate: 'true %'}", 2),
        ("b: {line: b, health_checks: [{command: 'true'}]}", 2),
        ("b: {line: b, require: ['line#a']}", 2),
        ("b: {line: b, control: {if: 'true'}}", 2),
        ("b: {line: b, backup: true}", 2),
    ],
)
def test_which_neighbours_are_changed_together(
    entry: str, writes: int, apply: Apply, root: Path, counter: Counter
) -> None:
    (root / "x").write_text("old\n")
    done = apply(f"- line:\n    - defaults: {{path: ROOT/x}}\n    - a: {{line: a}}\n    - {entry}\n")
    assert done.outcomes == ["changed", "changed"], done.errors
    assert counter.writes == writes


def test_a_line_with_subscribers_is_written_by_itself(apply: Apply, root: Path, counter: Counter) -> None:
    (root / "x").write_text("")
    done = apply(
        many(3) + "- exec:\n    - go: {command: touch ROOT/went, refresh_only: true, subscribe: ['line#l1']}\n"
    )
    assert done.outcomes == ["changed", "changed", "changed", "refreshed"]
    assert counter.writes == 3


def test_a_batch_that_fails_is_made_one_by_one(apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "x").write_text("")
    replace = Files.replace

    def refuse_three(files: Files, write: FileWrite) -> Any:
        if b"entry 2\n" in (write.content or b""):
            from mainstay.converge.failures import Failure

            raise Failure("no third entry")
        return replace(files, write)

    monkeypatch.setattr(Files, "replace", refuse_three)
    done = apply(many(4))
    assert done.outcomes == ["changed", "changed", "failed", "changed"]
    assert done.errors == ["no third entry"]
    assert (root / "x").read_text() == "entry 0\nentry 1\nentry 3\n"


def test_a_batch_and_its_dry_run_show_the_same_differences(apply: Apply, root: Path) -> None:
    (root / "x").write_text("a\nb\n")
    text = many(2) + "    - gone: {line: a, ensure: absent}\n"
    forecast, done = apply(text, noop=True, differences=True), apply(text, differences=True)
    shown = [event.diff for event in done.report.events]
    assert [event.diff for event in forecast.report.events] == shown
    path = root / "x"
    assert shown == [
        f"--- {path} (actual)\n+++ {path} (desired)\n@@ -1,2 +1,3 @@\n a\n b\n+entry 0",
        f"--- {path} (actual)\n+++ {path} (desired)\n@@ -1,3 +1,4 @@\n a\n b\n entry 0\n+entry 1",
        f"--- {path} (actual)\n+++ {path} (desired)\n@@ -1,4 +1,3 @@\n-a\n b\n entry 0\n entry 1",
    ]


# ---- the file ----
def test_a_command_between_two_lines_is_seen(apply: Apply, root: Path) -> None:
    (root / "x").write_text("aa\n")
    text = """
    - line: [a: {path: ROOT/x, line: one}]
    - exec: [go: {command: sed -i s/one/two/ ROOT/x}]
    - line: [b: {path: ROOT/x, line: one}]
    """
    assert apply(text).outcomes == ["changed", "changed", "changed"]
    assert (root / "x").read_text() == "aa\ntwo\none\n"


def test_a_file_that_another_process_changes_in_between_is_not_overwritten(
    apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "x"
    path.write_text("old\n")
    text = f"- line: [a: {{path: ROOT/x, line: a, validate: sh -c 'echo new >>{path}' %}}]\n"
    done = apply(text)
    assert done.errors == [f"{path} was changed by another process during the run; it is not replaced"]
    assert path.read_text() == "old\nnew\n"
    assert temps_below(root) == []


def test_attributes_of_the_file_are_kept(apply: Apply, root: Path) -> None:
    path = root / "x"
    path.write_text("old\n")
    path.chmod(0o2710)
    os.setxattr(path, "user.note", b"kept")
    apply("- line: [a: {path: ROOT/x, line: a}]\n")
    assert path.stat().st_mode & 0o7777 == 0o2710
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_file_that_is_too_large_is_refused(apply: Apply, root: Path) -> None:
    with (root / "x").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    done = apply("- line: [a: {path: ROOT/x, line: a}]\n")
    assert done.errors == [f"{root}/x is larger than 64 MB; it is not changed"]


def test_long_lines_are_a_warning_when_a_pattern_is_used(apply: Apply, root: Path) -> None:
    (root / "x").write_text("p" * 70_000 + "\n")
    done = apply("- line: [a: {path: ROOT/x, line: a, match: ^p}]\n")
    assert done.report.events[0].warnings == ("1 lines of more than 64 kB are not searched for patterns",)


def test_a_line_of_another_user_does_not_hang_a_run(apply: Apply, root: Path) -> None:
    """`re` would search these lines for minutes."""
    (root / "x").write_text("port" + " " * 60_000 + "x\n" + "a" * 60 + "b\n")
    done = apply(
        "- line:\n"
        "    - a: {path: ROOT/x, line: port = 22, match: 'port\\s*=?\\s*\\d+$'}\n"
        "    - b: {path: ROOT/x, line: c, match: '^(a|aa)+$', after: '^(a|a)*$', before: '^.* .* .* .*$'}\n"
    )
    assert done.errors == []
    assert (root / "x").read_text().splitlines()[0] == "c"
    assert (root / "x").read_text().splitlines()[3] == "port = 22"


def test_a_backup_is_kept_and_restored(apply: Apply, root: Path) -> None:
    path = root / "x"
    path.write_text("old\n")
    path.chmod(0o640)
    apply("- line: [a: {path: ROOT/x, line: a, backup: true}]\n")
    assert len(list_backups(str(path))) == 1
    restore_backup(str(path), None)
    assert path.read_text() == "old\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_validator_has_a_time_limit() -> None:
    assert PosixLines.validate_timeout_seconds == 60


def test_after_a_command_that_would_run_a_missing_file_is_unknown(apply: Apply, root: Path) -> None:
    text = "- exec: [go: {command: touch ROOT/x}]\n- line: [a: {path: ROOT/x, line: a}]\n"
    forecast = apply(text, noop=True)
    assert (forecast.messages[1] or "").startswith("Unknown until applied: ")
    assert apply(text).outcomes == ["changed", "changed"]


# ---- values ----
def test_values_in_patterns_are_text(apply: Apply, root: Path) -> None:
    (root / "x").write_text("host 10.0.0.1\nhost 10x0y0z1\n")
    text = """
    data: {address: 10.0.0.1, all: ".*", list: "(a+)+"}
    resources:
      - line:
          - a: {path: ROOT/x, match: "^host {{ data.address }}$", line: host a}
          - b: {path: ROOT/x, line: b, after: "{{ data.all }}"}
          - c: {path: ROOT/x, line: c, after: "{{ data.list }}", before: "^host {{ data.none | default('b') }}?a$"}
    """
    assert apply(text).outcomes == ["changed", "changed", "changed"]
    assert (root / "x").read_text() == "c\nhost a\nhost 10x0y0z1\nb\n"


@pytest.mark.parametrize(
    "value", ["$(touch ROOT/evil)", "; touch ROOT/evil", "`touch ROOT/evil`", "../../evil", "%", "\\1", "{{"]
)
@pytest.mark.parametrize("key", ["line", "block", "match", "after", "before", "comment", "validate"])
def test_an_injected_value_is_only_text(key: str, value: str, apply: Apply, root: Path) -> None:
    (root / "x").write_text("old\n")
    given = {"path": "ROOT/x", "line": "new", key: "{{ data.value }}"}
    if key in ("block", "comment"):
        given = {"path": "ROOT/x", "block": "new", key: "{{ data.value }}"}
    if key == "validate":
        given[key] = "true {{ data.value }} %"
    value = value.replace("ROOT", str(root))
    apply(json.dumps([{"line": [{"n": given}]}]), data_layers=[{"value": value}])
    assert not (root / "evil").exists()
    assert sorted(path.name for path in root.iterdir()) == ["x"]
    assert (root / "x").read_text().startswith("old\n") or key in ("before",)
    if key in ("line", "block"):
        assert value in (root / "x").read_text().splitlines()


# ---- secrets ----
def everything_shown(applied: Applied, state: Path) -> str:
    kept = [path.read_text() for path in state.rglob("*") if path.is_file()]
    return json.dumps(applied.as_json()) + "".join(kept)


@pytest.mark.parametrize("noop", [False, True], ids=["run", "noop"])
def test_a_line_in_a_file_that_holds_a_secret_shows_nothing_else_of_it(
    noop: bool, apply: Apply, root: Path, tmp_path: Path
) -> None:
    (root / "x").write_text("first\n")
    apply(f"- line: [a: {{path: ROOT/x, line: password={SECRET}, sensitive: true}}]\n")
    done = apply("- line: [b: {path: ROOT/x, line: plain, backup: true}]\n", noop=noop, differences=True)
    assert done.outcomes == ["changed"]
    assert SECRET not in everything_shown(done, tmp_path / "state")
    assert "+plain" in (done.report.events[0].diff or "")
    assert "first" not in (done.report.events[0].diff or "")
    if not noop:
        assert list_backups(str(root / "x")) == []
    gone = apply("- line: [b: {path: ROOT/x, match: password, ensure: absent}]\n", noop=noop, differences=True)
    assert SECRET not in everything_shown(gone, tmp_path / "state")


def test_a_sensitive_line_makes_the_file_a_secret_for_file_resources(
    apply: Apply, root: Path, tmp_path: Path
) -> None:
    (root / "x").write_text("first\n")
    apply(f"- line: [a: {{path: ROOT/x, line: password={SECRET}, sensitive: true}}]\n")
    text = '- file: [ROOT/x: {ensure: present, content: "", owner: USER, group: GROUP, mode: "0600"}]\n'
    done = apply(text, differences=True)
    assert SECRET not in everything_shown(done, tmp_path / "state")


def test_a_service_sees_only_its_own_lines_of_a_file_of_others(apply: Apply, root: Path) -> None:
    (root / "x").write_text("of others\n")
    text = "- line: [a: {path: ROOT/x, line: mine}, b: {path: ROOT/x, match: others, ensure: absent}]\n"
    done = apply(text, differences=True, remember_files=True)
    for event in done.report.events:
        assert "others" in (event.diff or "")
        assert "others" not in (event.consumer_diff or "others")
    assert "+mine" in (done.report.events[0].consumer_diff or "")


def test_lines_of_a_file_that_the_service_wrote_are_shown_to_it(apply: Apply, root: Path) -> None:
    file = '- file: [ROOT/x: {ensure: present, content: "own\\n", owner: USER, group: GROUP, mode: "0600"}]\n'
    apply(file, remember_files=True, identity="service")
    for line in ("one", "two"):
        text = f"- line: [{line}: {{path: ROOT/x, line: {line}}}]\n"
        done = apply(text, differences=True, remember_files=True, identity="service")
        assert done.report.events[0].consumer_diff is None
        assert " own" in (done.report.events[0].diff or "")


# ---- hostile users ----
@pytest.fixture
def scene() -> Iterator[Scene]:
    with hostile_scene() as scene:
        yield scene


@pytest.mark.parametrize("links", ["refuse", "follow", "replace"])
def test_a_planted_link_is_not_followed(links: str, scene: Scene) -> None:
    scene.plant(lambda: os.symlink(scene.outside, scene.home / "dir"))
    scene.plant(lambda: os.symlink(scene.outside / "victim", scene.home / "l"))
    before = fingerprint(scene.outside)
    for path in ("HOME/dir/victim", "HOME/l"):
        text = f"- line: [a: {{path: {path}, line: evil, links: {links}}}]\n"
        for noop in (True, False):
            done = scene.apply(text, noop=noop)
            assert done.outcomes == ["failed"]
            assert "is a link to" in done.errors[0]
    assert fingerprint(scene.outside) == before


def test_validate_in_an_unsafe_directory_gets_a_private_copy(scene: Scene) -> None:
    scene.plant(lambda: (scene.home / "x").write_text("a\n"))
    script = scene.work / "check"
    script.write_text(f"#!/bin/sh\necho $1 >{scene.work}/seen\n")
    script.chmod(0o755)
    done = scene.apply("- line: [a: {path: HOME/x, line: b, validate: WORK/check %}]\n")
    assert done.outcomes == ["changed"], done.errors
    assert str(scene.home) not in (scene.work / "seen").read_text()
    assert (scene.home / "x").stat().st_uid == 65534


def test_a_hard_link_of_a_file_of_root_is_replaced_and_not_changed(scene: Scene) -> None:
    os.link(scene.outside / "victim", scene.home / "x")
    scene.apply("- line: [a: {path: HOME/x, line: b}]\n")
    assert (scene.outside / "victim").read_text() == "secret"
    found = (scene.home / "x").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (0, 0o600)


# ---- killed runs ----
@pytest.mark.parametrize("call", ["rename", "fsync", "chmod", "write", "unlink"])
def test_a_kill_at_any_system_call_leaves_the_old_or_the_new_file(call: str, root: Path) -> None:
    strace = need_program("strace")
    path, manifest = root / "x", root.parent / "manifest.yaml"
    old, new = "old\n", "old\na\nb\nc\n"
    manifest.write_text(
        f"- line:\n    - defaults: {{path: {path}}}\n    - a: {{line: a}}\n    - b: {{line: b}}\n    - c: {{line: c, match: ^c}}\n"
    )
    deaths = 0
    while True:
        path.write_text(old)
        path.chmod(0o600)
        shutil.rmtree(os.environ["MAINSTAY_STATE_DIR"], ignore_errors=True)
        kill = f"inject=/^{call}(at2?|64)?$:signal=SIGKILL:when={deaths + 1}"
        done = subprocess.run(
            [strace, "-qq", "-o", "/dev/null", "-e", kill, PROGRAM, "apply", manifest], capture_output=True
        )
        assert path.read_text() in (old, "old\na\nb\n", new)
        assert path.stat().st_mode & 0o777 == 0o600
        again = subprocess.run([PROGRAM, "apply", manifest], capture_output=True, text=True)
        assert again.returncode == 0, again.stdout
        assert path.read_text() == new
        assert temps_below(root) == []
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    assert deaths > 0 or call == "unlink"


# ---- the command line ----
def test_the_command_line_does_not_offer_lines(mainstay: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "apply one file resource" in mainstay("ensure", "--help").stdout
    assert "apply one line resource" not in mainstay("ensure", "--help").stdout
    assert mainstay("ensure", "line", "x").returncode == 2
    refused = mainstay("status", "line", "x")
    assert refused.returncode == 1
    assert "a line has no state by its name alone; use it in a manifest" in refused.stderr


def test_history_shows_no_change_of_a_plain_apply(tmp_path: Path, root: Path) -> None:
    (root / "x").write_text("a\n")
    done = apply_text("- line: [a: {path: ROOT/x, line: a}]\n", root)
    assert done.as_json()["events"][0]["state"] == {
        "ensure": "present",
        "name": "a",
        "path": f"{root}/x",
        "provider": "posix",
    }

"""A run may be killed at any instant: the next run reaches the desired state, and no reader sees half a file."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, fill_in
from archive_samples import make_app
from fork_server import PROGRAM
from required_parts import need_program
from scratch import names_below, temps_below

SEEDS = range(12)
FILES = 30
# How many of them apply a manifest too.
APPLIED = 3
OLD, NEW = "old " * 50_000, "new " * 60_000
# Old files are readable by all, new files are not: a reader must never find the new content with the old mode.
OLD_MODE, NEW_MODE = 0o644, 0o600


def manifest(count: int) -> str:
    lines = ["- file:", '    - defaults: {owner: USER, group: GROUP, mode: "0600"}']
    lines.append('    - ROOT/new: {ensure: directory, mode: "0700"}')
    for index in range(count):
        lines.append(f"    - ROOT/{index}: {{ensure: present, source: ROOT/../source}}")
        lines.append(f"    - ROOT/new/{index}: {{ensure: present, content: made}}")
        lines.append(f"    - ROOT/link{index}: {{ensure: link, target: new}}")
        lines.append(f"    - ROOT/gone{index}: {{ensure: absent}}")
        lines.append("- exec:")
        lines.append(f"    - refresh {index}:")
        lines.append(f"        command: \"sh -c 'echo {index} >> ROOT/../refreshed'\"")
        lines.append("        refresh_only: true")
        lines.append(f'        subscribe: ["file#ROOT/{index}", "file#ROOT/new/{index}"]')
        lines.append("- line:")
        lines.append(f"    - line {index}: {{path: ROOT/lines, line: line {index}}}")
        lines.append("- file:")
        lines.append('    - defaults: {owner: USER, group: GROUP, mode: "0600"}')
    lines.append("    - ROOT/last: {ensure: present}")
    lines.append("- archive:")
    lines.append(
        "    - ROOT/app.tgz: {url: ROOT/../app.tgz, extract_parent: ROOT/new, creates: ROOT/new/app/run, cleanup: true}"
    )
    for index in range(min(count, APPLIED)):
        lines.append(f"- apply: [{{child {index}: {{manifest: child.yaml, data: {{n: {index}}}}}}}]")
        lines.append("- exec:")
        lines.append(f"    - outer {index}:")
        lines.append(f"        command: \"sh -c 'echo outer{index} >> ROOT/../refreshed'\"")
        lines.append("        refresh_only: true")
        lines.append(f"        subscribe: [apply#child {index}]")
    return "\n".join(lines) + "\n"


CHILD = """
data: {n: 0}
resources:
  - file:
      - defaults: {owner: USER, group: GROUP, mode: "0600", ensure: present}
      - "ROOT/child{{ lookup('data.n') }}-{{ lookup('each.value') }}": {for_each: [a, b], content: made}
  - exec:
      - "inner {{ lookup('data.n') }}":
          command: "sh -c 'echo inner{{ lookup('data.n') }} >> ROOT/../refreshed'"
          refresh_only: true
          subscribe: ["file#ROOT/child{{ lookup('data.n') }}-b"]
"""


class Killing:
    """A root with old files, and a manifest that replaces them all."""

    def __init__(self, root: Path, count: int = FILES) -> None:
        self.root = root
        self.count = count
        self.refreshed = root.parent / "refreshed"
        self.path = root.parent / "manifest.yaml"
        self.path.write_text(fill_in(manifest(count), root))
        (root.parent / "child.yaml").write_text(fill_in(CHILD, root))
        (root.parent / "source").write_text(NEW)
        make_app(root.parent / "app.tgz")
        (root / "lines").write_text("old\n")
        (root / "lines").chmod(NEW_MODE)
        for index in range(count):
            (root / str(index)).write_text(OLD)
            (root / str(index)).chmod(OLD_MODE)
            (root / f"link{index}").symlink_to("elsewhere")
            (root / f"gone{index}").write_text("going")

    def start(self, output: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        return subprocess.Popen([PROGRAM, "apply", str(self.path), "--json"], stdout=output)

    def finish(self) -> dict[str, Any]:
        with self.start() as process:
            assert process.stdout is not None
            report: dict[str, Any] = json.load(process.stdout)
        assert process.returncode == 0, report
        return report

    def check_instant(self) -> None:
        """Checks what must hold at every instant."""
        for index in range(self.count):
            self.check_file(self.root / str(index))
        for name in temps_below(self.root):
            if "/" in name.partition(".mainstay-")[2]:
                # In a directory that only its owner can enter.
                continue
            try:
                found = (self.root / name).lstat()
            except FileNotFoundError:
                continue
            assert stat.S_ISLNK(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077 == 0

    def check_file(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            content = b""
            while chunk := os.read(descriptor, 1 << 20):
                content += chunk
        finally:
            os.close(descriptor)
        assert (content, mode) in ((OLD.encode(), OLD_MODE), (NEW.encode(), NEW_MODE)), (
            path,
            len(content),
            oct(mode),
        )

    def check_reached(self) -> None:
        assert temps_below(self.root) == []
        for index in range(self.count):
            assert (self.root / str(index)).read_text() == NEW
            assert stat.S_IMODE((self.root / str(index)).stat().st_mode) == NEW_MODE
            assert os.readlink(self.root / f"link{index}") == "new"
            assert not (self.root / f"gone{index}").exists()
        assert (self.root / "new/app/run").read_text() == "run"
        lines = (self.root / "lines").read_text().splitlines()
        assert lines == ["old", *(f"line {index}" for index in range(self.count))]
        refreshed = set(self.refreshed.read_text().split())
        applied = range(min(self.count, APPLIED))
        expected = {f"{level}{index}" for index in applied for level in ("inner", "outer")}
        assert refreshed == {*map(str, range(self.count)), *expected}, "a refresh was lost"
        assert {name for name in names_below(self.root) if "/" not in name} == {
            *(str(index) for index in range(self.count)),
            *(f"link{index}" for index in range(self.count)),
            *(f"child{index}-{name}" for index in applied for name in "ab"),
            "new",
            "last",
            "lines",
        }


@pytest.fixture(scope="module")
def run_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The duration of such a run on this machine, so that kills fall into it."""
    folder = tmp_path_factory.mktemp("measure")
    (folder / "root").mkdir()
    killing = Killing(folder / "root")
    environment = {**os.environ, "MAINSTAY_STATE_DIR": str(folder / "state")}
    started = time.monotonic()
    subprocess.run([PROGRAM, "apply", str(killing.path)], check=True, capture_output=True, env=environment)
    return time.monotonic() - started


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_run_leaves_whole_files_and_the_next_run_completes(
    seed: int, root: Path, run_seconds: float
) -> None:
    random_ = random.Random(seed)
    killing = Killing(root)
    for _ in range(2):
        process = killing.start(subprocess.DEVNULL)
        until = time.monotonic() + run_seconds * random_.uniform(0.1, 1.0)
        while time.monotonic() < until and process.poll() is None:
            killing.check_file(root / str(random_.randrange(FILES)))
        process.kill()
        process.communicate()
        killing.check_instant()
    report = killing.finish()
    killing.check_reached()
    assert report["summary"]["failed"] == 0
    assert killing.finish()["summary"]["stable"] == report["summary"]["total"]


@pytest.mark.parametrize("call", ["rename", "unlink", "fsync", "chmod", "mkdir", "symlink", "pwrite64", "vfork"])
def test_a_kill_at_any_system_call_loses_nothing(call: str, root: Path) -> None:
    """Kills a run at every single call that changes something, one after the other."""
    strace = need_program("strace")
    killing = Killing(root, 1)
    deaths = 0
    while True:
        reset(killing)
        kill = f"inject=/^{call}(at2?|dir)?$:signal=SIGKILL:when={deaths + 1}"
        done = subprocess.run(
            [strace, "-qq", "-o", "/dev/null", "-e", kill, PROGRAM, "apply", killing.path], capture_output=True
        )
        killing.check_instant()
        killing.finish()
        killing.check_reached()
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    assert deaths > 0, f"the run never called {call}"


def reset(killing: Killing) -> None:
    """Restores the root and removes the state of earlier runs."""
    shutil.rmtree(killing.root)
    killing.refreshed.unlink(missing_ok=True)
    shutil.rmtree(os.environ["MAINSTAY_STATE_DIR"], ignore_errors=True)
    killing.root.mkdir()
    Killing(killing.root, killing.count)


IN_CLOSE_WRITE, IN_MOVED_TO, IN_ATTRIB, IN_CREATE, IN_MODIFY = 0x8, 0x80, 0x4, 0x100, 0x2


@pytest.fixture
def watch(root: Path) -> Iterator[Callable[[], int]]:
    """Yields a function that returns whether the kernel reported changes in the directory since the last call."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    wanted = IN_CLOSE_WRITE | IN_MOVED_TO | IN_ATTRIB | IN_CREATE | IN_MODIFY
    assert library.inotify_add_watch(descriptor, os.fsencode(root), wanted) >= 0

    def take() -> int:
        try:
            return len(os.read(descriptor, 64 * 1024))
        except BlockingIOError:
            return 0

    yield take
    os.close(descriptor)


def test_a_reader_sees_the_old_or_the_new_file_at_every_change(root: Path, watch: Callable[[], int]) -> None:
    killing = Killing(root)
    process = killing.start(subprocess.DEVNULL)
    looks = 0
    while process.poll() is None:
        if watch():
            killing.check_instant()
            looks += 1
    assert process.returncode == 0
    assert looks > 3
    killing.check_reached()


def test_temporary_files_of_unknown_runs_are_not_removed(root: Path, apply: Callable[..., Applied]) -> None:
    """Only files of a dead run are removed, and only where its journal points."""
    foreign = root / ".mainstay-20200101T000000000000Z-abcdef-1"
    foreign.write_text("not ours")
    apply('- file:\n    - ROOT/x: {ensure: present, owner: USER, group: GROUP, mode: "0644"}\n')
    assert foreign.read_text() == "not ours"


def test_a_journal_with_missing_directories_does_not_stop_the_next_run(root: Path) -> None:
    killing = Killing(root, 1)
    process = killing.start()
    process.communicate()
    folder = next((Path(os.environ["MAINSTAY_STATE_DIR"]) / "manifests").iterdir())
    (root / "file").write_text("")
    lines = [json.dumps(["dead", str(root / name)]) for name in ("none", "file", "file/below")]
    (folder / "journal").write_text("\n".join([*lines, "cut o"]))
    assert killing.finish()["summary"]["failed"] == 0


def test_a_signal_ends_a_run_in_order_between_files(root: Path) -> None:
    killing = Killing(root)
    process = killing.start()
    while not (root / "new" / "3").exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    report = json.loads(output)
    assert process.returncode == 143
    assert report["summary"]["skipped"] > 0
    assert {event["reason"] for event in report["events"] if event["skipped"]} == {"not reached: SIGTERM"}
    assert temps_below(root) == []
    killing.finish()
    killing.check_reached()


def test_the_command_of_a_killed_run_is_ended_before_the_next_run_starts(tmp_path: Path) -> None:
    """So that the same command does not run twice at once."""
    path, alive = tmp_path / "manifest.yaml", tmp_path / "alive"
    script = tmp_path / "slow"
    script.write_text(
        f"#!/bin/sh\nmkdir {tmp_path}/busy || echo twice >>{alive}\ntrap 'rmdir {tmp_path}/busy; exit 1' TERM\n"
        f"echo started >>{alive}\nif [ $(wc -l <{alive}) = 1 ]; then sleep 60 & wait; fi\nrmdir {tmp_path}/busy\n"
    )
    script.chmod(0o700)
    path.write_text(f"- exec:\n    - work: {{command: {script}}}\n")
    environment = {**os.environ, "MAINSTAY_STATE_DIR": str(tmp_path / "state")}
    first = subprocess.Popen([PROGRAM, "apply", path], env=environment, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not alive.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert (tmp_path / "busy").exists(), "the command goes on after its run was killed"
    done = subprocess.run([PROGRAM, "apply", path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert alive.read_text().split() == ["started", "started"]

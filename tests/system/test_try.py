"""`mainstay try`: both runs and the changed paths of a real throw-away host, while this machine stays as it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpreters import need_python
from isolation import WITHOUT_RIGHTS
from mainstay.packaging.program_file import build_program_file
from program_files import ProgramRunner
from scratch import fingerprint
from system.conftest import PROGRAM, need_systemd

pytestmark = pytest.mark.test_all

SECRET = "hunter2-correct-horse"
# A duration by which the processes of this test are recognised.
SLEEP = "61.8033"
MANIFEST = """
data: {greeting: none}
resources:
  - user:
      - tried: {ensure: present, system: true}
  - file:
      - TREE/new: {ensure: directory, owner: tried, group: root, mode: "0750"}
      - TREE/new/link: {ensure: link, target: ../kept}
      - TREE/changed: {ensure: present, content: "{{ lookup('data.greeting') }}\\n", owner: root, group: root, mode: "0600"}
      - TREE/mode: {ensure: present, owner: root, group: root, mode: "0640"}
      - TREE/full: {ensure: absent, force: true}
      - TREE/swapped: {ensure: absent, force: true}
  - exec:
      - /bin/sh -c 'mkdir TREE/swapped && echo 1 > TREE/swapped/b && echo more >> TREE/log':
          creates: TREE/swapped
      - systemctl is-system-running --wait: {returns: [0, 1]}
"""
Try = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tree() -> Iterator[Path]:
    """On the file system of /, because a host has its own /tmp."""
    need_systemd()
    path = Path(tempfile.mkdtemp(prefix="mainstay-try-", dir="/var/tmp"))
    path.chmod(0o755)
    for name, text in {
        "kept": "k",
        "changed": "old\n",
        "mode": "m",
        "full/a/b": "x",
        "swapped/a": "a",
        "log": "0\n",
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "hosts").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "hosts")}


@pytest.fixture
def tried(tmp_path: Path, tree: Path, environment: dict[str, str]) -> Try:
    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "site.yaml").write_text(text.replace("TREE", str(tree)))
        command = [str(PROGRAM), "try", str(tmp_path / "site.yaml"), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    return run


def machine(tree: Path) -> tuple[object, ...]:
    """What a trial must not change. Other tests may use this machine at the same time, so it is compared in part."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "sdhost-" in line]
    accounts = [line for line in Path("/etc/passwd").read_text().splitlines() if line.startswith("tried:")]
    return fingerprint(tree), mounts, accounts, Path("/etc/hostname").read_bytes()


def test_both_runs_and_the_changed_paths_are_shown_and_nothing_here_changes(
    tried: Try, tree: Path, tmp_path: Path
) -> None:
    before = machine(tree)
    (tmp_path / "more.yaml").write_text("greeting: hello\n")
    done = tried(MANIFEST, "--data", str(tmp_path / "more.yaml"), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    outcomes = [event["outcome"] for event in document["first"]["events"]]
    assert outcomes == ["changed"] * 9
    # The command without a guard runs again; the directory that the command created is removed and created again.
    again = [event["name"] for event in document["second"]["events"] if event["outcome"] != "stable"]
    assert [name.replace(str(tree), "")[:24] for name in again] == [
        "/swapped",
        "/bin/sh -c 'mkdir /swapp",
        "systemctl is-system-runn",
    ]
    found = {row["path"].replace(str(tree), ""): row for row in document["differences"]}
    changes = {path: row["change"] for path, row in found.items() if not path.startswith("/etc/")}
    assert changes == {
        "/changed": "changed",
        "/full": "removed",
        "/log": "changed",
        "/mode": "changed",
        "/new": "added",
        "/new/link": "added",
        "/swapped/a": "removed",
        "/swapped/b": "added",
    }
    assert found["/new"]["after"] == {
        "kind": "directory", "owner": "tried", "group": "root", "mode": "0750", "size": None, "target": None
    }  # fmt: skip
    assert (found["/mode"]["before"]["mode"], found["/mode"]["after"]["mode"]) == ("0644", "0640")
    assert found["/new/link"]["after"]["target"] == "../kept"
    assert {"/etc/passwd", "/etc/shadow", "/etc/group"} <= set(found)
    assert [row["path"] for row in document["later_differences"]] == [f"{tree}/log"]
    assert machine(tree) == before
    assert list((tmp_path / "hosts").iterdir()) == []


def test_a_stable_manifest_exits_0_and_secrets_are_not_shown(tried: Try, tree: Path) -> None:
    before = machine(tree)
    stable = (
        "- file:\n    - TREE/kept: {ensure: present, content: other, owner: root, group: root, mode: '0644'}\n"
        "- exec:\n    - append: {command: \"/bin/sh -c 'echo more >> TREE/log'\", unless: grep -q more TREE/log}\n"
    )
    done = tried(stable)
    assert done.returncode == 0, done.stdout + done.stderr
    first, _, rest = done.stdout.partition("Second run\n")
    assert first.startswith("First run\nchanged   file#")
    assert "+other" in first
    assert rest.startswith("Run: 2 stable")
    assert f"changed   {tree}/log" in rest
    assert "          +more\n" in rest
    assert rest.endswith("Stable: the second run changed nothing. This machine was not changed.\n")
    hidden = stable.replace("more", SECRET).replace("unless", "sensitive: true, unless")
    done = tried(hidden)
    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr
    failing = tried("- exec:\n    - /bin/false:\n")
    assert failing.returncode == 1
    assert failing.stdout.endswith("\nThe first run failed: 1 resource. There was no second run.\n")
    assert "no network" not in failing.stdout
    for text, hint in (
        (
            "- package:\n    - no-such-package: {ensure: present}\n",
            "packages must be in the cache of the package manager",
        ),
        (
            "- archive:\n    - TREE/a.tgz: {ensure: present, url: 'http://192.0.2.1/a.tgz', checksum: 'X'}\n".replace(
                "X", "0" * 64
            ),
            "download the archive, and name the file in `url`",
        ),
    ):
        done = tried(text)
        assert done.returncode == 1, done.stderr
        assert f"The throw-away host has no network; {hint}" in done.stdout
    assert machine(tree) == before


def test_the_program_file_tries_a_manifest_with_python_3_9(
    tree: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "mainstay.pyz").write_bytes(build_program_file())
    (tmp_path / "site.yaml").write_text(f"- file:\n    - {tree}/kept: {{ensure: absent}}\n")
    # On another file system than /: a host sees no mounts of its machine below /, only what is passed on.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as cache:
        run = ProgramRunner(need_python("3.9"), tmp_path / "mainstay.pyz", Path(cache))
        done = run("try", tmp_path / "site.yaml", env=environment, timeout=120)
    assert done.returncode == 0, done
    assert f"removed   {tree}/kept  file root:root 0644, 1 bytes\nStable: " in done.stdout


def sleepers() -> list[str]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"/bin/sleep", SLEEP.encode()]:
            found.append(entry)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("did not happen within 30 s")


@pytest.mark.parametrize("killed", ["the command", "the command and its supervisor"])
def test_a_killed_trial_leaves_nothing_after_the_next(
    tried: Try, tree: Path, tmp_path: Path, environment: dict[str, str], killed: str
) -> None:
    before = machine(tree)
    hosts = tmp_path / "hosts"
    (tmp_path / "slow.yaml").write_text(
        f"- file:\n    - {tree}/kept: {{ensure: absent}}\n- exec:\n    - /bin/sleep {SLEEP}:\n"
    )
    process = subprocess.Popen(
        [str(PROGRAM), "try", str(tmp_path / "slow.yaml")], stdout=subprocess.DEVNULL, env=environment
    )
    wait_until(lambda: bool(sleepers()))
    (folder,) = hosts.iterdir()
    group = next((Path(top) for top, _, _ in os.walk("/sys/fs/cgroup") if Path(top).name == folder.name), None)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    supervisors = [child for child in children if str(folder) in Path(f"/proc/{child}/cmdline").read_text()]
    assert len(supervisors) == 1
    for pid in supervisors if "supervisor" in killed else []:
        os.kill(int(pid), signal.SIGKILL)
    process.kill()
    process.wait()
    wait_until(lambda: not sleepers())
    if "supervisor" not in killed:
        wait_until(lambda: not list(hosts.iterdir()))
    assert tried("- exec:\n    - /bin/true:\n        creates: /\n").returncode == 0
    assert list(hosts.iterdir()) == []
    assert group is None or not group.exists()
    assert machine(tree) == before


def test_what_cannot_be_tried_is_one_clear_line(tmp_path: Path, tree: Path, environment: dict[str, str]) -> None:
    manifest = tmp_path / "site.yaml"
    manifest.write_text("- exec:\n    - /bin/true:\n")
    broken = tmp_path / "broken.yaml"
    broken.write_text("- exec:\n    - /bin/true: {comand: x}\n")
    without_namespaces = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    for words, message in [
        ((*WITHOUT_RIGHTS, PROGRAM, "try", manifest), "needs root: run it as root"),
        (
            (*without_namespaces, PROGRAM, "try", manifest),
            "a throw-away host cannot run here: may not create namespaces: ",
        ),
        ((PROGRAM, "try", "-"), "write the manifest to a file"),
        ((PROGRAM, "try", "https://example.org/site.tgz"), "download the bundle first"),
        ((PROGRAM, "try", "/tmp/site.yaml"), "put the manifest into a directory of its own"),
        ((PROGRAM, "try", broken), "broken.yaml:2:"),
        ((PROGRAM, "try", tmp_path / "missing.yaml"), "No such file"),
    ]:
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 2, (words, done)
        assert message in done.stderr, (words, done)
        assert len(done.stderr.splitlines()) == (2 if words[-1] in (broken, tmp_path / "missing.yaml") else 1)
        assert not done.stdout
    assert list((tmp_path / "hosts").iterdir()) == []

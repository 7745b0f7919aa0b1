"""A signal and a time limit end the work on a resource, also where no command runs."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied, fill_in
from fork_server import PROGRAM
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.host import Host
from mainstay.converge.host.packages import query, run_when_unlocked
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.resources.file import TYPE as FILE

Apply = Callable[..., Applied]
# Renders for hours.
LOOPS = "{% for a in data.n %}{% for b in data.n %}{% for c in data.n %}{% endfor %}{% endfor %}{% endfor %}"
ENDLESS = """
data: {n: [NUMBERS]}
resources:
  - file:
      - defaults: {owner: USER, group: GROUP, mode: "0644"}
      - ROOT/first: {ensure: present, content: first}
      - ROOT/endless: {ensure: present, content: "{{ template('ROOT/loops') }}"}
      - ROOT/last: {ensure: present, content: last}
""".replace("NUMBERS", ", ".join("1" * 5000))


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_our_own_work_within_two_seconds(number: int, code: int, root: Path) -> None:
    (root / "loops").write_text(LOOPS)
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(fill_in(ENDLESS, root))
    process = subprocess.Popen([PROGRAM, "apply", manifest, "--json"], stdout=subprocess.PIPE)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The start and the first file take less: it renders.
    while (spent := processor_seconds(process.pid)) < 1.5:
        assert process.poll() is None
        time.sleep(0.02)
    assert (root / "first").exists()
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == code
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of the processor, which a loaded machine gives it less often.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < spent + 2
    events = json.loads(output)["events"]
    assert [event["outcome"] for event in events] == ["changed", "failed", "skipped"]
    assert events[1]["errors"] == [f"interrupted by {signal.Signals(number).name}"]
    assert not (root / "endless").exists()


def test_the_time_limit_of_a_type_fails_the_resource_and_the_run_goes_on(
    apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FILE, "time_limit_seconds", 0.6)
    (root / "loops").write_text(LOOPS)
    done = apply(ENDLESS)
    assert done.outcomes == ["changed", "failed", "changed"]
    assert done.errors == ["timed out after 0.6s, the limit of its type"]
    assert done.report.events[1].error_kind == "Timeout"


def test_the_time_limit_of_a_type_ends_its_commands(
    apply: Apply, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FILE, "time_limit_seconds", 0.6)
    done = apply(
        "- file:\n    - ROOT/x: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0644',"
        " validate: sleep 30}\n"
    )
    assert done.errors == ["timed out after 0.6s, the limit of its type, with this command: sleep"]
    assert done.report.events[0].error_kind == "Timeout"
    assert not (root / "x").exists()


def test_a_stopping_run_waits_for_a_package_manager(tmp_path: Path) -> None:
    """Interrupted, it would leave packages half installed. A mere query is ended."""
    stop = StopFlag()
    stop.request("SIGTERM", at_once=True)
    host = Host("run", StateDirectory(str(tmp_path)), stop, noop=False)
    done = run_when_unlocked(host, ["sh", "-c", "sleep 0.5; echo installed"], ())
    assert (done.exit_code, done.stdout) == (0, "installed\n")
    with pytest.raises(Stopped):
        query(host, ["sh", "-c", "sleep 30"])

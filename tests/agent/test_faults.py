"""Kills, stops, network cuts and full disks of agent, server and host: every service still reaches its state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bridge import LIFECYCLE, AgentProcess, Bridge, bridge_on, wait_until
from control_plane import running, start
from fault_lab import (
    AGENT_PID,
    ATTEMPT,
    NAME,
    ROOT,
    SHORT_LEASE,
    FaultLab,
    enrolment_over,
    file,
    is_running,
    link_to,
    processes_of,
    run_script,
    wait_until_gone,
)
from required_parts import need_root

SEEDS = range(2)


@pytest.fixture
def lab(bridge: Bridge, root: Path) -> FaultLab:
    return FaultLab(bridge, root)


def unique_sleep() -> str:
    """A command that no other process has in its command line."""
    return f"sleep 6{random.SystemRandom().randrange(10**9)}"


# ---- kill -9 ----
@pytest.mark.test_all
def test_killed_at_every_resource_the_agent_resumes_the_job(lab: FaultLab) -> None:
    sleep = unique_sleep()
    resources: list[dict[str, Any]] = []
    for step in range(5):
        config, mark = f"{ROOT}/config-{step}", f"{lab.root}/killed-{step}"
        resources.append(file(config, "port={{ lookup('properties.size') }}\n"))
        resources.append(
            run_script(
                f"kill {step}", f"[ -e {mark} ] && exit; touch {mark}; kill -9 {AGENT_PID}; {sleep}; touch {mark}-too"
            )
        )
        resources.append(
            run_script(
                f"restart {step}",
                lab.echo("restart", str(step)),
                refresh_only=True,
                subscribe=[f"file#{config}"],
            )
        )
    lab.make({"create": resources})
    service = lab.order({"size": 7})
    for _ in range(5):
        agent = lab.start()
        assert agent.process.wait(timeout=20) == -signal.SIGKILL
    agent = lab.start()
    lab.bridge.wait_for(service, "Stopped")
    assert lab.lines() == [f"restart {step}" for step in range(5)]
    assert lab.job(service)["attempt"] == 1
    assert not is_running(sleep)
    assert not list(lab.root.glob("*-too"))
    assert agent.stop() == 0
    lab.check_nothing_is_left()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.test_all
def test_killed_at_any_instant_the_agent_loses_no_result_and_no_restart(lab: FaultLab, seed: int) -> None:
    chance = random.Random(seed)
    resources: list[dict[str, Any]] = []
    for step in range(8):
        config = f"{ROOT}/{NAME}-{step}"
        resources.append(file(config, "size {{ lookup('properties.size', 0) }}\n" * 500))
        resources.append(
            run_script(f"restart {step}", lab.echo(NAME, str(step)), refresh_only=True, subscribe=[f"file#{config}"])
        )
    lab.make({"create": resources, "update": resources})
    services = [lab.order({"size": 1}, groupId=lab.new_group()) for _ in range(4)]
    kills = 5
    for _ in range(kills):
        agent = lab.start()
        time.sleep(chance.uniform(0.0, 0.25))
        agent.kill()
    agent = lab.start()
    for service in services:
        found = lab.bridge.wait_for(service, "Stopped")
        for step in range(8):
            assert (lab.root / f"{found['name']}-{step}").read_text() == "size 1\n" * 500
    restarts = Counter(lab.lines())
    assert len(restarts) == 4 * 8
    # A kill between a restart and its record on disk repeats the restart, once per running service.
    assert sum(restarts.values()) <= 4 * 8 + kills * 4
    assert agent.stop() == 0
    lab.check_nothing_is_left()


# ---- the process of a job ----
def test_a_job_whose_process_crashes_fails_and_the_agent_goes_on(lab: FaultLab) -> None:
    crash = f"[ -e {lab.root}/crashed ] && exit; touch {lab.root}/crashed; kill -SEGV $PPID; sleep 1"
    lab.make({"create": [run_script("crash", crash)]})
    agent = lab.start()
    service = lab.order()
    lab.wait_for_job(service, status="Failed")
    assert lab.job(service)["errorMessage"].startswith("the process of the job ended without a result")
    lab.bridge.wait_for(lab.order(groupId=lab.new_group()), "Stopped")
    assert agent.stop() == 0


def test_a_job_that_hangs_delays_neither_leases_nor_other_jobs(lab: FaultLab) -> None:
    """Its process is stopped, as if it never gave up the interpreter: that was the end of every job and lease."""
    hang = f"[ {NAME} = quick ] && exit; {lab.echo('$PPID')}; kill -STOP $PPID; sleep 0.1"
    lab.make({"create": [run_script("hang", hang)]})
    agent = lab.start(*SHORT_LEASE)
    service = lab.order()
    wait_until(lambda: bool(lab.lines()), "the job hangs", agent.text)
    quick = lab.order(name="quick", groupId=lab.new_group())
    lab.bridge.wait_for(quick, "Stopped")
    expires = lab.job(service)["leaseExpiresAt"]
    wait_until(lambda: lab.job(service)["leaseExpiresAt"] > expires, "its lease is renewed", agent.text)
    assert lab.job(service)["status"] == "Processing"
    os.kill(int(lab.lines()[0]), signal.SIGCONT)
    lab.bridge.wait_for(service, "Stopped")
    assert lab.job(service)["attempt"] == 1
    assert agent.stop() == 0


def test_without_the_process_that_starts_jobs_the_agent_fails_and_its_jobs_wait(lab: FaultLab) -> None:
    lab.make({"create": [run_script("step", lab.echo("ran"))]})
    agent = lab.start()
    os.kill(processes_of(agent.process.pid)[1], signal.SIGKILL)
    service = lab.order()
    assert agent.process.wait(timeout=20) == 1
    assert lab.job(service)["status"] == "Pending"
    lab.start()
    lab.bridge.wait_for(service, "Stopped")
    assert lab.lines() == ["ran"]


# ---- the server ----
def test_a_server_killed_in_the_middle_of_a_job_gets_its_result_later(tmp_path: Path, root: Path) -> None:
    with running(tmp_path / "own" / "data") as server, bridge_on(server, tmp_path / "bridge") as bridge:
        lab = FaultLab(bridge, root)
        go = root / "go"
        lab.make({"create": [run_script("wait", f"{lab.echo('started')}; until [ -e {go} ]; do sleep 0.05; done")]})
        lab.start()
        one, other = (lab.order(groupId=lab.new_group()) for _ in range(2))
        wait_until(lambda: len(lab.lines()) == 2, "both are at work", bridge.logs)
        server.process.kill()
        server.process.wait(timeout=20)
        go.touch()
        wait_until(lambda: bridge.logs().count("result not delivered, retrying") >= 2, "results wait", bridge.logs)
        # Saved results survive a kill of the agent.
        bridge.agents[0].kill()
        agent = lab.start()
        restarted = start(server.data_dir, port=int(server.url.rpartition(":")[2]))
        try:
            for service in (one, other):
                bridge.wait_for(service, "Stopped", 40)
                assert lab.job(service)["attempt"] == 1
            assert lab.lines() == ["started"] * 2
            assert agent.stop() == 0
            lab.check_nothing_is_left()
        finally:
            restarted.process.kill()
            restarted.process.wait(timeout=20)


# ---- the link ----
@pytest.mark.test_all
def test_cut_off_for_longer_than_its_lease_an_agent_ends_its_run_before_another_starts(lab: FaultLab) -> None:
    """The command ignores SIGTERM: that is the slowest way to end."""
    bridge, mark = lab.bridge, unique_sleep()
    beat = (
        f"trap '' TERM; echo starts {ATTEMPT} {ROOT} >>{lab.record}; "
        f"for n in $(seq 300); do [ -e {lab.root}/go ] && exit 0; echo beats {ATTEMPT} >>{lab.record}; sleep 0.05; done; "
        f": {mark}"
    )
    lab.make({"create": [run_script("first", beat), run_script("second", lab.echo("second", ATTEMPT))]})
    with link_to(bridge.server.url) as link:
        cut_off = lab.start(*SHORT_LEASE, "--config", str(enrolment_over(bridge, link.url, "cut.json")))
        service = lab.order()
        lab.wait_for_line(f"starts 1 {lab.root}")
        link.is_cut = True
        other_root = lab.root / "other"
        other_root.mkdir()
        other = lab.start(*SHORT_LEASE, root=other_root, state=bridge.folder / "other")
        lab.wait_for_line(f"starts 2 {other_root}", 40)
        (lab.root / "go").touch()
        bridge.wait_for(service, "Stopped", 40)
        link.is_cut = False
        wait_until(lambda: "job finished" in cut_off.text(), "the first run ends", bridge.logs)
    attempts = [line.split()[1] for line in lab.lines()]
    assert attempts == sorted(attempts)
    assert lab.lines().count("second 1") == 0
    assert lab.lines().count("second 2") == 1
    assert "lease lost, ending the run" in cut_off.text()
    assert lab.job(service)["attempt"] == 2
    assert not is_running(mark)
    assert other.stop() == 0
    assert cut_off.stop() == 0
    lab.check_nothing_is_left()


@pytest.mark.test_all
def test_a_result_after_the_end_of_the_lease_is_dropped(lab: FaultLab) -> None:
    bridge = lab.bridge
    lab.make({"create": [run_script("once", f"{lab.echo('attempt', ATTEMPT)}; sleep 1")]})
    with link_to(bridge.server.url) as link:
        cut_off = lab.start(*SHORT_LEASE, "--config", str(enrolment_over(bridge, link.url, "cut.json")))
        service = lab.order()
        lab.wait_for_line("attempt 1")
        link.is_cut = True
        wait_until(lambda: "job finished" in cut_off.text(), "the run ends", bridge.logs)
        lab.wait_for_job(service, 40, status="Pending", attempt=2)
        cut_off.kill()
    agent = lab.start()
    bridge.wait_for(service, "Stopped")
    assert "result refused by the server, dropped" in agent.text()
    assert lab.job(service)["attempt"] == 2
    assert lab.lines() == ["attempt 1", "attempt 2"]
    assert agent.stop() == 0
    lab.check_nothing_is_left()


# ---- in parallel ----
def check_no_overlap(lines: list[str]) -> dict[str, list[str]]:
    """Jobs of one group must not overlap in the lines `begin GROUP NAME` and `end GROUP NAME`. Returns names by group."""
    order: dict[str, list[str]] = {}
    busy: dict[str, str] = {}
    for line in lines:
        word, group, name = line.split()
        if word == "begin":
            assert group not in busy, line
            busy[group] = name
            order.setdefault(group, []).append(name)
        else:
            assert busy.pop(group) == name
    assert not busy
    return order


def make_recording_service(lab: FaultLab) -> None:
    words = ("{{ lookup('properties.group') }}", NAME)
    script = f"{lab.echo('begin', *words)}; sleep 0.02; {lab.echo('end', *words)}"
    schema = {"group": {"type": "string"}, "size": {"type": "integer"}}
    lab.make(
        {"create": [run_script("record", script)], "update": [run_script("record", script)]}, property_schema=schema
    )


def test_services_run_in_parallel_and_those_of_one_group_in_order(lab: FaultLab) -> None:
    make_recording_service(lab)
    groups = [lab.new_group() for _ in range(8)]
    services = [
        lab.order({"group": groups[number % 8]}, name=f"s{number:02d}", groupId=groups[number % 8])
        for number in range(40)
    ]
    agent = lab.start("--jobs", "8")
    for service in services:
        lab.bridge.wait_for(service, "Stopped", 60)
    order = check_no_overlap(lab.lines())
    assert order == {
        group: [f"s{number:02d}" for number in range(40) if number % 8 == index] for index, group in enumerate(groups)
    }
    assert agent.stop() == 0
    lab.check_nothing_is_left()


def test_two_agents_with_one_token_run_each_job_once(lab: FaultLab) -> None:
    make_recording_service(lab)
    groups = [lab.new_group() for _ in range(25)]
    agents = [lab.start("--jobs", "6"), lab.start("--jobs", "6", state=lab.bridge.folder / "second")]
    with ThreadPoolExecutor(4) as threads:
        services = list(
            threads.map(
                lambda number: lab.order(
                    {"group": groups[number % 25]}, name=f"s{number}", groupId=groups[number % 25]
                ),
                range(50),
            )
        )
    for service in services:
        lab.bridge.wait_for(service, "Stopped", 60)
        (job,) = lab.bridge.scenario.jobs(service)
        assert (job["status"], job["attempt"]) == ("Completed", 1)
    check_no_overlap(lab.lines())
    runs = Counter(line.split()[2] for line in lab.lines() if line.startswith("begin"))
    assert runs == Counter(f"s{number}" for number in range(50))
    assert [agent.stop() for agent in agents] == [0, 0]
    assert all("job started" in agent.text() for agent in agents)
    lab.check_nothing_is_left()
    lab.check_nothing_is_left(lab.bridge.folder / "second")


# ---- signals ----
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.test_all
def test_stopped_at_any_instant_the_agent_releases_its_jobs(lab: FaultLab, seed: int) -> None:
    chance = random.Random(seed)
    steps = [
        run_script(f"step {step}", f"sleep 0.05; touch {ROOT}/{NAME}-{step}", creates=f"{ROOT}/{NAME}-{step}")
        for step in range(4)
    ]
    lab.make({"create": steps})
    services = []
    for attempt in range(5):
        agent = lab.start("--jobs", "3")
        services += [lab.order(name=f"s{attempt}-{number}", groupId=lab.new_group()) for number in range(3)]
        time.sleep(chance.uniform(0.0, 0.3))
        assert agent.stop() == 0, agent.text()
        assert agent.text().rstrip().endswith("agent stopped")
        lab.check_nothing_is_left()
        for service in services:
            job = lab.job(service)
            assert (job["status"], job["attempt"]) in {("Pending", 1), ("Completed", 1)}
    agent = lab.start()
    for service in services:
        lab.bridge.wait_for(service, "Stopped")
    assert agent.stop() == 0


def test_a_second_signal_also_ends_the_running_command(lab: FaultLab) -> None:
    sleep = unique_sleep()
    lab.make(
        {
            "create": [
                run_script("long", f"{lab.echo('started')}; {sleep}"),
                run_script("next", lab.echo("next")),
            ]
        }
    )
    agent = lab.start()
    service = lab.order()
    lab.wait_for_line("started")
    agent.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(timeout=1)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(timeout=20) == 0
    wait_until_gone(sleep)
    job = lab.job(service)
    assert (job["status"], job["attempt"]) == ("Pending", 1)
    assert lab.lines() == ["started"]
    lab.check_nothing_is_left()


@pytest.mark.test_all
def test_a_signal_ends_the_agent_within_30_seconds(lab: FaultLab) -> None:
    """The command ignores SIGTERM: that is the slowest way to end."""
    sleep = unique_sleep()
    lab.make({"create": [run_script("long", f"trap '' TERM; {lab.echo('started')}; {sleep}; {sleep}; {sleep}")]})
    agent = lab.start()
    service = lab.order()
    lab.wait_for_line("started")
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(timeout=30) == 0
    wait_until_gone(sleep)
    job = lab.job(service)
    assert (job["status"], job["attempt"]) == ("Pending", 1)
    lab.check_nothing_is_left()


@pytest.mark.test_all
def test_suspended_for_longer_than_its_lease_the_agent_drops_the_job(lab: FaultLab) -> None:
    steps = [run_script(f"step {step}", f"{lab.echo(ATTEMPT, str(step))}; sleep 0.3") for step in range(4)]
    lab.make({"create": steps})
    agent = lab.start(*SHORT_LEASE)
    service = lab.order()
    lab.wait_for_line("1 1")
    suspended = processes_of(agent.process.pid)
    for pid in suspended:
        os.kill(pid, signal.SIGSTOP)
    lab.wait_for_job(service, 40, status="Pending", attempt=2)
    for pid in suspended:
        os.kill(pid, signal.SIGCONT)
    lab.bridge.wait_for(service, "Stopped")
    assert [line for line in lab.lines() if line.startswith("1")] == ["1 0", "1 1"]
    assert [line for line in lab.lines() if line.startswith("2")] == [f"2 {step}" for step in range(4)]
    assert agent.stop() == 0
    lab.check_nothing_is_left()


JUMPING = """
import random, runpy, sys, time

true_time, chance = time.time, random.Random(8)
time.time = lambda: true_time() + chance.choice((-1, 1)) * chance.uniform(0, 10 * 365 * 86400)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.test_all
def test_clock_jumps_of_years_have_no_effect(lab: FaultLab) -> None:
    """Replaces `time.time` in the process of the agent; the clock of the machine stays."""
    wrapper = lab.bridge.folder / "jumping.py"
    wrapper.write_text(JUMPING)
    steps = [run_script(f"step {step}", f"{lab.echo(str(step))}; sleep 2") for step in range(3)]
    lab.make({"create": [file(f"{ROOT}/config", "x"), *steps], "update": steps[:1]})
    agent = lab.start(*SHORT_LEASE, command=[sys.executable, str(wrapper)])
    service = lab.order()
    lab.bridge.wait_for(service, "Stopped")
    lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 2}})
    lab.bridge.wait_for(service, "Stopped")
    assert lab.lines() == ["0", "1", "2", "0"]
    assert {job["attempt"] for job in lab.bridge.scenario.jobs(service)} == {1}
    assert "lease" not in agent.text()
    assert agent.stop() == 0


# ---- cancel ----
def test_a_job_cancelled_before_its_claim_never_runs(lab: FaultLab) -> None:
    lab.make({"create": [run_script("step", lab.echo("run"))]})
    one, other = lab.order(), lab.order(groupId=lab.new_group())
    lab.bridge.admin.post(f"/jobs/{one['activeJob']['id']}/cancel", expect=204)
    lab.start()
    lab.bridge.wait_for(other, "Stopped")
    assert lab.lines() == ["run"]
    assert lab.job(one)["status"] == "Cancelled"


def test_a_cancelled_job_ends_after_the_running_command(lab: FaultLab) -> None:
    first = f"{lab.echo('first')}; until [ -e {lab.root}/go ]; do sleep 0.05; done"
    lab.make(
        {
            "create": [
                run_script("first", first),
                run_script("second", lab.echo("second")),
                run_script("third", "true"),
            ]
        }
    )
    agent = lab.start(*SHORT_LEASE)
    service = lab.order()
    lab.wait_for_line("first")
    lab.bridge.admin.post(f"/jobs/{service['activeJob']['id']}/cancel", expect=204)
    # The next renewal returns the cancel; the command is not interrupted.
    time.sleep(2.5)
    assert lab.job(service)["status"] == "Processing"
    (lab.root / "go").touch()
    job = lab.wait_for_job(service, status="Cancelled")
    assert job["errorMessage"] == "cancelled after 1 of 3"
    report = lab.bridge.admin.get(f"/jobs/{job['id']}/report")
    assert [event["outcome"] for event in report["events"]] == ["changed", "skipped", "skipped"]
    assert lab.lines() == ["first"]
    lab.bridge.wait_for(service, "Broken")
    assert agent.stop() == 0
    lab.check_nothing_is_left()


def test_a_job_cancelled_while_the_agent_was_down_ends_when_it_is_resumed(lab: FaultLab) -> None:
    lab.make({"create": [run_script("first", f"{lab.echo('first')}; sleep 60")]})
    agent = lab.start()
    service = lab.order()
    lab.wait_for_line("first")
    agent.kill()
    lab.bridge.admin.post(f"/jobs/{service['activeJob']['id']}/cancel", expect=204)
    agent = lab.start()
    assert lab.wait_for_job(service, status="Cancelled")["errorMessage"] == "cancelled after 0 of 1"
    assert lab.lines() == ["first"]
    assert agent.stop() == 0


# ---- timeouts ----
def test_a_timeout_of_the_blueprint_ends_the_run_and_its_command(lab: FaultLab) -> None:
    sleep = unique_sleep()
    lab.make(
        {
            "create": [
                run_script("fast", "true"),
                run_script("long", sleep),
                run_script("next", lab.echo("next")),
            ]
        },
        actions={"create": {"manifest": "manifests/create.yaml", "timeout": "1s"}},
    )
    lab.start()
    service = lab.order()
    job = lab.wait_for_job(service, status="Failed")
    assert job["errorMessage"].split("\n")[0] == "timed out after 1s"
    wait_until_gone(sleep)
    assert lab.lines() == []


def test_a_timeout_of_the_lifecycle_ends_the_run_and_its_command(lab: FaultLab) -> None:
    sleep = unique_sleep()
    actions = [
        {**action, **({"timeoutSeconds": 2} if action["name"] == "create" else {})} for action in LIFECYCLE["actions"]
    ]
    lab.make(
        {
            "create": [
                run_script("long", f"{lab.echo('started')}; {sleep}"),
                run_script("next", lab.echo("next")),
            ]
        },
        lifecycle_schema={**LIFECYCLE, "actions": actions},
    )
    agent = lab.start(*SHORT_LEASE)
    service = lab.order()
    job = lab.wait_for_job(service, status="Failed")
    assert job["errorMessage"] == "job timed out"
    wait_until_gone(sleep)
    assert lab.lines() == ["started"]
    assert agent.stop() == 0
    lab.check_nothing_is_left()


# ---- full disks ----
class SmallDisk:
    """A tmpfs of 2 MB that can be filled and freed."""

    def __init__(self, mount_point: Path) -> None:
        need_root()
        self.mount_point = mount_point
        mount_point.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", mount_point], check=True)

    def fill(self) -> None:
        with (self.mount_point / "filler").open("wb", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        (self.mount_point / "filler").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.mount_point], check=True)


def test_with_a_full_state_directory_no_job_is_claimed(lab: FaultLab) -> None:
    disk = SmallDisk(lab.bridge.state)
    try:
        lab.make({"create": [file(f"{ROOT}/config", "x"), run_script("step", lab.echo("run"))]})
        agent = lab.start()
        disk.fill()
        service = lab.order()
        wait_until(lambda: "no jobs are claimed" in agent.text(), "the agent logs it", agent.text)
        job = lab.job(service)
        assert (job["status"], job["attempt"]) == ("Pending", 1)
        disk.free()
        lab.bridge.wait_for(service, "Stopped", 40)
        assert lab.lines() == ["run"]
        assert agent.stop() == 0
        lab.check_nothing_is_left()
    finally:
        disk.close()


def test_a_state_directory_that_fills_up_during_a_job_loses_no_result(lab: FaultLab) -> None:
    disk = SmallDisk(lab.bridge.state)
    try:
        wait = f"{lab.echo('started')}; until [ -e {lab.root}/go ]; do sleep 0.05; done"
        lab.make({"create": [run_script("wait", wait), run_script("step", lab.echo("run"))]})
        agent = lab.start()
        service = lab.order()
        lab.wait_for_line("started")
        disk.fill()
        (lab.root / "go").touch()
        lab.bridge.wait_for(service, "Stopped", 40)
        assert lab.lines() == ["started", "run"]
        disk.free()
        assert agent.stop() == 0
        lab.check_nothing_is_left()
    finally:
        disk.close()


def test_a_full_disk_fails_the_job_and_the_next_job_succeeds_after_a_cleanup(lab: FaultLab) -> None:
    disk = SmallDisk(lab.root / "disk")
    try:
        config = file(f"{ROOT}/disk/config", "12345678\n" * 10_000)
        lab.make({"create": [run_script("make", "true")], "update": [config]})
        agent = lab.start()
        service = lab.bridge.wait_for(lab.order(), "Stopped")
        disk.fill()
        lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 1}})
        lab.bridge.wait_for(service, "Stopped")
        job = lab.job(service, "update")
        assert job["status"] == "Failed"
        assert "No space left on device" in job["errorMessage"].split("\n")[0]
        disk.free()
        lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 1}})
        lab.bridge.wait_for(service, "Stopped")
        assert lab.job(service, "update")["status"] == "Completed"
        assert (lab.root / "disk/config").stat().st_size == 90_000
        assert agent.stop() == 0
        lab.check_nothing_is_left()
    finally:
        disk.close()


# ---- leaks ----
def measure(agent: AgentProcess) -> tuple[int, int, int]:
    """(resident KiB, threads, open files)."""
    process = Path(f"/proc/{agent.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), int(status["Threads"]), len(os.listdir(process / "fd"))


@pytest.mark.test_all
def test_the_agent_does_not_leak_over_hundreds_of_jobs(lab: FaultLab) -> None:
    config = file(f"{ROOT}/{NAME}", "size {{ lookup('properties.size', 0) }}\n")
    lab.make({"create": [config, run_script("step", "true")], "update": [config, run_script("step", "true")]})
    agent = lab.start("--jobs", "4")
    services = [lab.bridge.wait_for(lab.order(groupId=lab.new_group()), "Stopped") for _ in range(20)]

    def update_all(size: int) -> None:
        for service in services:
            lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": size}})
        for service in services:
            lab.bridge.wait_for(service, "Stopped")

    for size in range(1, 6):
        update_all(size)
    memory, threads, files = measure(agent)
    for size in range(6, 25):
        update_all(size)
    memory_after, threads_after, files_after = measure(agent)
    assert agent.text().count("outcome=complete") == 20 * 25
    assert threads_after <= threads + 1
    assert files_after <= files + 2
    assert memory_after < memory + 4096
    assert agent.stop() == 0
    lab.check_nothing_is_left()

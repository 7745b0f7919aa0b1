"""Watching a service: a progress bar on a terminal, a line per change in a pipe, and Ctrl-C leaves the job running."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import pytest

from command_line import Shell, faulty_proxy_to, on_terminal
from fork_server import PROGRAM
from mainstay.agent.client import Client
from mainstay.cli.remote.job_progress import follow, follow_all
from scenario import Scenario


class ClaimedJob:
    """A job that the test claims, advances and completes."""

    def __init__(self, scenario: Scenario, service: Any) -> None:
        self.agent = scenario.agent
        (self.job,) = self.agent.get(f"/jobs/pending?serviceId={service['id']}")
        claim = self.agent.post(f"/jobs/{self.job['id']}/claim", {"leaseSeconds": 600}, expect=200)
        self.lease = {"leaseToken": claim["leaseToken"]}

    def progress(self, percent: int, text: str) -> None:
        renewal = {**self.lease, "progress": {"percent": percent, "text": text}}
        self.agent.post(f"/jobs/{self.job['id']}/renew", renewal, expect=200)

    def complete(self) -> None:
        self.agent.post(f"/jobs/{self.job['id']}/complete", self.lease, expect=204)


@pytest.fixture
def ordered(scenario: Scenario) -> Any:
    return scenario.order(scenario.service_type(), name="shop")


def test_a_terminal_shows_a_progress_bar_in_place(shell: Shell, scenario: Scenario, ordered: Any) -> None:
    words = [str(PROGRAM), "watch", "shop"]
    with on_terminal(words, {**shell.environment(scenario.consumer.token), "NO_COLOR": ""}) as terminal:
        terminal.wait_for("create is queued, agent")
        job = ClaimedJob(scenario, ordered)
        job.progress(50, "resource 6 of 12: \x1b[2J" + "x" * 200)
        terminal.wait_for("50%")
        job.complete()
        assert terminal.finish() == 0
    painted = terminal.seen.split("\r\x1b[K")
    bar = next(line for line in painted if "50%" in line)
    assert "█" * 10 + "░" * 10 in bar
    # One line, truncated before the colour codes are added.
    assert "\n" not in bar
    shown = re.sub(r"\x1b\[\d+m", "", bar)
    assert "\x1b" not in shown
    assert len(shown) == 79
    assert bar.startswith("\x1b[1mshop\x1b[0m: New, create ")
    assert re.search(r"shop\x1b\[0m: Stopped, create \x1b\[32mcompleted\x1b\[0m in [\d.]+s\r\n$", terminal.seen)


def test_without_colours_there_are_no_escape_codes(shell: Shell, scenario: Scenario, ordered: Any) -> None:
    with on_terminal([str(PROGRAM), "services"], shell.environment(scenario.consumer.token)) as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.seen
    assert all(len(line) <= 80 for line in terminal.seen.splitlines())


def test_ctrl_c_leaves_the_job_running(shell: Shell, scenario: Scenario, ordered: Any) -> None:
    with on_terminal([str(PROGRAM), "watch", "shop"], shell.environment(scenario.consumer.token)) as terminal:
        terminal.wait_for("create is queued, agent")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert f"the job continues; follow it with `mainstay watch {ordered['id'][:8]}`" in terminal.seen
    assert scenario.service(ordered["id"])["activeJob"]["status"] == "Pending"


def test_follow_also_shows_the_next_run(shell: Shell, scenario: Scenario, ordered: Any) -> None:
    words = [str(PROGRAM), "watch", "shop", "--follow"]
    with on_terminal(words, {**shell.environment(scenario.consumer.token), "TERM": "dumb"}) as terminal:
        terminal.wait_for("shop: New, create is queued, agent")
        ClaimedJob(scenario, ordered).complete()
        terminal.wait_for("shop: Stopped, create completed in ")
        scenario.do(ordered, "start")
        terminal.wait_for("shop: Stopped, start is queued on")
        ClaimedJob(scenario, ordered).complete()
        terminal.wait_for("shop: Started, start completed in ")
        terminal.type("\x03")
        assert terminal.finish() == 130


def test_a_run_of_several_steps_is_followed_to_its_end(shell: Shell, scenario: Scenario) -> None:
    steps = [{"from": "New", "to": "Built"}, {"from": "Built", "to": "Ready"}]
    kind = scenario.service_type(
        None,
        {
            "states": [{"name": name} for name in ("New", "Built", "Ready", "Gone")],
            "initialState": "New",
            "terminalStates": ["Gone"],
            "actions": [
                {"name": "create", "transitions": steps},
                {"name": "delete", "transitions": [{"from": "Ready", "to": "Gone"}]},
            ],
        },
    )
    service = scenario.order(kind, name="steps")
    words = [str(PROGRAM), "watch", "steps"]
    with on_terminal(words, {**shell.environment(scenario.consumer.token), "TERM": "dumb"}) as terminal:
        terminal.wait_for("steps: New, create is queued")
        ClaimedJob(scenario, service).complete()
        terminal.wait_for("steps: Built, create is queued")
        ClaimedJob(scenario, service).complete()
        assert terminal.finish() == 0
    assert "steps: Ready, create completed in " in terminal.seen


def test_a_service_without_an_active_job_shows_the_outcome_of_its_last_job(
    shell: Shell, scenario: Scenario, ordered: Any
) -> None:
    scenario.fail(ordered, "no route")
    done = shell.run(scenario.consumer, "watch", "shop", code=1)
    assert done.stdout.startswith("shop: New, create failed in ")


def test_later_jobs_do_not_change_the_outcome_of_a_run(scenario: Scenario, ordered: Any) -> None:
    (first,) = scenario.jobs(ordered)
    scenario.fail(ordered, "no route")
    scenario.consumer.delete(f"/services/{ordered['id']}")
    client = Client(scenario.admin.url, scenario.consumer.token)
    followed = follow(client, ordered["id"], inf, job_id=first["id"], quiet=True)
    assert (followed.exit_code, followed.job["id"]) == (1, first["id"])


def test_a_server_that_limits_requests_is_waited_for(
    shell: Shell, scenario: Scenario, ordered: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ClaimedJob(scenario, ordered).complete()
    answers = iter([False, False])

    def spoil(_method: str, path: str) -> bool:
        return next(answers, True) if path.startswith("/api/v1/jobs") else True

    with faulty_proxy_to(shell.server, spoil) as proxy:
        lines = shell.run(scenario.consumer, "watch", "shop", url=proxy.url).stdout.splitlines()
        assert lines[0] == "the server limits requests, going on in 1 s"
        assert lines[1].startswith("shop: Stopped, create completed")
        # The jobs of several services.
        answers = iter([False])
        (job,) = scenario.jobs(ordered)
        followed = follow_all(Client(proxy.url, scenario.consumer.token), [job], 30, quiet=False)
        assert [each.exit_code for each in followed] == [0]
        assert capsys.readouterr().out.startswith("the server limits requests, going on in 1 s\n")
        # Other requests are refused with the time to wait, and without doubts about the address.
        answers = iter([False])
        refused = shell.run(scenario.consumer, "jobs", code=1, url=proxy.url)
        assert refused.stderr == (f"mainstay: {proxy.url} limits requests: too many requests; try again in 1 s\n")


def test_a_hint_is_shown_while_the_agent_is_offline(
    scenario: Scenario, ordered: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 4:
            ClaimedJob(scenario, ordered).complete()

    monkeypatch.setattr("mainstay.cli.remote.job_progress.HINT_SECONDS", 0.0)
    monkeypatch.setattr("mainstay.cli.remote.job_progress.time.sleep", sleep)
    (job,) = scenario.jobs(ordered)
    follow(Client(scenario.admin.url, scenario.consumer.token), ordered["id"], inf)
    output = capsys.readouterr().out
    assert output.count("The job starts when agent") == 1
    assert f"`mainstay jobs cancel {job['id'][:8]}` cancels it" in output

"""The example stack, and the commands that manage one unit or package, on a real host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from system.conftest import ENVIRONMENT, PROGRAM, ManagedHost

pytestmark = pytest.mark.test_all

MANIFEST = str(Path(__file__).parents[2] / "examples" / "stack" / "manifest.yaml")
GREET = "/opt/hello/hello --check 8090"
MAIN_PID = "systemctl show --value -p MainPID hello"


def test_the_example_stack_starts_reloads_restarts_and_is_monitored(new_host: ManagedHost) -> None:
    host = new_host

    def run(*options: str) -> dict[str, str]:
        done = host.mainstay("apply", MANIFEST, "--json", *options)
        return {name.partition("#")[2]: outcome for name, outcome in done.outcomes.items()}

    before = host.snapshot()
    forecast = run("--noop")
    assert host.snapshot() == before
    first = run()
    # Nothing runs yet, so the restart command does nothing; a dry run cannot know that.
    assert first == forecast
    assert first["hello"] == "changed"
    assert host.shell(GREET) == "hello\n"
    assert host.shell("systemctl is-enabled hello") == "enabled\n"
    assert set(run().values()) == {"stable"}

    pid = host.shell(MAIN_PID)
    changed = run("--set", "greeting=good morning")
    assert changed["/etc/hello.json"] == "changed"
    assert changed["hello"] == "refreshed"
    assert host.shell(GREET) == "good morning\n"
    assert host.shell(MAIN_PID) == pid

    host.shell("echo '# by hand' >>/opt/hello/hello")
    assert run("--set", "greeting=good morning")["restart with the new program"] == "refreshed"
    assert host.shell(MAIN_PID) != pid
    assert host.shell(GREET) == "good morning\n"

    host.shell("sed -i s/8090/8091/ /etc/hello.json; systemctl restart hello")
    done = host.mainstay("apply", MANIFEST, "--json", "--monitor-only")
    assert done.events["service#hello"]["errors"][0].startswith("health check HTTP responds is CRITICAL: no response")
    assert done.exit_code == 1


# ---- one resource ----
def test_one_unit_is_ensured_and_its_status_shown(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("single", "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")
    words = ("ensure", "service", "single", "--ensure", "running", "--enable", "--json")
    forecast = host.mainstay(*words, "--noop")
    assert forecast.events["service#single"]["noop_message"] == "Would have started, would have enabled"
    assert host.mainstay(*words).outcomes == {"service#single": "changed"}
    assert host.mainstay(*words).outcomes == {"service#single": "stable"}
    status = host.machine.run(str(PROGRAM), "status", "service", "single", "--json", environment=ENVIRONMENT)
    assert json.loads(status.stdout) == {
        "resource": "service#single",
        "provider": "systemd",
        "ensure": "running",
        "name": "single",
        "running": True,
        "enabled": True,
        "found": True,
        "active_state": "active",
        "unit_file_state": "enabled",
        "masked": False,
    }


def test_the_status_of_a_dangerous_name_is_refused_before_any_command_runs(shared_host: ManagedHost) -> None:
    for kind, name in (("service", "--help"), ("service", "a;b"), ("package", "a-"), ("service", "app@1")):
        done = shared_host.machine.run(
            str(PROGRAM), "status", "--json", kind, "--", name, environment={**ENVIRONMENT, "PATH": "/nowhere"}
        )
        assert done.returncode == 1
        assert "name contains dangerous characters" in done.stderr


def test_one_package_is_ensured_and_its_status_shown(shared_host: ManagedHost) -> None:
    words = ("ensure", "package", "dpkg", "--json")
    assert shared_host.mainstay(*words).outcomes == {"package#dpkg": "stable"}
    status = shared_host.machine.run(str(PROGRAM), "status", "package", "dpkg", "--json", environment=ENVIRONMENT)
    shown = json.loads(status.stdout)
    assert (shown["ensure"], shown["provider"]) == ("present", "apt")
    assert shown["version"] == shared_host.shell("dpkg-query --show --showformat='${Version}' dpkg")
    status = shared_host.machine.run(str(PROGRAM), "status", "package", "nosuch", "--json", environment=ENVIRONMENT)
    assert json.loads(status.stdout)["ensure"] == "absent"

"""Three real hosts with one server: orders become units, and a host that is switched off during a job resumes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bridge import LIFECYCLE, Bridge, wait_until, write_blueprint
from control_plane import Server, running
from mainstay.converge.host.throw_away_host import GATEWAY
from scenario import Scenario
from system.conftest import PROGRAM, ManagedHost

pytestmark = pytest.mark.test_all

SCHEMA = {
    "greeting": {"type": "string", "required": True},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "host": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}
UNIT = """[Service]
ExecStart=/bin/sh -c 'echo started >>/var/log/web.starts; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
FILES: list[dict[str, Any]] = [
    {
        "file": [
            {"defaults": {"owner": "root", "group": "root", "mode": "0600", "ensure": "present"}},
            {"/etc/web.conf": {"content": "{{ lookup('properties.greeting') }} from {{ lookup('service.name') }}\n"}},
            {"/etc/web.secret": {"content": "{{ lookup('properties.password') }}"}},
            {"/etc/systemd/system/web.service": {"content": UNIT, "mode": "0644"}},
        ]
    }
]
# Blocks only while /etc/web.slow exists; the first run removes it.
SLOW = {
    "exec": [
        {
            "slow": {
                "command": "sh -c '[ -e /etc/web.slow ] || exit 0; rm /etc/web.slow; echo slow >>/var/log/web.slow; sleep 600'"
            }
        }
    ]
}
RUNNING = [
    *FILES,
    SLOW,
    {"service": [{"web": {"ensure": "running", "enable": True, "subscribe": ["file#/etc/web.conf"]}}]},
]
REMOVED: list[dict[str, Any]] = [
    {"service": [{"web": {"ensure": "stopped", "enable": False}}]},
    {
        "file": [
            {path: {"ensure": "absent"}}
            for path in ("/etc/web.conf", "/etc/web.secret", "/etc/systemd/system/web.service", "/var/log/web.starts")
        ]
    },
    {
        "exec": [
            {
                "systemctl daemon-reload": {
                    "refresh_only": True,
                    "subscribe": ["file#/etc/systemd/system/web.service"],
                }
            }
        ]
    },
]
CANARY = "canary-6Fq2-on-a-real-host"


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """File systems in memory that survive a reboot of their hosts."""
    mount_points = [tmp_path / f"disk-{number}" for number in range(3)]
    for mount_point in mount_points:
        mount_point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g,mode=755", "tmpfs", mount_point], check=True)
    yield mount_points
    for mount_point in mount_points:
        subprocess.run(["umount", "-l", mount_point], check=True)


def write_web(folder: Path) -> Path:
    manifests = {"create": FILES, "start": RUNNING, "update": RUNNING, "delete": REMOVED}
    outputs = {"properties": {"host": "{{ lookup('facts.hostname') }}"}}
    texts = {
        action: json.dumps({"resources": resources, **({} if action == "delete" else {"outputs": outputs})})
        for action, resources in manifests.items()
    }
    return write_blueprint(
        folder,
        type_name="web",
        property_schema=SCHEMA,
        manifests=texts,
        lifecycle_schema=LIFECYCLE,
        keeps={"Started": "manifests/start.yaml"},
        drift="repair",
    )


def install_agent(host: ManagedHost, server: Server, scenario: Scenario) -> str:
    """Enrolls the host and installs the agent as a unit, so that it also starts after a reboot."""
    agent_id: str = scenario.new_agent()["id"]
    code = server.admin.post(f"/agents/{agent_id}/enrolment-codes")["code"]
    host.machine.run(str(PROGRAM), "agent", "enroll", server.url, code, "--insecure", check=True)
    host.machine.run(str(PROGRAM), "agent", "install", "--lease", "10s", "--drift-interval", "1s", check=True)
    return agent_id


def files_on(host: ManagedHost) -> list[str]:
    """Files in the directories of services, without modification times."""
    lines = host.snapshot().splitlines()
    return [line.rpartition(" ")[0] for line in lines if line.startswith(("/etc", "/usr", "/opt", "/srv"))]


def starts_on(host: ManagedHost) -> int:
    return host.shell("cat /var/log/web.starts 2>/dev/null || true").count("started")


def test_three_hosts_serve_orders_repair_drift_and_survive_a_power_cut(
    new_hosts: Callable[..., ManagedHost], disks: list[Path], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(3) as threads:
        hosts = list(
            threads.map(lambda number: new_hosts(f"web{number}", network=True, disk=disks[number]), range(3))
        )
        with running(tmp_path / "plane" / "data", environment={"MAINSTAY_HOST": GATEWAY}) as server:
            (tmp_path / "bridge").mkdir()
            bridge = Bridge(server, tmp_path / "bridge")
            scenario = bridge.scenario
            kind = bridge.push(write_web(tmp_path / "blueprint"))["serviceType"]
            agents = list(threads.map(lambda host: install_agent(host, server, scenario), hosts))
            before = list(threads.map(files_on, hosts))

            def logs() -> str:
                return "\n".join(
                    host.shell("journalctl -u mainstay-agent --no-pager -o cat | tail -20") for host in hosts
                )

            def wait_for(service: Any, status: str, seconds: float = 60) -> Any:
                try:
                    return bridge.wait_for(service, status, seconds)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{logs()}") from None

            services = [
                scenario.order(
                    kind, {"greeting": "hello", "password": CANARY}, name=f"shop{number}", agentId=agent_id
                )
                for number, agent_id in enumerate(agents)
            ]
            for number, service in enumerate(services):
                assert wait_for(service, "Stopped")["properties"]["host"] == f"web{number}"
                scenario.do(service, "start")
            for host, service in zip(hosts, services, strict=True):
                wait_for(service, "Started")
                assert host.shell("systemctl is-active web; systemctl is-enabled web").split() == [
                    "active",
                    "enabled",
                ]
                assert starts_on(host) == 1
                assert host.shell("cat /etc/web.secret; stat -c %a:%U /etc/web.secret") == f"{CANARY}600:root\n"

            # An update restarts each unit once.
            for service in services:
                scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"greeting": "good day"}})
            for number, (host, service) in enumerate(zip(hosts, services, strict=True)):
                wait_for(service, "Started")
                assert host.shell("cat /etc/web.conf") == f"good day from shop{number}\n"
                assert starts_on(host) == 2

            # Manual changes are repaired and reported.
            hosts[0].shell("echo by hand >/etc/web.conf")
            hosts[1].shell("systemctl stop web")
            wait_until(lambda: hosts[0].shell("cat /etc/web.conf") == "good day from shop0\n", "repaired", logs)
            wait_until(lambda: hosts[1].shell("systemctl is-active web || true") == "active\n", "repaired", logs)

            def is_reported(service: Any) -> bool:
                conditions = scenario.service(service["id"])["conditions"]
                return any(each["reason"] in ("Repaired", "InSync") for each in conditions)

            for service in services:
                wait_until(lambda service=service: is_reported(service), "the condition is reported", logs)  # type: ignore[misc]

            # Switched off during a job, and booted again.
            starts = starts_on(hosts[2])
            hosts[2].shell("touch /etc/web.slow")
            scenario.consumer.patch(f"/services/{services[2]['id']}", {"properties": {"greeting": "still here"}})
            wait_until(
                lambda: "slow" in hosts[2].shell("cat /var/log/web.slow 2>/dev/null || true"),
                "the job is running",
                logs,
            )
            hosts[2].machine.__exit__(None, None, None)
            hosts[2].machine.__enter__()
            wait_for(services[2], "Started")
            assert hosts[2].shell("cat /etc/web.conf") == "still here from shop2\n"
            # One start by the boot, one by the owed refresh.
            assert starts_on(hosts[2]) == starts + 2
            assert hosts[2].shell("cat /var/log/web.slow") == "slow\n"
            assert hosts[2].shell("ls /var/lib/mainstay/agent/jobs") == ""

            for service in services:
                scenario.consumer.delete(f"/services/{service['id']}")
            for host, service, files in zip(hosts, services, before, strict=True):
                wait_for(service, "Deleted")
                assert [path for path in files_on(host) if "web.slow" not in path] == files
                assert "web" not in host.shell("systemctl list-units --all --plain --no-legend web.service")
                found = host.shell(f"grep -rl {CANARY[:10]} /etc /var/lib/mainstay /var/log /run/log || true")
                assert found == ""
                assert CANARY not in host.shell("journalctl --no-pager -o cat")
                assert host.machine.run("systemctl", "stop", "mainstay-agent").returncode == 0
                assert "agent stopped" in host.shell("journalctl -u mainstay-agent --no-pager -o cat")

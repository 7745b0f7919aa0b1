"""A plane of 2,000 services whose largest host dies: what is shown of its services three minutes later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browser_session import signed_in
from command_line import Shell
from control_plane import Client, Server, running
from database_rows import run_sql
from scenario import Scenario, unique

pytestmark = pytest.mark.test_all

IN_SYNC = [{"type": "InSync", "status": "True", "reason": "InSync", "message": ""}]
DRIFTED = [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "file#/etc/motd differs"}]
# Services of each host; the first of each is the one that was ordered.
DYING, OTHERS = 1200, (400, 300, 100)
DRIFTED_ON_DYING, DRIFTED_ELSEWHERE = 10, 5
THREE_MINUTES = 180_000_000
COPIED = (
    "created_at, updated_at, status, properties, provider_id, consumer_id, group_id, agent_id, service_type_id,"
    " conditions, version, is_terminal, provenance, drifted"
)


class Plane:
    def __init__(self, server: Server, database_url: str | None) -> None:
        self.server = server
        self.database_url = database_url
        self.scenario = Scenario(server.admin)
        self.kind = self.scenario.service_type({})
        self.dying = self.scenario.agent
        self.dying_name = self._fill(self.scenario.agent_id, self.dying, DYING, DRIFTED_ON_DYING)
        for number in OTHERS:
            agent_id = self.scenario.new_agent()["id"]
            agent = self.scenario.token("agent", agent_id)
            self._fill(agent_id, agent, number, DRIFTED_ELSEWHERE if number == OTHERS[0] else 0)

    def run(self, statement: str) -> str:
        return run_sql(self.server.data_dir, self.database_url, statement)

    def _fill(self, agent_id: str, agent: Client, services: int, drifted: int) -> str:
        """Orders two services and copies them; `drifted` of them drift."""
        for conditions, number in ((DRIFTED, drifted), (IN_SYNC, services - drifted)):
            if not number:
                continue
            service = self.scenario.order(self.kind, agentId=agent_id, name=unique("service"))
            (job,) = agent.get(f"/jobs/pending?serviceId={service['id']}")
            agent.post(f"/jobs/{job['id']}/claim", expect=204)
            agent.post(f"/jobs/{job['id']}/complete", {}, expect=204)
            agent.put(f"/services/{service['id']}/conditions", conditions)
            self.run(
                f"INSERT INTO services (id, name, name_folded, {COPIED}) WITH RECURSIVE numbers (number) AS"
                f" (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {number - 1})"
                f" SELECT substr(id, 1, 24) || substr(CAST(1000000000000 + number AS TEXT), 2),"
                f" name || '-' || CAST(number AS TEXT), name || '-' || CAST(number AS TEXT), {COPIED} FROM services, numbers"
                f" WHERE id = '{service['id']}'"
            )
        name: str = self.server.admin.get(f"/agents/{agent_id}")["name"]
        return name

    def let_host_die(self) -> None:
        """As if its last request were three minutes old. The server notices it by itself."""
        where = f"id = '{self.scenario.agent_id}'"
        self.run(f"UPDATE agents SET last_status_update = last_status_update - {THREE_MINUTES} WHERE {where}")
        path = f"/agents/{self.scenario.agent_id}"
        self.server.admin.wait_for(path, {"status": "Disconnected"}, seconds=60)

    def count(self, client: Client, query: str) -> int:
        found: int = client.get(f"/services?pageSize=1&{query}")["totalItems"]
        return found

    def figures(self) -> dict[str, float]:
        text = self.server.admin.call("GET", "/metrics").body.decode()
        return {
            name: float(value) for name, value in re.findall(r"^(mainstay_services_\w+) (\S+)$", text, re.MULTILINE)
        }

    def page(self, client: Client, path: str) -> str:
        text = signed_in(self.server.url, str(client.token)).get(path).text
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_services_of_a_dead_host_are_unknown_everywhere(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = request.getfixturevalue("postgresql").new_database() if database == "postgresql" else None
    with running(tmp_path / "data", database_url=url, environment={"MAINSTAY_RATE_LIMIT": "0"}) as server:
        plane = Plane(server, url)
        scenario, admin = plane.scenario, server.admin
        versions = plane.run("SELECT sum(version), max(updated_at) FROM services")
        assert plane.count(admin, "inSync=Unknown") == 0
        plane.let_host_die()

        for client in (admin, scenario.provider, scenario.consumer):
            counted = {status: plane.count(client, f"inSync={status}") for status in ("True", "False", "Unknown")}
            assert counted == {"True": 795, "False": DRIFTED_ELSEWHERE, "Unknown": DYING}
            assert plane.count(client, f"inSync=Unknown&agentId={scenario.agent_id}") == DYING
        (shown,) = admin.get("/services?pageSize=1&inSync=Unknown&sort=name")["items"]
        (condition,) = shown["conditions"]
        agent = admin.get(f"/agents/{scenario.agent_id}")
        assert (condition["status"], condition["reason"]) == ("Unknown", "AgentOffline")
        assert (condition["lastStatus"], condition["lastReason"]) in (("True", "InSync"), ("False", "Drifted"))
        assert condition["lastReportedAt"] == agent["lastStatusUpdate"]

        found = [each for each in admin.get("/doctor") if each["code"] == "services_unknown"]
        assert [each["subject"] for each in found] == [f"agent {plane.dying_name}"]
        assert f"{DYING} services" in found[0]["message"]
        figures = plane.figures()
        assert figures["mainstay_services_unknown"] == DYING
        assert figures["mainstay_services_drifted"] == DRIFTED_ELSEWHERE
        check_pages(plane)
        check_command_line(plane)

        # Nothing was written, and one request of the agent is enough.
        assert plane.run("SELECT sum(version), max(updated_at) FROM services") == versions
        plane.dying.get("/agents/me")
        assert plane.count(admin, "inSync=Unknown") == 0
        assert plane.count(admin, "inSync=False") == DRIFTED_ON_DYING + DRIFTED_ELSEWHERE


def check_pages(plane: Plane) -> None:
    overview = plane.page(plane.server.admin, "/")
    assert "1,200 unknown" in overview
    assert f"Agent {plane.dying_name} is offline" in overview
    assert "1,200 services on it" in overview
    assert "all as ordered" not in overview
    # A customer sees no agents: its finding is about its services.
    own = plane.page(plane.scenario.consumer, "/")
    assert f"Services of agent {plane.dying_name} are unknown" in own
    assert "Nothing needs attention" not in own
    listed = plane.page(plane.scenario.consumer, f"/services?agentId={plane.scenario.agent_id}")
    assert "In sync" not in listed.partition("Changed")[2]
    assert "Unknown in sync 3 min ago" in listed.replace("Unknownin", "Unknown in")


def check_command_line(plane: Plane) -> None:
    shell = Shell(plane.server)
    for words in (("--in-sync", "Unknown"), ("--agent", plane.dying_name)):
        rows = shell.run(plane.server.admin, "services", *words, "--limit", "2000").stdout.splitlines()[1:]
        assert len(rows) == DYING
        assert all(re.search(r"Unknown \(was (InSync|Drifted) 3m ago\)", row) for row in rows)
    assert "services_unknown" in shell.run(plane.server.admin, "doctor", "--json", code=1).stdout

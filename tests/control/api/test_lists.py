"""Lists with random filters, sort orders and pages contain all rows of the caller and no foreign row."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import pytest

import seed_text
from control_plane import Client, Server
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.store.engine.records import ColumnKind, Table, wire_names
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SEED = 11
QUERIES = 12
# The owner fields. Not derived from the access table, since that is under test.
PARTICIPANT_OWNS = {
    "participants": ("id",),
    "tokens": ("participantId",),
    "agents": ("providerId",),
    "service-groups": ("consumerId",),
    "services": ("providerId", "consumerId"),
    "jobs": ("providerId", "consumerId"),
    "service-options": ("providerId",),
    "service-pool-sets": ("providerId",),
    "service-pools": ("providerId",),
    "service-pool-values": ("providerId",),
    "config-pools": ("participantId",),
    "config-pool-values": ("participantId",),
    "events": ("providerId", "consumerId", "participantId"),
    "metric-entries": ("providerId", "consumerId"),
}
AGENT_OWNS = {"services": ("agentId",), "jobs": ("agentId",)}


class Market:
    """Three participants that order from each other and from themselves, at random."""

    def __init__(self, admin: Client) -> None:
        self.chance = random.Random(SEED)
        scenarios = [Scenario(admin) for _ in range(3)]
        kind = scenarios[0].service_type(None, SIMPLE)
        self.mark = unique("market")
        self.participants: dict[str, Client] = {}
        self.agents: dict[str, Client] = {}
        groups, agents = [], []
        metric = admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
        option = admin.post("/service-option-types", {"name": "o", "type": unique("o").replace("-", "_")})
        for scenario in scenarios:
            participant_id = scenario.consumer_id
            self.participants[participant_id] = scenario.consumer
            group = {"name": f"{self.mark} group", "consumerId": participant_id}
            groups.append((scenario.consumer, scenario.consumer.post("/service-groups", group)["id"]))
            body = {
                "name": f"{self.mark} agent",
                "providerId": participant_id,
                "agentTypeId": scenarios[0].agent_type_id,
            }
            # By an admin, so that each may serve the others.
            agent = admin.post("/agents", body)["id"]
            agents.append(agent)
            self.agents[agent] = scenario.token("agent", agent)
            pools = scenario.consumer.post(
                "/service-pool-sets", {"name": f"{self.mark} set", "providerId": participant_id}
            )
            pool = {"name": self.mark, "type": "t", "propertyType": "string", "generatorType": "list"}
            made = scenario.consumer.post("/service-pools", {**pool, "servicePoolSetId": pools["id"]})
            value = {"servicePoolId": made["id"], "name": self.mark, "value": "v"}
            scenario.consumer.post("/service-pool-values", value)
            config_pool = {"name": self.mark, "type": unique("c"), "propertyType": "string", "generatorType": "list"}
            config_pool = scenario.consumer.post("/config-pools", {**config_pool, "participantId": participant_id})
            value = {"name": self.mark, "value": self.mark, "configPoolId": config_pool["id"]}
            scenario.consumer.post("/config-pool-values", value)
            listed = {
                "providerId": participant_id,
                "serviceOptionTypeId": option["id"],
                "name": self.mark,
                "enabled": False,
            }
            scenario.consumer.post("/service-options", {**listed, "value": 1})
        for number in range(24):
            consumer, group_id = self.chance.choice(groups)
            agent = self.chance.choice(agents)
            order = {"serviceTypeId": kind["id"], "name": f"{self.mark} {number}", "groupId": group_id}
            service = consumer.post("/services", {**order, "agentId": agent})
            entry = {"serviceId": service["id"], "resourceId": "r", "typeName": metric["name"], "value": number}
            self.agents[agent].post("/metric-entries", entry)
        self.everything = {noun: self.all_of(admin, noun) for noun in PARTICIPANT_OWNS}

    def all_of(self, client: Client, noun: str, query: dict[str, Any] | None = None) -> list[Any]:
        """The rows of all pages."""
        found: list[Any] = []
        after: str | None = ""
        while after is not None:
            page = client.get(f"/{noun}", query={**(query or {}), "after": after, "pageSize": 100})
            found += page["items"]
            after = page["next"]
        return found

    def query(self, noun: str) -> dict[str, Any]:
        """A filter that matches a random row, a sort order and a page size."""
        row = self.chance.choice(self.everything[noun])
        # `value` may be any JSON and the names are not of the row; participants may not filter by the others.
        names_of_others = ("initiatorName", "initiatorParticipantId", "servicePoolSetName", "blueprintVersion")
        no_filters = ("value", "hash", "errorMessage", *names_of_others)
        known = {name: value for name, value in row.items() if name not in no_filters}
        scalars = {name: value for name, value in known.items() if isinstance(value, str | int) and value != ""}
        names = self.chance.sample(sorted(scalars), k=self.chance.randint(0, 2))
        found = {
            name: str(scalars[name]).lower() if scalars[name] in (True, False) else scalars[name] for name in names
        }
        sort = self.chance.choice(["", "-"]) + self.chance.choice(sorted({*scalars} & SORTED))
        return {**found, "sort": sort, "pageSize": self.chance.randint(1, 100)}


SORTED = {"createdAt", "updatedAt", "id", "name", "status", "type"}


@pytest.fixture(scope="module")
def market(server: Server) -> Market:
    return Market(server.admin)


def owned(row: Any, columns: tuple[str, ...], owner: str) -> bool:
    return any(row.get(column) == owner for column in columns)


@pytest.mark.parametrize("noun", PARTICIPANT_OWNS)
def test_a_list_contains_all_rows_of_the_caller_and_no_others(market: Market, noun: str) -> None:
    callers = [(owner, client, PARTICIPANT_OWNS[noun]) for owner, client in market.participants.items()]
    callers += [(owner, client, AGENT_OWNS[noun]) for owner, client in market.agents.items() if noun in AGENT_OWNS]
    for owner, client, columns in callers:
        everything = {row["id"] for row in market.everything[noun] if owned(row, columns, owner)}
        seen = market.all_of(client, noun)
        assert everything <= {row["id"] for row in seen}
        for _ in range(QUERIES):
            query = market.query(noun)
            for paging in ({"page": market.chance.randint(1, 3)}, {"after": ""}):
                page = client.get(f"/{noun}", query={**query, **paging})
                # Providers that may serve the caller show it their enabled options.
                foreign = [row for row in page["items"] if not owned(row, columns, owner) and not row.get("enabled")]
                assert foreign == [], (query, paging)
                # Rows that the caller may not read are not counted either.
                assert page.get("totalItems", 0) <= len(seen)


LISTS = {endpoint.path: endpoint.lists for endpoint in all_endpoints() if isinstance(endpoint.lists, Table)}


def list_of(server: Server, path: str) -> str:
    """The path, with the id of a row where the list belongs to one."""
    if "{id}" not in path:
        return path
    kind = server.admin.post("/service-types", {"name": unique("listed")})
    rollout = {"serviceTypeId": kind["id"], "action": "start", "batch": 1, "maxFailures": 1}
    return path.replace("{id}", server.admin.post("/rollouts", rollout)["id"])


@pytest.mark.parametrize("path", LISTS)
def test_a_filter_value_that_no_row_can_have_is_refused(embedded: Server, path: str) -> None:
    table, path = LISTS[path], list_of(embedded, path)
    for wire, column in wire_names(table.record).items():
        if column in table.choices:
            refused = embedded.admin.call("GET", f"{path}?{wire}=Bogus", expect=400).body
            assert refused["code"] == "bad_query"
            assert ", ".join(table.choices[column]) in refused["error"]
            for value in table.choices[column]:
                embedded.admin.call("GET", f"{path}?{wire}={value}", expect=200)
        if column in table.ids:
            for value in ("x", "1", "null", "0" * 36, f"{{{uuid4()}}}", str(uuid4()).replace("-", "")):
                refused = embedded.admin.call("GET", f"{path}?{wire}={value}", expect=400).body
                assert refused["error"] == f"{wire} must be a uuid"
            embedded.admin.call("GET", f"{path}?{wire}={str(uuid4()).upper()}", expect=200)
            embedded.admin.call("GET", f"{path}?{wire}={uuid4()}&{wire}=x", expect=400)


def test_the_status_of_a_service_is_defined_by_its_type(scenario: Scenario) -> None:
    assert scenario.admin.get("/services?status=Bogus")["items"] == []
    assert scenario.admin.get("/services?currentStatus=Bogus")["items"] == []
    assert scenario.admin.get("/services?agentInstanceId=anything")["items"] == []


def test_an_id_in_upper_case_finds_its_row(scenario: Scenario) -> None:
    for path in (f"/participants?id={scenario.consumer_id.upper()}", f"/participants/{scenario.consumer_id.upper()}"):
        assert scenario.consumer_id in str(scenario.admin.get(path))


@pytest.mark.parametrize("path", LISTS)
def test_an_empty_filter_is_not_given(embedded: Server, path: str) -> None:
    table, path = LISTS[path], list_of(embedded, path)
    names = [wire for wire, column in wire_names(table.record).items() if table.kinds[column] is not ColumnKind.JSON]
    query = "&".join(f"{name}=" for name in (*names, "page", "pageSize", "sort"))
    admin = embedded.admin
    assert admin.call("GET", f"{path}?{query}", expect=200).body == admin.call("GET", path, expect=200).body
    assert "unknown" in admin.call("GET", f"{path}?colour=", expect=400).body["error"]


def test_metric_entries_are_found_by_a_part_of_the_resource_id(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    metric = scenario.admin.post("/metric-types", {"name": unique("m"), "entityType": "Resource"})
    resources = ["disk/sda1", "disk/SDB_2", "net/\u00c9th0", "100%"]
    for resource in resources:
        entry = {"serviceId": service["id"], "resourceId": resource, "typeName": metric["name"], "value": 1}
        scenario.agent.post("/metric-entries", entry)
    for part, expected in {
        "disk": resources[:2],
        "Sda": resources[:1],
        "sdb_": resources[1:2],
        "sd_": [],
        "\u00c9th": resources[2:3],
        "%": resources[3:],
        "disk/sda1": resources[:1],
    }.items():
        for query in ({"resourceId": part}, {"resourceId": part, "after": "", "sort": "resourceId"}):
            found = scenario.consumer.get("/metric-entries", query={**query, "serviceId": service["id"]})["items"]
            assert sorted(each["resourceId"] for each in found) == sorted(expected), part
        ids = scenario.consumer.get("/metric-entries/resource-ids", query={"resourceId": part})["items"]
        assert sorted(ids) == sorted(expected)


def test_pending_jobs_take_an_empty_or_well_formed_service_id(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    for query in (f"serviceId={service['id'].upper()}", "serviceId=&limit=&wait="):
        assert [job["service"]["id"] for job in scenario.agent.get(f"/jobs/pending?{query}")] == [service["id"]]
    assert scenario.agent.get("/jobs/pending?serviceId=x", expect=400)["error"] == "serviceId must be a uuid"

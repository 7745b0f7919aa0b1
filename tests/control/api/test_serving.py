"""Who may serve whom: placement, plans, explicit agents, the catalogue, options and validation follow one rule."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import seed_text
from control_plane import Client, Reply
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
GOLDEN = Path(__file__).parents[2] / "golden" / "serving.txt"
BOTH = (True, False)


@dataclass(frozen=True)
class Case:
    """The relation of one agent to one consumer."""

    own: bool
    granted: bool
    agent_enabled: bool
    provider_enabled: bool

    @property
    def may_serve(self) -> bool:
        return self.agent_enabled and self.provider_enabled and (self.own or self.granted)

    def __str__(self) -> str:
        return "-".join(
            [
                "own" if self.own else "foreign",
                "granted" if self.granted else "not granted",
                "agent on" if self.agent_enabled else "agent off",
                "provider on" if self.provider_enabled else "provider off",
            ]
        )


CASES = [Case(*each) for each in itertools.product(BOTH, repeat=4)]


class Offering:
    """A service type with one agent, set up as the case says, and an option of its provider."""

    def __init__(self, scenario: Scenario, case: Case) -> None:
        admin = scenario.admin
        self.case, self.admin, self.consumer = case, admin, scenario.consumer
        self.consumer_id, self.group_id = scenario.consumer_id, scenario.group_id
        self.provider_id = self.consumer_id if case.own else scenario.provider_id
        option_type = unique("size").replace("-", "_")
        admin.post("/service-option-types", {"name": "size", "type": option_type})
        option = {"providerId": self.provider_id, "serviceOptionType": option_type, "name": "s", "value": "small"}
        self.option = admin.post("/service-options", option)
        chosen = [{"type": "serviceOption", "config": {"value": option_type}}]
        schema = {"size": {"type": "string", "validators": chosen}}
        self.type = admin.post(
            "/service-types", {"name": unique("type"), "propertySchema": schema, "lifecycleSchema": SIMPLE}
        )
        self.agent_type = admin.post("/agent-types", {"name": unique("kind"), "serviceTypeIds": [self.type["id"]]})
        agent = {"name": unique("agent"), "providerId": self.provider_id, "agentTypeId": self.agent_type["id"]}
        self.agent = admin.post("/agents", {**agent, "grant": case.granted})
        if not case.agent_enabled:
            admin.patch(f"/agents/{self.agent['id']}", {"status": "Disabled"})
        if not case.provider_enabled:
            admin.patch(f"/participants/{self.provider_id}", {"status": "Disabled"})

    @property
    def callers(self) -> list[Client]:
        """The consumer, unless it is disabled itself, and an admin on its behalf."""
        disabled = self.case.own and not self.case.provider_enabled
        return [self.admin] if disabled else [self.consumer, self.admin]

    def order(self, caller: Client, query: str = "", **more: object) -> Any:
        body = {"serviceTypeId": self.type["id"], "name": unique("s"), "groupId": self.group_id, **more}
        return caller.call("POST", f"/api/v1/services{query}", body)


@pytest.fixture(params=CASES, ids=str)
def offering(request: pytest.FixtureRequest, scenario: Scenario) -> Offering:
    return Offering(scenario, request.param)


def outcome(reply: Reply) -> str:
    return "ok" if reply.status in (200, 201) else f"{reply.status} {reply.body['code']}"


def test_the_matrix_matches_the_reviewed_one(scenario: Scenario, update_golden: bool) -> None:
    lines = []
    for case in CASES:
        offering = Offering(Scenario(scenario.admin), case)
        agent = {"agentId": offering.agent["id"]}
        for caller in offering.callers:
            validation = {"groupId": offering.group_id, **agent}
            path = f"/api/v1/service-types/{offering.type['id']}/validate"
            query = f"?consumerId={offering.consumer_id}" if caller is offering.admin else ""
            results = {
                "order": outcome(offering.order(caller)),
                "dry run": outcome(offering.order(caller, "?dryRun=true")),
                "agentId": outcome(offering.order(caller, **agent)),
                "validate": outcome(caller.call("POST", path, validation)),
                "catalogue": "ok" if offering.agent["id"] in str(caller.get(f"/catalogue{query}")) else "hidden",
                "option": outcome(caller.call("GET", f"/api/v1/service-options/{offering.option['id']}")),
            }
            name = "admin" if caller is offering.admin else "consumer"
            lines.append(f"{str(case).replace('-', ', ')} | {name} | " + " | ".join(map(": ".join, results.items())))
    text = "\n".join(lines) + "\n"
    if update_golden:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "review the change, then run this test with --update-golden"


def test_placement_follows_the_rule(offering: Offering) -> None:
    for caller in offering.callers:
        for query, more in (("", {}), ("", {"providerId": offering.provider_id}), ("?dryRun=true", {})):
            reply = offering.order(caller, query, **more)
            if offering.case.may_serve:
                assert reply.status in (200, 201)
            else:
                text = f"no agent found for service type {offering.type['name']} with tags []"
                assert (reply.status, reply.body["code"], reply.body["error"]) == (400, "no_agent", text)


def test_an_explicit_agent_follows_the_rule(offering: Offering) -> None:
    agent_id, unknown = offering.agent["id"], str(uuid4())
    for caller in offering.callers:
        for query in ("", "?dryRun=true") if offering.case.may_serve else ("", "?dryRun=true", "?plan=true"):
            reply = offering.order(caller, query, agentId=agent_id)
            if offering.case.may_serve:
                assert reply.status in (200, 201)
                continue
            strange = offering.order(caller, query, agentId=unknown)
            assert (reply.status, strange.status) == (400, 400)
            # The same answer as for an agent that does not exist, so nothing is learned.
            assert str(reply.body).replace(agent_id, unknown) == str(strange.body)


def test_a_plan_asks_no_agent_that_may_not_serve(offering: Offering) -> None:
    for caller in offering.callers if not offering.case.may_serve else ():
        assert offering.order(caller, "?plan=true").body["code"] == "no_agent"


def test_the_catalogue_follows_the_rule(offering: Offering) -> None:
    for caller in offering.callers:
        query = f"?consumerId={offering.consumer_id}" if caller is offering.admin else ""
        items = caller.get(f"/catalogue{query}")["items"]
        found = [item["offers"] for item in items if item["serviceType"]["id"] == offering.type["id"]]
        if not offering.case.may_serve:
            assert found == []
            continue
        ((offer,),) = found
        assert offer["provider"]["id"] == offering.provider_id
        assert [agent["id"] for agent in offer["agents"]] == [offering.agent["id"]]
        assert "small" in [option["value"] for option in offer["options"]]


def test_the_options_that_a_consumer_reads_follow_the_rule(offering: Offering) -> None:
    if offering.consumer not in offering.callers:
        return
    visible = offering.case.may_serve or offering.case.own
    path = f"/service-options/{offering.option['id']}"
    offering.consumer.get(path, expect=200 if visible else 404)
    for query in (f"?id={offering.option['id']}", f"?id={offering.option['id']}&after="):
        listed = offering.consumer.get(f"/service-options{query}")["items"]
        assert [each["id"] for each in listed] == ([offering.option["id"]] if visible else [])


def test_validation_follows_the_rule(offering: Offering) -> None:
    path, good = f"/service-types/{offering.type['id']}/validate", {"size": "small"}
    for caller in offering.callers:
        body = {"properties": good, "groupId": offering.group_id}
        status = 200 if offering.case.may_serve else 400
        found = caller.post(path, {**body, "agentId": offering.agent["id"]}, expect=status)
        if offering.case.may_serve:
            assert found["valid"] is True
            continue
        unknown = str(uuid4())
        strange = caller.post(path, {**body, "agentId": unknown}, expect=400)
        assert str(found).replace(offering.agent["id"], unknown) == str(strange)
        # A participant may always ask about its own options.
        if not (offering.case.own and caller is offering.consumer):
            found = caller.post(path, {**body, "providerId": offering.provider_id}, expect=400)
            strange = caller.post(path, {**body, "providerId": unknown}, expect=400)
            assert str(found).replace(offering.provider_id, unknown) == str(strange)


def test_an_order_names_the_provider_where_several_may_serve_it(scenario: Scenario) -> None:
    kind = scenario.service_type()
    first = scenario.new_agent(tags=["fast"])
    other_id = scenario.participant("other")
    second = scenario.new_agent(providerId=other_id, tags=["fast", "cheap"])
    order = {"serviceTypeId": kind["id"], "name": "s", "groupId": scenario.group_id}
    for query in ("", "?dryRun=true", "?plan=true"):
        refused = scenario.consumer.post(f"/services{query}", order, expect=400)
        assert refused["code"] == "choose_provider"
        assert refused["error"].startswith("choose a provider")
        names = {each["id"]: each["name"] for each in refused["providers"]}
        assert set(names) == {scenario.provider_id, other_id}
        assert all(text in refused["error"] for pair in names.items() for text in pair)
    assert (
        scenario.consumer.post("/services", {**order, "agentTags": ["fast"]}, expect=400)["code"] == "choose_provider"
    )
    assert scenario.consumer.post("/services", {**order, "agentTags": ["cheap"]})["agentId"] == second["id"]
    assert scenario.consumer.post("/services", {**order, "providerId": other_id})["agentId"] == second["id"]
    upper = scenario.provider_id.upper()
    assert scenario.consumer.post("/services", {**order, "providerId": upper})["agentId"] == first["id"]
    assert scenario.consumer.post("/services", {**order, "agentId": first["id"]})["agentId"] == first["id"]
    both = {**order, "agentId": first["id"], "providerId": other_id}
    assert scenario.consumer.post("/services", both, expect=400)["code"] == "agent_not_available"
    # A provider that is disabled does not need to be chosen against.
    scenario.admin.patch(f"/participants/{other_id}", {"status": "Disabled"})
    assert scenario.consumer.post("/services", order)["agentId"] == first["id"]


def test_an_agent_of_a_participant_gets_no_orders_of_others_by_itself(scenario: Scenario) -> None:
    """The attack: an agent without services comes first, and its provider reads the secrets of the order."""
    kind = scenario.service_type({"key": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
    honest = scenario.new_agent(tags=["eu"])
    stranger_id = scenario.stranger.get("/tokens/me")["participantId"]
    body = {"name": honest["name"], "providerId": stranger_id, "agentTypeId": scenario.agent_type_id, "tags": ["eu"]}
    hostile = scenario.stranger.post("/agents", body)
    scenario.token("agent", hostile["id"]).get("/agents/me")
    order = {"serviceTypeId": kind["id"], "name": "s", "groupId": scenario.group_id, "properties": {"key": "k"}}
    for more in ({}, {"agentTags": ["eu"]}):
        assert scenario.consumer.post("/services", {**order, **more})["agentId"] == honest["id"]
    for more in ({"agentId": hostile["id"]}, {"providerId": stranger_id}):
        scenario.consumer.post("/services", {**order, **more}, expect=400)
    assert hostile["id"] not in str(scenario.consumer.get("/catalogue"))
    # For its own orders it is its own choice, or the granted provider's.
    own = scenario.stranger.post("/services", {"serviceTypeId": kind["id"], "name": "s", "agentId": hostile["id"]})
    assert own["providerId"] == stranger_id
    assert scenario.stranger.post("/services", {"serviceTypeId": kind["id"], "name": "s"}, expect=400)["code"] == (
        "choose_provider"
    )


def test_a_participant_cannot_grant_itself_anything(scenario: Scenario) -> None:
    kind = scenario.agent_type()
    provider_id = scenario.provider_id
    body = {"name": "a", "providerId": provider_id, "agentTypeId": kind["id"]}
    scenario.provider.post("/agents", {**body, "grant": True}, expect=403)
    scenario.provider.post("/agents", {**body, "grant": False})
    scenario.provider.post("/agents", body)
    scenario.provider.patch(f"/agent-types/{kind['id']}", {"providerIds": [provider_id]}, expect=403)
    scenario.provider.post("/agent-types", {"name": unique("t"), "providerIds": [provider_id]}, expect=403)
    assert scenario.provider.get(f"/agent-types/{kind['id']}")["providerIds"] == []


def test_an_admin_grants_with_the_first_agent_of_a_participant(scenario: Scenario) -> None:
    kind = scenario.agent_type()
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": kind["id"]}
    path = f"/agent-types/{kind['id']}"
    scenario.admin.post("/agents", {**body, "grant": False})
    assert scenario.admin.get(path)["providerIds"] == []
    for _ in range(2):
        scenario.admin.post("/agents", body)
        assert scenario.admin.get(path)["providerIds"] == [scenario.provider_id]
    other_id = scenario.participant()
    scenario.admin.post("/agents", {**body, "providerId": other_id})
    assert scenario.admin.get(path)["providerIds"] == [scenario.provider_id, other_id]
    updates = scenario.admin.get(f"/events?entityId={kind['id']}&type=agent_type.updated")["items"]
    assert len(updates) == 2
    # A refused agent grants nothing.
    third_id = scenario.participant()
    scenario.admin.post("/agents", {**body, "providerId": third_id, "servicePoolSetId": str(uuid4())}, expect=400)
    assert third_id not in scenario.admin.get(path)["providerIds"]


def test_provider_ids_are_participants_and_written_as_a_whole(scenario: Scenario) -> None:
    ids = [scenario.participant(), scenario.participant()]
    kind = scenario.agent_type(providerIds=[ids[0].upper(), *ids, ids[0]])
    assert kind["providerIds"] == ids
    path = f"/agent-types/{kind['id']}"
    scenario.admin.patch(path, {"providerIds": [str(uuid4())]}, expect=400)
    scenario.admin.patch(path, {"providerIds": ["x"]}, expect=400)
    assert scenario.admin.patch(path, {"name": unique("t")})["providerIds"] == ids
    assert scenario.admin.patch(path, {"providerIds": ids[1:]})["providerIds"] == ids[1:]
    assert scenario.admin.patch(path, {"providerIds": []})["providerIds"] == []


def test_withdrawing_a_grant_stops_new_orders_and_keeps_living_services(scenario: Scenario) -> None:
    kind = scenario.service_type({"size": {"type": "integer"}}, SIMPLE)
    service = scenario.complete(scenario.order(kind, {"size": 1}))
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"providerIds": []})
    order = {"serviceTypeId": kind["id"], "name": "s", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    scenario.consumer.post("/services", order, expect=400)
    scenario.do(service, "start")
    assert scenario.complete(service)["status"] == "Started"
    scenario.do(service, "stop")
    scenario.complete(service)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 2}})
    assert scenario.complete(service)["properties"] == {"size": 2}
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"providerIds": [scenario.provider_id]})
    scenario.consumer.post("/services", order)


def test_deleting_a_participant_takes_it_out_of_every_agent_type(scenario: Scenario) -> None:
    going, staying = scenario.participant(), scenario.participant()
    kinds = [scenario.agent_type(providerIds=[going, staying])["id"], scenario.agent_type(providerIds=[going])["id"]]
    scenario.admin.delete(f"/participants/{going}")
    assert [scenario.admin.get(f"/agent-types/{kind}")["providerIds"] for kind in kinds] == [[staying], []]
    (event,) = scenario.admin.get(f"/events?entityId={kinds[1]}&type=agent_type.updated")["items"]
    assert event["properties"]["diff"]


# ---- tags that only an admin sets ----
@pytest.mark.parametrize("tag", ["plane:eu", "PLANE:eu", " plane:eu", "plane\uff1aeu", "plane:"])
def test_only_an_admin_sets_tags_of_the_plane(scenario: Scenario, tag: str) -> None:
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id}
    scenario.provider.post("/agents", {**body, "tags": ["x", tag]}, expect=403)
    agent = scenario.provider.post("/agents", {**body, "tags": ["x", "airplane:eu"]})
    path = f"/agents/{agent['id']}"
    scenario.provider.patch(path, {"tags": [tag]}, expect=403)
    scenario.admin.patch(path, {"tags": ["x", tag]})
    # The provider keeps it, and changes its own tags.
    assert scenario.provider.patch(path, {"tags": ["y", tag]})["tags"] == ["y", tag]
    assert scenario.provider.patch(path, {"name": "b"})["tags"] == ["y", tag]
    scenario.provider.patch(path, {"tags": ["y"]}, expect=403)
    assert scenario.admin.patch(path, {"tags": []})["tags"] == []


# ---- decisions of an admin ----
def test_what_an_admin_disabled_only_an_admin_enables_or_deletes(scenario: Scenario) -> None:
    path = f"/agents/{scenario.agent_id}"
    assert scenario.admin.patch(path, {"status": "Disabled"})["disabledByAdmin"] is True
    for status in ("New", "Connected", "Disconnected", "Error"):
        assert scenario.provider.patch(path, {"status": status}, expect=403)["code"] == "disabled_by_admin"
    assert scenario.provider.delete(path, expect=403)["code"] == "disabled_by_admin"
    # Disabling it once more does not make it the provider's decision.
    assert scenario.provider.patch(path, {"status": "Disabled", "name": "n"})["disabledByAdmin"] is True
    scenario.provider.patch(path, {"status": "Disconnected"}, expect=403)
    assert scenario.agent.put("/agents/me/status", {"status": "Connected"}, expect=403)["code"] == "disabled"
    code = scenario.provider.post(f"{path}/enrolment-codes")["code"]
    enrolled = scenario.admin.as_token(scenario.admin.post("/enrol", {"code": code})["token"])
    assert enrolled.put("/agents/me/status", {"status": "Connected"}, expect=403)["code"] == "disabled"
    enabled = scenario.admin.patch(path, {"status": "Disconnected"})
    assert (enabled["status"], enabled["disabledByAdmin"]) == ("Disconnected", False)
    scenario.provider.delete(path)


def test_a_provider_enables_what_it_disabled_itself(scenario: Scenario) -> None:
    path = f"/agents/{scenario.agent_id}"
    assert scenario.provider.patch(path, {"status": "Disabled"})["disabledByAdmin"] is False
    assert scenario.provider.patch(path, {"status": "Disconnected"})["status"] == "Disconnected"
    scenario.provider.patch(path, {"status": "Disabled"})
    # An admin can make it its own decision.
    assert scenario.admin.patch(path, {"status": "Disabled"})["disabledByAdmin"] is True
    scenario.provider.patch(path, {"status": "Disconnected"}, expect=403)


def test_a_disabled_participant_stays_disabled_for_itself(scenario: Scenario) -> None:
    scenario.provider.get("/agents")
    path = f"/participants/{scenario.provider_id}"
    scenario.provider.patch(path, {"status": "Disabled"}, expect=403)
    scenario.admin.patch(path, {"status": "Disabled"})
    assert scenario.provider.patch(path, {"status": "Enabled"}, expect=403)["code"] == "disabled"
    scenario.provider.delete(path, expect=403)

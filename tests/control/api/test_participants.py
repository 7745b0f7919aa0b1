"""Participants: access, changes, events, deletion, lists, and the effect of disabling."""

from __future__ import annotations

from uuid import uuid4

from scenario import Scenario


def test_a_participant_sees_only_itself(scenario: Scenario) -> None:
    assert [each["id"] for each in scenario.consumer.get("/participants")["items"]] == [scenario.consumer_id]
    assert scenario.consumer.get(f"/participants?id={scenario.provider_id}")["items"] == []
    scenario.consumer.get(f"/participants/{scenario.provider_id}", expect=404)


def test_a_participant_may_rename_itself_but_not_change_its_status(scenario: Scenario) -> None:
    assert scenario.consumer.patch(f"/participants/{scenario.consumer_id}", {"name": "renamed"})["name"] == "renamed"
    scenario.consumer.patch(f"/participants/{scenario.consumer_id}", {"status": "Disabled"}, expect=403)
    scenario.consumer.patch(f"/participants/{scenario.provider_id}", {"name": "x"}, expect=404)
    scenario.consumer.post("/participants", {"name": "x"}, expect=403)
    scenario.consumer.delete(f"/participants/{scenario.consumer_id}", expect=403)


def test_a_disabled_participant_and_its_agents_are_refused(scenario: Scenario) -> None:
    scenario.agent.get("/agents/me")
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Disabled"})
    assert scenario.provider.get("/participants", expect=403)["code"] == "disabled"
    assert scenario.agent.get("/agents/me", expect=403)["code"] == "disabled"
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Enabled"})
    scenario.agent.get("/agents/me")


def test_every_change_is_recorded_as_an_event_with_a_patch(scenario: Scenario) -> None:
    made = scenario.admin.post("/participants", {"name": "one"})
    scenario.admin.patch(f"/participants/{made['id']}", {"name": "two"})
    scenario.admin.patch(f"/participants/{made['id']}", {"name": "two"})
    scenario.admin.delete(f"/participants/{made['id']}")
    events = scenario.admin.get(f"/events?entityId={made['id']}")["items"]
    assert [event["type"] for event in events] == [
        "participant.created",
        "participant.updated",
        "participant.deleted",
    ]
    assert {"op": "replace", "path": "/name", "value": "two"} in events[1]["properties"]["diff"]
    assert {"op": "add", "path": "/name", "value": "one"} in events[0]["properties"]["diff"]
    numbers = [event["sequenceNumber"] for event in events]
    assert numbers == sorted(numbers)
    assert all(event["participantId"] == made["id"] for event in events)


def test_events_of_other_participants_are_hidden(scenario: Scenario) -> None:
    _ = scenario.provider_id
    own = scenario.consumer.get("/events?pageSize=100")["items"]
    assert own
    assert all(
        scenario.consumer_id in (event["participantId"], event["consumerId"], event["providerId"]) for event in own
    )
    scenario.agent.get("/events", expect=403)


def test_a_participant_in_use_cannot_be_deleted_and_the_refusal_names_its_dependants(scenario: Scenario) -> None:
    agent_id = scenario.agent_id
    refused = scenario.admin.delete(f"/participants/{scenario.provider_id}", expect=409)
    assert refused["code"] == "in_use"
    assert refused["dependants"] == {"agents": [agent_id]}


def test_lists_are_paged_sorted_and_filtered(scenario: Scenario) -> None:
    mark = uuid4().hex
    ids = [scenario.admin.post("/participants", {"name": f"{mark}-{number:02}"})["id"] for number in range(12)]
    first = scenario.admin.get(f"/participants?name={mark.upper()}")
    assert [each["id"] for each in first["items"]] == ids[:10]
    assert {name: first[name] for name in first if name != "items"} == {
        "totalItems": 12,
        "totalPages": 2,
        "currentPage": 1,
        "hasNext": True,
        "hasPrev": False,
    }
    second = scenario.admin.get(f"/participants?name={mark}&page=2&sort=-name")
    assert [each["name"] for each in second["items"]] == [f"{mark}-01", f"{mark}-00"]
    assert len(scenario.admin.get(f"/participants?id={ids[0]}&id={ids[1]}")["items"]) == 2
    after = scenario.admin.get(f"/participants?name={mark}&after=&pageSize=5&sort=%2Bname")
    assert "totalItems" not in after
    rest = scenario.admin.get(f"/participants?name={mark}&after={after['next']}&pageSize=100&sort=name")
    assert [each["id"] for each in after["items"] + rest["items"]] == ids
    for query in ("nothing=1", "page=0", "pageSize=101", "sort=nothing", "createdAt=x", "after=x"):
        assert scenario.admin.get(f"/participants?{query}", expect=400)["code"] == "bad_query"


def test_an_unknown_or_malformed_id_is_not_found(scenario: Scenario) -> None:
    scenario.admin.get(f"/participants/{uuid4()}", expect=404)
    scenario.admin.get("/participants/rubbish", expect=404)
    assert scenario.admin.get(f"/participants/{scenario.consumer_id.upper()}")["id"] == scenario.consumer_id

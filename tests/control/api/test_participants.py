"""Participants: read, changed and deleted by whom they may be, and disabled in earnest."""

from __future__ import annotations

from uuid import uuid4

from scenario import Scenario


def test_a_participant_sees_itself_and_nobody_else(world: Scenario) -> None:
    assert [each["id"] for each in world.consumer.get("/participants")["items"]] == [world.consumer_id]
    assert world.consumer.get(f"/participants?id={world.provider_id}")["items"] == []
    world.consumer.get(f"/participants/{world.provider_id}", expect=404)


def test_a_participant_renames_itself_and_cannot_touch_its_status(world: Scenario) -> None:
    assert world.consumer.patch(f"/participants/{world.consumer_id}", {"name": "renamed"})["name"] == "renamed"
    world.consumer.patch(f"/participants/{world.consumer_id}", {"status": "Disabled"}, expect=403)
    world.consumer.patch(f"/participants/{world.provider_id}", {"name": "x"}, expect=404)
    world.consumer.post("/participants", {"name": "x"}, expect=403)
    world.consumer.delete(f"/participants/{world.consumer_id}", expect=403)


def test_whoever_is_disabled_is_turned_away_and_so_are_its_agents(world: Scenario) -> None:
    world.agent.get("/agents/me")
    world.admin.patch(f"/participants/{world.provider_id}", {"status": "Disabled"})
    assert world.provider.get("/participants", expect=403)["code"] == "disabled"
    assert world.agent.get("/agents/me", expect=403)["code"] == "disabled"
    world.admin.patch(f"/participants/{world.provider_id}", {"status": "Enabled"})
    world.agent.get("/agents/me")


def test_every_change_is_told_with_a_patch(world: Scenario) -> None:
    made = world.admin.post("/participants", {"name": "one"})
    world.admin.patch(f"/participants/{made['id']}", {"name": "two"})
    world.admin.patch(f"/participants/{made['id']}", {"name": "two"})
    world.admin.delete(f"/participants/{made['id']}")
    events = world.admin.get(f"/events?entityId={made['id']}")["items"]
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


def test_events_of_others_stay_unseen(world: Scenario) -> None:
    _ = world.provider_id
    own = world.consumer.get("/events?pageSize=100")["items"]
    assert own
    assert all(
        world.consumer_id in (event["participantId"], event["consumerId"], event["providerId"]) for event in own
    )
    world.agent.get("/events", expect=403)


def test_one_that_is_needed_stays_and_the_answer_names_by_whom(world: Scenario) -> None:
    agent_id = world.agent_id
    refused = world.admin.delete(f"/participants/{world.provider_id}", expect=409)
    assert refused["code"] == "in_use"
    assert refused["dependants"] == {"agents": [agent_id]}


def test_lists_are_paged_sorted_and_filtered(world: Scenario) -> None:
    mark = uuid4().hex
    ids = [world.admin.post("/participants", {"name": f"{mark}-{number:02}"})["id"] for number in range(12)]
    first = world.admin.get(f"/participants?name={mark.upper()}")
    assert [each["id"] for each in first["items"]] == ids[:10]
    assert {name: first[name] for name in first if name != "items"} == {
        "totalItems": 12,
        "totalPages": 2,
        "currentPage": 1,
        "hasNext": True,
        "hasPrev": False,
    }
    second = world.admin.get(f"/participants?name={mark}&page=2&sort=-name")
    assert [each["name"] for each in second["items"]] == [f"{mark}-01", f"{mark}-00"]
    assert len(world.admin.get(f"/participants?id={ids[0]}&id={ids[1]}")["items"]) == 2
    after = world.admin.get(f"/participants?name={mark}&after=&pageSize=5&sort=%2Bname")
    assert "totalItems" not in after
    rest = world.admin.get(f"/participants?name={mark}&after={after['next']}&pageSize=100&sort=name")
    assert [each["id"] for each in after["items"] + rest["items"]] == ids
    for query in ("nothing=1", "page=0", "pageSize=101", "sort=nothing", "createdAt=x", "after=x"):
        assert world.admin.get(f"/participants?{query}", expect=400)["code"] == "bad_query"


def test_an_id_that_is_none_is_not_found(world: Scenario) -> None:
    world.admin.get(f"/participants/{uuid4()}", expect=404)
    world.admin.get("/participants/rubbish", expect=404)
    assert world.admin.get(f"/participants/{world.consumer_id.upper()}")["id"] == world.consumer_id

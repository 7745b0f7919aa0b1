"""What clients of older versions of the API family send is accepted, and the reference lists all of it."""

from __future__ import annotations

from pathlib import Path

from mainstay.control.domain.old_clients import OLD_MEMBERS, OLD_VALUES
from mainstay.control.store.engine.records import wire_names
from mainstay.control.store.events import EVENTS
from scenario import Scenario

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "compatibility.md"


def test_attributes_of_a_participant_are_not_kept(scenario: Scenario) -> None:
    body = {"name": "p", "status": "Enabled", "attributes": {"type": ["cloud"]}}
    made = scenario.admin.post("/participants", body)
    assert "attributes" not in made
    refused = scenario.admin.post("/participants", {"name": "p", "atributes": {}}, expect=400)
    assert refused["errors"][0]["path"] == "atributes"


def test_no_event_has_the_initiator_type_agent(scenario: Scenario) -> None:
    _ = scenario.consumer_id
    assert scenario.admin.get("/events?initiatorType=agent")["items"] == []
    both = scenario.admin.get("/events?initiatorType=agent&initiatorType=user")["items"]
    assert {event["initiatorType"] for event in both} == {"user"}
    refused = scenario.admin.get("/events?initiatorType=agents", expect=400)
    assert refused["error"] == "initiatorType must be one of user, system"


def test_the_reference_lists_all_of_it() -> None:
    _, _, section = REFERENCE.read_text(encoding="utf-8").partition("## Accepted from older clients")
    section = section.partition("\n## ")[0]
    names = {field: wire for wire, field in wire_names(EVENTS.record).items()}
    wanted = [f"`{member}`" for members in OLD_MEMBERS.values() for member in members]
    for (table, column), values in OLD_VALUES.items():
        assert table == EVENTS.name
        wanted += [f"`{names[column]}={value}`" for value in values]
    assert [each for each in wanted if each not in section] == []

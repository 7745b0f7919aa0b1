"""The list of events: filters, differences, links and what each caller sees."""

from __future__ import annotations

import re

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from scenario import Scenario, unique


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


def test_an_event_shows_old_and_new_values_and_links_to_its_row(browser: WebSession, scenario: Scenario) -> None:
    old, new = unique("old"), unique("<new>")
    agent = scenario.new_agent(name=old)
    scenario.admin.patch(f"/agents/{agent['id']}", {"name": new})
    page = browser.get(f"/events?entityId={agent['id']}").text
    shown = new.replace("<", "&lt;").replace(">", "&gt;")
    assert f"<del>{old}</del><ins>{shown}</ins>" in page
    assert f'href="/agents/{agent["id"]}"' in page
    assert page.index("agent.updated") < page.index("agent.created"), "newest first"
    assert "mainstay events verify" in page


def test_events_are_filtered_by_type_entity_and_initiator(browser: WebSession, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    token = scenario.consumer.get("/tokens/me")["id"]
    page = browser.get(f"/events?initiatorId={token}&type=JOB.").text
    assert "job.created" in page
    assert "service.created" not in page
    assert service["name"] in page, "a job has the name of its service"
    assert f'name="initiatorId" value="{token}"' in page, "the next search keeps the filter"
    assert "No event matches" in browser.get(f"/events?type={unique('none')}").text


def test_a_wrong_filter_is_explained_and_kept(browser: WebSession) -> None:
    page = browser.get("/events?entityId=nonsense&type=job", expect=400).text
    assert "entityId must be a uuid" in page
    assert 'value="job"' in page
    browser.get("/events?after=nonsense", expect=400)


def test_older_events_are_on_the_next_page(browser: WebSession, scenario: Scenario) -> None:
    agent = scenario.new_agent()
    for number in range(55):
        scenario.admin.patch(f"/agents/{agent['id']}", {"tags": [str(number)]})
    first = browser.get(f"/events?entityId={agent['id']}").text
    older = re.search(r'href="(/events\?[^"]*after=[^"]+)"', first)
    assert older is not None
    second = browser.get(older[1].replace("&amp;", "&")).text
    assert first.count("<tr data-row") == 50
    assert second.count("<tr data-row") == 6
    assert "data-row" in browser.get(f"/events?entityId={agent['id']}&fragment=list").text


def test_a_participant_sees_only_events_of_its_own(server: Server, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    stranger = signed_in(server.url, str(scenario.stranger.token))
    assert "No event matches" in stranger.get(f"/events?entityId={service['id']}").text
    consumer = signed_in(server.url, str(scenario.consumer.token)).get(f"/events?entityId={service['id']}").text
    assert "service.created" in consumer
    assert "mainstay events verify" not in consumer


def test_the_value_of_a_secret_is_in_no_event(browser: WebSession, scenario: Scenario) -> None:
    kind = scenario.service_type({"key": {"type": "string", "secret": {"type": "persistent"}}})
    canary = unique("canary")
    service = scenario.order(kind, {"key": canary})
    assert canary not in browser.get(f"/events?entityId={service['id']}").text


def test_a_deleted_row_keeps_its_name_without_a_link(browser: WebSession, scenario: Scenario) -> None:
    name = unique("gone")
    group = scenario.admin.post("/service-groups", {"name": name, "consumerId": scenario.consumer_id})
    scenario.admin.delete(f"/service-groups/{group['id']}")
    page = browser.get(f"/events?entityId={group['id']}").text
    assert f'title="{name}"' in page
    assert f"/groups/{group['id']}" not in page

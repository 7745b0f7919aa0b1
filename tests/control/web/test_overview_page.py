"""The overview: what needs attention comes first, and each caller sees only its own."""

from __future__ import annotations

import pytest

from browser_session import signed_in
from control_plane import Client, Server
from scenario import Scenario, unique

LIFECYCLE = {
    "states": [{"name": name} for name in ("New", "Up", "Broken", "Gone")],
    "initialState": "New",
    "terminalStates": ["Gone"],
    "runningStates": ["Up"],
    "actions": [
        {
            "name": "create",
            "transitions": [{"from": "New", "to": "Up"}, {"from": "New", "to": "Broken", "onError": True}],
        },
        {"name": "retry", "transitions": [{"from": "Broken", "to": "Up"}]},
        {"name": "delete", "transitions": [{"from": "Up", "to": "Gone"}]},
    ],
}
DRIFTED = [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "file#/etc/motd differs"}]


def text_for(server: Server, client: Client, path: str = "/") -> str:
    return signed_in(server.url, str(client.token)).get(path).text


def test_a_failed_job_needs_attention_until_a_job_succeeds(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(None, LIFECYCLE)
    name = unique("broken")
    service = scenario.order(kind, name=name)
    scenario.fail(service, "exec#make: exit code 1\n  | secret output")
    shown = text_for(server, scenario.consumer, "/?fragment=attention")
    assert name in shown
    assert "exec#make: exit code 1" in shown
    assert "secret output" not in shown
    assert name in text_for(server, scenario.consumer, "/services?view=failed")
    assert name not in text_for(server, scenario.stranger, "/?fragment=attention")
    scenario.do(service, "retry")
    scenario.complete(service)
    assert name not in text_for(server, scenario.consumer, "/?fragment=attention")
    assert name not in text_for(server, scenario.consumer, "/services?view=failed")


def test_a_drifted_service_needs_attention_until_it_is_in_sync(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(None, LIFECYCLE)
    name = unique("drifted")
    service = scenario.order(kind, name=name)
    scenario.complete(service)
    scenario.agent.put(f"/services/{service['id']}/conditions", DRIFTED)
    shown = text_for(server, scenario.provider, "/?fragment=attention")
    assert name in shown
    assert "file#/etc/motd differs" in shown
    assert name in text_for(server, scenario.provider, "/services?view=drifted")
    scenario.agent.put(f"/services/{service['id']}/conditions", [{**DRIFTED[0], "status": "True"}])
    assert name not in text_for(server, scenario.provider, "/?fragment=attention")


def test_services_in_a_state_without_an_action_need_attention(server: Server, scenario: Scenario) -> None:
    no_way_out = [each for each in LIFECYCLE["actions"] if each["name"] == "create"]  # type: ignore[index]
    kind = scenario.service_type(None, {**LIFECYCLE, "actions": no_way_out})
    scenario.complete(scenario.order(kind))
    shown = text_for(server, scenario.consumer, "/?fragment=attention")
    assert kind["name"] in shown
    assert "No way out" in shown


def test_a_consumer_sees_no_agents_and_no_pools(server: Server, scenario: Scenario) -> None:
    scenario.order(scenario.service_type(None, LIFECYCLE))
    shown = text_for(server, scenario.consumer)
    assert "Fullest pools" not in shown
    assert "Agents connected" not in shown
    assert "Agents connected" in text_for(server, scenario.provider)


def test_the_list_is_filtered_by_what_the_url_contains(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(None, LIFECYCLE)
    names = [unique("listed") for _ in range(3)]
    services = [scenario.order(kind, name=name) for name in names]
    scenario.complete(services[0])
    up = text_for(server, scenario.consumer, f"/services?status=Up&serviceTypeId={kind['id']}")
    assert [name in up for name in names] == [True, False, False]
    named = text_for(server, scenario.consumer, f"/services?name={names[1].upper()}")
    assert [name in named for name in names] == [False, True, False]
    busy = text_for(server, scenario.consumer, "/services?view=busy")
    assert [name in busy for name in names] == [False, True, True]


def test_links_of_other_pages_filter_the_list(server: Server, scenario: Scenario) -> None:
    name = unique("linked")
    service = scenario.order(scenario.service_type(None, LIFECYCLE), name=name)
    other = "00000000-0000-4000-8000-000000000001"
    for field in ("agentId", "serviceTypeId", "consumerId", "providerId", "groupId"):
        assert name in text_for(server, scenario.admin, f"/services?{field}={service[field]}")
        assert name not in text_for(server, scenario.admin, f"/services?{field}={other}")


def test_a_bulk_action_shows_a_preview_and_a_result_for_each_service(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(None, LIFECYCLE)
    ready, waiting = (scenario.order(kind, name=unique("bulk")) for _ in range(2))
    scenario.complete(ready)
    browser = signed_in(server.url, str(scenario.consumer.token))
    chosen = [("action", "delete"), ("id", ready["id"]), ("id", waiting["id"])]
    preview = browser.post("/services/bulk", chosen, csrf=browser.csrf, expect=200)
    assert "Gone" in preview.text
    assert "Refused" in preview.text
    assert scenario.service(ready["id"])["activeJob"] is None
    result = browser.post("/services/bulk/execute", chosen, csrf=browser.csrf, expect=200)
    assert "1 started, 1 refused" in result.text
    assert scenario.service(ready["id"])["activeJob"]["action"] == "delete"


def test_a_bulk_action_on_services_of_others_is_refused_for_each(server: Server, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, LIFECYCLE), name=unique("foreign"))
    browser = signed_in(server.url, str(scenario.stranger.token))
    chosen = [("action", "delete"), ("id", service["id"]), ("id", "../x"), ("id", "a/b?c")]
    result = browser.post("/services/bulk/execute", chosen, csrf=browser.csrf, expect=200)
    assert "0 started, 3 refused" in result.text
    assert service["name"] not in result.text


@pytest.mark.parametrize("path", ["/services/bulk", "/services/bulk/execute"])
def test_ticked_services_without_an_action_are_refused_in_words(
    server: Server, scenario: Scenario, path: str
) -> None:
    browser = signed_in(server.url, str(scenario.consumer.token))
    service = scenario.order(scenario.service_type(None, LIFECYCLE))
    for action in ({}, {"action": " "}):
        refused = browser.post(path, {"id": service["id"], **action}, csrf=browser.csrf, expect=400)
        assert "choose an action" in refused.text

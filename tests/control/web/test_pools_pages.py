"""The pages of pools: pictures, values to add and remove, and the holder of a value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from scenario import Scenario, unique


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


def new_pool(scenario: Scenario, **more: object) -> Any:
    pool_set = scenario.admin.post("/service-pool-sets", {"name": unique("set"), "providerId": scenario.provider_id})
    body = {"name": unique("pool"), "type": "port", "propertyType": "integer", "generatorType": "list"}
    return scenario.admin.post("/service-pools", {**body, "servicePoolSetId": pool_set["id"], **more})


def order_from(scenario: Scenario, pool: Any) -> Any:
    generator = {"type": "pool", "config": {"poolType": pool["type"]}}
    kind = scenario.service_type({"port": {"type": pool["propertyType"], "generator": generator}})
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": pool["servicePoolSetId"]})
    return scenario.order(kind)


def test_a_pool_is_created_changed_and_deleted(browser: WebSession, scenario: Scenario) -> None:
    pool_set = new_pool(scenario)["servicePoolSetId"]
    name = unique("net")
    form: dict[str, object] = {
        "name": name,
        "servicePoolSetId": pool_set,
        "type": "ip",
        "propertyType": "string",
        "generatorType": "subnet",
        "generatorConfig": "cidr: 192.0.2.0/29\nexcludeFirst: 1",
    }
    page = browser.post("/pools/new", form, csrf=browser.csrf).location
    shown = browser.get(page).text
    assert "0 of 7 used" in shown
    assert 'class="f-out"' in shown
    changed = {"name": name, "generatorConfig": "cidr: 192.0.2.0/28"}
    browser.post(f"{page}/edit", changed, csrf=browser.csrf)
    assert "0 of 16 used" in browser.get(page).text
    faulty = browser.post(f"{page}/edit", {**changed, "generatorConfig": "cidr: x"}, csrf=browser.csrf, expect=400)
    assert "cidr: x</textarea>" in faulty.text
    browser.post(f"{page}/delete", {}, csrf=browser.csrf)
    browser.get(page, expect=404)


def test_values_and_ranges_are_added_and_refused_lines_stay(browser: WebSession, scenario: Scenario) -> None:
    pool = new_pool(scenario)
    page = f"/pools/{pool['id']}"
    browser.post(page, {"values": "8100-8109\r\n\r\n9000"}, csrf=browser.csrf)
    assert "0 of 11 used" in browser.get(page).text
    reply = browser.post(page, {"values": "9001\nport\n9000\n1-99999"}, csrf=browser.csrf, expect=400).text
    assert "1 value is added" in reply
    left = re.search(r'<textarea id="f-values".*?>\n(.*?)</textarea>', reply, re.DOTALL)
    assert left is not None
    assert left[1].splitlines() == ["port", "9000", "1-99999"]
    assert scenario.admin.get(f"/service-pools/{pool['id']}/usage")["total"] == 12


def test_addresses_are_added_as_a_range(browser: WebSession, scenario: Scenario) -> None:
    pool = new_pool(scenario, propertyType="string")
    browser.post(f"/pools/{pool['id']}", {"values": "192.0.2.9-192.0.2.11\nplain-name"}, csrf=browser.csrf)
    found = scenario.admin.get(f"/service-pool-values?servicePoolId={pool['id']}")["items"]
    assert [each["value"] for each in found] == ["192.0.2.9", "192.0.2.10", "192.0.2.11", "plain-name"]


def test_a_used_value_shows_its_service_and_is_found(browser: WebSession, scenario: Scenario) -> None:
    pool = new_pool(scenario)
    port = 10_000 + int(unique("x")[2:6], 16)
    browser.post(f"/pools/{pool['id']}", {"values": f"{port}"}, csrf=browser.csrf)
    service = order_from(scenario, pool)
    page = browser.get(f"/pools/{pool['id']}").text
    assert f'href="/services/{service["id"]}"' in page
    assert "None left" in page
    found = browser.get(f"/pools?value={port}&set={pool['servicePoolSetId']}").text
    assert service["name"] in found
    (value,) = scenario.admin.get(f"/service-pool-values?servicePoolId={pool['id']}")["items"]
    refused = browser.post(f"/pool-values/{value['id']}/delete", {}, csrf=browser.csrf, expect=409).text
    assert "Nothing was changed" in refused


def test_a_free_value_is_removed_after_a_question(browser: WebSession, scenario: Scenario) -> None:
    pool = new_pool(scenario)
    browser.post(f"/pools/{pool['id']}", {"values": "1"}, csrf=browser.csrf)
    (value,) = scenario.admin.get(f"/service-pool-values?servicePoolId={pool['id']}")["items"]
    assert "leaves the pool" in browser.get(f"/pool-values/{value['id']}/delete").text
    browser.post(f"/pool-values/{value['id']}/delete", {}, csrf=browser.csrf)
    assert "This pool has no values" in browser.get(f"/pools/{pool['id']}").text


def test_a_large_network_is_a_bar(browser: WebSession, scenario: Scenario) -> None:
    config = {"cidr": "2001:db8::/32"}
    pool = new_pool(scenario, propertyType="string", generatorType="subnet", generatorConfig=config)
    for page in (f"/pools/{pool['id']}", f"/pools?set={pool['servicePoolSetId']}"):
        text = browser.get(page).text
        assert "<progress" in text
        assert "plenty left" in text


def test_values_of_a_config_pool_are_added_and_removed(browser: WebSession, scenario: Scenario) -> None:
    body = {"name": "c", "type": unique("c"), "propertyType": "integer", "generatorType": "list"}
    pool = scenario.admin.post("/config-pools", {**body, "participantId": scenario.provider_id})
    page = f"/config-pools/{pool['id']}"
    browser.post(page, {"values": "1-3"}, csrf=browser.csrf)
    assert "0 of 3 used" in browser.get(page).text
    value = scenario.admin.get(f"/config-pool-values?configPoolId={pool['id']}")["items"][0]
    browser.post(f"/config-pool-values/{value['id']}/delete", {}, csrf=browser.csrf)
    assert "0 of 2 used" in browser.get(page).text
    assert "text" in browser.post(page, {"values": "text"}, csrf=browser.csrf, expect=400).text


def test_a_stranger_and_a_reader_change_no_pool(server: Server, scenario: Scenario) -> None:
    pool = new_pool(scenario)
    stranger = signed_in(server.url, str(scenario.stranger.token))
    assert pool["id"] not in stranger.get("/pools").text
    stranger.get(f"/pools/{pool['id']}", expect=404)
    stranger.post(f"/pools/{pool['id']}", {"values": "1"}, csrf=stranger.csrf, expect=404)
    body = {"name": "r", "role": "participant", "scopeId": scenario.provider_id, "readOnly": True}
    reader = signed_in(server.url, scenario.admin.post("/tokens", body)["value"])
    assert "Add values" not in reader.get(f"/pools/{pool['id']}").text
    reader.post(f"/pools/{pool['id']}", {"values": "1"}, csrf=reader.csrf, expect=403)
    provider = signed_in(server.url, str(scenario.provider.token))
    provider.post(f"/pools/{pool['id']}", {"values": "1"}, csrf=provider.csrf)


def test_a_form_without_a_choice_leads_to_the_form_that_creates_one(server: Server, scenario: Scenario) -> None:
    browser = signed_in(server.url, str(scenario.stranger.token))
    assert '<a href="/pool-sets/new">' in browser.get("/pools/new").text
    own = scenario.stranger.get("/tokens/me")["participantId"]
    scenario.stranger.post("/service-pool-sets", {"name": unique("set"), "providerId": own})
    assert "/pool-sets/new" not in browser.get("/pools/new").text

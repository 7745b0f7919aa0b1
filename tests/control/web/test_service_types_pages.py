"""The pages of service types: definition, use, check of properties, and forms."""

from __future__ import annotations

import re

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from scenario import Scenario, unique

SCHEMA = {
    "port": {"type": "integer", "required": True, "validators": [{"type": "min", "config": {"value": 10}}]},
    "users": {"type": "array", "items": {"type": "object", "properties": {"password": {"type": "string"}}}},
}
YAML = "port: {type: integer}\n"


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


def test_the_page_shows_schema_lifecycle_and_services_by_state(browser: WebSession, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA)
    scenario.order(kind, {"port": 80})
    page = browser.get(f"/service-types/{kind['id']}").text
    assert '<svg class="lc' in page
    for word in ("port", "at least 10", "required", "array of object", "password", "1 service"):
        assert word in page
    assert f'href="/order/{kind["id"]}"' in page


def test_counts_are_those_of_services_that_the_caller_may_read(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA)
    scenario.order(kind, {"port": 80})
    page = f"/service-types/{kind['id']}"
    assert "1 service<" in signed_in(server.url, str(scenario.consumer.token)).get(page).text
    assert "0 services<" in signed_in(server.url, str(scenario.stranger.token)).get(page).text


def test_properties_are_checked_by_a_reader_and_kept(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA)
    body = {"name": "r", "role": "participant", "scopeId": scenario.consumer_id, "readOnly": True}
    reader = signed_in(server.url, scenario.admin.post("/tokens", body)["value"])
    page = f"/service-types/{kind['id']}/validate"
    wrong = reader.post(page, {"properties": "port: 5\nprot: 1"}, csrf=reader.csrf, expect=200).text
    assert "port: 5\nprot: 1</textarea>" in wrong
    assert "2 faults" in wrong
    assert "unknown property" in wrong
    assert "Valid" in reader.post(page, {"properties": '{"port": 80}'}, csrf=reader.csrf, expect=200).text
    unreadable = reader.post(page, {"properties": "{port"}, csrf=reader.csrf, expect=200).text
    assert re.search(r'id="tryit"[^>]* aria-invalid="true"', unreadable)
    for text in ("[]", "3", '"' + "a" * 300_000, "&a [*a]"):
        reader.post(page, {"properties": text}, csrf=reader.csrf, expect=200)


def test_an_admin_creates_changes_and_deletes_a_type(browser: WebSession, scenario: Scenario) -> None:
    name = unique("type")
    form: dict[str, object] = {"name": name, "propertySchema": YAML, "lifecycleSchema": ""}
    page = browser.post("/service-types/new", form, csrf=browser.csrf).location
    assert scenario.admin.get(f"/service-types?name={name}")["items"][0]["propertySchema"] == {
        "port": {"type": "integer"}
    }
    browser.post(f"{page}/edit", {**form, "propertySchema": "size: {type: integer}"}, csrf=browser.csrf)
    assert "size" in browser.get(page).text
    browser.post(f"{page}/delete", {}, csrf=browser.csrf)
    browser.get(page, expect=404)


def test_faults_of_a_schema_are_shown_at_its_field(browser: WebSession) -> None:
    form: dict[str, object] = {"name": "x", "propertySchema": "port: {type: integr}", "lifecycleSchema": ""}
    page = browser.post("/service-types/new", form, csrf=browser.csrf, expect=400).text
    assert "port: {type: integr}</textarea>" in page
    assert "integr" in page
    assert 'role="alert"' in page


def test_a_change_that_services_do_not_fit_needs_force(browser: WebSession, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA)
    scenario.complete(scenario.order(kind, {"port": 80}))
    page = f"/service-types/{kind['id']}/edit"
    form: dict[str, object] = {
        "name": kind["name"],
        "propertySchema": "port: {type: integer, validators: [{type: min, config: {value: 90}}]}",
        "lifecycleSchema": "",
    }
    refused = browser.post(page, form, csrf=browser.csrf, expect=409).text
    assert "do not fit the new definition" in refused
    assert "value: 90" in refused
    browser.post(page, {**form, "force": "true"}, csrf=browser.csrf)


def test_only_an_admin_changes_a_type(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA)
    provider = signed_in(server.url, str(scenario.provider.token))
    assert "/edit" not in provider.get(f"/service-types/{kind['id']}").text
    provider.get(f"/service-types/{kind['id']}/edit", expect=403)
    provider.get("/service-types/new", expect=403)


def test_warnings_about_a_type_are_shown_to_admins_only(
    server: Server, browser: WebSession, scenario: Scenario
) -> None:
    lifecycle = {
        "states": [{"name": "New"}, {"name": "Up"}, {"name": "Gone"}],
        "initialState": "New",
        "terminalStates": ["Gone"],
        "runningStates": ["Up"],
        "actions": [
            {"name": "create", "transitions": [{"from": "New", "to": "Up"}]},
            {"name": "delete", "transitions": [{"from": "Up", "to": "Gone"}]},
        ],
    }
    page = f"/service-types/{scenario.service_type(SCHEMA, lifecycle)['id']}"
    assert "no-error-path" in browser.get(page).text
    consumer = signed_in(server.url, str(scenario.consumer.token)).get(page).text
    assert "no-error-path" not in consumer
    assert "Warnings" not in consumer

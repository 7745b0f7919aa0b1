"""The pages of agents: list, detail, forms, enrolment and grants."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server, running
from scenario import Scenario, unique


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


def as_token(server: Server, token: object) -> WebSession:
    return signed_in(server.url, str(token))


def new_agent(scenario: Scenario, **more: object) -> dict[str, object]:
    return {
        "name": unique("edge"),
        "agentTypeId": scenario.agent_type_id,
        "providerId": scenario.provider_id,
        "tags": "region:fra, ssd",
        "configuration": "",
        "servicePoolSetId": "",
        **more,
    }


def test_an_admin_adds_an_agent_and_the_next_page_enrolls_it(browser: WebSession, scenario: Scenario) -> None:
    form = new_agent(scenario, grant="true")
    page = browser.get("/agents/new").text
    assert "serve other participants" in page
    reply = browser.post("/agents/new", form, csrf=browser.csrf)
    agent = scenario.admin.get(f"/agents?name={form['name']}")["items"][0]
    assert reply.location == f"/agents/{agent['id']}/enrolment"
    assert agent["tags"] == ["region:fra", "ssd"]
    assert scenario.provider_id in scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["providerIds"]
    assert f"Agent {form['name']} is added" in browser.get(reply.location).text


def test_a_new_server_leads_to_its_first_agent(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        browser = signed_in(server.url, str(server.admin.token))
        assert 'href="/agents/new"' in browser.get("/order").text
        form = browser.get("/agents/new").text
        assert '<a href="/agent-types/new">' in form
        assert '<a href="/participants/new">' in form
        own = server.admin.post("/participants", {"name": "hosting"})["id"]
        token = server.admin.post("/tokens", {"name": "ops", "role": "participant", "scopeId": own})["value"]
        provider = signed_in(server.url, token)
        assert "/agents/new" not in provider.get("/order").text
        form = provider.get("/agents/new").text
        assert "/agent-types/new" not in form
        assert "There is no agent type yet; an admin creates it." in form


def test_an_agent_without_the_grant_serves_its_own_participant_only(browser: WebSession, scenario: Scenario) -> None:
    browser.post("/agents/new", new_agent(scenario), csrf=browser.csrf)
    assert scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["providerIds"] == []


def test_faults_are_shown_at_their_fields_and_keep_what_was_typed(browser: WebSession, scenario: Scenario) -> None:
    form = new_agent(scenario, name="", tags="a, " + "x" * 101, configuration="port: 1")
    page = browser.post("/agents/new", form, csrf=browser.csrf, expect=400).text
    assert re.search(r'id="f-name"[^>]* aria-invalid="true"', page)
    assert re.search(r'id="f-tags"[^>]* aria-invalid="true"', page)
    assert "2 fields are invalid" in page
    assert f'value="a, {"x" * 101}"' in page
    assert "port: 1" in page


def test_a_configuration_that_is_no_yaml_is_refused_at_its_field(browser: WebSession, scenario: Scenario) -> None:
    form = new_agent(scenario, configuration="{a: 1")
    page = browser.post("/agents/new", form, csrf=browser.csrf, expect=400).text
    assert re.search(r'id="f-configuration"[^>]* aria-invalid="true"', page)
    assert "line 1" in page
    assert scenario.admin.get(f"/agents?name={form['name']}")["totalItems"] == 0


def test_a_provider_adds_agents_of_its_own_without_choosing_a_provider(server: Server, scenario: Scenario) -> None:
    browser = as_token(server, scenario.provider.token)
    page = browser.get("/agents/new").text
    assert 'name="providerId"' not in page
    assert 'name="grant"' not in page
    # A forged provider is ignored: the form has no such field.
    form = new_agent(scenario, providerId=scenario.consumer_id)
    browser.post("/agents/new", form, csrf=browser.csrf)
    assert scenario.admin.get(f"/agents?name={form['name']}")["items"][0]["providerId"] == scenario.provider_id


def test_an_agent_is_changed_disabled_and_enabled(browser: WebSession, scenario: Scenario) -> None:
    page = f"/agents/{scenario.agent_id}"
    name = unique("renamed")
    fields: dict[str, object] = {"name": name, "tags": "a", "servicePoolSetId": "", "configuration": ""}
    assert browser.post(f"{page}/edit", fields, csrf=browser.csrf).location == page
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["tags"] == ["a"]
    for typed, shown_as, stored in (("1200", "1,200", 1200), ("", "unlimited", None)):
        browser.post(f"{page}/edit", {**fields, "capacity": typed}, csrf=browser.csrf)
        assert f"<dt>Capacity</dt><dd>{shown_as}</dd>" in browser.get(page).text
        assert scenario.admin.get(f"/agents/{scenario.agent_id}")["capacity"] == stored
    browser.post(f"{page}/status", {"status": "Disabled"}, csrf=browser.csrf)
    shown = browser.get(page).text
    assert f"Agent {name} is disabled" in shown
    assert "Enable" in shown
    browser.post(f"{page}/status", {"status": "Disconnected"}, csrf=browser.csrf)
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["status"] == "Disconnected"


def test_an_agent_is_drained_and_the_page_shows_what_is_left(browser: WebSession, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    page, path = f"/agents/{scenario.agent_id}", f"/agents/{scenario.agent_id}/drain"
    assert ">Drain<" in browser.get(page).text
    browser.post(path, {"wanted": "drain"}, csrf=browser.csrf)
    shown = browser.get(page).text
    assert "This agent takes no new services." in shown
    assert service["name"] in shown
    assert "the drain does not move services" in shown
    name = scenario.admin.get(f"/agents/{scenario.agent_id}")["name"]
    assert "draining" in browser.get(f"/agents?name={name}").text
    browser.post(path, {"wanted": "move"}, csrf=browser.csrf)
    assert scenario.admin.get(f"/agents/{scenario.agent_id}/drain")["move"] is True
    assert "Its services move one after another" in browser.get(page).text
    browser.post(path, {"wanted": "end"}, csrf=browser.csrf)
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["draining"] is False


def test_a_provider_cannot_enable_what_an_admin_disabled(server: Server, scenario: Scenario) -> None:
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"status": "Disabled"})
    browser = as_token(server, scenario.provider.token)
    shown = browser.get(f"/agents/{scenario.agent_id}").text
    assert "Only an admin enables or deletes it" in shown
    assert ">Enable<" not in shown
    refused = browser.post(f"/agents/{scenario.agent_id}/status", {"status": "New"}, csrf=browser.csrf, expect=403)
    assert "only an admin enables" in html.unescape(refused.text)


def test_the_code_is_shown_once_with_the_command_and_enrolls(browser: WebSession, scenario: Scenario) -> None:
    page = f"/agents/{scenario.agent_id}/enrolment"
    reply = browser.post(page, {}, csrf=browser.get(page).csrf, expect=200)
    code = re.search(r"mainstay agent enroll http://127\.0\.0\.1:\d+ ([0-9a-f]{32})<", reply.text)
    assert code is not None
    assert code[1] not in browser.get(page).text
    assert "mainstay agent install" in reply.text
    assert "mainstay agent run" in reply.text
    assert scenario.admin.as_token("").post("/enrol", {"code": code[1]})["agentId"] == scenario.agent_id


def test_deleting_names_the_effects_and_a_refusal_names_the_services(browser: WebSession, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    page = f"/agents/{scenario.agent_id}/delete"
    assert "Nothing is removed from its host" in browser.get(page).text
    refused = browser.post(page, {}, csrf=browser.csrf, expect=409)
    assert service["id"] in refused.text
    other = scenario.new_agent()
    browser.post(f"/agents/{other['id']}/delete", {}, csrf=browser.csrf)
    scenario.admin.get(f"/agents/{other['id']}", expect=404)


def test_an_admin_grants_and_withdraws_serving_others(browser: WebSession, scenario: Scenario) -> None:
    agent = scenario.new_agent(grant=False)
    page = f"/agents/{agent['id']}"
    assert "its own participant only" in browser.get(page).text
    browser.post(f"{page}/grant", {}, csrf=browser.csrf)
    assert "every participant" in browser.get(page).text
    assert "no new orders of other participants" in browser.get(f"{page}/grant").text
    browser.post(f"{page}/grant", {}, csrf=browser.csrf)
    assert scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["providerIds"] == []


def test_only_an_admin_grants(server: Server, scenario: Scenario) -> None:
    browser = as_token(server, scenario.provider.token)
    browser.get(f"/agents/{scenario.agent_id}/grant", expect=403)
    browser.post(f"/agents/{scenario.agent_id}/grant", {}, csrf=browser.csrf, expect=403)


def test_agents_in_trouble_come_first_and_views_filter(browser: WebSession, scenario: Scenario) -> None:
    part = unique("trouble")
    for name, status in (("a", "Connected"), ("b", "Disabled"), ("c", "Error"), ("d", "Disconnected")):
        agent = scenario.new_agent(name=f"{part}-{name}")
        scenario.admin.patch(f"/agents/{agent['id']}", {"status": status})
    page = browser.get(f"/agents?name={part.upper()}").text
    assert re.findall(rf'title="{part}-(.)"', page) == ["c", "d", "a", "b"]
    shown = browser.get(f"/agents?name={part}&view=error").text
    assert re.findall(rf'title="{part}-(.)"', shown) == ["c"]
    fragment = browser.get(f"/agents?name={part}&fragment=list").text
    assert "<html" not in fragment
    assert f"{part}-c" in fragment


def test_agents_are_found_by_a_tag(browser: WebSession, scenario: Scenario) -> None:
    tag = unique("Zone")
    agent = scenario.new_agent(tags=[tag])
    assert agent["id"] in browser.get(f"/agents?name={tag.lower()}").text


def test_a_stranger_sees_no_agent_of_others(server: Server, scenario: Scenario) -> None:
    browser = as_token(server, scenario.stranger.token)
    assert scenario.agent_id not in browser.get("/agents").text
    for path in ("", "/edit", "/delete", "/enrolment", "/install-command"):
        browser.get(f"/agents/{scenario.agent_id}{path}", expect=404)
    for path in ("/edit", "/delete", "/enrolment", "/install-command", "/status"):
        browser.post(f"/agents/{scenario.agent_id}{path}", {"name": "x"}, csrf=browser.csrf, expect=404)


def test_a_token_that_may_only_read_sees_no_forms(server: Server, scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": "r", "role": "admin", "readOnly": True})["value"]
    browser = as_token(server, token)
    page = browser.get(f"/agents/{scenario.agent_id}").text
    assert page.count("<form") == 2, "only the two forms that sign out"
    assert "/agents/new" not in browser.get("/agents").text
    browser.get("/agents/new", expect=403)
    browser.get(f"/agents/{scenario.agent_id}/enrolment", expect=403)


def test_an_install_command_is_created_replaced_and_withdrawn(browser: WebSession, scenario: Scenario) -> None:
    templates = {"configTemplate": "c", "cmdTemplate": "install {{.configUrl}} {{.authToken}}"}
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", templates)
    page = f"/agents/{scenario.agent_id}/install-command"
    first = browser.post(page, {"wanted": "create"}, csrf=browser.csrf, expect=200).text
    assert f"install {browser.url}/api/v1/agents/install/" in first
    again = browser.post(page, {"wanted": "create"}, csrf=browser.csrf, expect=409).text
    assert "Nothing was changed" in again
    browser.post(page, {"wanted": "replace"}, csrf=browser.csrf, expect=200)
    browser.post(page, {"wanted": "withdraw"}, csrf=browser.csrf)
    scenario.admin.get(f"/agents/{scenario.agent_id}/install-command", expect=404)


def test_a_connected_agent_is_not_asked_to_enroll_first(browser: WebSession, scenario: Scenario) -> None:
    page = f"/agents/{scenario.agent_id}"
    primary = f'class="btn primary" href="{page}/enrolment"'
    assert primary in browser.get(page).text
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    shown = browser.get(page).text
    assert primary not in shown
    assert f'{page}/enrolment"' in shown


def test_a_code_for_many_hosts_is_shown_once_with_its_command(
    browser: WebSession, server: Server, scenario: Scenario
) -> None:
    assert 'href="/enrolment-codes"' in browser.get("/agents").text
    form = {
        "agentTypeId": scenario.agent_type_id,
        "providerId": scenario.provider_id,
        "count": "2",
        "lifetimeSeconds": "3600",
        "tags": "zone=a, ssd",
        "namePrefix": "fra-",
    }
    page = browser.get("/enrolment-codes/new")
    refused = browser.post("/enrolment-codes/new", {**form, "count": "0"}, csrf=page.csrf, expect=400)
    assert 'href="#f-count"' in refused.text
    shown = browser.post("/enrolment-codes/new", form, csrf=browser.csrf, expect=200).text
    code = re.search(r"mainstay agent enroll http://127\.0\.0\.1:\d+ ([0-9a-f]{32})<", shown)
    assert code is not None
    host = unique("host")
    agent_id = scenario.admin.as_token("").post("/enrol", {"code": code[1], "name": host})["agentId"]
    assert scenario.admin.get(f"/agents/{agent_id}")["name"] == f"fra-{host}"
    provider = as_token(server, scenario.provider.token)
    listed = provider.get("/enrolment-codes").text
    assert "1 of 2" in listed
    assert "an admin" in listed
    assert code[1] not in listed
    revocation = re.search(r'href="(/enrolment-codes/[^"]+/delete)"', listed)
    assert revocation is not None
    assert "1 of 2 places left" in provider.get(revocation[1]).text
    provider.post(revocation[1], {}, csrf=provider.csrf, expect=303)
    assert "No enrollment codes" in provider.get("/enrolment-codes").text

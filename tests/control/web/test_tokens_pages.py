"""The pages of tokens: a value is shown once, the own token is marked, no caller gets more rights than its own."""

from __future__ import annotations

import re

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from scenario import Scenario, unique

VALUE = re.compile(r'id="v-value">([\w-]{40,})<')


def is_chosen(page: str, name: str, value: str) -> bool:
    """In the list of rows, or, if there are too many for a list, in the field for the id."""
    field = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
    return f'<option value="{value}" selected' in page or (field is not None and f'value="{value}"' in field[0])


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


def test_a_token_is_created_and_its_value_shown_once(browser: WebSession, scenario: Scenario, server: Server) -> None:
    name = unique("ci")
    form = {"name": name, "role": "participant", "participantId": scenario.consumer_id, "readOnly": "true"}
    reply = browser.post("/tokens/new", {**form, "expireAt": "2999-01-31T12:30"}, csrf=browser.csrf, expect=200)
    value = VALUE.search(reply.text)
    assert value is not None
    assert reply.headers["cache-control"] == "no-store"
    token = scenario.admin.as_token(value[1]).get("/tokens/me")
    assert (token["readOnly"], token["expireAt"]) == (True, "2999-01-31T12:30:00Z")
    assert value[1] not in browser.get(f"/tokens?name={name}").text
    assert name in signed_in(server.url, value[1]).get("/tokens").text


def test_a_fault_keeps_the_form(browser: WebSession, scenario: Scenario) -> None:
    form = {"name": "x" * 300, "role": "agent", "agentId": scenario.agent_id, "expireAt": "2999-01-31T12:30"}
    page = browser.post("/tokens/new", form, csrf=browser.csrf, expect=400).text
    assert f'value="{"x" * 300}"' in page
    assert is_chosen(page, "agentId", scenario.agent_id)
    assert 'value="2999-01-31T12:30"' in page
    for role in ("agent", "participant"):
        missing = browser.post("/tokens/new", {"name": "n", "role": role}, csrf=browser.csrf, expect=400).text
        assert f'id="f-{role}Id-e"' in missing
        assert f"choose the {role} of the token" in missing


def test_a_participant_creates_tokens_of_its_own_only(server: Server, scenario: Scenario) -> None:
    browser = signed_in(server.url, str(scenario.consumer.token))
    assert 'name="participantId"' not in browser.get("/tokens/new").text
    form = {"name": unique("own"), "role": "participant", "participantId": scenario.provider_id}
    value = VALUE.search(browser.post("/tokens/new", form, csrf=browser.csrf, expect=200).text)
    assert value is not None
    assert scenario.admin.as_token(value[1]).get("/tokens/me")["participantId"] == scenario.consumer_id
    browser.post("/tokens/new", {"name": "a", "role": "admin"}, csrf=browser.csrf, expect=403)
    foreign = {"name": "a", "role": "agent", "agentId": scenario.agent_id}
    browser.post("/tokens/new", foreign, csrf=browser.csrf, expect=403)


def test_the_token_of_the_session_is_marked_and_revoking_it_signs_out(server: Server, scenario: Scenario) -> None:
    browser = signed_in(server.url, str(scenario.consumer.token))
    assert browser.get("/tokens").text.count("This session") == 1
    token = scenario.consumer.get("/tokens/me")
    assert "Sessions, streams and agents" in browser.get(f"/tokens/{token['id']}/delete").text
    browser.post(f"/tokens/{token['id']}/delete", {}, csrf=browser.csrf)
    assert browser.get("/tokens", expect=303).location.startswith("/signin")


def test_regenerating_shows_the_new_value_and_ends_the_old(browser: WebSession, scenario: Scenario) -> None:
    token = scenario.consumer.get("/tokens/me")
    page = f"/tokens/{token['id']}/regenerate"
    assert "The old value is refused" in browser.get(page).text
    value = VALUE.search(browser.post(page, {}, csrf=browser.csrf, expect=200).text)
    assert value is not None
    scenario.consumer.get("/tokens/me", expect=401)
    scenario.admin.as_token(value[1]).get("/tokens/me")


def test_a_token_is_renamed_without_a_change_of_its_expiry(browser: WebSession, scenario: Scenario) -> None:
    token = scenario.consumer.get("/tokens/me")
    shown = re.search(r'id="f-expireAt"[^>]*value="([^"]+)"', browser.get(f"/tokens/{token['id']}/edit").text)
    assert shown is not None
    form: dict[str, object] = {"name": unique("renamed"), "expireAt": shown[1]}
    browser.post(f"/tokens/{token['id']}/edit", form, csrf=browser.csrf)
    after = scenario.consumer.get("/tokens/me")
    assert (after["name"], after["expireAt"]) == (form["name"], token["expireAt"])


def test_the_last_admin_token_is_kept(embedded: Server) -> None:
    browser = signed_in(embedded.url, str(embedded.admin.token))
    for other in embedded.admin.get("/tokens?role=admin&pageSize=100")["items"]:
        if other["id"] != embedded.admin.get("/tokens/me")["id"]:
            embedded.admin.delete(f"/tokens/{other['id']}")
    own = embedded.admin.get("/tokens/me")["id"]
    refused = browser.post(f"/tokens/{own}/delete", {}, csrf=browser.csrf, expect=409).text
    assert "last admin token" in refused


def test_a_stranger_sees_no_token_of_others(server: Server, scenario: Scenario) -> None:
    token = scenario.consumer.get("/tokens/me")
    stranger = signed_in(server.url, str(scenario.stranger.token))
    assert token["id"] not in stranger.get("/tokens").text
    for path in ("edit", "delete", "regenerate"):
        stranger.get(f"/tokens/{token['id']}/{path}", expect=404)
        stranger.post(f"/tokens/{token['id']}/{path}", {"name": "x"}, csrf=stranger.csrf, expect=404)


def test_a_token_of_a_participant_is_created_from_its_page(browser: WebSession, scenario: Scenario) -> None:
    page = browser.get(f"/participants/{scenario.consumer_id}").text
    link = f"/tokens/new?participantId={scenario.consumer_id}"
    assert link in page
    assert is_chosen(browser.get(link).text, "participantId", scenario.consumer_id)
    listed = browser.get(f"/tokens?participantId={scenario.consumer_id}").text
    assert link in listed
    assert "Show all tokens" in listed


def test_a_token_of_an_agent_is_created_from_its_tokens(browser: WebSession, scenario: Scenario) -> None:
    link = f"/tokens/new?agentId={scenario.agent_id}"
    assert link in browser.get(f"/tokens?agentId={scenario.agent_id}").text
    form = browser.get(link).text
    assert 'value="agent" selected' in form
    assert is_chosen(form, "agentId", scenario.agent_id)


def test_a_search_without_a_match_does_not_deny_other_tokens(browser: WebSession) -> None:
    listed = browser.get("/tokens?participantId=00000000-0000-4000-8000-000000000000").text
    assert "None matches this search." in listed
    assert "Show all tokens" not in browser.get("/tokens").text

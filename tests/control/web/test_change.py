"""Updates, actions and deletes in a browser without script: each with its plan before anything happens."""

from __future__ import annotations

import re
from typing import Any

import pytest

import seed_text
from browser_session import WebSession, signed_in
from control_plane import Server
from form_browser import successful
from form_pages import fields_of, planned, submit, text_of
from scenario import Scenario

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SCHEMA = {
    "size": {"type": "integer", "required": True, "validators": [{"type": "max", "value": 10}]},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "region": {"type": "string", "immutable": True},
    "note": {"type": "string"},
}
# Names that a path cannot carry as they are, or that mean something in an address.
ODD_NAMES = (
    "a/b",
    "/",
    "what?x=1&y",
    "#top",
    "50%",
    "100%25",
    "a%2Fb",
    "..",
    ".",
    "../x",
    "größer 写",
    "a+b c",
    "\\",
    "'\"<i>",
)
ORDERED = {"size": 3, "password": "first-secret", "region": "fra", "note": "x"}


@pytest.fixture
def consumer(server: Server, scenario: Scenario) -> WebSession:
    return signed_in(server.url, str(scenario.consumer.token))


@pytest.fixture
def service(scenario: Scenario) -> Any:
    """Ordered and created; its agent is not connected, so plans do not wait for it."""
    ordered = scenario.complete(scenario.order(scenario.service_type(SCHEMA, SIMPLE), ORDERED))
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"status": "Disconnected"})
    return ordered


def test_an_update_is_planned_and_done(scenario: Scenario, consumer: WebSession, service: Any) -> None:
    path = f"/services/{service['id']}/update"
    form = consumer.get(path)
    posted = dict(successful(form.text))
    assert (posted["p.size"], posted["p.note"], posted["p.password"]) == ("3", "x", "")
    assert "p.region" not in posted
    assert "Set, never shown; type to replace" in form.text
    plan = planned(scenario, lambda: submit(consumer, path, form, p__size="5", p__note=""))
    assert "/etc/x" in plan.text
    reply = planned(scenario, lambda: submit(consumer, path, plan, expect=303, step="place"))
    assert reply.location == f"/services/{service['id']}"
    done = scenario.complete(service)
    assert done["properties"] == {"size": 5, "password": service["properties"]["password"], "region": "fra"}


def test_faults_of_an_update_are_at_their_fields_and_nothing_is_lost(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/update"
    refused = submit(consumer, path, consumer.get(path), expect=400, p__size="50", p__note="typed", name="renamed")
    assert "value 50 exceeds maximum 10" in text_of(refused)
    posted = dict(successful(refused.text))
    assert (posted["p.size"], posted["p.note"], posted["name"]) == ("50", "typed", "renamed")
    nameless = submit(consumer, path, consumer.get(path), expect=400, name="")
    assert 'href="#name"' in nameless.text


def test_a_service_is_renamed_without_a_job(scenario: Scenario, consumer: WebSession, service: Any) -> None:
    path = f"/services/{service['id']}/update"
    # The agent is connected, but has nothing to forecast.
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    plan = submit(consumer, path, consumer.get(path), name="a new name")
    submit(consumer, path, plan, expect=303, step="place")
    renamed = scenario.service(service["id"])
    assert (renamed["name"], renamed.get("activeJob")) == ("a new name", None)


def test_a_change_by_others_in_between_is_not_overwritten(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/update"
    form = consumer.get(path)
    scenario.consumer.patch(f"/services/{service['id']}", {"name": "other"})
    refused = submit(consumer, path, form, expect=412, p__size="4")
    assert dict(successful(refused.text))["p.size"] == "4"
    plan = submit(consumer, path, refused, name="other")
    assert "Plan: update" in plan.text


def test_a_fault_in_between_does_not_hide_a_change_by_others(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/update"
    form = consumer.get(path)
    scenario.consumer.patch(f"/services/{service['id']}", {"name": "other"})
    faulty = submit(consumer, path, form, expect=400, p__size="x")
    submit(consumer, path, faulty, expect=412, p__size="4")


def test_an_action_of_an_outdated_page_is_refused(scenario: Scenario, consumer: WebSession, service: Any) -> None:
    path = f"/services/{service['id']}/do/start"
    shown = consumer.get(path)
    scenario.consumer.patch(f"/services/{service['id']}", {"name": "other"})
    refused = submit(consumer, path, shown, expect=412, step="plan")
    assert "read it again" in refused.text
    assert scenario.service(service["id"]).get("activeJob") is None


def test_an_action_shows_where_it_leads_before_the_agent_is_asked(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/do/start"
    shown = consumer.get(path)
    assert "the agent has not been asked yet" in shown.text
    assert f"<h1><bdi>Start {service['name']}</bdi></h1>" in shown.text
    assert "properties" not in shown.text.partition(">Path<")[2].partition("</ol>")[0]
    assert scenario.service(service["id"])["version"] == service["version"]
    plan = planned(scenario, lambda: submit(consumer, path, shown, step="plan"))
    assert f"<h1><bdi>Plan: start {service['name']}</bdi></h1>" in plan.text
    reply = planned(scenario, lambda: submit(consumer, path, plan, expect=303, step="place"))
    assert reply.location == f"/services/{service['id']}"
    assert scenario.service(service["id"])["activeJob"]["action"] == "start"


def test_an_action_that_is_not_possible_now_says_why(consumer: WebSession, service: Any) -> None:
    shown = consumer.get(f"/services/{service['id']}/do/stop")
    assert "Nothing was done" in shown.text
    assert 'value="place"' not in shown.text
    consumer.get(f"/services/{service['id']}/do/fly", expect=404)


@pytest.mark.test_all
def test_an_action_with_any_name_is_reached_by_its_link_and_run_by_its_form(
    scenario: Scenario, consumer: WebSession
) -> None:
    actions = [each for each in SIMPLE["actions"] if each["name"] in ("create", "delete")]
    actions += [{"name": name, "transitions": [{"from": "Stopped", "to": "Stopped"}]} for name in ODD_NAMES]
    service = scenario.complete(scenario.order(scenario.service_type(None, {**SIMPLE, "actions": actions})))
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"status": "Disconnected"})
    page = f"/services/{service['id']}"
    links = set(re.findall(rf'href="({page}/do/[^"?]*)"', text_of(consumer.get(page)))) - {f"{page}/do/delete"}
    ran = []
    for link in links:
        shown = consumer.get(link)
        assert f'action="{link}"' in text_of(shown)
        plan = submit(consumer, link, shown, step="plan")
        submit(consumer, link, plan, expect=303, step="place")
        ran.append(scenario.service(service["id"])["activeJob"]["action"])
        scenario.complete(service)
    assert sorted(ran) == sorted(ODD_NAMES)


def test_a_delete_asks_for_the_name(scenario: Scenario, consumer: WebSession, service: Any) -> None:
    path = f"/services/{service['id']}/do/delete"
    plan = submit(consumer, path, consumer.get(path), step="plan")
    assert "danger-fill" in plan.text
    refused = submit(consumer, path, plan, expect=400, step="place", confirm="another")
    assert "This is not the name of the service" in refused.text
    assert scenario.service(service["id"]).get("activeJob") is None
    submit(consumer, path, refused, expect=303, step="place", confirm=service["name"])
    assert scenario.service(service["id"])["activeJob"]["action"] == "delete"


def test_an_action_that_is_refused_at_the_last_step_does_nothing(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/do/start"
    plan = submit(consumer, path, consumer.get(path), step="plan")
    scenario.do(service, "delete")
    refused = submit(consumer, path, plan, expect=409, step="place")
    assert "Nothing was done" in refused.text
    assert scenario.service(service["id"])["activeJob"]["action"] == "delete"


def test_an_admin_deletes_without_the_agent(server: Server, scenario: Scenario, service: Any) -> None:
    admin = signed_in(server.url, str(server.admin.token))
    path = f"/services/{service['id']}/do/delete"
    assert f'href="{path}?force=true"' in admin.get(path).text
    plan = submit(admin, path, admin.get(f"{path}?force=true"), step="plan")
    assert "the agent owes the clean-up of its host" in plan.text
    submit(admin, path, plan, expect=303, step="place", confirm=service["name"])
    assert scenario.service(service["id"])["orphan"] is True


def test_a_service_without_a_delete_action_is_deleted_by_force(server: Server, scenario: Scenario) -> None:
    """Out of a state without actions, too."""
    actions = [each for each in SIMPLE["actions"] if each["name"] == "create"]
    service = scenario.complete(scenario.order(scenario.service_type(None, {**SIMPLE, "actions": actions})))
    assert service["availableActions"] == []
    admin = signed_in(server.url, str(server.admin.token))
    page = f"/services/{service['id']}"
    (link,) = re.findall(rf'href="({page}/do/[^"]*)"', text_of(admin.get(page)))
    path = f"{page}/do/delete"
    assert link == f"{path}?force=true"
    admin.get(path, expect=404)
    plan = submit(admin, path, admin.get(link), step="plan")
    submit(admin, path, plan, expect=303, step="place", confirm=service["name"])
    assert scenario.service(service["id"])["status"] == "Deleted"
    assert "/do/delete" not in admin.get(page).text


def test_a_stranger_and_the_provider_cannot_change_the_service(
    server: Server, scenario: Scenario, service: Any
) -> None:
    for client, status in ((scenario.stranger, 404), (scenario.provider, 403)):
        session = signed_in(server.url, str(client.token))
        for path in (f"/services/{service['id']}/update", f"/services/{service['id']}/do/start"):
            session.get(path, expect=status)
            session.post(path, {"step": "place"}, csrf=session.csrf, expect=status)
    assert scenario.service(service["id"])["version"] == service["version"]


def test_a_stored_secret_is_replaced_only_if_it_is_typed(
    scenario: Scenario, consumer: WebSession, service: Any
) -> None:
    path = f"/services/{service['id']}/update"
    plan = submit(consumer, path, consumer.get(path), p__password="second-secret")
    assert "Type the secrets again" in plan.text
    assert "second-secret" not in plan.text
    fields = fields_of(plan, step="place", p__password="second-secret")
    consumer.post(path, fields, csrf=plan.csrf)
    done = scenario.complete(service)
    assert done["properties"]["password"] != service["properties"]["password"]
    plan = submit(consumer, path, consumer.get(path), x__password="true")
    consumer.post(path, fields_of(plan, step="place"), csrf=plan.csrf)
    assert "password" not in scenario.complete(service)["properties"]

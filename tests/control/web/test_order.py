"""Orders in a browser without script: form, faults, plan, and the service that comes of it."""

from __future__ import annotations

from typing import Any

import pytest

import seed_text
from browser_session import WebSession, signed_in
from control_plane import Server
from form_browser import successful
from form_pages import fields_of, planned, submit, text_of
from planning_agent import ANSWER
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SCHEMA = {
    "size": {"type": "integer", "required": True, "validators": [{"type": "max", "value": 10}]},
    "password": {
        "type": "string",
        "secret": {"type": "persistent"},
        "validators": [{"type": "minLength", "value": 5}],
    },
    "allow": {"type": "array", "items": {"type": "string"}},
    "extra": {"type": "json"},
}
CANARY = "canary-secret-71"


@pytest.fixture
def consumer(server: Server, scenario: Scenario) -> WebSession:
    return signed_in(server.url, str(scenario.consumer.token))


def offered_type(scenario: Scenario, schema: object = SCHEMA) -> Any:
    """A service type that an agent serves, which has not connected yet."""
    kind = scenario.service_type(schema, SIMPLE)
    assert scenario.agent_id
    return kind


def test_an_order_is_filled_in_planned_and_placed(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path, name = f"/order/{kind['id']}", unique("db")
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    assert path in consumer.get("/order").text
    form = consumer.get(path)
    plan = planned(
        scenario,
        lambda: submit(consumer, path, form, name=name, p__size="3", p__password=CANARY, p__extra='{"a": 1}'),
    )
    assert "/etc/x" in plan.text
    assert "Type the secrets again" in plan.text
    assert CANARY not in plan.text
    assert f"Order {name}" in plan.text
    reply = planned(scenario, lambda: submit(consumer, path, plan, expect=303, step="place", p__password=CANARY))
    service = scenario.service(reply.location.rpartition("/")[2])
    assert service["name"] == name
    assert service["properties"]["size"] == 3
    assert service["properties"]["extra"] == {"a": 1}
    assert service["properties"]["password"].startswith("vault://")


def test_all_faults_are_at_their_fields_and_nothing_typed_is_lost(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    form = consumer.get(path)
    typed = {"p__size": "many", "p__password": "abc", "p__extra": "{oops", "agentTags": "nowhere"}
    refused = submit(consumer, path, form, expect=400, **typed)
    shown = text_of(refused)
    for message in (
        "expected integer, got string",
        "string length 3 is less than minimum 5",
        "not JSON: ",
    ):
        assert message in shown
    again = dict(successful(refused.text))
    assert (again["p.size"], again["p.extra"], again["agentTags"]) == ("many", "{oops", "nowhere")
    assert again["p.password"] == ""
    assert "Type it again" in shown
    named = submit(consumer, path, refused, expect=400, p__extra="1")
    assert "required field is missing" in text_of(named)
    assert 'href="#name"' in named.text
    assert 'href="#p.size"' in named.text


def test_rows_are_added_and_removed_without_script(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    page = submit(consumer, path, consumer.get(path), p__size="x", name="n", add="p.allow")
    page = submit(consumer, path, page, p__allow__0="first", add="p.allow")
    page = submit(consumer, path, page, p__allow__1="second", remove="p.allow.0")
    posted = dict(successful(page.text))
    assert (posted["p.allow.0"], posted["p.size"], posted["name"]) == ("second", "x", "n")
    assert "p.allow.1" not in posted


def test_an_agent_that_is_not_connected_gives_a_forecast_without_the_host(
    scenario: Scenario, consumer: WebSession
) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    plan = submit(consumer, path, consumer.get(path), name="x", p__size="3")
    assert "Without the changes on the host" in plan.text
    fields = fields_of(plan, step="place")
    first = consumer.post(path, fields, csrf=plan.csrf)
    second = consumer.post(path, fields, csrf=plan.csrf)
    assert first.location == second.location, "a repeated click places one order"


def test_a_plan_that_no_longer_holds_is_replaced_and_nothing_is_placed(
    scenario: Scenario, consumer: WebSession
) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    form = consumer.get(path)
    plan = planned(scenario, lambda: submit(consumer, path, form, name="x", p__size="3", p__password=CANARY))
    before = scenario.consumer.get("/services")["totalItems"]
    again = planned(scenario, lambda: submit(consumer, path, plan, step="place", p__password="other-secret"))
    assert "The last plan no longer holds" in again.text
    assert "make a new plan" not in again.text
    assert "A secret that is typed differently" in again.text
    assert "other-secret" not in again.text
    assert scenario.consumer.get("/services")["totalItems"] == before


def test_a_plan_leads_back_to_the_form_as_it_was_filled_in(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    plan = submit(consumer, path, consumer.get(path), name="x y", p__size="3", p__password=CANARY)
    form = submit(consumer, path, plan, step="edit")
    posted = dict(successful(form.text))
    assert (posted["name"], posted["p.size"]) == ("x y", "3")
    assert CANARY not in form.text


def test_a_secret_that_is_not_typed_again_leads_back_to_its_field(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    plan = submit(consumer, path, consumer.get(path), name="x", p__size="3", p__password=CANARY)
    refused = submit(consumer, path, plan, expect=400, step="place")
    assert "type the secret again" in refused.text
    assert 'href="#p.password"' in refused.text
    assert dict(successful(refused.text))["p.size"] == "3"
    assert scenario.consumer.get("/services")["totalItems"] == 0


def test_an_admin_chooses_the_customer(server: Server, scenario: Scenario) -> None:
    admin = signed_in(server.url, str(server.admin.token))
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    form = admin.get(path)
    refused = submit(admin, path, form, expect=400, name="x", p__size="3")
    assert 'href="#consumerId"' in refused.text
    assert "choose the customer" in refused.text
    assert "The server refused this" not in refused.text
    chosen = submit(admin, path, refused, consumerId=scenario.consumer_id, step="refresh")
    plan = submit(admin, path, chosen, agentId=scenario.agent_id)
    placed = submit(admin, path, plan, expect=303, step="place")
    assert scenario.service(placed.location.rpartition("/")[2])["consumerId"] == scenario.consumer_id


def test_several_providers_are_offered_to_choose_from(
    server: Server, scenario: Scenario, consumer: WebSession
) -> None:
    kind = offered_type(scenario)
    other = scenario.participant("other")
    server.admin.post("/agents", {"name": unique("a"), "providerId": other, "agentTypeId": scenario.agent_type_id})
    path = f"/order/{kind['id']}"
    refused = submit(consumer, path, consumer.get(path), expect=400, name="x", p__size="3")
    assert "choose a provider" in text_of(refused)
    plan = submit(consumer, path, refused, providerId=other)
    placed = submit(consumer, path, plan, expect=303, step="place")
    assert scenario.service(placed.location.rpartition("/")[2])["providerId"] == other


def test_a_reference_is_chosen_from_living_services_and_above_fifty_by_name(
    server: Server, scenario: Scenario, consumer: WebSession
) -> None:
    target = scenario.service_type(None, SIMPLE)
    kind = scenario.service_type(
        {"of": {"type": "reference", "validators": [{"type": "serviceType", "value": target["name"]}]}}, SIMPLE
    )
    first = scenario.order(target, name="the first one")
    path = f"/order/{kind['id']}"
    form = consumer.get(path)
    assert f'<option value="{first["id"]}">the first one' in form.text
    for number in range(51):
        scenario.order(target, name=f"copy {number}")
    form = consumer.get(path)
    assert "<datalist" in form.text
    plan = submit(consumer, path, form, name="x", p__of="the first one")
    placed = submit(consumer, path, plan, expect=303, step="place")
    assert scenario.service(placed.location.rpartition("/")[2])["properties"] == {"of": first["id"]}


def test_the_agent_may_answer_with_a_failure_and_the_plan_shows_it(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    form = consumer.get(path)
    events = [{"type": "file", "name": "/etc/x", "outcome": "failed", "errors": ["no such <user>"]}]
    plan = planned(
        scenario, lambda: submit(consumer, path, form, name="x", p__size="3"), {**ANSWER, "events": events}
    )
    assert "The run would fail" in plan.text
    assert "no such &lt;user&gt;" in plan.text


def test_the_default_group_is_offered_once(scenario: Scenario, consumer: WebSession) -> None:
    kind = offered_type(scenario)
    path = f"/order/{kind['id']}"
    assert consumer.get(path).text.count(">default</option>") == 1
    group = scenario.consumer.post("/service-groups", {"name": "default", "consumerId": scenario.consumer_id})
    other = scenario.consumer.post("/service-groups", {"name": "web", "consumerId": scenario.consumer_id})
    shown = consumer.get(path).text
    assert shown.count(">default</option>") == 1
    assert other["id"] in shown
    # A link may name it: it stays chosen.
    assert f'value="{group["id"]}" selected' in consumer.get(f"{path}?groupId={group['id']}").text


def test_tags_that_no_agent_has_are_a_fault_of_their_field(scenario: Scenario, consumer: WebSession) -> None:
    path = f"/order/{offered_type(scenario)['id']}"
    typed = {"name": "x", "agentTags": "region:mars", "p__size": "11", "p__password": CANARY}
    refused = submit(consumer, path, consumer.get(path), expect=400, **typed)
    assert 'href="#agentTags"' in refused.text
    assert "with tags [region:mars]" in refused.text
    assert "The order has 2 faults" in refused.text
    assert "The server refused this" not in refused.text


def test_a_token_that_may_only_read_sees_the_form_and_cannot_send_it(server: Server, scenario: Scenario) -> None:
    kind = scenario.service_type({"size": {"type": "integer"}})
    wanted = {"name": "reader", "role": "participant", "scopeId": scenario.consumer_id, "readOnly": True}
    reader = signed_in(server.url, scenario.consumer.post("/tokens", wanted)["value"])
    page = reader.get(f"/order/{kind['id']}")
    assert "Your token may only read" in page.text
    assert "See the plan" not in page.text
    reader.post(f"/order/{kind['id']}", {"step": "plan", "name": "n"}, csrf=page.csrf, expect=403)

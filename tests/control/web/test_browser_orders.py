"""An order and an update in Chromium: form, faults, plan, and the way back. Makes the pictures of the guide."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import seed_text
from browser import Screenshots, assert_accessible, assert_fits, browser_user
from control_plane import Client, Server
from planning_agent import ANSWER as PLAN_ANSWER
from scenario import Scenario

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIFECYCLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def rule(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def schema_of(tier: str) -> dict[str, Any]:
    """Every control of the prototype."""
    secret = {"type": "persistent"}
    role = {"type": "string", "required": True, "validators": [rule("enum", values=["reader", "writer"])]}
    users = {
        "name": {"type": "string", "required": True},
        "role": role,
        "password": {"type": "string", "secret": secret},
    }
    target = {
        "bucket": {"type": "string"},
        "accessKey": {"type": "string", "secret": secret},
    }
    backup = {
        "schedule": {
            "type": "string",
            "default": "0 3 * * *",
            "validators": [rule("pattern", pattern="^[0-9*/, -]+$")],
        },
        "keepDays": {"type": "integer", "label": "Keep for, in days", "validators": [rule("min", value=1)]},
        "target": {"type": "object", "properties": target},
    }
    properties = {
        "database": {
            "type": "string",
            "label": "Database name",
            "required": True,
            "immutable": True,
            "validators": [rule("pattern", pattern="^[a-z][a-z0-9_]{0,30}$")],
        },
        "user": {"type": "string", "label": "User name", "required": True, "immutable": True},
        "password": {
            "type": "string",
            "required": True,
            "secret": secret,
            "validators": [rule("minLength", value=12)],
        },
        "tier": {"type": "string", "required": True, "validators": [rule("serviceOption", value=tier)]},
        "version": {"type": "integer", "default": 16, "validators": [rule("enum", values=[14, 15, 16])]},
        "maxConnections": {
            "type": "integer",
            "label": "Connections",
            "default": 50,
            "validators": [rule("min", value=10), rule("max", value=1000)],
        },
        "cacheRatio": {
            "type": "number",
            "label": "Cache",
            "validators": [rule("min", value=0.1), rule("max", value=0.9)],
        },
        "synchronous": {"type": "boolean", "label": "Wait for the disk on every commit", "default": True},
        "backup": {"type": "object", "properties": backup},
        "allow": {
            "type": "array",
            "label": "Networks that may connect",
            "items": {"type": "string", "validators": [rule("pattern", pattern="^[0-9a-f.:]+/[0-9]+$")]},
            "validators": [rule("minItems", value=1), rule("maxItems", value=16)],
        },
        "users": {"type": "array", "label": "More users", "items": {"type": "object", "properties": users}},
        "replicaOf": {"type": "reference"},
        "parameters": {"type": "json", "label": "Server parameters"},
        "port": {"type": "integer", "default": 5432, "authorizers": [rule("actor", actors=["system"])]},
        "hostname": {
            "type": "string",
            "generator": rule("hostname", prefix="pg"),
            "authorizers": [rule("actor", actors=["system"])],
        },
        "url": {"type": "string", "authorizers": [rule("actor", actors=["agent"])]},
    }
    return {
        "properties": properties,
        "validators": [rule("atMostOne", properties=["replicaOf", "parameters"])],
    }


EVENTS = [
    {
        "type": "file",
        "name": "/srv/postgresql-7f3c/settings.conf",
        "outcome": "changed",
        "own": True,
        "diff": "@@ -1,4 +1,4 @@\n # Written by mainstay.\n listen_addresses = '*'\n-max_connections = 500\n+max_connections = 200\n",
    },
    {
        "type": "file",
        "name": "/srv/postgresql-7f3c/pg_hba.conf",
        "outcome": "changed",
        "own": True,
        "diff": "@@ -3,2 +3,3 @@\n hostssl orders orders_app 10.20.0.0/16 scram-sha-256\n+hostssl orders orders_app 10.44.8.0/22 scram-sha-256\n",
    },
    {"type": "service", "name": "postgresql-7f3c", "outcome": "refreshed"},
    *({"type": "file", "name": f"/srv/postgresql-7f3c/{number}", "outcome": "stable"} for number in range(10)),
]
ANSWER = {**PLAN_ANSWER, "events": EVENTS, "summary": {"total": 13, "changed": 2}}


def offered_type(scenario: Scenario) -> Any:
    tier = f"tier_{scenario.consumer_id[:8]}"
    option_type = scenario.admin.post("/service-option-types", {"name": "Tier", "type": tier})
    for value, name in (("small", "Small"), ("standard", "Standard"), ("large", "Large")):
        body = {
            "providerId": scenario.provider_id,
            "serviceOptionTypeId": option_type["id"],
            "name": name,
            "value": value,
        }
        scenario.provider.post("/service-options", body)
    kind = scenario.service_type(schema_of(tier), LIFECYCLE, name="postgresql cluster")
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    return kind


def answer_plan(agent: Client) -> None:
    (request,) = agent.get("/plans/pending?wait=30")
    agent.post(f"/plans/{request['id']}/answer", ANSWER, expect=204)


def fill_in(page: Page) -> None:
    page.fill("#name", "orders-db-2")
    page.fill("[id='p.database']", "Orders-2")
    page.fill("[id='p.user']", "orders_app")
    page.fill("[id='p.password']", "short")
    page.get_by_text("Standard", exact=True).click()
    page.fill("[id='p.allow.0']", "10.20.0.0/16")
    page.get_by_role("button", name="Add to networks that may connect").click()
    page.fill("[id='p.allow.1']", "office")
    page.get_by_role("button", name="Add to more users").click()
    page.fill("[id='p.users.0.name']", "reporting")
    page.fill("[id='p.password']", "short")


def test_an_order_from_the_form_to_the_service(browser: Browser, embedded: Server, screenshots: Screenshots) -> None:
    scenario = Scenario(embedded.admin)
    kind = offered_type(scenario)
    with browser_user(browser, embedded.url) as user:
        user.watch.expected_statuses = {400}
        page = user.sign_in(str(scenario.consumer.token))
        page.goto(f"{embedded.url}/order/{kind['id']}")
        fill_in(page)
        page.get_by_role("button", name="See the plan").click()
        page.get_by_role("alert").wait_for()
        assert page.input_value("[id='p.database']") == "Orders-2"
        assert page.input_value("[id='p.allow.1']") == "office"
        assert page.input_value("[id='p.password']") == ""
        assert page.locator("[aria-invalid=true]").count() >= 3
        page.get_by_role("link", name="database").click()
        assert page.evaluate("document.activeElement.id") in ("p.database", "")
        assert_accessible(page)
        assert_fits(page)
        page.evaluate("window.scrollTo(0, 0)")
        screenshots.take(page, "order")
        page.fill("[id='p.database']", "orders_2")
        page.fill("[id='p.password']", "long-enough-password")
        page.fill("[id='p.allow.1']", "10.44.8.0/22")
        page.select_option("[id='p.users.0.role']", "reader")
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(answer_plan, scenario.agent)
            # Enter in a field asks for the plan and presses no other button.
            page.press("[id='p.database']", "Enter")
            page.get_by_role("heading", name="Plan: order orders-db-2").wait_for()
            answered.result()
        assert_accessible(page)
        assert_fits(page)
        screenshots.take(page, "plan")
        page.fill("[id='p.password']", "long-enough-password")
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(answer_plan, scenario.agent)
            page.get_by_role("button", name="Order orders-db-2").click()
            page.wait_for_url("**/services/*")
            answered.result()
        service = scenario.service(page.url.rpartition("/")[2])
        assert service["properties"]["users"][0]["role"] == "reader"
        page.goto(f"{embedded.url}/services/{service['id']}/update")
        assert_accessible(page)
        assert_fits(page)

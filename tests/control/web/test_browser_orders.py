"""An order and an update in Chromium: form, faults, plan, and the way back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import seed_text
from browser import assert_accessible, assert_fits, browser_user
from browser_session import signed_in
from control_plane import Client, Server
from order_samples import ANSWER, schema_of
from scenario import Scenario

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIFECYCLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


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


def test_an_order_from_the_form_to_the_service(browser: Browser, embedded: Server) -> None:
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
        # An empty line of a file is a line of its plan.
        heights = page.locator(".diff pre > *").evaluate_all("lines => lines.map(line => line.offsetHeight)")
        assert min(heights) == max(heights) > 10
        assert_accessible(page)
        assert_fits(page)
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


def test_a_browser_reaches_actions_whose_names_are_parts_of_paths(browser: Browser, embedded: Server) -> None:
    """Browsers resolve `..` and `%2e%2e` before they send a request."""
    scenario = Scenario(embedded.admin)
    names = ("..", ".", "%2e%2e", "../../agents", "a/b?c#d")
    actions = [each for each in LIFECYCLE["actions"] if each["name"] in ("create", "delete")]
    actions += [{"name": name, "transitions": [{"from": "Stopped", "to": "Stopped"}]} for name in names]
    service = scenario.complete(scenario.order(scenario.service_type(None, {**LIFECYCLE, "actions": actions})))
    with browser_user(browser, embedded.url) as user:
        user.adopt(signed_in(embedded.url, str(scenario.consumer.token)))
        page = user.new_page()
        page.goto(f"{embedded.url}/services/{service['id']}")
        links = page.locator("main a[href*='/do/']:not([href*='/do/delete'])").evaluate_all(
            "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)"
        )
        reached = set()
        for link in set(links):
            page.goto(link)
            reached.add(page.inner_text("h1"))
    assert reached == {f"{name[:1].upper()}{name[1:]} {service['name']}" for name in names}

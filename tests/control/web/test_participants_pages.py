"""The page of a participant."""

from __future__ import annotations

from browser_session import signed_in
from control_plane import Server
from scenario import Scenario, unique


def test_an_admin_disables_and_enables_a_participant(server: Server, scenario: Scenario) -> None:
    browser = signed_in(server.url, str(server.admin.token))
    page = f"/participants/{scenario.consumer_id}"
    browser.post(f"{page}/status", {"status": "Disabled"}, csrf=browser.csrf)
    assert "This participant is disabled" in browser.get(page).text
    browser.post(f"{page}/status", {"status": "Enabled"}, csrf=browser.csrf)
    assert scenario.admin.get(f"/participants/{scenario.consumer_id}")["status"] == "Enabled"


def test_the_page_counts_what_belongs_to_a_participant(server: Server, scenario: Scenario) -> None:
    scenario.order(scenario.service_type())
    browser = signed_in(server.url, str(server.admin.token))
    provider = browser.get(f"/participants/{scenario.provider_id}").text
    assert '<span class="lab">Services provided</span><span class="big">1</span>' in provider
    assert "1 agent ·" in provider
    consumer = browser.get(f"/participants/{scenario.consumer_id}").text
    assert '<span class="lab">Services ordered</span><span class="big">1</span>' in consumer


def test_a_participant_renames_itself_but_sees_no_other(server: Server, scenario: Scenario) -> None:
    browser = signed_in(server.url, str(scenario.consumer.token))
    page = f"/participants/{scenario.consumer_id}"
    assert "Disable" not in browser.get(page).text
    name = unique("renamed")
    browser.post(f"{page}/edit", {"name": name}, csrf=browser.csrf)
    assert scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"] == name
    browser.post(f"{page}/status", {"status": "Enabled"}, csrf=browser.csrf, expect=403)
    browser.get(f"/participants/{scenario.provider_id}", expect=404)

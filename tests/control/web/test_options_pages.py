"""The pages of options: by type, for providers and consumers."""

from __future__ import annotations

from browser_session import signed_in
from control_plane import Server
from scenario import Scenario, unique


def test_a_provider_adds_an_option_and_consumers_see_it_without_a_form(server: Server, scenario: Scenario) -> None:
    scenario.order(scenario.service_type())
    kind = scenario.admin.post("/service-option-types", {"name": "Tier", "type": unique("t").replace("-", "_")})
    provider = signed_in(server.url, str(scenario.provider.token))
    page = f"/option-types/{kind['id']}"
    form = {
        "name": "Large",
        "value": "large",
        "displayOrder": "1",
        "enabled": "true",
        "serviceOptionTypeId": kind["id"],
    }
    reply = provider.post("/options/new", {**form, "providerId": scenario.consumer_id}, csrf=provider.csrf)
    assert reply.location == page
    (option,) = scenario.provider.get(f"/service-options?serviceOptionTypeId={kind['id']}")["items"]
    assert (option["providerId"], option["value"]) == (scenario.provider_id, "large")
    assert f"/options/{option['id']}/edit" in provider.get(page).text
    consumer = signed_in(server.url, str(scenario.consumer.token))
    shown = consumer.get(page).text
    assert "Large" in shown
    assert f"/options/{option['id']}/edit" not in shown
    consumer.post(f"/options/{option['id']}/edit", form, csrf=consumer.csrf, expect=403)

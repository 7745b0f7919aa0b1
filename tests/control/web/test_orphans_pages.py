"""The pages of orphans."""

from __future__ import annotations

from browser_session import signed_in
from control_plane import Server
from scenario import Scenario


def leave_orphan(scenario: Scenario) -> str:
    service = scenario.order(scenario.service_type())
    scenario.complete(service)
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    (orphan,) = scenario.agent.get("/orphans")["items"]
    return str(orphan["id"])


def test_an_orphan_is_listed_with_its_last_failure_and_report(server: Server, scenario: Scenario) -> None:
    orphan_id = leave_orphan(scenario)
    failure = {"errorMessage": "disk <b>full</b>", "report": {"changed": 7}}
    scenario.agent.post(f"/orphans/{orphan_id}/fail", failure, expect=204)
    browser = signed_in(server.url, str(scenario.provider.token))
    for page in ("/orphans", f"/orphans?agentId={scenario.agent_id}", f"/agents/{scenario.agent_id}"):
        assert "disk &lt;b&gt;full" in browser.get(page).text
    detail = browser.get(f"/orphans/{orphan_id}").text
    assert "&#34;changed&#34;: 7" in detail
    assert "Forget" not in detail


def test_an_admin_forgets_an_orphan_after_a_warning(server: Server, scenario: Scenario) -> None:
    orphan_id = leave_orphan(scenario)
    browser = signed_in(server.url, str(server.admin.token))
    assert "stays there" in browser.get(f"/orphans/{orphan_id}/forget").text
    browser.post(f"/orphans/{orphan_id}/forget", {}, csrf=browser.csrf)
    assert scenario.agent.get("/orphans")["items"] == []
    browser.get(f"/orphans/{orphan_id}", expect=404)


def test_only_an_admin_forgets_and_strangers_see_no_orphan(server: Server, scenario: Scenario) -> None:
    orphan_id = leave_orphan(scenario)
    provider = signed_in(server.url, str(scenario.provider.token))
    provider.get(f"/orphans/{orphan_id}/forget", expect=403)
    provider.post(f"/orphans/{orphan_id}/forget", {}, csrf=provider.csrf, expect=403)
    stranger = signed_in(server.url, str(scenario.stranger.token))
    assert orphan_id not in stranger.get("/orphans").text
    stranger.get(f"/orphans/{orphan_id}", expect=404)

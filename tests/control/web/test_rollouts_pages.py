"""Roll-outs in a browser without script: the form, the list, one roll-out, and what an admin may do with it."""

from __future__ import annotations

from typing import Any

import pytest

from blueprint_samples import blueprint, push, serve_type
from browser_session import WebSession, signed_in
from control_plane import Server
from form_pages import submit, text_of
from scenario import Scenario, unique


@pytest.fixture
def admin_session(server: Server, scenario: Scenario) -> WebSession:
    return signed_in(server.url, str(scenario.admin.token))


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    """A type with one service."""
    pushed = push(scenario.admin, blueprint(unique("web")))
    serve_type(scenario, pushed)
    scenario.complete(scenario.order(pushed["serviceType"], {"size": 1}))
    return pushed["serviceType"]


def test_a_roll_out_is_started_paused_and_aborted(scenario: Scenario, admin_session: WebSession, kind: Any) -> None:
    listed = admin_session.get(f"/services?serviceTypeId={kind['id']}")
    new = f"/rollouts/new?serviceTypeId={kind['id']}"
    assert new in listed.text.replace("&amp;", "&")
    form = admin_session.get(new)
    reply = submit(admin_session, "/rollouts/new", form, expect=303, action="start", batch="1", status="Paused")
    page = str(reply.location)
    shown = admin_session.get(page)
    (rollout,) = scenario.admin.get(f"/rollouts?serviceTypeId={kind['id']}")["items"]
    assert page == f"/rollouts/{rollout['id']}"
    assert (rollout["status"], rollout["batchSize"]) == ("Paused", 1)
    assert "Waiting" in text_of(shown)
    assert f"{page}/pause" not in shown.text
    assert kind["name"] in admin_session.get("/rollouts").text
    confirm = admin_session.get(f"{page}/abort")
    assert "Nothing is undone." in text_of(confirm)
    submit(admin_session, f"{page}/abort", confirm, expect=303)
    assert scenario.admin.get(f"/rollouts/{rollout['id']}")["status"] == "Aborted"
    refused = submit(admin_session, f"{page}/abort", confirm, expect=409)
    assert "the roll-out is Aborted" in text_of(refused)


def test_a_refused_form_keeps_what_was_typed(admin_session: WebSession, kind: Any) -> None:
    form = admin_session.get(f"/rollouts/new?serviceTypeId={kind['id']}")
    refused = submit(admin_session, "/rollouts/new", form, expect=400, action="fly", batch="7")
    assert "unknown action" in text_of(refused)
    assert "fly" in refused.text


def test_only_admins_are_offered_a_roll_out_and_only_for_a_whole_type(
    server: Server, scenario: Scenario, admin_session: WebSession, kind: Any
) -> None:
    consumer = signed_in(server.url, str(scenario.consumer.token))
    assert "/rollouts" not in consumer.get(f"/services?serviceTypeId={kind['id']}").text
    narrowed = admin_session.get(f"/services?serviceTypeId={kind['id']}&status=Stopped")
    assert "/rollouts/new" not in narrowed.text
    consumer.get("/rollouts", expect=403)

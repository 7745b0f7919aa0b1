"""Search by part of a name, with and without script."""

from __future__ import annotations

from typing import Any

import seed_text
from browser_session import WebSession, signed_in
from control_plane import Client
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def session_of(client: Client) -> WebSession:
    return signed_in(client.url, str(client.token))


def test_search_finds_services_agents_and_types_by_part_of_their_name(scenario: Scenario) -> None:
    mark = unique("mark")
    kind = scenario.service_type(None, SIMPLE, name=f"a {mark} type")
    service = scenario.order(kind, name=f"{mark} service")
    agent = scenario.new_agent(name=f"agent {mark}")
    text = session_of(scenario.admin).get(f"/search?q={mark.upper()}").text
    found = [text.index(f'href="{path}"') for path in (f"/services/{service['id']}", f"/agents/{agent['id']}")]
    # A name that begins with the text comes first.
    assert found == sorted(found)
    assert f'/{kind["id"]}" data-kind="type"' in text


def test_search_shows_only_what_the_caller_may_read(scenario: Scenario) -> None:
    mark = unique("mark")
    service = scenario.order(scenario.service_type(None, SIMPLE), name=mark)
    agent = scenario.new_agent(name=f"{mark} agent")
    own = session_of(scenario.consumer).get(f"/search?q={mark}").text
    assert service["id"] in own
    assert agent["id"] not in own
    foreign = session_of(scenario.stranger).get(f"/search?q={mark}").text
    assert service["id"] not in foreign
    assert "Nothing found" in foreign


def test_search_answers_any_text(scenario: Scenario) -> None:
    session = session_of(scenario.admin)
    for text in ("", "%20", "%25", "_", "'", "%00", "a" * 5000, "%3Cscript%3E", "%E2%80%AE", "x&q=y", "%FF"):
        assert session.get(f"/search?q={text}", expect=None).status in (200, 400), text
    fragment = session.get("/search?q=zz%3Cscript%3E&fragment=results").text
    assert "<html" not in fragment

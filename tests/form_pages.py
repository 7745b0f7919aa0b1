"""Fills in and posts the forms of pages, as a browser without script does."""

from __future__ import annotations

import html
from collections.abc import Callable

from browser_session import PageReply, WebSession
from form_browser import successful
from planning_agent import with_agent
from scenario import Scenario


def fields_of(reply: PageReply, **typed: str | None) -> list[tuple[str, object]]:
    """What the form of the page posts, with other texts in some fields; None: the field is not posted."""
    changed = {name.replace("__", "."): text for name, text in typed.items()}
    posted = [(name, text) for name, text in successful(reply.text) if name not in changed and name != "csrf"]
    return [*posted, *((name, text) for name, text in changed.items() if text is not None)]


def text_of(reply: PageReply) -> str:
    return html.unescape(reply.text)


def submit(session: WebSession, path: str, reply: PageReply, expect: int = 200, **typed: str | None) -> PageReply:
    return session.post(path, fields_of(reply, **typed), csrf=reply.csrf, expect=expect)


def planned(scenario: Scenario, ask: Callable[[], PageReply], answer: object = None) -> PageReply:
    """The page that needs an answer of the agent."""
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    reply, _ = with_agent(scenario.agent, ask, answer)  # type: ignore[arg-type]
    return reply  # type: ignore[return-value]

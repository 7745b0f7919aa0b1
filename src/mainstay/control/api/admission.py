"""Whether a token admits its caller: checked for each request, and again while a connection stays open."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.api.errors import HttpRefusal
from mainstay.control.store.engine.contract import Row
from mainstay.control.store.engine.records import to_time


def refusal_of(found: Row | None, now: datetime) -> HttpRefusal | None:
    """`found` is the row of the token with its owner; None: there is no such token."""
    if found is None:
        return HttpRefusal(401, "unauthorized", "unknown token")
    expire_at = found["expire_at"]
    if isinstance(expire_at, int) and to_time(expire_at) <= now:
        return HttpRefusal(401, "token_expired", "this token has expired")
    if "Disabled" in (found["participant_status"], found["agent_status"]):
        return HttpRefusal(403, "disabled", "the owner of this token is disabled")
    return None

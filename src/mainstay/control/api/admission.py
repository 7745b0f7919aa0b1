"""Whether a token admits its caller, and a role an endpoint. Tokens are checked again while a connection stays open."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from mainstay.control.access import Caller, relation_of
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.store.engine.contract import Row
from mainstay.control.store.engine.records import to_time


class Admits(Protocol):
    """An endpoint or a page."""

    @property
    def access(self) -> tuple[str, str] | None: ...

    @property
    def admits_read_only(self) -> bool: ...


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


def refuse_role(caller: Caller, wanted: Admits) -> None:
    """Raises if no row of the access table admits the role, or if the token may only read."""
    if wanted.access is not None:
        relation_of(caller, *wanted.access)
    if caller.read_only and not wanted.admits_read_only:
        raise HttpRefusal(403, "read_only", "this token may only read")

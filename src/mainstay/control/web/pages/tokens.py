"""Tokens: their owner, role, expiry and last use. A value is shown once, on the page that answers the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mainstay.control.access import Role
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall
from mainstay.control.web.noun_pages import (
    Confirmation,
    NounField,
    NounForm,
    NounPages,
    Row,
    TableColumn,
    creation_pages,
    form_pages,
    noun_pages,
    reference_field,
    show_confirmation,
)

API = "/api/v1/tokens"
CRUMBS = (("/tokens", "Tokens"),)
NAME = NounField("name", "Name", hint="What it is for.", required=True)
EXPIRES = NounField("expireAt", "Expires, in UTC", "time", "Empty: in 24 hours.")
READ_ONLY = NounField("readOnly", "May only read", "flag", "Not for tokens of agents.")


async def _complete(call: PageCall, rows: list[Any]) -> list[Any]:
    return [{**row, "state": _state(call, row)} for row in rows]


def _state(call: PageCall, row: Row) -> tuple[str, str]:
    if row["id"] == call.caller.token_id:
        return "up", "This session"
    expires = row.get("expireAt")
    if expires is not None and datetime.fromisoformat(expires) <= datetime.now(UTC):
        return "rest", "Expired"
    return "up", "Valid"


def _owner(row: Row) -> str:
    if row["role"] == "admin":
        return ""
    return str((row["agent"] or row["participant"] or {"name": ""})["name"])


def _role(row: Row) -> str:
    return f"{row['role']}, read-only" if row["readOnly"] else str(row["role"])


async def _change_fields(_call: PageCall, _row: Row | None) -> list[NounField]:
    return [NAME, EXPIRES]


async def _scope_field(call: PageCall, name: str, label: str, api: str) -> NounField:
    found = await reference_field(call, name, label, api)
    return replace(found, hint=f"{found.hint} Only for a token of role {label.lower()}.".strip())


async def _new_form(call: PageCall) -> NounForm:
    is_admin = call.caller.role is Role.ADMIN
    roles = [("participant", "participant"), ("agent", "agent"), *([("admin", "admin")] if is_admin else [])]
    # A link from the tokens of an agent names the agent.
    role = "agent" if call.asked("agentId") else "participant"
    fields = [NAME, NounField("role", "Role", "choice", required=True, choices=roles, default=role)]
    if is_admin:
        fields.append(await _scope_field(call, "participantId", "Participant", "/api/v1/participants"))
    fields += [await _scope_field(call, "agentId", "Agent", "/api/v1/agents"), EXPIRES, READ_ONLY]
    scopes = {each.name for each in fields} & {"participantId", "agentId"}

    def check(body: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The API would name the member scopeId, which the form does not show."""
        scope = f"{body.get('role')}Id"
        return [(scope, f"choose the {body['role']} of the token")] if scope in scopes and not body.get(scope) else []

    def prepare(body: dict[str, Any]) -> dict[str, Any]:
        """The scope is the participant or the agent, as the role needs it."""
        participant = body.pop("participantId", None) if is_admin else call.caller.participant_id
        agent = body.pop("agentId", None)
        scope = {"participant": participant, "agent": agent}.get(body.get("role", ""))
        return body if scope is None else {**body, "scopeId": scope}

    return NounForm(
        "New token",
        "Create the token",
        fields,
        CRUMBS,
        "A participant signs in with it; an agent connects with it. The next page shows its value, once.",
        check=check,
        prepare=prepare,
    )


def _value_page(_call: PageCall, token: Row) -> PageAnswer:
    return PageAnswer("token_value.html", {"token": token, "role": _role(token), "owner": _owner(token)})


async def _regeneration(call: PageCall) -> Confirmation:
    token = await call.api("GET", f"{API}/{call.path['id']}")
    effects = [
        f"{token['name']} gets a new value, which the next page shows once.",
        "The old value is refused from then on; programs and sessions that use it end, and so do enrollment codes that it made.",
    ]
    if token["id"] == call.caller.token_id:
        effects.append("It is the token of this session: you sign in again with the new value.")
    return Confirmation(f"Regenerate token {token['name']}", "Regenerate the token", effects, CRUMBS)


async def _show_regeneration(call: PageCall) -> PageAnswer:
    return show_confirmation(call, await _regeneration(call))


async def _regenerate(call: PageCall) -> PageAnswer:
    return _value_page(call, await call.api("POST", f"{API}/{call.path['id']}/regenerate"))


def _effects(row: Row) -> list[str]:
    return [
        f"{row['name']} is refused from now on. Sessions, streams and agents that use it end within seconds.",
        "Enrollment codes that it made end as well, unless they are marked to outlive it.",
        "The last admin token that may write cannot be revoked.",
    ]


WRITE = ("token", "write")
_NOUN = NounPages(
    noun="token",
    word="token",
    plural="tokens",
    path="/tokens",
    api=API,
    explanation="Programs, people and agents identify themselves with a token.",
    columns=(
        TableColumn("Name", lambda row: row["name"]),
        TableColumn("Role", _role, style="nowrap"),
        TableColumn("Owner", _owner, style="c2"),
        TableColumn("State", lambda row: row["state"], "state", "c-narrow-hide"),
        TableColumn("Last used", lambda row: row.get("lastUsedAt"), "time", "c-narrow-hide"),
        TableColumn("Expires", lambda row: row.get("expireAt"), "time"),
        TableColumn("Value", lambda row: (f"/tokens/{row['id']}/regenerate", "Regenerate…"), "action", "tight c3"),
    ),
    fields=_change_fields,
    effects=_effects,
    navigation=NavigationEntry("Tokens", "i-key", 2, "Access"),
    topics="token",
    sort="-createdAt",
    complete=_complete,
    filters=("participantId", "agentId"),
    delete_word="Revoke",
)
PAGES = (
    *(page for page in noun_pages(_NOUN) if page.path != "/tokens/new"),
    *creation_pages("/tokens/new", WRITE, _new_form, API, _value_page),
    *form_pages("/tokens/{id}/regenerate", WRITE, _show_regeneration, _regenerate),
)

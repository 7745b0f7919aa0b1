"""Enrollment codes for many hosts: the list, the form, the command of a new code, and revocation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mainstay.control.access import Role
from mainstay.control.api.endpoints.install_commands import base_url
from mainstay.control.web.contract import PageAnswer, PageCall, WebPage
from mainstay.control.web.enrolment_commands import enroll_command, is_loopback_address
from mainstay.control.web.noun_pages import (
    Confirmation,
    ConfirmedRequest,
    NounField,
    NounForm,
    confirmed_pages,
    creation_pages,
    may,
    own_member,
    owner_field,
    reference_field,
)

API = "/api/v1/enrolment-codes"
PAGE_SIZE = "50"
CRUMBS = (("/agents", "Agents"), ("/enrolment-codes", "Enrollment codes"))
COUNT = NounField("count", "Number of hosts", "number", "How many hosts can use the code.", required=True)
LIFETIME = NounField(
    "lifetimeSeconds",
    "Valid for",
    "choice",
    "Not longer than your own token, with which the code ends.",
    required=True,
    choices=(
        ("900", "15 minutes"),
        ("3600", "1 hour"),
        ("28800", "8 hours"),
        ("86400", "1 day"),
        ("604800", "7 days"),
    ),
    default="3600",
)
TAGS = NounField("tags", "Tags", "words", "Of every new agent, separated by commas, such as zone=a.")
PREFIX = NounField("namePrefix", "Name prefix", hint="Before the name of each host, such as fra-.")
GRANT = NounField(
    "grant",
    "Let this provider’s agents of this type serve other participants",
    "flag",
    "Adds the provider to the agent type, at once. Without it the agents serve their own participant only.",
    default="true",
)

OUTLIVES = NounField(
    "outlivesToken", "Outlives your token", "flag", "Without it the code ends when your token is revoked or expires."
)


def _state(code: Any) -> tuple[str, str]:
    if code["usesLeft"] == 0:
        return "rest", "Used up"
    expired = datetime.fromisoformat(code["expiresAt"]) <= datetime.now(UTC)
    return ("rest", "Expired") if expired else ("up", "Valid")


def _creator(code: Any) -> str:
    if code["initiatorRole"] == "participant":
        return str((code["provider"] or {"name": ""})["name"])
    return "an admin" if code["initiator"] is None else f"admin {code['initiator']['name']}"


async def _list(call: PageCall) -> PageAnswer:
    after = call.asked("after")
    page = await call.api("GET", API, query=[("after", after), ("sort", "-createdAt"), ("pageSize", PAGE_SIZE)])
    codes = [{**each, "state": _state(each), "creator": _creator(each)} for each in page["items"]]
    values = {
        "codes": codes,
        "older": page.get("next"),
        "after": after,
        "may_write": may(call, "enrolment_code"),
        "is_admin": call.caller.role is Role.ADMIN,
    }
    return PageAnswer("enrolment_codes.html", values)


async def _new_form(call: PageCall) -> NounForm:
    fields = [await reference_field(call, "agentTypeId", "Agent type", "/api/v1/agent-types", required=True)]
    if call.caller.participant_id is None:
        fields += [*await owner_field(call, "providerId", "Provider"), GRANT, OUTLIVES]
    fields += [COUNT, LIFETIME, TAGS, PREFIX]

    def prepare(body: dict[str, Any]) -> dict[str, Any]:
        """The values of a choice are texts."""
        seconds = str(body.get("lifetimeSeconds", ""))
        return {**body, "lifetimeSeconds": int(seconds)} if seconds.isdecimal() and len(seconds) < 10 else body

    return NounForm(
        "New enrollment code",
        "Create the code",
        fields,
        CRUMBS,
        "One command for many hosts: each host that runs it becomes an agent with the name of the host.",
        fixed=own_member(call, "providerId"),
        prepare=prepare,
    )


def _created(call: PageCall, code: Any) -> PageAnswer:
    values = {
        "code": code,
        "command": enroll_command(base_url(call.call), code["code"]),
        "is_loopback": is_loopback_address(base_url(call.call)),
    }
    return PageAnswer("enrolment_code.html", values)


async def _confirm_revocation(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    code = await call.api("GET", f"{API}/{call.path['id']}")
    effects = [
        f"The code has {code['usesLeft']} of {code['count']} places left; further hosts are refused.",
        "Agents that it enrolled stay.",
    ]
    notice = "The enrollment code is revoked"
    request = ConfirmedRequest("DELETE", f"{API}/{code['id']}", "/enrolment-codes", notice)
    return Confirmation("Revoke the enrollment code", "Revoke the code", effects, CRUMBS), request


WRITE = ("enrolment_code", "write")
PAGES = (
    WebPage(method="GET", path="/enrolment-codes", act=_list, access=("enrolment_code", "read")),
    *creation_pages("/enrolment-codes/new", WRITE, _new_form, API, _created),
    *confirmed_pages("/enrolment-codes/{id}/delete", WRITE, _confirm_revocation),
)

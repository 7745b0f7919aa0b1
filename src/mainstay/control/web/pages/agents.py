"""Agents: those in trouble first; each with what it serves, how to enroll it, and the clean-ups it owes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mainstay.control.access import Role
from mainstay.control.api.endpoints.install_commands import base_url
from mainstay.control.operations import agents as operations
from mainstay.control.store import agents as store
from mainstay.control.web.contract import ApiRefusal, NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.enrolment_commands import enroll_command, is_loopback_address
from mainstay.control.web.noun_pages import (
    Confirmation,
    ConfirmedRequest,
    NounField,
    NounForm,
    Row,
    change_pages,
    confirmed_pages,
    creation_pages,
    form_pages,
    may,
    own_member,
    owner_field,
    reference_field,
)
from mainstay.foundation.numbers import parse_count

API = "/api/v1/agents"
PAGE_SIZE = 50
MAX_PAGE = 10_000
OWED = "10"
CRUMBS = (("/agents", "Agents"),)
# (parameter, label, statuses) of each view of the list.
VIEWS = (
    ("", "All", ()),
    ("connected", "Connected", ("Connected",)),
    ("offline", "Offline", ("Disconnected", "New")),
    ("error", "Error", ("Error",)),
    ("disabled", "Disabled", ("Disabled",)),
)


async def _list(call: PageCall) -> PageAnswer:
    view = next((each for each in VIEWS if each[0] == call.asked("view")), VIEWS[0])
    number = parse_count(call.asked("page") or "1", 1, MAX_PAGE) or 1
    part = call.asked("name")
    async with call.reading() as work:
        counts = await operations.count_by_status(work)
        found, more = await operations.page_trouble_first(work, view[2], part, number, PAGE_SIZE)
    views = [(key, label, sum(counts.get(each, 0) for each in wanted or counts)) for key, label, wanted in VIEWS]
    values = {
        "agents": found,
        "views": views,
        "view": view[0],
        "name": part,
        "page": number,
        "has_more": more,
        "most_counted": store.MOST_COUNTED,
        "may_create": may(call, "agent"),
        "is_admin": call.caller.role is Role.ADMIN,
    }
    return PageAnswer("agents.html", values)


async def _find(call: PageCall) -> Any:
    return await call.api("GET", f"{API}/{call.path['id']}")


async def _show(call: PageCall) -> PageAnswer:
    agent = await _find(call)
    agent_type = await call.api("GET", f"/api/v1/agent-types/{agent['agentTypeId']}")
    owed = await call.api("GET", "/api/v1/orphans", query=[("agentId", agent["id"]), ("pageSize", OWED)])
    async with call.reading() as work:
        types = await store.count_services_by_type(work.tx, agent["id"])
        load = (await store.read_loads(work.tx, [agent["id"]]))[agent["id"]]
        pool_set = None
        if agent.get("servicePoolSetId"):
            pool_set = await call.api("GET", f"/api/v1/service-pool-sets/{agent['servicePoolSetId']}")
    values = {
        "agent": agent,
        "drain": await call.api("GET", f"{API}/{agent['id']}/drain") if agent["draining"] else None,
        "agent_type": agent_type,
        "granted": agent["providerId"] in agent_type["providerIds"],
        "types": types,
        "load": load,
        "most_counted": store.MOST_COUNTED,
        "pool_set": pool_set,
        "orphans": owed["items"],
        "orphan_count": owed["totalItems"],
        "has_templates": bool(agent_type.get("cmdTemplate") and agent_type.get("configTemplate")),
        "may_write": may(call, "agent"),
        "may_enable": may(call, "agent") and (call.caller.role is Role.ADMIN or not agent["disabledByAdmin"]),
        "is_admin": call.caller.role is Role.ADMIN and not call.caller.read_only,
    }
    return PageAnswer("agent.html", values)


async def _pool_set_field(call: PageCall, provider_id: str | None) -> NounField:
    query = [] if provider_id is None else [("providerId", provider_id)]
    found = await reference_field(call, "servicePoolSetId", "Pool set", "/api/v1/service-pool-sets", query=query)
    hint = "Of the same provider. Its services take pool values from it."
    return replace(found, hint=hint, unsets=True)


NAME = NounField("name", "Name", hint="Usually the name of the host.", required=True)
TAGS = NounField("tags", "Tags", "words", "Separated by commas. An order may ask for them, such as region:fra.")
CAPACITY = NounField(
    "capacity",
    "Capacity",
    "number",
    "The most services that orders give this agent. Empty: unlimited. You may still place more on it by name.",
    unsets=True,
)
CONFIGURATION = NounField(
    "configuration", "Configuration", "document", "JSON or YAML, checked by the schema of the agent type."
)
GRANT = NounField(
    "grant",
    "Let this provider’s agents of this type serve other participants",
    "flag",
    "Adds the provider to the agent type: its agents of this type may then take orders of every participant and see"
    " what these order. Without it the agent serves its own participant only.",
    default="true",
)


async def _new_form(call: PageCall) -> NounForm:
    own = call.caller.participant_id
    agent_type = await reference_field(call, "agentTypeId", "Agent type", "/api/v1/agent-types", required=True)
    fields = [NAME, agent_type]
    if own is None:
        fields += [*await owner_field(call, "providerId", "Provider"), GRANT]
    fields += [TAGS, await _pool_set_field(call, own), CAPACITY, CONFIGURATION]
    return NounForm(
        "Add an agent",
        "Add the agent",
        fields,
        CRUMBS,
        "The next page creates the code and the command that enroll the host.",
        fixed=own_member(call, "providerId"),
    )


def _added(_call: PageCall, agent: Row) -> PageAnswer:
    return PageAnswer(redirect=f"/agents/{agent['id']}/enrolment", notice=f"Agent {agent['name']} is added")


async def _change_form(call: PageCall) -> tuple[Row, NounForm]:
    agent = await _find(call)
    fields = [NAME, TAGS, await _pool_set_field(call, agent["providerId"]), CAPACITY, CONFIGURATION]
    crumbs = [*CRUMBS, (f"/agents/{agent['id']}", agent["name"])]
    return agent, NounForm(f"Change {agent['name']}", "Save", fields, crumbs)


def _changed(_call: PageCall, agent: Row) -> PageAnswer:
    return PageAnswer(redirect=f"/agents/{agent['id']}", notice=f"Agent {agent['name']} is saved")


async def _set_status(call: PageCall) -> PageAnswer:
    """Disabled, or Disconnected: an enabled agent is connected from its next request on."""
    disabled = call.posted("status") == "Disabled"
    agent = await call.api(
        "PATCH", f"{API}/{call.path['id']}", {"status": "Disabled" if disabled else "Disconnected"}
    )
    done = "is disabled" if disabled else "is enabled; it connects with its next request"
    return PageAnswer(redirect=f"/agents/{agent['id']}", notice=f"Agent {agent['name']} {done}")


async def _drain(call: PageCall) -> PageAnswer:
    """Starts a drain, with or without moves, or ends it."""
    wanted, path = call.posted("wanted"), f"{API}/{call.path['id']}/drain"
    if wanted == "end":
        await call.api("DELETE", path)
    else:
        await call.api("PUT", path, {"move": wanted == "move"})
    notices = {"end": "The agent takes new services again", "move": "Its services move one after another"}
    return PageAnswer(redirect=f"/agents/{call.path['id']}", notice=notices.get(wanted, "The agent is draining"))


async def _confirm_deletion(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    agent = await _find(call)
    effects = [
        f"{agent['name']} and its tokens are deleted; its program can no longer connect.",
        "Services that have ended go with it. While a service lives on it, or it owes a clean-up, this is refused.",
        "Nothing is removed from its host.",
    ]
    crumbs = [*CRUMBS, (f"/agents/{agent['id']}", agent["name"])]
    confirmation = Confirmation(f"Delete agent {agent['name']}", "Delete the agent", effects, crumbs)
    notice = f"Agent {agent['name']} is deleted"
    return confirmation, ConfirmedRequest("DELETE", f"{API}/{agent['id']}", "/agents", notice)


async def _confirm_grant(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    """The change of the providers that may serve others: added if missing, removed if there."""
    agent = await _find(call)
    agent_type = await call.api("GET", f"/api/v1/agent-types/{agent['agentTypeId']}")
    provider, kind = agent["participant"]["name"], agent_type["name"]
    page = f"/agents/{agent['id']}"
    crumbs = [*CRUMBS, (page, agent["name"])]
    others = [each for each in agent_type["providerIds"] if each != agent["providerId"]]
    if len(others) < len(agent_type["providerIds"]):
        effects = [
            f"All agents of {provider} of the type {kind} get no new orders of other participants.",
            "Services that live on them stay.",
        ]
        wanted = Confirmation(f"Withdraw the grant of {provider}", "Withdraw the grant", effects, crumbs)
        body = {"providerIds": others}
    else:
        effects = [
            f"All agents of {provider} of the type {kind}, also later ones, may take orders of every participant.",
            "They see the properties and the secrets of what they serve.",
        ]
        wanted = Confirmation(f"Let {provider} serve other participants", "Grant it", effects, crumbs)
        body = {"providerIds": [*others, agent["providerId"]]}
    path = f"/api/v1/agent-types/{agent_type['id']}"
    return wanted, ConfirmedRequest("PATCH", path, page, f"{wanted.title}: done", body)


async def _enrolment_page(call: PageCall, code: Any = None) -> PageAnswer:
    agent = await _find(call)
    values = {
        "agent": agent,
        "expires_at": None if code is None else code["expiresAt"],
        "command": "" if code is None else enroll_command(base_url(call.call), code["code"]),
        "is_loopback": is_loopback_address(base_url(call.call)),
    }
    return PageAnswer("agent_enrolment.html", values)


async def _enroll(call: PageCall) -> PageAnswer:
    return await _enrolment_page(call, await call.api("POST", f"{API}/{call.path['id']}/enrolment-codes"))


async def _install_page(call: PageCall, command: Any = None, *, refusal: str = "", status: int = 200) -> PageAnswer:
    agent = await _find(call)
    state = None
    try:
        state = await call.api("GET", f"{API}/{agent['id']}/install-command")
    except ApiRefusal as missing:
        if missing.status != 404:
            raise
    return PageAnswer(
        "agent_install.html", {"agent": agent, "state": state, "command": command, "refusal": refusal}, status=status
    )


async def _change_install(call: PageCall) -> PageAnswer:
    """Creates, replaces or withdraws the install command."""
    wanted = call.posted("wanted")
    path = f"{API}/{call.path['id']}/install-command"
    # The address of the command is the one that this browser uses, unless a setting names another.
    headers = {"host": call.call.headers.get("host", "")}
    try:
        if wanted == "withdraw":
            await call.api("DELETE", path)
            return PageAnswer(redirect=f"/agents/{call.path['id']}", notice="The install command is withdrawn")
        command = await call.api("POST", f"{path}/regenerate" if wanted == "replace" else path, headers=headers)
    except ApiRefusal as refusal:
        if refusal.status not in (400, 403, 409):
            raise
        return await _install_page(call, refusal=str(refusal), status=refusal.status)
    return await _install_page(call, command)


WRITE = ("agent", "write")
PAGES = (
    WebPage(
        method="GET",
        path="/agents",
        act=_list,
        access=("agent", "read"),
        navigation=NavigationEntry("Agents", "i-agent", 1, "Estate", "provider"),
    ),
    WebPage(method="GET", path="/agents/{id}", act=_show, access=("agent", "read")),
    *creation_pages("/agents/new", WRITE, _new_form, API, _added),
    *change_pages("/agents/{id}/edit", WRITE, _change_form, API, _changed),
    WebPage(method="POST", path="/agents/{id}/status", act=_set_status, access=WRITE),
    WebPage(method="POST", path="/agents/{id}/drain", act=_drain, access=WRITE),
    *confirmed_pages("/agents/{id}/delete", WRITE, _confirm_deletion),
    *confirmed_pages("/agents/{id}/grant", ("agent_type", "write"), _confirm_grant),
    *form_pages("/agents/{id}/enrolment", WRITE, _enrolment_page, _enroll),
    *form_pages("/agents/{id}/install-command", WRITE, _install_page, _change_install),
)

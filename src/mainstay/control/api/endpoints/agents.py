"""Agents: endpoints for their provider and for the agent itself."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import detail_endpoint, noun_endpoints
from mainstay.control.operations import agents, drains
from mainstay.control.operations.agents import AGENT_NAMES, AgentView, OwnStatus
from mainstay.control.operations.drains import DrainRequest, DrainView
from mainstay.control.store.agents import AGENTS

PATH = "/api/v1/agents"


async def _show_me(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.find_own(work)))


async def _set_my_status(call: Call) -> Answer:
    wanted = call.read(OwnStatus)
    async with call.transaction() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.set_own_status(work, wanted)))


async def _start_drain(call: Call) -> Answer:
    async with call.transaction() as work:
        agent = await work.find(AGENTS, call.path["id"], "write", lock=True)
        return Answer(await drains.start(work, agent, call.read(DrainRequest)))


async def _end_drain(call: Call) -> Answer:
    async with call.transaction() as work:
        await drains.end(work, await work.find(AGENTS, call.path["id"], "write", lock=True))
    return Answer()


DRAIN = f"{PATH}/{{id}}/drain"
ENDPOINTS = (
    detail_endpoint(
        DRAIN,
        AGENTS,
        drains.show,
        summary="Show the drain of an agent, and which services are left",
        answer=DrainView,
    ),
    Endpoint(
        method="PUT",
        path=DRAIN,
        act=_start_drain,
        access=("agent", "write"),
        summary="Drain an agent: it takes no new services; with `move` its services go to agents of the same provider",
        body=DrainRequest,
        answer=DrainView,
        refusals=(400, 404),
    ),
    Endpoint(
        method="DELETE",
        path=DRAIN,
        act=_end_drain,
        access=("agent", "write"),
        summary="End the drain of an agent; a move that runs goes on",
        status=204,
        refusals=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/me",
        act=_show_me,
        access=("agent", "be"),
        summary="Show the agent whose token this is",
        answer=AgentView,
    ),
    Endpoint(
        method="PUT",
        path=f"{PATH}/me/status",
        act=_set_my_status,
        access=("agent", "be"),
        summary="Report the status of the agent",
        body=OwnStatus,
        answer=AgentView,
        refusals=(400,),
    ),
    *noun_endpoints(
        PATH,
        AGENTS,
        (agents.NewAgent, agents.create),
        (agents.AgentChange, agents.change),
        agents.delete,
        names=AGENT_NAMES,
    ),
)

"""Agents: endpoints for their provider and for the agent itself."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import noun_endpoints
from mainstay.control.operations import agents
from mainstay.control.operations.agents import AGENT_NAMES, AgentView, OwnStatus
from mainstay.control.store.agents import AGENTS

PATH = "/api/v1/agents"


async def _show_me(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.find_own(work)))


async def _set_my_status(call: Call) -> Answer:
    wanted = call.read(OwnStatus)
    async with call.transaction() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.set_own_status(work, wanted)))


ENDPOINTS = (
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

"""Agents: endpoints for their provider, for the agent itself, and for enrollment."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import noun_endpoints
from mainstay.control.operations import agents
from mainstay.control.operations.agents import (
    AGENT_NAMES,
    AgentView,
    Enrolled,
    EnrolmentCode,
    EnrolmentRequest,
    OwnStatus,
)
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.store.agents import AGENTS

PATH = "/api/v1/agents"


async def _show_me(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.find_own(work)))


async def _set_my_status(call: Call) -> Answer:
    wanted = call.read(OwnStatus)
    async with call.transaction() as work:
        return Answer(await AGENT_NAMES.show(work, await agents.set_own_status(work, wanted)))


async def _create_enrolment_code(call: Call) -> Answer:
    async with call.transaction() as work:
        agent = await work.find(AGENTS, call.path["id"], "write", lock=True)
        call.refuse_body()
        return Answer(await agents.create_enrolment_code(work, agent))


async def _enrol(call: Call) -> Answer:
    wanted = call.read(EnrolmentRequest)
    try:
        async with call.transaction() as work:
            return Answer(await agents.enrol(work, wanted))
    except NotPermitted:
        call.dependencies.enrolments.count(call.client)
        raise


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
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/enrolment-codes",
        act=_create_enrolment_code,
        access=("agent", "write"),
        summary="Create a code that enrolls one program as this agent, once, within 15 minutes",
        status=201,
        answer=EnrolmentCode,
        refusals=(400, 404),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/enrol",
        act=_enrol,
        access=None,
        summary="Exchange an enrollment code for the agent's token",
        status=201,
        body=EnrolmentRequest,
        answer=Enrolled,
        refusals=(400, 403, 429),
    ),
)

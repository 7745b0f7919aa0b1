"""Enrolment codes: endpoints for providers, and the exchange of a code for the token of an agent."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import command_endpoint, delete_endpoint, list_endpoint, show_endpoint
from mainstay.control.operations import enrolment_codes
from mainstay.control.operations.enrolment_codes import (
    BAD_CODE,
    ENROLMENT_CODE_NAMES,
    AgentEnrolmentCode,
    Enrolled,
    EnrolmentRequest,
    NewEnrolmentCode,
    NewEnrolmentCodeView,
)
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.enrolment_codes import ENROLMENT_CODES

PATH = "/api/v1/enrolment-codes"


async def _create(call: Call) -> Answer:
    wanted = call.read(NewEnrolmentCode)
    async with call.transaction() as work:
        return Answer(await enrolment_codes.create(work, wanted))


async def _enrol(call: Call) -> Answer:
    wanted = call.read(EnrolmentRequest)
    try:
        async with call.transaction() as work:
            return Answer(await enrolment_codes.enrol(work, wanted))
    except NotPermitted as refusal:
        if refusal.code == BAD_CODE:
            call.dependencies.enrolments.count(call.client)
        raise


ENDPOINTS = (
    command_endpoint(
        "/api/v1/agents/{id}/enrolment-codes",
        AGENTS,
        "write",
        enrolment_codes.create_for_agent,
        summary="Create a code that enrolls one program as this agent, once, within 15 minutes",
        status=201,
        answer=AgentEnrolmentCode,
        refusals=(400, 404),
    ),
    list_endpoint(PATH, ENROLMENT_CODES, names=ENROLMENT_CODE_NAMES),
    show_endpoint(PATH, ENROLMENT_CODES, names=ENROLMENT_CODE_NAMES),
    Endpoint(
        method="POST",
        path=PATH,
        act=_create,
        access=("enrolment_code", "write"),
        summary="Create a code that enrolls many hosts; each use creates an agent",
        status=201,
        body=NewEnrolmentCode,
        answer=NewEnrolmentCodeView,
        refusals=(400, 403, 409),
    ),
    delete_endpoint(PATH, ENROLMENT_CODES, enrolment_codes.revoke),
    Endpoint(
        method="POST",
        path="/api/v1/enrol",
        act=_enrol,
        access=None,
        summary="Exchange an enrollment code for the token of an agent",
        status=201,
        body=EnrolmentRequest,
        answer=Enrolled,
        refusals=(400, 403, 409, 429),
    ),
)

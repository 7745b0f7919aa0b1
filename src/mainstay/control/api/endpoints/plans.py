"""Plan requests for agents and their answers. Neither is kept; clients order plans through the service endpoints."""

from __future__ import annotations

from mainstay.control.api.contract import LIMIT, MAX_WAIT_SECONDS, WAIT, Answer, Call, Endpoint
from mainstay.control.operations import agents, orphans, plans
from mainstay.control.operations.plans import PlanAnswer, PlanQuestion
from mainstay.control.store.plans import PLAN_REQUESTS

PATH = "/api/v1/plans"
WORK = ("plan", "work")


async def _list_pending(call: Call) -> Answer:
    limit = call.number("limit", 1, 1, 100)
    wait = call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    await agents.note_blueprints(call.session)

    async def check() -> list[tuple[list[PlanQuestion], bool]]:
        """The requests, and whether the agent should read its clean-ups."""
        async with call.reading() as work:
            if not (await plans.is_asked(work) or await orphans.is_unannounced(work)):
                return []
        async with call.transaction() as work:
            found = await plans.take_questions(work, limit), await orphans.take_unannounced(work)
            return [found] if any(found) else []

    topic = plans.question_topic(str(call.required_caller.agent_id))
    found = await call.wait_until_found(topic, check, wait)
    questions, wakes = found[0] if found else ([], False)
    return Answer(questions, headers={"Mainstay-Wake": "orphans"} if wakes else {})


async def _answer(call: Call) -> Answer:
    async with call.transaction() as work:
        request = await work.find(PLAN_REQUESTS, call.path["planId"], "work")
        await plans.answer(work, request, call.read(PlanAnswer))
    return Answer()


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=f"{PATH}/pending",
        act=_list_pending,
        access=WORK,
        summary="List plan requests for the agent, each once; `wait` holds the request until there is one, or a new clean-up:"
        " the header `Mainstay-Wake: orphans` then tells the agent to read `/orphans`",
        answer=list[PlanQuestion],
        query=(LIMIT, WAIT),
        refusals=(400,),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{planId}}/answer",
        act=_answer,
        access=WORK,
        summary="Report what a dry run of the job would do, or why it cannot run",
        status=204,
        body=PlanAnswer,
        refusals=(400, 404),
    ),
)

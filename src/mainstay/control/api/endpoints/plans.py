"""Plan requests for agents and their answers. Neither is kept; clients order plans through the service endpoints."""

from __future__ import annotations

from mainstay.control.api.contract import LIMIT, MAX_WAIT_SECONDS, WAIT, Answer, Call, Endpoint
from mainstay.control.operations import agents, orphans, plans
from mainstay.control.operations.plans import PlanAnswer, PlanQuestion
from mainstay.control.store.plans import PLAN_REQUESTS
from mainstay.control.store.services import is_repair_unannounced, take_unannounced_repairs

PATH = "/api/v1/plans"
WORK = ("plan", "work")


async def _list_pending(call: Call) -> Answer:
    limit = call.number("limit", 1, 1, 100)
    wait = call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    await agents.note_blueprints(call.session)

    agent_id = str(call.required_caller.agent_id)

    async def check() -> list[tuple[list[PlanQuestion], bool, bool]]:
        """The requests, and whether the agent should read its clean-ups, and its services with a requested repair."""
        async with call.reading() as work:
            if not (
                await plans.is_asked(work)
                or await orphans.is_unannounced(work)
                or await is_repair_unannounced(work.tx, agent_id)
            ):
                return []
        async with call.transaction() as work:
            found = (
                await plans.take_questions(work, limit),
                await orphans.take_unannounced(work),
                await take_unannounced_repairs(work.tx, agent_id),
            )
            return [found] if any(found) else []

    found = await call.wait_until_found(plans.question_topic(agent_id), check, wait)
    questions, owes_clean_up, owes_repair = found[0] if found else ([], False, False)
    # Agents that know only clean-ups compare the header with `orphans`.
    reasons = [name for name, wakes in (("orphans", owes_clean_up), ("repairs", owes_repair)) if wakes]
    return Answer(questions, headers={"Mainstay-Wake": ", ".join(reasons)} if reasons else {})


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
        summary="List plan requests for the agent, each once; `wait` holds the request until there is one, or a new clean-up"
        " or repair: the header `Mainstay-Wake: orphans` then tells the agent to read `/orphans`, `Mainstay-Wake: repairs`"
        " to read its services with `repairRequestedAt`",
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

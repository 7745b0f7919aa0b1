"""Drains: an agent that takes no new services, and whose services move to other agents of its provider, one by one.

`background.py` calls `advance`. Lock order: the drain, then a service."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainstay.control.access import RoleRefused
from mainstay.control.domain.refusals import Refusal
from mainstay.control.operations.machinery.bodies import Body
from mainstay.control.operations.machinery.refusals import OperationRefused
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.moves import move_off
from mainstay.control.store import drains as store
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.drains import DrainedService, DrainInitiator, DrainRow
from mainstay.control.store.services import SERVICES

# Between two looks at a drain that has nothing to start.
PAUSE = timedelta(milliseconds=500)
LISTED = 1000
MAX_REASON = 1000
STAYS = "the drain does not move services"


class DrainRequest(Body, frozen=True, kw_only=True):
    # Whether the services go to other agents.
    move: bool = False


class MovingService(msgspec.Struct, frozen=True, rename="camel"):
    service_id: str
    service_name: str
    # None: its move has not started yet.
    job_id: str | None = None


class LeftService(msgspec.Struct, frozen=True, rename="camel"):
    service_id: str
    service_name: str
    reason: str


class DrainView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`moving` is there until every service was tried."""

    draining: bool
    move: bool = False
    since: datetime | None = None
    moving: MovingService | msgspec.UnsetType = msgspec.UNSET
    left: list[LeftService] = []


async def start(work: UnitOfWork, agent: AgentRow, wanted: DrainRequest) -> DrainView:
    """Started again, it tries what could not move."""
    known = await store.find(work.tx, agent.id)
    caller = work.required_caller
    initiator = DrainInitiator(caller.role, caller.token_id, caller.participant_id, caller.name)
    since = work.now if known is None else known.since
    await store.save(work.tx, DrainRow(agent.id, wanted.move, since, initiator))
    await work.update(AGENTS, agent, msgspec.structs.replace(agent, draining=True))
    return await show(work, agent)


async def end(work: UnitOfWork, agent: AgentRow) -> None:
    """A move that runs goes on."""
    await store.delete(work.tx, agent.id)
    await work.update(AGENTS, agent, msgspec.structs.replace(agent, draining=False))


async def show(work: UnitOfWork, agent: AgentRow) -> DrainView:
    drain = await store.find(work.tx, agent.id)
    if drain is None:
        return DrainView(draining=False)
    if not drain.move:
        left = await store.read_living(work.tx, agent.id, LISTED)
        return DrainView(draining=True, since=drain.since, left=[_left(each, STAYS) for each in left])
    tried = await store.read_tried(work.tx, agent.id, LISTED, moving=False)
    moving = await store.read_tried(work.tx, agent.id, 1, moving=True)
    following = None if moving else await store.find_next(work.tx, agent.id)
    current = moving[0] if moving else following[0] if following else None
    return DrainView(
        draining=True,
        move=True,
        since=drain.since,
        moving=msgspec.UNSET if current is None else MovingService(current.service_id, current.name, current.job_id),
        left=[_left(each, str(each.reason)) for each in tried if each.is_left],
    )


def _left(service: DrainedService, reason: str) -> LeftService:
    return LeftService(service.service_id, service.name, reason)


# ---- progress, in the background ----
async def advance(work: UnitOfWork) -> bool:
    """Records the move of one drain that has ended, or starts its next one. Returns whether another look is worthwhile."""
    drain = await store.next_due(work.tx, work.now, PAUSE)
    if drain is None:
        return False
    running = await store.read_tried(work.tx, drain.agent_id, 1, moving=True)
    if running:
        if running[0].job_status in ("Pending", "Processing"):
            await store.note_look(work.tx, drain.agent_id, work.now)
        else:
            await _record_end(work, drain, running[0])
        return True
    following = await store.find_next(work.tx, drain.agent_id)
    if following is None or following[1]:
        # All were tried, or the others have jobs.
        await store.note_look(work.tx, drain.agent_id, work.now)
    else:
        await _start_move(work, drain, following[0].service_id)
    return True


async def _record_end(work: UnitOfWork, drain: DrainRow, ended: DrainedService) -> None:
    if ended.is_left:
        message = ended.job_message or f"its move is {ended.job_status or 'gone'}"
        await store.set_tried(work.tx, drain.agent_id, ended.service_id, reason=message[:MAX_REASON])
    else:
        await store.forget_tried(work.tx, drain.agent_id, ended.service_id)


async def _start_move(work: UnitOfWork, drain: DrainRow, service_id: str) -> None:
    service = await SERVICES.find(work.tx, service_id, lock=True)
    if service is None or service.agent_id != drain.agent_id:
        # Deleted or moved since it was chosen.
        return
    # The events of the move name the caller that drains.
    work.caller = drain.initiator.caller
    try:
        async with work.tx.savepoint():
            job = await move_off(work, service)
    except (Refusal, OperationRefused, RoleRefused) as refusal:
        if getattr(refusal, "code", "") == "active_job":
            # Ordered since it was chosen; tried again when the job has ended.
            await store.note_look(work.tx, drain.agent_id, work.now)
            return
        await store.set_tried(work.tx, drain.agent_id, service_id, reason=str(refusal)[:MAX_REASON])
    else:
        await store.set_tried(work.tx, drain.agent_id, service_id, job_id=job.id)
        await store.note_look(work.tx, drain.agent_id, work.now)
    finally:
        work.caller = None

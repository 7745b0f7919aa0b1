"""Roll-outs: one action on all services of a type, in waves, stopped at the first failures.

`domain/rollouts.py` decides, `background.py` calls `advance`. Lock order: the roll-out, then a service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from mainstay.control.access import Caller, Role, RoleRefused
from mainstay.control.domain import rollouts as decide
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.refusals import Refusal
from mainstay.control.domain.rollouts import MAX_REASON, RolloutVerb
from mainstay.control.operations import services
from mainstay.control.operations.machinery import job_chains
from mainstay.control.operations.machinery.blueprint_versions import LATEST, find_bundle
from mainstay.control.operations.machinery.bodies import NO_ZERO, Body, Id, ShortText
from mainstay.control.operations.machinery.named_rows import find_named
from mainstay.control.operations.machinery.refusals import Conflict, OperationRefused
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.operations.services import BlueprintVersionText, RequestedAction
from mainstay.control.store import rollouts as store
from mainstay.control.store.blueprints import versions_of
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.jobs import active_job
from mainstay.control.store.rollouts import ROLLOUTS, RolloutItem, RolloutRow
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.control.store.services import SERVICES

ENDED_AT_ONCE = 200
# Between two looks at a roll-out that has nothing to start.
PAUSE = timedelta(milliseconds=500)
ABORTED = "the roll-out was aborted"
NO_JOB = "nothing to do"
MAX_FAILURES = 1_000_000


class NewRollout(Body, frozen=True, kw_only=True):
    service_type_id: Id
    action: ShortText
    # `latest` or a version; latest is the one at the time of the request. An update without it: latest.
    blueprint_version: BlueprintVersionText | None = None
    # A number of services, or a percentage of the members such as "10%".
    batch: int | Annotated[str, msgspec.Meta(max_length=20, pattern=NO_ZERO)]
    # The roll-out stops when this many job chains have failed.
    max_failures: Annotated[int, msgspec.Meta(ge=1, le=MAX_FAILURES)]
    status: Literal["Running", "Paused"] = "Running"


class ItemCounts(msgspec.Struct, frozen=True):
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0


class RolloutView(RolloutRow, frozen=True, kw_only=True):
    service_type: Named
    items: ItemCounts


class RolloutItemView(RolloutItem, frozen=True, kw_only=True):
    service: Named


async def create(work: UnitOfWork, wanted: NewRollout) -> RolloutRow:
    type_id = wanted.service_type_id.lower()
    service_type = await find_named(work, SERVICE_TYPES, wanted.service_type_id)
    batch = decide.parse_batch(wanted.batch)
    transitions.find_action(work.tools.definitions.of_service_type(service_type).lifecycle, wanted.action)
    digest = await _find_bundle(work, service_type, wanted)
    # Two requests at once must not both find no open roll-out.
    await work.tx.lock(f"rollout {type_id}")
    known = await store.find_open(work.tx, type_id)
    if known is not None:
        raise Conflict(
            f"service type {service_type.name} has an open roll-out {known}; resume it to its end, or abort it",
            code="open_rollout",
            details={"rolloutId": known},
        )
    named = {} if digest is None else await versions_of(work.tx, [digest])
    rollout = RolloutRow(
        **work.new_record(),
        service_type_id=type_id,
        action=wanted.action,
        blueprint_version=None if digest is None else named.get(digest, digest),
        blueprint_digest=digest,
        batch=wanted.batch,
        batch_size=batch.of(await store.count_members(work.tx, type_id)),
        max_failures=wanted.max_failures,
        status=wanted.status,
    )
    caller = work.required_caller
    await ROLLOUTS.insert(work.tx, rollout, initiator_id=caller.token_id, initiator_name=caller.name)
    rollout = msgspec.structs.replace(rollout, total=await store.add_members(work.tx, rollout))
    await ROLLOUTS.update(work.tx, rollout)
    await work.record_event("rollout.created", None, rollout)
    return rollout


async def _find_bundle(work: UnitOfWork, service_type: ServiceTypeRow, wanted: NewRollout) -> str | None:
    """The digest, so that a push during the roll-out does not split it. None: the action changes no version."""
    version = wanted.blueprint_version
    if version is None and wanted.action == "update":
        # An update without properties changes nothing else.
        version = LATEST
    return None if version is None else await find_bundle(work, service_type.id, version)


async def change_status(work: UnitOfWork, rollout: RolloutRow, verb: RolloutVerb) -> RolloutRow:
    after = msgspec.structs.replace(rollout, status=decide.status_after(verb, rollout.status))
    if verb == "resume":
        after = msgspec.structs.replace(after, failures=0)
        await store.requeue_failed(work.tx, after, work.now)
    if verb == "abort":
        after = msgspec.structs.replace(after, completed_at=work.now)
        await store.skip_waiting(work.tx, rollout.id, ABORTED, work.now)
    return await _save(work, rollout, after)


async def _save(work: UnitOfWork, before: RolloutRow, after: RolloutRow, *, looked_at: bool = False) -> RolloutRow:
    """`looked_at`: nothing more can be done now, so the next look may wait."""
    after = msgspec.structs.replace(after, updated_at=work.now if after != before else before.updated_at)
    await ROLLOUTS.update(work.tx, after, advanced_at=to_microseconds(work.now) if looked_at else 0)
    if after.status != before.status:
        await work.record_event(decide.event_type(after.status), before, after)
    return after


# ---- progress, in the background ----
async def advance(work: UnitOfWork) -> bool:
    """Records ended runs of one roll-out and starts at most one item. Returns whether another look is worthwhile.

    One item per transaction, so that the locks on one service's pools never wait for another service."""
    found = await store.next_due(work.tx, work.now, PAUSE)
    if found is None:
        return False
    before, initiator_id, initiator_name = found
    after, more = await _record_ended(work, before)
    if _decided_status(after) == "Running":
        item = await store.next_waiting(work.tx, before.id)
        if item is not None:
            initiator = Caller(Role.ADMIN, initiator_id, name=initiator_name)
            after = await _start(work, after, item, initiator)
            more = True
    waiting, running = await store.has_items(work.tx, before.id)
    status = decide.status_of_progress(
        after.status,
        failures=after.failures,
        max_failures=after.max_failures,
        waiting=int(waiting),
        running=int(running),
    )
    completed_at = work.now if status == "Completed" else after.completed_at
    after = msgspec.structs.replace(after, status=status, completed_at=completed_at)
    await _save(work, before, after, looked_at=not more)
    return True


def _decided_status(rollout: RolloutRow) -> str:
    """Before the next item: the failures that were just recorded may stop the roll-out."""
    return decide.status_of_progress(
        rollout.status, failures=rollout.failures, max_failures=rollout.max_failures, waiting=1, running=0
    )


async def _record_ended(work: UnitOfWork, rollout: RolloutRow) -> tuple[RolloutRow, bool]:
    """Returns the roll-out with its failures, and whether there may be more ended runs."""
    ended = await store.ended_runs(work.tx, rollout.id, ENDED_AT_ONCE)
    failures = 0
    for run in ended:
        status = decide.item_status(run.status)
        failures += status == "Failed"
        reason = None if status == "Done" else (run.message or _ending(run.status)).split("\n")[0][:MAX_REASON]
        item = (rollout.id, run.service_id)
        await store.set_item(work.tx, item, status, work.now, job_id=run.job_id, reason=reason)
    more = len(ended) == ENDED_AT_ONCE
    return msgspec.structs.replace(rollout, failures=rollout.failures + failures), more


def _ending(status: str | None) -> str:
    return "its job was deleted" if status is None else f"the job is {status}"


async def _start(work: UnitOfWork, rollout: RolloutRow, item: RolloutItem, initiator: Caller) -> RolloutRow:
    key = (rollout.id, item.service_id)
    rollout = msgspec.structs.replace(rollout, wave=max(rollout.wave, item.wave))
    service = await SERVICES.find(work.tx, item.service_id, lock=True)
    if service is None:
        # Deleted with its items since they were read.
        return rollout
    lifecycle = (await job_chains.definition_of(work, service)).lifecycle
    active = await active_job(work.tx, service.id)
    skip = decide.reason_to_skip(lifecycle, rollout.action, service.status, None if active is None else active.action)
    if skip is not None:
        await store.set_item(work.tx, key, "Skipped", work.now, job_id=None, reason=skip[:MAX_REASON])
        return rollout
    request = RequestedAction(rollout.action, blueprint_digest=rollout.blueprint_digest)
    # The person who rolls out, so that events and provenance name them.
    work.caller = initiator
    try:
        async with work.tx.savepoint():
            await services.act(work, service, request)
    except (Refusal, OperationRefused, RoleRefused) as refusal:
        await store.set_item(work.tx, key, "Failed", work.now, job_id=None, reason=str(refusal)[:MAX_REASON])
        return msgspec.structs.replace(rollout, failures=rollout.failures + 1)
    finally:
        work.caller = None
    job = await active_job(work.tx, service.id)
    if job is None:
        await store.set_item(work.tx, key, "Done", work.now, job_id=None, reason=NO_JOB)
    else:
        await store.set_item(work.tx, key, "Running", work.now, job_id=job.id, reason=None)
    return rollout


# ---- views ----
async def show_rollouts(work: UnitOfWork, rows: Sequence[RolloutRow]) -> list[RolloutView]:
    types = await SERVICE_TYPES.many(work.tx, (row.service_type_id for row in rows))
    counts = await store.count_items(work.tx, [row.id for row in rows])
    return [
        RolloutView(
            **msgspec.structs.asdict(row),
            service_type=Named(row.service_type_id, types[row.service_type_id].name),
            items=ItemCounts(**{name.lower(): number for name, number in counts.get(row.id, {}).items()}),
        )
        for row in rows
    ]


async def show_rollout(work: UnitOfWork, row: RolloutRow) -> RolloutView:
    return (await show_rollouts(work, [row]))[0]


async def show_items(work: UnitOfWork, rows: Sequence[RolloutItem]) -> list[RolloutItemView]:
    found = await SERVICES.many(work.tx, (row.service_id for row in rows))
    return [
        RolloutItemView(**msgspec.structs.asdict(row), service=Named(row.service_id, found[row.service_id].name))
        for row in rows
        if row.service_id in found
    ]

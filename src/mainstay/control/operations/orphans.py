"""Orphans: opened by a forced delete, closed when the agent confirms the clean-up or an admin forgets it.

`domain/orphans.py` decides, this module applies. Lock order: the row of the service, then of the orphan."""

from __future__ import annotations

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain import orphans as decide
from mainstay.control.domain.orphans import OrphanReason
from mainstay.control.operations.machinery import runs
from mainstay.control.operations.machinery.bodies import Body, Text
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.operations.machinery.views import ServiceView, show_services
from mainstay.control.store import orphans as store
from mainstay.control.store.orphans import ORPHANS, OrphanRow
from mainstay.control.store.services import SERVICES, ServiceRow, find_for_update


class CleanUpConfirmation(Body, frozen=True, kw_only=True):
    report: object = None


class CleanUpFailure(Body, frozen=True, kw_only=True):
    error_message: Text
    report: object = None


class OrphanView(OrphanRow, frozen=True, kw_only=True):
    # As in a job, for the agent that owes the clean-up; other callers do not get it.
    service: ServiceView | msgspec.UnsetType = msgspec.UNSET


async def open_orphan(work: UnitOfWork, service: ServiceRow, reason: OrphanReason) -> None:
    orphan = OrphanRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        service_id=service.id,
        service_name=service.name,
        agent_id=service.agent_id,
        provider_id=service.provider_id,
        reason=reason,
    )
    await work.insert(ORPHANS, orphan)


async def show_orphans(work: UnitOfWork, rows: list[OrphanRow]) -> list[OrphanView]:
    views = [OrphanView(**msgspec.structs.asdict(row)) for row in rows]
    if work.required_caller.role is not Role.AGENT:
        return views
    services = await SERVICES.many(work.tx, [row.service_id for row in rows])
    shown = {view.id: view for view in await show_services(work, list(services.values()))}
    return [msgspec.structs.replace(view, service=shown[view.service_id]) for view in views]


async def confirm(work: UnitOfWork, orphan: OrphanRow, wanted: CleanUpConfirmation) -> None:
    """Changes nothing if the orphan is closed: the agent repeats a confirmation whose answer it did not receive."""
    found = await _lock(work, orphan)
    if found is not None:
        await _close(work, *found, wanted.report)
        await work.record_event("orphan.confirmed", found[1], None)


async def forget(work: UnitOfWork, orphan: OrphanRow) -> None:
    found = await _lock(work, orphan)
    if found is None:
        raise NotFound("orphan", orphan.id)
    await _close(work, *found, None)
    await work.record_event("orphan.forgotten", found[1], None)


async def fail(work: UnitOfWork, orphan: OrphanRow, wanted: CleanUpFailure) -> None:
    found = await _lock(work, orphan)
    if found is None:
        raise NotFound("orphan", orphan.id)
    _, before = found
    failed = decide.on_failed_clean_up(before.attempts, wanted.error_message)
    after = msgspec.structs.replace(
        before, attempts=failed.attempts, last_error=failed.last_error, updated_at=work.now
    )
    await ORPHANS.update(work.tx, after, report=store.encode_report(wanted.report))
    await work.record_event("orphan.failed", before, after)


async def _lock(work: UnitOfWork, orphan: OrphanRow) -> tuple[ServiceRow, OrphanRow] | None:
    """The service and its orphan, locked until the end of the transaction. None: the orphan is closed."""
    service = await find_for_update(work.tx, orphan.service_id, lock=True)
    found = None if service is None else await store.find_open(work.tx, orphan.id)
    return None if service is None or found is None else (service.service, found)


async def _close(work: UnitOfWork, service: ServiceRow, orphan: OrphanRow, report: object) -> None:
    await store.close(work.tx, orphan.id, work.now, report)
    others = await store.open_ids(work.tx, "orphans.service_id", service.id)
    if not decide.releases_holdings(other_open_orphans=len(others)):
        return
    definition = await runs.definition_of(work, service)
    released = await runs.release_holdings(work, service, definition.properties)
    after = msgspec.structs.replace(released, orphan=False)
    await runs.save_service(work, service, after, definition.lifecycle, schema=definition.properties)

"""Retention: deletes rows whose time is over. A pass over one kind of row takes many small transactions; all replicas
share its position, and only one of them works on it at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from mainstay.control.domain.retention import SUBSCRIBER_KEPT, expired_before
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import retention as store
from mainstay.control.store.retention import START, Deletion, RetentionPass, ScanPosition

# Between the end of a pass and the start of the next one over the same kind of row.
PASS_EVERY = timedelta(minutes=30)
NEVER = datetime.fromtimestamp(0, UTC)

# Kind of row → the period that applies to it, and its deletion.
_DELETIONS: Mapping[str, tuple[str, Deletion]] = {
    "metrics": ("metrics", store.delete_metrics),
    "services": ("services", store.delete_services),
    "reports": ("reports", store.empty_reports),
    "jobs": ("jobs", store.delete_jobs),
    "vault readings": ("jobs", store.delete_vault_readings),
    "closed orphans": ("jobs", store.delete_closed_orphans),
    "enrolment codes": ("jobs", store.delete_enrolment_codes),
}
KINDS = (*_DELETIONS, "events")


async def delete_expired(work: UnitOfWork) -> bool:
    """Deletes the next rows of the first kind that is due. Returns whether to continue in another transaction."""
    if not await work.tx.try_lock("retention"):
        # Another replica works on it.
        return False
    passes = await store.read_passes(work.tx)
    for kind in KINDS:
        known = passes.get(kind, RetentionPass(NEVER, START))
        if known.position == START and work.now - known.finished_at < PASS_EVERY:
            continue
        position = await _delete(work, kind, known.position)
        finished_at = work.now if position is None else NEVER
        await store.save_pass(work.tx, kind, RetentionPass(finished_at, position or START))
        return True
    return False


async def _delete_events(work: UnitOfWork, before: datetime) -> ScanPosition | None:
    """The chain itself records what is deleted from its front."""
    deleted = await store.delete_events(work.tx, before, work.now - SUBSCRIBER_KEPT)
    if deleted is None:
        return None
    last = deleted.last
    await work.record_plane_event("events.deleted", deleted.last_id, upTo=last.sequence_number, hash=last.hash)
    return START if deleted.has_more else None


async def _delete(work: UnitOfWork, kind: str, position: ScanPosition) -> ScanPosition | None:
    """Where the next transaction continues; None: the pass is complete."""
    periods = work.tools.retention
    if kind == "events":
        before = expired_before(periods.events, work.now)
        return None if before is None else await _delete_events(work, before)
    period, delete = _DELETIONS[kind]
    before = expired_before(getattr(periods, period), work.now)
    return None if before is None else await delete(work.tx, before, position)

"""Event subscriptions: one instance at a time leases events in order and acknowledges them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from mainstay.control.operations.events import EventView, show_events
from mainstay.control.operations.machinery.bodies import AgentProtocolBody, ShortText
from mainstay.control.operations.machinery.refusals import Conflict
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import subscriptions as store

Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class LeaseRequest(AgentProtocolBody, frozen=True, kw_only=True):
    subscriber_id: ShortText
    instance_id: ShortText
    # Values out of range are clamped.
    lease_duration_seconds: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 300
    limit: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 100


class Acknowledgement(AgentProtocolBody, frozen=True, kw_only=True):
    subscriber_id: ShortText
    instance_id: ShortText
    last_event_sequence_processed: Sequence


class LeasedEvents(msgspec.Struct, frozen=True, rename="camel"):
    events: list[EventView]
    lease_expires_at: datetime
    last_event_sequence_processed: int


class Acknowledged(msgspec.Struct, frozen=True, rename="camel"):
    last_event_sequence_processed: int


async def lease(work: UnitOfWork, wanted: LeaseRequest) -> LeasedEvents:
    seconds = min(max(wanted.lease_duration_seconds, 30), 3600)
    until = work.now + timedelta(seconds=seconds)
    last = await store.lease(work.tx, wanted.subscriber_id, wanted.instance_id, work.now, until)
    if last is None:
        raise Conflict("another instance of this subscriber has the lease", code="leased_by_another")
    events = await store.events_after(work.tx, last, min(max(wanted.limit, 1), 1000), [])
    return LeasedEvents(await show_events(work, events), until, last)


async def acknowledge(work: UnitOfWork, wanted: Acknowledgement) -> Acknowledged:
    number = wanted.last_event_sequence_processed
    if not await store.acknowledge(work.tx, wanted.subscriber_id, wanted.instance_id, number):
        raise Conflict(
            f"another instance has the lease, or event {number} does not exist or is acknowledged already",
            code="not_acknowledged",
        )
    return Acknowledged(number)


async def events_after(work: UnitOfWork, sequence: int, limit: int) -> list[EventView]:
    """The events after this number that the caller may read."""
    return await show_events(work, await store.events_after(work.tx, sequence, limit, work.scope("event")))

"""The unit of work: the transaction of one request with its caller, its time, and the events it records."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, TypeVar

import msgspec

from mainstay.control.access import Caller, Relation, reading_relation, relation_of
from mainstay.control.domain.event_types import EVENT_TYPES
from mainstay.control.domain.retention import RetentionPeriods
from mainstay.control.domain.values import equal
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.refusals import NotFound, NotPermitted
from mainstay.control.operations.machinery.server_clock import ServerClock
from mainstay.control.store.agents import AgentRow
from mainstay.control.store.engine.contract import Transaction, Value
from mainstay.control.store.engine.paging import CursorPage, Listing, Page, SqlCondition, list_page, owned_by
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.events import EVENTS, EventRow
from mainstay.control.store.participants import Participant
from mainstay.control.store.placement import OFFERED_TO_CALLER, offers_to
from mainstay.control.vault.seal import Vault

R = TypeVar("R", bound=Record)
SYSTEM_ID = "00000000-0000-0000-0000-000000000000"
EVENT_TOPIC = "events"


def new_id() -> str:
    return str(uuid.uuid4())


class NewRecord(TypedDict):
    """The members that all records have."""

    id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class OperationTools:
    """The dependencies of operations besides the tables. Without a vault, secrets are refused."""

    definitions: Definitions
    vault: Vault | None = None
    # None: the caller sets the times, outside of a server.
    clock: ServerClock | None = None
    retention: RetentionPeriods = field(default_factory=RetentionPeriods)


@dataclass(frozen=True, slots=True)
class PlannedValues:
    """The values that a plan fixes: the random seed, the time for generators, and the digest of the host.

    `host` None: the agent has not been asked yet."""

    seed: bytes
    at: datetime
    host: str | None = None


@dataclass(slots=True)
class UnitOfWork:
    tx: Transaction
    now: datetime
    tools: OperationTools
    # None: the system itself, in a background task or at the first start.
    caller: Caller | None = None
    # None: no plan; random values and the current time.
    planned: PlannedValues | None = None
    recorded_events: int = field(default=0)

    @property
    def required_caller(self) -> Caller:
        if self.caller is None:
            raise RuntimeError("work of the system has no caller")
        return self.caller

    @property
    def generated_at(self) -> datetime:
        return self.now if self.planned is None else self.planned.at

    def derive_bytes(self, purpose: str) -> bytes:
        """32 random bytes. Within a plan the same purpose always gets the same bytes."""
        if self.planned is None:
            return secrets.token_bytes(32)
        return hashlib.sha256(self.planned.seed + purpose.encode()).digest()

    def new_record(self) -> NewRecord:
        return {"id": new_id(), "created_at": self.now, "updated_at": self.now}

    def relation(self, noun: str, action: str) -> Relation:
        return relation_of(self.required_caller, noun, action)

    def scope(self, noun: str) -> list[SqlCondition]:
        """The condition for the rows of a noun that the caller may read, without those that are only offered to it."""
        return owned_by(self.relation(noun, "read"), self.required_caller)

    async def find(self, table: Table[R], record_id: str, action: str = "read", *, lock: bool = False) -> R:
        """The row with this id. A row that the caller may not read is reported as not found."""
        return await self.admit(table, record_id, await table.find(self.tx, record_id.lower(), lock=lock), action)

    async def admit(self, table: Table[R], record_id: str, found: R | None, action: str = "read") -> R:
        """The row that was found for this id, if the caller may do this with it. Refuses like `find`."""
        relation = self.relation(table.noun, action)
        if found is None:
            raise NotFound(table.noun, record_id)
        if await self._admits(relation, found):
            return found
        if relation.shows_existence:
            raise NotPermitted(f"{table.noun.replace('_', ' ')} {record_id} belongs to another owner")
        reading = reading_relation(self.required_caller, table.noun)
        if reading is None or not await self._admits(reading, found):
            raise NotFound(table.noun, record_id)
        noun = table.noun.replace("_", " ")
        raise NotPermitted(f"you may read {noun} {record_id}; only its {relation.owner_names} may do this")

    async def _admits(self, relation: Relation, record: Record) -> bool:
        return relation.holds(self.required_caller, record) or await self._is_offered(relation, record)

    async def _is_offered(self, relation: Relation, record: Record) -> bool:
        consumer_id = self.required_caller.participant_id
        if relation.offered is None or consumer_id is None or not getattr(record, relation.offered):
            return False
        return await offers_to(self.tx, msgspec.structs.asdict(record)["provider_id"], consumer_id)

    async def page(
        self, table: Table[R], listing: Listing, *more: SqlCondition, source: str | None = None
    ) -> Page[R] | CursorPage[R]:
        """`source`: a query with the columns and the name of the table that finds its rows sooner."""
        own = owned_by(self.relation(table.noun, "read"), self.required_caller, OFFERED_TO_CALLER)
        return await list_page(self.tx, table, listing, [*own, *more], source=source)

    async def insert(self, table: Table[R], record: R, **hidden: Value) -> R:
        await table.insert(self.tx, record, **hidden)
        await self.record_event(f"{table.noun}.created", None, record)
        return record

    async def update(self, table: Table[R], before: R, after: R) -> R:
        """Saves and records an event, if anything changed."""
        if after == before:
            return before
        after = msgspec.structs.replace(after, updated_at=self.now)
        await table.update(self.tx, after)
        await self.record_event(f"{table.noun}.updated", before, after)
        return after

    async def delete(self, table: Table[R], record: R) -> None:
        await table.delete(self.tx, record.id)
        await self.record_event(f"{table.noun}.deleted", record, None)

    async def record_event(
        self, event_type: str, before: Record | None, after: Record | None, **more: object
    ) -> None:
        """Writes the event in this transaction. Its owners are those of the row."""
        row = after if after is not None else before
        if row is None:
            raise ValueError("an event needs a row, before or after")
        owners = {
            column: getattr(row, column, None)
            for column in ("provider_id", "consumer_id", "agent_id", "participant_id")
        }
        if isinstance(row, AgentRow):
            owners["agent_id"] = row.id
        elif isinstance(row, Participant):
            owners["participant_id"] = row.id
        properties = {"diff": _diff(_document(before), _document(after)), **more}
        await self._insert_event(event_type, row.id, properties, owners)

    async def record_plane_event(self, event_type: str, entity_id: str, **properties: object) -> None:
        """Writes an event that concerns no owner, so that only admins read it."""
        await self._insert_event(event_type, entity_id, properties, {})

    async def _insert_event(
        self, event_type: str, entity_id: str, properties: dict[str, object], owners: Mapping[str, Any]
    ) -> None:
        if event_type not in EVENT_TYPES:
            raise ValueError(f"unknown event type {event_type!r}; add it to control/domain/event_types.py")
        caller = self.caller
        event = EventRow(
            **self.new_record(),
            type=event_type,
            initiator_type="system" if caller is None else "user",
            initiator_id=SYSTEM_ID if caller is None else caller.token_id,
            initiator_role=None if caller is None else caller.role.value,
            entity_id=entity_id,
            properties=properties,
            **owners,
        )
        await EVENTS.insert(
            self.tx,
            event,
            ordinal=self.recorded_events,
            initiator_name=None if caller is None else caller.name,
            initiator_participant_id=None if caller is None else caller.participant_id,
        )
        self.recorded_events += 1
        self.tx.announce(EVENT_TOPIC)


def _document(record: Record | None) -> object:
    return {} if record is None else msgspec.to_builtins(record)


def _diff(before: object, after: object, path: str = "") -> list[dict[str, object]]:
    """Compares objects member by member; any other value is replaced as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        patch: list[dict[str, object]] = []
        for name in before:
            if name not in after:
                place = _join(path, name)
                patch += [{"op": "test", "path": place, "value": before[name]}, {"op": "remove", "path": place}]
        for name, value in after.items():
            if name not in before:
                patch.append({"op": "add", "path": _join(path, name), "value": value})
            else:
                patch += _diff(before[name], value, _join(path, name))
        return patch
    if equal(before, after):
        return []
    return [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": after}]


def _join(path: str, name: object) -> str:
    text = str(name)
    if "~" in text or "/" in text:
        text = text.replace("~", "~0").replace("/", "~1")
    return f"{path}/{text}"

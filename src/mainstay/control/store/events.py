"""Events: written in the transaction of the change they record, numbered before the next read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from mainstay.control.domain.event_chain import CHAIN_VERSION, HASHED
from mainstay.control.store.engine.contract import Row, Transaction, encode_json, fetch_value, placeholders
from mainstay.control.store.engine.paging import SqlCondition, joined_conditions, walk
from mainstay.control.store.engine.records import Record, Table, to_time, wire_names


class EventRow(Record, frozen=True, kw_only=True):
    # None until the next read numbers it.
    sequence_number: int | None = None
    type: str
    initiator_type: Literal["user", "system"]
    initiator_id: str
    # None: the system, or an event of a release that did not record it.
    initiator_role: Literal["admin", "participant", "agent"] | None = None
    entity_id: str
    properties: dict[str, object]
    provider_id: str | None = None
    consumer_id: str | None = None
    agent_id: str | None = None
    participant_id: str | None = None
    # None until the background task has hashed it.
    hash: str | None = None
    # Which members the hash covers. None: version 1, or not hashed yet.
    chain_version: int | None = None


@dataclass(frozen=True, slots=True)
class EventParties:
    """The names of an event's initiator and owners. None: unknown or deleted."""

    initiator_name: str | None
    initiator_participant_id: str | None
    provider: str | None
    consumer: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class EventSummary:
    """What an event concerns, without its content. `service_id`: of the job or the orphan in `entity_id`."""

    sequence_number: int
    type: str
    entity_id: str
    provider_id: str | None
    consumer_id: str | None
    agent_id: str | None
    participant_id: str | None
    service_id: str | None


@dataclass(frozen=True, slots=True)
class ChainedEvent:
    event_id: str
    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class EventCheckpoint:
    """Number and hash of the last event that retention has deleted."""

    sequence_number: int
    hash: str


# Upper bound of one hashing batch.
MAX_HASHED_CHARACTERS = 1_000_000
HASH_LENGTH = 64
NUMBER_LENGTH = 19
# Numbers follow the order of creation, and the indexes of owners contain them.
EVENTS = Table("events", "event", EventRow, order="sequence_number", single_owner=("entity_id",))
NUMBERED = SqlCondition("sequence_number IS NOT NULL")
SUMMARY_COLUMNS = tuple(field.name for field in fields(EventSummary) if field.name != "service_id")
_HASHED_COLUMNS = {name: column for name, column in wire_names(EventRow).items() if name in HASHED} | {
    "initiatorName": "initiator_name",
    "initiatorParticipantId": "initiator_participant_id",
}


async def lock_chain(tx: Transaction) -> None:
    """For numbering and hashing. A statement of its own, so that the next one sees every number and hash that the last
    holder assigned."""
    await tx.lock("events")


async def number_events(tx: Transaction) -> None:
    """Gives every committed row its number. The caller holds the lock."""
    await tx.execute(
        "UPDATE events SET sequence_number = numbered.number FROM ("
        " SELECT id, (SELECT coalesce(max(sequence_number), 0) FROM events)"
        "  + row_number() OVER (ORDER BY created_at, ordinal, id) AS number"
        " FROM events WHERE sequence_number IS NULL) AS numbered"
        " WHERE events.id = numbered.id"
    )


async def has_unnumbered(tx: Transaction) -> bool:
    return bool(await tx.fetch("SELECT 1 AS found FROM events WHERE sequence_number IS NULL LIMIT 1"))


async def read_unhashed(tx: Transaction, limit: int) -> list[dict[str, Any]]:
    """The first numbered events without a hash, in order."""
    found = "hash IS NULL AND sequence_number IS NOT NULL"
    return await _read_hashed_members(tx, found, "sequence_number", limit)


async def read_unnumbered(tx: Transaction, limit: int) -> list[dict[str, Any]]:
    """The first committed events without a number, in the order in which they are numbered."""
    return await _read_hashed_members(tx, "sequence_number IS NULL", "created_at, ordinal, id", limit)


async def _read_hashed_members(tx: Transaction, condition: str, order: str, limit: int) -> list[dict[str, Any]]:
    """The members that the hash covers, of no more events than the one with which they exceed the size. `properties` is
    the stored text, because the caller only encodes it."""
    columns = ", ".join(_HASHED_COLUMNS.values())
    rows = await tx.fetch(
        f"SELECT {columns} FROM (SELECT *, sum(length(properties)) OVER (ORDER BY {order}) - length(properties) AS before"
        f" FROM (SELECT * FROM events WHERE {condition} ORDER BY {order} LIMIT {int(limit)}) AS waiting) AS sized"
        f" WHERE before < {MAX_HASHED_CHARACTERS} ORDER BY {order}"
    )
    return [_hashed_document(row) for row in rows]


def _hashed_document(row: Row) -> dict[str, Any]:
    document: dict[str, Any] = {
        name: value for name, column in _HASHED_COLUMNS.items() if (value := row[column]) is not None
    }
    document["createdAt"] = to_time(document["createdAt"])
    document["chainVersion"] = CHAIN_VERSION
    return document


async def hash_of(tx: Transaction, number: int) -> str | None:
    """The hash of a stored event, or of the last deleted one. None: the event has no hash, or there is no such event."""
    return await fetch_value(
        tx,
        "SELECT hash FROM events WHERE sequence_number = :number"
        " UNION ALL SELECT hash FROM event_checkpoints WHERE sequence_number = :number",
        number=number,
    )


async def read_checkpoint(tx: Transaction) -> EventCheckpoint | None:
    """None: no event was ever deleted."""
    rows = await tx.fetch("SELECT sequence_number, hash FROM event_checkpoints")
    return EventCheckpoint(rows[0]["sequence_number"], rows[0]["hash"]) if rows else None


async def save_checkpoint(tx: Transaction, checkpoint: EventCheckpoint) -> None:
    await tx.execute(
        "INSERT INTO event_checkpoints (id, sequence_number, hash) VALUES (1, :number, :hash)"
        " ON CONFLICT (id) DO UPDATE SET sequence_number = :number, hash = :hash",
        number=checkpoint.sequence_number,
        hash=checkpoint.hash,
    )


async def set_numbers_and_hashes(tx: Transaction, chained: Sequence[ChainedEvent]) -> None:
    """In one statement, which writes each row once: a statement for each event costs more than the hash, and on
    PostgreSQL every write of an event also writes all its index entries."""
    number_start = HASH_LENGTH + 1
    id_start = number_start + NUMBER_LENGTH
    await tx.execute(
        f"UPDATE events SET sequence_number = CAST(substr(chained.value, {number_start}, {NUMBER_LENGTH}) AS BIGINT),"
        f" hash = substr(chained.value, 1, {HASH_LENGTH}), chain_version = {CHAIN_VERSION}"
        f" FROM (SELECT value FROM {tx.json_items}(:chained)) AS chained"
        f" WHERE events.id = substr(chained.value, {id_start})",
        chained=encode_json([f"{each.hash}{each.number:0{NUMBER_LENGTH}}{each.event_id}" for each in chained]),
    )


async def newest_of(tx: Transaction, entity_ids: Sequence[str], limit: int) -> list[EventRow]:
    """The newest events of these records, newest first. Each record is read along the index, up to the limit."""
    _, marks = placeholders(entity_ids, "entity")
    if not marks:
        return []
    columns = EVENTS.select()
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {columns}, ordinal FROM events WHERE entity_id = :{mark}"
        f" ORDER BY created_at DESC LIMIT {int(limit)}) AS {mark}_events"
        for mark in marks
    )
    rows = await tx.fetch(
        f"SELECT {columns} FROM ({parts}) AS found ORDER BY created_at DESC, ordinal DESC, id LIMIT {int(limit)}",
        **marks,
    )
    return [EVENTS.decode(row) for row in rows]


async def read_parties(tx: Transaction, ids: Sequence[str]) -> dict[str, EventParties]:
    listed, marks = placeholders(ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        "SELECT events.id, initiator_name, initiator_participant_id,"
        " provider.name AS provider, consumer.name AS consumer, agents.name AS agent FROM events"
        " LEFT JOIN participants AS provider ON provider.id = events.provider_id"
        " LEFT JOIN participants AS consumer ON consumer.id = events.consumer_id"
        " LEFT JOIN agents ON agents.id = events.agent_id"
        f" WHERE events.id IN {listed}",
        **marks,
    )
    names = ("initiator_name", "initiator_participant_id", "provider", "consumer", "agent")
    return {row["id"]: EventParties(*(row[name] for name in names)) for row in rows}


async def read_summaries(
    tx: Transaction, after: int, until: int | None, limit: int, scope: Sequence[SqlCondition]
) -> list[EventSummary]:
    """Numbered events in order, from behind `after` up to `until`; None: up to the newest."""
    position = "sequence_number > :after"
    parameters = joined_conditions(scope)[1] | {"after": after}
    if until is not None:
        parameters["until"] = until
        position += " AND sequence_number <= :until"
    ending = f"ORDER BY sequence_number LIMIT {int(limit)}"
    found = walk(EVENTS, EVENTS.name, scope, position, ending, columns=", ".join(SUMMARY_COLUMNS))
    rows = await tx.fetch(
        f"SELECT found.*, coalesce(jobs.service_id, orphans.service_id) AS service_id"
        f" FROM (SELECT * FROM ({found}) AS ways {ending}) AS found"
        " LEFT JOIN jobs ON jobs.id = found.entity_id LEFT JOIN orphans ON orphans.id = found.entity_id"
        " ORDER BY sequence_number",
        slow=True,
        **parameters,
    )
    return [EventSummary(**{name: row[name] for name in (*SUMMARY_COLUMNS, "service_id")}) for row in rows]


_NAMED_TABLES = (
    "services",
    "agents",
    "agent_types",
    "service_types",
    "participants",
    "service_groups",
    "service_options",
    "service_option_types",
    "service_pools",
    "service_pool_sets",
    "service_pool_values",
    "config_pools",
    "config_pool_values",
    "metric_types",
    "tokens",
)


async def entity_names(tx: Transaction, ids: Sequence[str]) -> dict[str, str]:
    """The names of the rows that events are about. A job and an orphan have the name of their service. A deleted row
    is missing."""
    wanted = f"IN (SELECT value FROM {tx.json_items}(:ids))"
    parts = [f"SELECT id, name FROM {table} WHERE id {wanted}" for table in _NAMED_TABLES]
    parts += [
        f"SELECT jobs.id, services.name FROM jobs JOIN services ON services.id = jobs.service_id WHERE jobs.id {wanted}",
        f"SELECT id, service_name AS name FROM orphans WHERE id {wanted} AND closed_at IS NULL",
    ]
    rows = await tx.fetch(" UNION ALL ".join(parts), ids=encode_json(sorted(set(ids))))
    return {row["id"]: row["name"] for row in rows}


async def first_unhashed(tx: Transaction) -> int | None:
    """The number of the first event without a hash. None: every event has one."""
    return await fetch_value(
        tx,
        "SELECT sequence_number FROM events WHERE hash IS NULL AND sequence_number IS NOT NULL"
        " ORDER BY sequence_number LIMIT 1",
    )

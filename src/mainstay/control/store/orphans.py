"""Orphans: clean-ups that an agent owes after a forced delete or a move. Closed rows stay until their service is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainstay.control.domain.orphans import OrphanReason
from mainstay.control.store.engine.contract import (
    Transaction,
    decode_optional,
    encode_json,
    encode_optional,
    fetch_column,
    fetch_value,
    placeholders,
)
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import MAX_DEPENDANTS, Record, Table, to_microseconds


class OrphanRow(Record, frozen=True, kw_only=True):
    service_id: str
    service_name: str
    agent_id: str
    provider_id: str
    reason: OrphanReason
    # Clean-ups that failed.
    attempts: int = 0
    last_error: str | None = None


class OrphanSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The service as a host has it, which the service itself no longer is."""

    status: str
    properties: dict[str, object]
    agent_instance_id: str | None = None
    agent_instance_data: object | None = None
    blueprint_digest: str | None = None


ORPHANS = Table("orphans", "orphan", OrphanRow)
OPEN_ONLY = SqlCondition("closed_at IS NULL")


async def find_open(tx: Transaction, orphan_id: str) -> OrphanRow | None:
    """The orphan, locked until the commit. None: it is closed."""
    return await ORPHANS.first(tx, f"id = :id AND closed_at IS NULL{tx.for_update}", id=orphan_id)


async def is_unannounced(tx: Transaction, agent_id: str) -> bool:
    """Whether the agent owes a clean-up that none of its long polls has returned for."""
    statement = (
        "SELECT 1 AS found FROM orphans WHERE agent_id = :agent_id AND announced = 0 AND closed_at IS NULL LIMIT 1"
    )
    return bool(await tx.fetch(statement, agent_id=agent_id))


async def take_unannounced(tx: Transaction, agent_id: str) -> bool:
    """Whether there was one. Each is taken once, so that an agent that ignores it does not poll without a pause."""
    statement = "UPDATE orphans SET announced = 1 WHERE agent_id = :agent_id AND announced = 0 AND closed_at IS NULL"
    return await tx.execute(statement, agent_id=agent_id) > 0


async def unannounced_agents(tx: Transaction, before: datetime, limit: int) -> list[str]:
    return await fetch_column(
        tx,
        "SELECT DISTINCT agent_id FROM orphans WHERE announced = 0 AND closed_at IS NULL AND created_at < :before"
        f" LIMIT {int(limit)}",
        before=to_microseconds(before),
    )


async def insert_snapshot(
    tx: Transaction, orphan_id: str, snapshot: OrphanSnapshot, references: Sequence[str]
) -> None:
    """`references`: of the secrets in the snapshot, without the prefix."""
    await tx.execute(
        "UPDATE orphans SET snapshot = :snapshot, blueprint_digest = :digest, agent_instance_id = :instance_id"
        " WHERE id = :id",
        id=orphan_id,
        snapshot=encode_json(snapshot),
        digest=snapshot.blueprint_digest,
        instance_id=snapshot.agent_instance_id,
    )
    for reference in dict.fromkeys(references):
        await tx.execute(
            "INSERT INTO orphan_secrets (orphan_id, reference) VALUES (:id, :reference)",
            id=orphan_id,
            reference=reference,
        )


async def read_snapshots(tx: Transaction, orphan_ids: Sequence[str]) -> dict[str, OrphanSnapshot]:
    """By id of the orphan. Orphans of forced deletes have none: the service row is what the host has."""
    rows = await tx.fetch(
        f"SELECT id, snapshot FROM orphans WHERE snapshot IS NOT NULL AND id IN (SELECT value FROM {tx.json_items}(:ids))",
        ids=encode_json(orphan_ids),
    )
    return {row["id"]: msgspec.json.decode(row["snapshot"], type=OrphanSnapshot) for row in rows}


async def open_of_agent(tx: Transaction, service_id: str, agent_id: str) -> list[OrphanRow]:
    """Open orphans of one service on one agent."""
    return await ORPHANS.where(
        tx,
        "service_id = :service_id AND agent_id = :agent_id AND closed_at IS NULL ORDER BY created_at, id LIMIT 10",
        service_id=service_id,
        agent_id=agent_id,
    )


async def agents_owing(tx: Transaction, service_id: str) -> list[str]:
    """Agents that owe a clean-up of the service."""
    statement = "SELECT agent_id FROM orphans WHERE service_id = :service_id AND closed_at IS NULL LIMIT 1000"
    return await fetch_column(tx, statement, service_id=service_id)


async def holds_instance(tx: Transaction, agent_id: str, instance_id: str) -> bool:
    """Whether an open orphan of the agent holds this instance id."""
    statement = (
        "SELECT 1 AS found FROM orphans WHERE agent_id = :agent_id AND closed_at IS NULL"
        " AND agent_instance_id = :instance_id LIMIT 1"
    )
    return bool(await tx.fetch(statement, agent_id=agent_id, instance_id=instance_id))


async def open_snapshots_of_type(tx: Transaction, service_type_id: str) -> list[str]:
    return await fetch_column(
        tx,
        "SELECT orphans.id FROM orphans JOIN services ON services.id = orphans.service_id"
        " WHERE services.service_type_id = :type_id AND orphans.closed_at IS NULL AND orphans.snapshot IS NOT NULL"
        f" ORDER BY orphans.created_at, orphans.id LIMIT {MAX_DEPENDANTS}",
        type_id=service_type_id,
    )


async def release_secrets(tx: Transaction, orphan_id: str) -> None:
    """The orphan no longer protects its secrets from deletion."""
    await tx.execute("DELETE FROM orphan_secrets WHERE orphan_id = :id", id=orphan_id)


async def close(tx: Transaction, orphan_id: str, now: datetime, report: object) -> None:
    """`report` None: the last one is kept."""
    await tx.execute(
        "UPDATE orphans SET closed_at = :now, updated_at = :now, report = coalesce(:report, report) WHERE id = :id",
        id=orphan_id,
        now=to_microseconds(now),
        report=encode_optional(report),
    )


async def report_of(tx: Transaction, orphan_id: str) -> object | None:
    return decode_optional(await fetch_value(tx, "SELECT report FROM orphans WHERE id = :id", id=orphan_id))


async def open_ids(tx: Transaction, column: str, value: str) -> list[str]:
    """Open orphans of an agent or provider, or of the services of a group, type or participant.

    `column` is a literal of this program: `orphans.agent_id`, `services.group_id`, …"""
    return await fetch_column(
        tx,
        "SELECT orphans.id FROM orphans JOIN services ON services.id = orphans.service_id"
        f" WHERE orphans.closed_at IS NULL AND {column} = :value ORDER BY orphans.created_at, orphans.id LIMIT {MAX_DEPENDANTS}",
        value=value,
    )


async def open_ids_of_services(tx: Transaction, service_ids: Sequence[str]) -> list[str]:
    listed, marks = placeholders(service_ids)
    if not marks:
        return []
    return await fetch_column(
        tx,
        f"SELECT id FROM orphans WHERE service_id IN {listed} AND closed_at IS NULL ORDER BY created_at, id",
        **marks,
    )

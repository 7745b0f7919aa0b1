"""Drains of agents, and the services that they tried to move. The background task locks one drain at a time; replicas
skip locked ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from mainstay.control.access import Caller, Role
from mainstay.control.store.engine.contract import Row, Transaction, encode_json
from mainstay.control.store.engine.records import to_microseconds, to_time
from mainstay.control.store.jobs import ACTIVE_STATUSES


class DrainInitiator(msgspec.Struct, frozen=True):
    role: Role
    token_id: str
    participant_id: str | None
    name: str

    @property
    def caller(self) -> Caller:
        return Caller(self.role, self.token_id, participant_id=self.participant_id, name=self.name)


@dataclass(frozen=True, slots=True)
class DrainRow:
    agent_id: str
    # Whether the services go to other agents.
    move: bool
    since: datetime
    initiator: DrainInitiator


@dataclass(frozen=True, slots=True)
class DrainedService:
    """A service of a draining agent. `reason` None: it moves, or is the next to move."""

    service_id: str
    name: str
    job_id: str | None = None
    reason: str | None = None
    # Whether it is still on the agent, and not in a terminal state.
    is_left: bool = True
    # Of its job; None: there is none.
    job_status: str | None = None
    job_message: str | None = None


_COLUMNS = "agent_id, move, since, initiator"


def _decode(row: Row) -> DrainRow:
    initiator = msgspec.json.decode(row["initiator"], type=DrainInitiator)
    return DrainRow(row["agent_id"], row["move"] == 1, to_time(row["since"]), initiator)


async def find(tx: Transaction, agent_id: str) -> DrainRow | None:
    rows = await tx.fetch(f"SELECT {_COLUMNS} FROM agent_drains WHERE agent_id = :id", id=agent_id)
    return _decode(rows[0]) if rows else None


async def save(tx: Transaction, drain: DrainRow) -> None:
    """Services that could not move are tried again."""
    await tx.execute(
        "INSERT INTO agent_drains (agent_id, move, since, initiator) VALUES (:id, :move, :since, :initiator)"
        " ON CONFLICT (agent_id) DO UPDATE SET move = excluded.move, initiator = excluded.initiator, advanced_at = 0",
        id=drain.agent_id,
        move=int(drain.move),
        since=to_microseconds(drain.since),
        initiator=encode_json(drain.initiator),
    )
    await tx.execute(
        "DELETE FROM drained_services WHERE agent_id = :id AND reason IS NOT NULL",
        id=drain.agent_id,
    )


async def delete(tx: Transaction, agent_id: str) -> None:
    await tx.execute("DELETE FROM agent_drains WHERE agent_id = :id", id=agent_id)


async def next_due(tx: Transaction, now: datetime, pause: timedelta) -> DrainRow | None:
    """The drain with moves that was looked at longest ago, locked. A time in the future comes from a clock that was set
    back."""
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM agent_drains WHERE move = 1 AND (advanced_at <= :before OR advanced_at > :now)"
        f" ORDER BY advanced_at, agent_id LIMIT 1{tx.skip_locked}",
        before=to_microseconds(now - pause),
        now=to_microseconds(now),
    )
    return _decode(rows[0]) if rows else None


async def note_look(tx: Transaction, agent_id: str, now: datetime) -> None:
    """Nothing more can be done now, so the next look may wait."""
    await tx.execute(
        "UPDATE agent_drains SET advanced_at = :now WHERE agent_id = :id", id=agent_id, now=to_microseconds(now)
    )


async def read_tried(tx: Transaction, agent_id: str, limit: int, *, moving: bool) -> list[DrainedService]:
    """Services that the drain tried to move: the one that moves, or those that stay."""
    rows = await tx.fetch(
        "SELECT drained_services.service_id, services.name, drained_services.job_id, drained_services.reason,"
        " CASE WHEN services.agent_id = :id AND services.is_terminal = 0 THEN 1 ELSE 0 END AS is_left,"
        " jobs.status AS job_status, jobs.error_message AS job_message FROM drained_services"
        " JOIN services ON services.id = drained_services.service_id"
        " LEFT JOIN jobs ON jobs.id = drained_services.job_id"
        f" WHERE drained_services.agent_id = :id AND drained_services.reason IS {'' if moving else 'NOT '}NULL"
        f" ORDER BY services.name_folded, services.id LIMIT {int(limit)}",
        id=agent_id,
    )
    return [DrainedService(**{**row, "is_left": row["is_left"] == 1}) for row in map(dict, rows)]


async def read_living(tx: Transaction, agent_id: str, limit: int) -> list[DrainedService]:
    rows = await tx.fetch(
        "SELECT id AS service_id, name FROM services WHERE agent_id = :id AND is_terminal = 0"
        f" ORDER BY name_folded, id LIMIT {int(limit)}",
        id=agent_id,
    )
    return [DrainedService(row["service_id"], row["name"]) for row in rows]


async def find_next(tx: Transaction, agent_id: str) -> tuple[DrainedService, bool] | None:
    """The next service that the drain has not tried, and whether it has an active job. Idle ones come first."""
    rows = await tx.fetch(
        "SELECT services.id, services.name, CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE jobs.service_id = services.id"
        f" AND jobs.status IN {ACTIVE_STATUSES}) THEN 1 ELSE 0 END AS is_busy FROM services"
        " WHERE services.agent_id = :id AND services.is_terminal = 0 AND NOT EXISTS (SELECT 1 FROM drained_services"
        " AS tried WHERE tried.agent_id = :id AND tried.service_id = services.id)"
        " ORDER BY is_busy, services.created_at, services.id LIMIT 1",
        id=agent_id,
    )
    return (DrainedService(rows[0]["id"], rows[0]["name"]), rows[0]["is_busy"] == 1) if rows else None


async def set_tried(
    tx: Transaction, agent_id: str, service_id: str, *, job_id: str | None = None, reason: str | None = None
) -> None:
    """Either the job of the move, or why the service stays."""
    await tx.execute(
        "INSERT INTO drained_services (agent_id, service_id, job_id, reason) VALUES (:id, :service_id, :job_id, :reason)"
        " ON CONFLICT (agent_id, service_id) DO UPDATE SET job_id = excluded.job_id, reason = excluded.reason",
        id=agent_id,
        service_id=service_id,
        job_id=job_id,
        reason=reason,
    )


async def forget_tried(tx: Transaction, agent_id: str, service_id: str) -> None:
    await tx.execute(
        "DELETE FROM drained_services WHERE agent_id = :id AND service_id = :service_id",
        id=agent_id,
        service_id=service_id,
    )

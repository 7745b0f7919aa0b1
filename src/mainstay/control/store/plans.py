"""Plan requests to agents. A row exists while a client waits for the answer; each is delivered once."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.engine.contract import Transaction, fetch_value
from mainstay.control.store.engine.records import Record, Table, to_microseconds


class PlanRequest(Record, frozen=True, kw_only=True):
    agent_id: str
    # The client stops waiting at this time.
    deadline_at: datetime


PLAN_REQUESTS = Table("plan_requests", "plan", PlanRequest)


async def is_waiting(tx: Transaction, agent_id: str, now: datetime) -> bool:
    statement = (
        "SELECT 1 AS found FROM plan_requests WHERE agent_id = :agent_id AND taken = 0 AND deadline_at > :now LIMIT 1"
    )
    return bool(await tx.fetch(statement, agent_id=agent_id, now=to_microseconds(now)))


async def take(tx: Transaction, agent_id: str, limit: int, now: datetime) -> list[tuple[PlanRequest, bytes]]:
    """Marks the oldest undelivered requests as delivered and returns them."""
    rows = await tx.fetch(
        "UPDATE plan_requests SET taken = 1 WHERE id IN (SELECT id FROM plan_requests"
        " WHERE agent_id = :agent_id AND taken = 0 AND deadline_at > :now"
        f" ORDER BY created_at, id LIMIT {int(limit)}{tx.skip_locked})"
        f" RETURNING {PLAN_REQUESTS.select()}, question",
        agent_id=agent_id,
        now=to_microseconds(now),
    )
    found = [(PLAN_REQUESTS.decode(row), row["question"]) for row in rows]
    return sorted(found, key=lambda each: (each[0].created_at, each[0].id))


async def keep_answer(tx: Transaction, request_id: str, answer: bytes) -> None:
    """Keeps the first answer and ignores later ones."""
    await tx.execute(
        "UPDATE plan_requests SET answer = :answer WHERE id = :id AND answer IS NULL", id=request_id, answer=answer
    )


async def answer_of(tx: Transaction, request_id: str) -> bytes | None:
    return await fetch_value(tx, "SELECT answer FROM plan_requests WHERE id = :id", id=request_id)


async def find_older(tx: Transaction, before: datetime, limit: int) -> list[PlanRequest]:
    return await PLAN_REQUESTS.where(tx, f"created_at < :before LIMIT {int(limit)}", before=to_microseconds(before))


async def delete_older(tx: Transaction, before: datetime) -> None:
    await tx.execute("DELETE FROM plan_requests WHERE deadline_at < :before", before=to_microseconds(before))

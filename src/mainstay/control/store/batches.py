"""Revisions: how many batches a participant, or the admins together, have sent."""

from __future__ import annotations

from mainstay.control.store.engine.contract import Transaction, fetch_number

ADMINS = ""


async def read_revision(tx: Transaction, participant_id: str | None) -> int:
    owner = participant_id or ADMINS
    return await fetch_number(tx, "SELECT revision FROM batch_revisions WHERE owner = :owner", owner=owner)


async def next_revision(tx: Transaction, participant_id: str | None) -> int:
    """Waits for other batches of the same owner."""
    return await fetch_number(
        tx,
        "INSERT INTO batch_revisions (owner, revision) VALUES (:owner, 1)"
        " ON CONFLICT (owner) DO UPDATE SET revision = batch_revisions.revision + 1 RETURNING revision",
        owner=participant_id or ADMINS,
    )

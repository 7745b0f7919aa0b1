"""Enrolment codes, stored as hashes: codes of one existing agent, and codes whose uses each create an agent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mainstay.control.store.engine.contract import Transaction, fetch_number, fetch_value
from mainstay.control.store.engine.records import Record, Table, to_microseconds


class EnrolmentCodeRow(Record, frozen=True, kw_only=True):
    """A code for many hosts."""

    provider_id: str
    agent_type_id: str
    count: int
    uses_left: int
    expires_at: datetime
    tags: list[str]
    # Before the names of its hosts; may be empty.
    name_prefix: str
    # The token that created it, and its role. Its agents are created with these rights.
    initiator_id: str
    initiator_role: Literal["admin", "participant"]
    # An admin decided that it does not end with the token of its initiator.
    outlives_token: bool


ENROLMENT_CODES = Table("host_enrolment_codes", "enrolment_code", EnrolmentCodeRow)


@dataclass(frozen=True, slots=True)
class UsedCode:
    before: EnrolmentCodeRow
    after: EnrolmentCodeRow
    initiator_name: str


def _initiator_lives(table: str) -> str:
    """The condition that the token that made a code is neither deleted nor expired."""
    return (
        f"EXISTS (SELECT 1 FROM tokens WHERE tokens.id = {table}.initiator_id"
        " AND (tokens.expire_at IS NULL OR tokens.expire_at > :now))"
    )


async def add_agent_code(
    tx: Transaction, code_hash: str, agent_id: str, initiator_id: str, expires_at: datetime
) -> None:
    await tx.execute("DELETE FROM enrolment_codes WHERE agent_id = :agent_id", agent_id=agent_id)
    await tx.execute(
        "INSERT INTO enrolment_codes (hash, agent_id, initiator_id, expires_at)"
        " VALUES (:hash, :agent_id, :initiator_id, :expires_at)",
        hash=code_hash,
        agent_id=agent_id,
        initiator_id=initiator_id,
        expires_at=to_microseconds(expires_at),
    )


async def use_agent_code(tx: Transaction, code_hash: str, now: datetime) -> str | None:
    """The agent that the code enrolls. The same statement deletes the code, so exactly one of many callers gets it."""
    return await fetch_value(
        tx,
        "DELETE FROM enrolment_codes WHERE hash = :hash AND expires_at > :now"
        f" AND (initiator_id IS NULL OR {_initiator_lives('enrolment_codes')}) RETURNING agent_id",
        hash=code_hash,
        now=to_microseconds(now),
    )


async def take_place(tx: Transaction, code_hash: str, now: datetime) -> UsedCode | None:
    """Takes one of the places of the code. One statement, so that the last place has one taker; it locks the row, so
    that a revocation waits for the commit or is seen here."""
    rows = await tx.fetch(
        "UPDATE host_enrolment_codes SET uses_left = uses_left - 1, updated_at = :now"
        " WHERE hash = :hash AND expires_at > :now AND uses_left > 0"
        f" AND (outlives_token = 1 OR {_initiator_lives('host_enrolment_codes')})"
        f" RETURNING {ENROLMENT_CODES.select()}, initiator_name",
        hash=code_hash,
        now=to_microseconds(now),
    )
    if not rows:
        return None
    after = ENROLMENT_CODES.decode(rows[0])
    before = ENROLMENT_CODES.decode({**rows[0], "uses_left": after.uses_left + 1})
    return UsedCode(before, after, rows[0]["initiator_name"])


async def open_codes_of(tx: Transaction, initiator_id: str, now: datetime) -> list[EnrolmentCodeRow]:
    """The codes with places left that end with this token."""
    rows = await tx.fetch(
        f"SELECT {ENROLMENT_CODES.select()} FROM host_enrolment_codes WHERE initiator_id = :initiator_id"
        " AND outlives_token = 0 AND uses_left > 0 AND expires_at > :now ORDER BY created_at, id",
        initiator_id=initiator_id,
        now=to_microseconds(now),
    )
    return [ENROLMENT_CODES.decode(row) for row in rows]


async def delete_agent_codes_of(tx: Transaction, initiator_id: str, now: datetime) -> list[str]:
    """The agents whose codes end with this token."""
    rows = await tx.fetch(
        "DELETE FROM enrolment_codes WHERE initiator_id = :initiator_id AND expires_at > :now RETURNING agent_id",
        initiator_id=initiator_id,
        now=to_microseconds(now),
    )
    return sorted(row["agent_id"] for row in rows)


async def count_open(tx: Transaction, provider_id: str, now: datetime) -> int:
    return await fetch_number(
        tx,
        "SELECT count(*) FROM host_enrolment_codes WHERE provider_id = :provider_id AND uses_left > 0"
        " AND expires_at > :now",
        provider_id=provider_id,
        now=to_microseconds(now),
    )


async def has_agent_named(tx: Transaction, provider_id: str, name_folded: str) -> bool:
    statement = "SELECT 1 AS one FROM agents WHERE provider_id = :provider_id AND name_folded = :name LIMIT 1"
    return bool(await tx.fetch(statement, provider_id=provider_id, name=name_folded))

"""Participants: providers and consumers. A participant may be both."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import Record, Table
from mainstay.nouns.participants import NOUN


@row_of(NOUN)
class Participant(Record, frozen=True, kw_only=True):
    name: str
    status: str


# Limit of the count of services of a participant, as for an agent.
MOST_COUNTED = 10_000
PARTICIPANTS = Table("participants", "participant", Participant)


@dataclass(frozen=True, slots=True)
class ParticipantHoldings:
    """What belongs to a participant. Services are counted up to MOST_COUNTED."""

    consumed: int
    provided: int
    agents: int
    groups: int
    tokens: int


async def count_holdings(tx: Transaction, participant_id: str) -> ParticipantHoldings:
    def living(column: str) -> str:
        return (
            f"(SELECT count(*) FROM (SELECT 1 AS one FROM services WHERE {column} = :id AND is_terminal = 0"
            f" LIMIT {MOST_COUNTED}) AS living)"
        )

    rows = await tx.fetch(
        f"SELECT {living('consumer_id')} AS consumed, {living('provider_id')} AS provided,"
        " (SELECT count(*) FROM agents WHERE provider_id = :id) AS agents,"
        " (SELECT count(*) FROM service_groups WHERE consumer_id = :id) AS groups,"
        " (SELECT count(*) FROM tokens WHERE participant_id = :id) AS tokens",
        id=participant_id,
    )
    return ParticipantHoldings(**rows[0])

"""Events in operations: hashing large events leaves time for other work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from mainstay.control.operations.events import chain_next
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.events import EVENTS, EventRow, read_unhashed, read_unnumbered


def event_with(properties: dict[str, object]) -> EventRow:
    now = datetime.now(UTC)
    return EventRow(
        id=str(uuid4()),
        created_at=now,
        updated_at=now,
        type="service.updated",
        initiator_type="system",
        initiator_id=str(uuid4()),
        entity_id=str(uuid4()),
        properties=properties,
    )


def test_large_events_are_hashed_in_several_transactions(tmp_path: Path) -> None:
    """A transaction blocks the other writers, and hashing blocks the process."""
    # The slowest document of 160 KiB: small numbers with an exponent.
    properties: dict[str, object] = {"diff": [1.5e-7] * 20_000}

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            for ordinal in range(30):
                await EVENTS.insert(tx, event_with(properties), ordinal=ordinal)
        left = [30]
        while left[-1]:
            async with store.transaction() as tx:
                more = await chain_next(tx)
                left.append(len(await read_unhashed(tx, 100)) + len(await read_unnumbered(tx, 100)))
            assert more or not left[-1]
        assert len(left) > 5
        await store.close()

    asyncio.run(main())


def test_a_lost_hash_is_computed_again_and_breaks_no_other(tmp_path: Path) -> None:
    """The next new event is chained to the newest one, not to the one whose hash was missing."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def add(count: int) -> None:
            async with store.transaction() as tx:
                for ordinal in range(count):
                    await EVENTS.insert(tx, event_with({"diff": [ordinal]}), ordinal=ordinal)

        async def hashes() -> list[str | None]:
            more = True
            while more:
                async with store.transaction() as tx:
                    more = await chain_next(tx)
            async with store.reading() as tx:
                rows = await tx.fetch("SELECT hash FROM events ORDER BY sequence_number")
            return [None if row["hash"] is None else str(row["hash"]) for row in rows]

        await add(6)
        first = await hashes()
        async with store.transaction() as tx:
            await tx.execute("UPDATE events SET hash = NULL WHERE sequence_number = 3")
        await add(2)
        second = await hashes()
        assert second[:6] == first
        async with store.transaction() as tx:
            await tx.execute("UPDATE events SET hash = NULL")
        assert await hashes() == second
        await store.close()

    asyncio.run(main())

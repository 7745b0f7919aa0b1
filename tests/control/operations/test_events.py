"""Events in operations: hashing large events leaves time for other work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from mainstay.control.operations.events import hash_next
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.events import EVENTS, EventRow, read_unhashed


def test_large_events_are_hashed_in_several_transactions(tmp_path: Path) -> None:
    """A transaction blocks the other writers, and hashing blocks the process."""
    now = datetime.now(UTC)
    # The slowest document of 160 KiB: small numbers with an exponent.
    properties: dict[str, object] = {"diff": [1.5e-7] * 20_000}

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            for ordinal in range(30):
                event = EventRow(
                    id=str(uuid4()),
                    created_at=now,
                    updated_at=now,
                    type="service.updated",
                    initiator_type="system",
                    initiator_id=str(uuid4()),
                    entity_id=str(uuid4()),
                    properties=properties,
                )
                await EVENTS.insert(tx, event, ordinal=ordinal)
        left = [30]
        while left[-1]:
            async with store.transaction() as tx:
                more = await hash_next(tx)
                left.append(len(await read_unhashed(tx, 100)))
            assert more or not left[-1]
        assert len(left) > 5
        await store.close()

    asyncio.run(main())

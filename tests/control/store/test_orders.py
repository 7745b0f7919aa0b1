"""What an order reads before it writes, beside a concurrent change of its service type."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bulk_services import NOW, new_owners
from control_plane import Cluster
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.orders import OrderedGroup, OrderParties, find_order_parties
from mainstay.control.store.service_types import SERVICE_TYPES

WAITING = "SELECT 1 AS found FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_an_order_that_waited_for_a_change_of_its_type_sees_all_of_that_change(postgresql: Cluster) -> None:
    async def main() -> None:
        store = await open_store(postgresql.new_database())
        await store.migrate()
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            # Providers serve their own participant without a grant.
            await tx.execute("UPDATE service_groups SET consumer_id = :id", id=owners.provider_id)
        group = OrderedGroup(owners.group_id)

        async def read() -> OrderParties | None:
            async with store.transaction() as tx:
                return await find_order_parties(tx, owners.service_type_id, group, owners.agent_id)

        before = await read()
        assert before is not None
        assert before.serving is not None

        async with store.transaction() as tx:
            await SERVICE_TYPES.find(tx, owners.service_type_id, lock=True)
            order = asyncio.create_task(read())
            async with store.autocommit() as observer, asyncio.timeout(30):
                while not await observer.fetch(WAITING):
                    await asyncio.sleep(0.01)
            later = int((NOW + timedelta(seconds=1)).timestamp() * 1_000_000)
            await tx.execute("UPDATE service_types SET updated_at = :later", later=later)
            await tx.execute("UPDATE agents SET status = 'Disabled'")
        after = await order
        assert after is not None
        assert after.service_type.updated_at == NOW + timedelta(seconds=1)
        assert after.serving is None
        await store.close()

    asyncio.run(main())

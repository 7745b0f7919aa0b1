"""Agents in operations: requests that were authenticated before another transaction changed the agent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from bulk_services import new_owners
from mainstay.control.access import Caller, Role
from mainstay.control.operations import agents
from mainstay.control.operations.agents import OwnStatus
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.open import open_store


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("by_admin", [True, False])
def test_an_agent_that_was_disabled_during_its_request_stays_disabled(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, *, by_admin: bool
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    if database == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()

    async def main() -> None:
        store = await open_store(url)
        await store.migrate()
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            agent = await AGENTS.find(tx, owners.agent_id)
            assert agent is not None
            disabled = msgspec.structs.replace(agent, status="Disabled", disabled_by_admin=by_admin)
            await AGENTS.update(tx, disabled)
        caller = Caller(Role.AGENT, str(uuid4()), owners.provider_id, owners.agent_id)
        async with store.transaction() as tx:
            tools = OperationTools(Definitions(installed_rulebook()))
            work = UnitOfWork(tx, datetime.now(UTC), tools, caller)
            for status in ("Connected", "New", "Error", "Disconnected", "Disabled"):
                with pytest.raises(NotPermitted):
                    await agents.set_own_status(work, OwnStatus(status=status))
            await agents.record_heartbeat(work, owners.agent_id)
            assert (await AGENTS.find(tx, owners.agent_id)).status == "Disabled"  # type: ignore[union-attr]
        await store.close()

    asyncio.run(main())

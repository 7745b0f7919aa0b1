"""The migration that introduces grants: agents that already serve another participant keep doing so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from bulk_services import Owners, insert_service, new_owners, service
from mainstay.control.access import Caller, Role
from mainstay.control.operations import agent_types, doctor
from mainstay.control.operations.agent_types import AgentTypeChange
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.agent_types import AGENT_TYPES, AgentType
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.services import SERVICES

TAGS = ["plane:eu", "airplane:1", 'a"plane:']
UNDO = (
    "DROP TABLE agent_type_providers",
    "ALTER TABLE agent_types DROP COLUMN provider_ids",
    "ALTER TABLE agents DROP COLUMN disabled_by_admin",
    "DELETE FROM migrations WHERE name = '0007_serving'",
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("postgresql").new_database()
    return found


async def agent_of(tx: Transaction, owners: Owners) -> AgentRow:
    found = await AGENTS.find(tx, owners.agent_id)
    assert found is not None
    return found


async def type_of(tx: Transaction, owners: Owners) -> AgentType:
    found = await AGENT_TYPES.find(tx, (await agent_of(tx, owners)).agent_type_id)
    assert found is not None
    return found


async def migrate_again(store: Store) -> None:
    async with store.transaction() as tx:
        for statement in UNDO:
            await tx.execute(statement)
    assert await store.migrate() == ["0007_serving"]


def test_living_services_of_others_are_granted_until_an_admin_decides(url: str) -> None:
    async def main() -> None:
        store = await open_store(url)
        await store.migrate()
        async with store.transaction() as tx:
            serving, idle, ended, own, second = [await new_owners(tx) for _ in range(5)]
            await insert_service(tx, service(serving, "a"))
            await insert_service(tx, service(serving, "b"))
            terminal = service(ended, "c")
            await SERVICES.insert(tx, terminal, is_terminal=1, provenance="{}")
            await insert_service(tx, msgspec.structs.replace(service(own, "d"), consumer_id=own.provider_id))
            # A second provider with the same agent type.
            shared = (await agent_of(tx, serving)).agent_type_id
            moved = msgspec.structs.replace(
                await agent_of(tx, second), agent_type_id=shared, status="Disabled", tags=TAGS
            )
            await AGENTS.update(tx, moved)
            await insert_service(tx, service(second, "e"))
        await migrate_again(store)
        async with store.transaction() as tx:
            granted = await type_of(tx, serving)
            assert granted.provider_ids == sorted([serving.provider_id, second.provider_id])
            for each in (idle, ended, own):
                assert (await type_of(tx, each)).provider_ids == []
            assert (await agent_of(tx, second)).disabled_by_admin is True
            assert (await agent_of(tx, serving)).disabled_by_admin is False
            assert (await agent_of(tx, second)).tags == ["was-plane:eu", "airplane:1", 'a"was-plane:']
        await check_findings(store, granted, {serving.provider_id, second.provider_id})
        await store.close()

    asyncio.run(main())


async def check_findings(store: Store, granted: AgentType, providers: set[str]) -> None:
    tools = OperationTools(Definitions(installed_rulebook()))
    admin = Caller(Role.ADMIN, str(uuid4()))

    async def findings(tx: Transaction) -> list[str]:
        found = await doctor.examine(UnitOfWork(tx, datetime.now(UTC), tools, admin))
        return [each.message for each in found if each.code == "granted_by_migration"]

    async with store.transaction() as tx:
        messages = await findings(tx)
        assert len(messages) == 2
        assert all(any(provider in message for message in messages) for provider in providers)
        work = UnitOfWork(tx, datetime.now(UTC), tools, admin)
        await agent_types.change(work, granted, AgentTypeChange(name="renamed"))
        assert len(await findings(tx)) == 2
        # Writing the same list confirms it.
        renamed = msgspec.structs.replace(granted, name="renamed")
        await agent_types.change(work, renamed, AgentTypeChange(provider_ids=renamed.provider_ids))
        assert await findings(tx) == []

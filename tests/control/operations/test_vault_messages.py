"""Error messages of a vault that fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainstay.control.access import Caller, Role
from mainstay.control.operations import agent_types, agents, participants
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.engine.open import open_store
from mainstay.control.vault.seal import CannotSeal, SealContext, Sealed, Vault

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN = Caller(Role.ADMIN, "00000000-0000-4000-8000-00000000000a")


class FailingVault(Vault):
    """Opens secrets and cannot seal new ones."""

    def seal(self, value: object, place: SealContext) -> Sealed:
        raise CannotSeal


def test_a_failing_vault_is_reported_for_each_secret(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        tools = OperationTools(Definitions(installed_rulebook()), FailingVault([b"k" * 32]))
        secret = {"type": "string", "secret": {"type": "persistent"}}
        try:
            async with store.transaction() as tx:
                work = UnitOfWork(tx, NOW, tools, ADMIN)
                person = await participants.create(work, participants.NewParticipant(name="p"))
                schema: dict[str, object] = {"a": secret, "b": secret}
                kind = await agent_types.create(work, agent_types.NewAgentType(name="t", configuration_schema=schema))
                wanted = agents.NewAgent(
                    name="a", provider_id=person.id, agent_type_id=kind.id, configuration={"a": "x", "b": "y"}
                )
                with pytest.raises(InvalidProperties) as refused:
                    await agents.create(work, wanted)
        finally:
            await store.close()
        assert [(fault.path, fault.message) for fault in refused.value.faults] == [
            ("configuration.a", "failed to store secret in vault"),
            ("configuration.b", "failed to store secret in vault"),
        ]

    asyncio.run(main())

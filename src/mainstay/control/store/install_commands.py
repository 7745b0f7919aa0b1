"""Install commands: one per agent at most, with the hash of its token."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table


class InstallCommandRow(Record, frozen=True, kw_only=True):
    agent_id: str
    provider_id: str
    # The agent's token in the command. None: it was deleted.
    token_id: str | None
    expires_at: datetime


INSTALL_COMMANDS = Table("install_commands", "install_command", InstallCommandRow)


async def find_by_hash(tx: Transaction, token_hash: str) -> InstallCommandRow | None:
    return await INSTALL_COMMANDS.first(tx, "hash = :hash", hash=token_hash)

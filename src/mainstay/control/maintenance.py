"""Maintenance commands: key rotation, backup, restore and doctor. Backup and doctor work beside a running server."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mainstay.control.operations.doctor import DoctorFinding, examine
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.secret_sealing import reseal_batch
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.serve import now, opened, prepare_data_directory
from mainstay.control.settings import BadSettings, ServerSettings
from mainstay.control.store.doctor import delete_secrets_without_owner
from mainstay.control.store.engine.backup import BadBackup, dump, load
from mainstay.control.store.engine.open import open_store
from mainstay.control.vault.keys import FILE, VARIABLE, load_keys
from mainstay.control.vault.seal import Vault, new_key
from mainstay.foundation.private_files import private_draft, write_private_file


@dataclass(frozen=True, slots=True)
class Rotation:
    resealed: int
    # The places of secrets that no key opens.
    unreadable: tuple[str, ...]


async def rotate_key(settings: ServerSettings, environment: Mapping[str, str]) -> Rotation:
    """Reseals every secret with the current key. Safe to interrupt: the old key stays in the file until no secret needs
    it."""
    path = settings.data_path / FILE
    from_file = VARIABLE not in environment
    async with opened(settings, environment, alone=from_file) as (store, tools):
        if tools.vault is None:
            raise BadSettings("there is no vault key to rotate")
        if from_file:
            old_keys = path.read_text(encoding="ascii").split()
            _write_keys(path, [new_key(), *old_keys])
        vault = Vault(load_keys(settings, environment))
        resealed = 0
        unreadable: list[str] = []
        after: str | None = ""
        while after is not None:
            async with store.transaction() as tx:
                batch = await reseal_batch(tx, vault, after)
            resealed, after = resealed + batch.resealed, batch.after
            unreadable += batch.unreadable
    if from_file and not unreadable:
        _write_keys(path, path.read_text(encoding="ascii").split()[:1])
    return Rotation(resealed, tuple(unreadable))


def _write_keys(path: Path, keys: list[str]) -> None:
    write_private_file(path, "".join(f"{key}\n" for key in keys).encode("ascii"), durable=True)


async def delete_lost_secrets(settings: ServerSettings) -> int:
    """Deletes secrets whose owner does not exist or has ended, which no command and no agent can read."""
    store = await open_store(settings.store_url)
    try:
        async with store.transaction() as tx:
            return await delete_secrets_without_owner(tx)
    finally:
        await store.close()


async def back_up(settings: ServerSettings, path: Path) -> None:
    """Writes a consistent snapshot, also while a server runs. The file appears only when it is complete."""
    store = await open_store(settings.store_url)
    try:
        with (
            private_draft(path, durable=True) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as compressed,
        ):
            async with store.reading() as tx:
                async for line in dump(tx):
                    compressed.write(line)
    finally:
        await store.close()


async def restore(settings: ServerSettings, path: Path) -> int:
    prepare_data_directory(settings.data_path)
    store = await open_store(settings.store_url)
    try:
        await store.migrate()
        with gzip.open(path) as lines:
            async with store.transaction() as tx:
                return await load(tx, lines)
    except (EOFError, gzip.BadGzipFile):
        raise BadBackup("the file is not a backup, or is truncated") from None
    finally:
        await store.close()


async def run_doctor(settings: ServerSettings) -> list[DoctorFinding]:
    store = await open_store(settings.store_url)
    try:
        async with store.reading() as tx:
            return await examine(UnitOfWork(tx, now(), OperationTools(Definitions(installed_rulebook()))))
    finally:
        await store.close()

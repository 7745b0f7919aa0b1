"""Maintenance commands: key rotation, lost keys, backup, restore, doctor and new admin tokens. Backup, doctor and admin
tokens work beside a running server."""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mainstay.control.operations.doctor import DoctorFinding, examine
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.secret_sealing import (
    check_key_of_newest,
    check_keys,
    reseal_batch,
    unreadable_secrets,
)
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.tokens import make_admin
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.serve import data_directory_lock, now, opened, prepare_data_directory
from mainstay.control.settings import BadSettings, ServerSettings
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.doctor import delete_secrets_without_owner
from mainstay.control.store.engine.backup import BadBackup, dump, load
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.migrations import pending_in
from mainstay.control.store.engine.open import connected_store
from mainstay.control.store.secrets import StoredSecret, discard, newest_key_id
from mainstay.control.store.services import SERVICES, ServiceRow
from mainstay.control.vault.keys import FILE, VARIABLE, find_vault, load_keys
from mainstay.control.vault.seal import Vault, new_key
from mainstay.foundation.private_files import private_draft, write_private_file
from mainstay.foundation.vault import VAULT_PREFIX


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
    # `opened` would create a missing database, and migrate one of an earlier release.
    async with _existing_store(settings):
        pass
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
    async with connected_store(settings.store_url) as store, store.transaction() as tx:
        return await delete_secrets_without_owner(tx)


async def back_up(settings: ServerSettings, path: Path) -> None:
    """Writes a consistent snapshot, also while a server runs. The file appears only when it is complete."""
    async with connected_store(settings.store_url) as store:
        with (
            private_draft(path, durable=True) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as compressed,
        ):
            async with store.reading() as tx:
                async for line in dump(tx):
                    compressed.write(line)


async def restore(settings: ServerSettings, path: Path) -> int:
    prepare_data_directory(settings.data_path)
    async with connected_store(settings.store_url) as store:
        await store.migrate()
        try:
            with gzip.open(path) as lines:
                async with store.transaction() as tx:
                    return await load(tx, lines)
        except (EOFError, gzip.BadGzipFile):
            raise BadBackup("the file is not a backup, or is truncated") from None


@asynccontextmanager
async def _existing_store(settings: ServerSettings) -> AsyncIterator[Store]:
    """The store of a database that this release serves. Migrates nothing: a server of an earlier release may be running."""
    if settings.is_embedded and not os.path.exists(settings.store_url.removeprefix("sqlite://")):
        raise BadSettings(f"there is no database in {settings.data_path}; use --data-dir or --database-url")
    async with connected_store(settings.store_url) as store:
        if await store.is_new():
            raise BadSettings(
                "the database is empty; the first start of a server creates its tables and an admin token"
            )
        waiting = await pending_in(store)
        if waiting:
            raise BadSettings(
                f"the database is of an earlier release and lacks {waiting[0]}"
                f"{f' and {len(waiting) - 1} more migrations' if waiting[1:] else ''}; this command does not migrate. Use the"
                " program of that release, or upgrade the database first: start a server of this release, or run"
                " `mainstay server migrate`"
            )
        yield store


async def write_admin_token(settings: ServerSettings, *, replace: bool) -> Path:
    """Creates an admin token in an existing database and writes it to the data directory. Returns the path.

    For operators who hold no admin token any more; `replace` an existing file."""
    path = settings.data_path / "admin.token"
    if os.path.lexists(path) and not replace:
        raise BadSettings(
            f"{path} exists; log in with it (`mainstay login URL --data-dir {settings.data_path}`), or replace it with --force"
        )
    async with _existing_store(settings) as store:
        prepare_data_directory(settings.data_path)
        async with store.transaction() as tx:
            work = UnitOfWork(tx, now(), OperationTools(Definitions(installed_rulebook())))
            value = await make_admin(work, "admin of `server admin-token`")
            # Before the commit: if the file cannot be written, there is no token.
            write_private_file(path, f"{value}\n".encode(), durable=True)
    return path


async def discard_secrets(
    settings: ServerSettings, environment: Mapping[str, str], confirm: Callable[[Sequence[str]], None]
) -> int:
    """Deletes the secrets that no key opens, and records an event for each. Returns how many.

    `confirm` gets them as text, and raises to keep them all. No server may run: one with the right key needs them."""
    if settings.vault == "off":
        raise BadSettings("the vault is off (MAINSTAY_VAULT=off), so no key is expected to open the secrets")
    vault = find_vault(settings, environment)
    async with _existing_store(settings) as store:
        prepare_data_directory(settings.data_path)
        with data_directory_lock(settings.data_path, alone=True):
            async with store.reading() as tx:
                lost = await _LostSecrets.read(tx, vault)
            if not lost.secrets:
                return 0
            confirm(lost.lines())
            async with store.transaction() as tx:
                work = UnitOfWork(tx, now(), OperationTools(Definitions(installed_rulebook())))
                await lost.discard(work)
    return len(lost.secrets)


@dataclass(frozen=True, slots=True)
class _LostSecrets:
    """Secrets that no key opens, and the rows of their owners; an owner may not exist any more."""

    secrets: list[StoredSecret]
    owners: Mapping[str, ServiceRow | AgentRow]

    @classmethod
    async def read(cls, tx: Transaction, vault: Vault | None) -> Self:
        found = await unreadable_secrets(tx, vault)
        ids = {kind: {each.owner.id for each in found if each.owner.kind == kind} for kind in ("service", "agent")}
        services = await SERVICES.many(tx, ids["service"])
        return cls(found, {**services, **await AGENTS.many(tx, ids["agent"])})

    def lines(self) -> list[str]:
        return sorted(f"{each.owner.kind} {self._name(each)}: {each.schema_path}" for each in self.secrets)

    def _name(self, secret: StoredSecret) -> str:
        owner = self.owners.get(secret.owner.id)
        return secret.owner.id if owner is None else f"{owner.name} ({owner.id})"

    async def discard(self, work: UnitOfWork) -> None:
        for secret in self.secrets:
            await discard(work.tx, secret)
            owner = self.owners.get(secret.owner.id)
            if owner is not None:
                await work.record_event(
                    "vault.discarded",
                    owner,
                    owner,
                    reference=f"{VAULT_PREFIX}{secret.reference}",
                    schemaPath=secret.schema_path,
                )


async def run_doctor(settings: ServerSettings, environment: Mapping[str, str]) -> list[DoctorFinding]:
    async with connected_store(settings.store_url) as store, store.reading() as tx:
        return [
            *await _check_vault_key(tx, settings, environment),
            *await examine(UnitOfWork(tx, now(), OperationTools(Definitions(installed_rulebook())))),
        ]


async def _check_vault_key(
    tx: Transaction, settings: ServerSettings, environment: Mapping[str, str]
) -> list[DoctorFinding]:
    """The check of a server's start, if there are secrets to open."""
    if settings.vault == "off" or await newest_key_id(tx) is None:
        return []
    try:
        vault = find_vault(settings, environment)
        await check_key_of_newest(tx, vault)
        await check_keys(tx, vault)
    except BadSettings as error:
        return [_key_finding(settings, environment, str(error))]
    except OSError as error:
        problem = f"cannot read {settings.data_path / FILE}: {error.strerror}; run this command as the server's user"
        return [_key_finding(settings, environment, problem)]
    return []


def _key_finding(settings: ServerSettings, environment: Mapping[str, str], problem: str) -> DoctorFinding:
    command = (
        f"read -rs {VARIABLE}; export {VARIABLE}  # the key of this database"
        if VARIABLE in environment
        else f"install -m 600 KEY-BACKUP {shlex.quote(str(settings.data_path / FILE))}"
    )
    message = f"{problem}. A server does not start with this key; run doctor with the environment of the server"
    return DoctorFinding("vault-key", "vault key", message, command)

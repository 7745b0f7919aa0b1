"""Maintenance commands: key rotation, backup, restore, doctor and new admin tokens. All but the rotation and the restore
work beside a running server."""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mainstay.control.operations.doctor import DoctorFinding, examine
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.secret_sealing import check_key_of_newest, check_keys, reseal_batch
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.tokens import make_admin
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.serve import now, opened, prepare_data_directory
from mainstay.control.settings import BadSettings, ServerSettings
from mainstay.control.store.doctor import delete_secrets_without_owner
from mainstay.control.store.engine.backup import BadBackup, dump, load
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.open import connected_store
from mainstay.control.store.secrets import newest_key_id
from mainstay.control.vault.keys import FILE, VARIABLE, find_vault, load_keys
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


async def write_admin_token(settings: ServerSettings, *, replace: bool) -> Path:
    """Creates an admin token in an existing database and writes it to the data directory. Returns the path.

    For operators who hold no admin token any more; `replace` an existing file."""
    path = settings.data_path / "admin.token"
    if os.path.lexists(path) and not replace:
        raise BadSettings(
            f"{path} exists; log in with it (`mainstay login URL --data-dir {settings.data_path}`), or replace it with --force"
        )
    if settings.is_embedded and not os.path.exists(settings.store_url.removeprefix("sqlite://")):
        raise BadSettings(f"there is no database in {settings.data_path}; use --data-dir or --database-url")
    async with connected_store(settings.store_url) as store:
        if await store.is_new():
            raise BadSettings("the database is empty; the first start of a server creates an admin token")
        await store.migrate()
        prepare_data_directory(settings.data_path)
        async with store.transaction() as tx:
            work = UnitOfWork(tx, now(), OperationTools(Definitions(installed_rulebook())))
            value = await make_admin(work, "admin of `server admin-token`")
            # Before the commit: if the file cannot be written, there is no token.
            write_private_file(path, f"{value}\n".encode(), durable=True)
    return path


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

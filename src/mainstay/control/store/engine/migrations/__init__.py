"""Numbered migrations, forward only. `0001_name.sql` is for both databases; `.sqlite.sql`, `.postgresql.sql` for one.
`.postgresql.optional.sql` may fail for want of an extension: it is skipped and tried again at the next start.

A line `-- Compatible since: NNNN` says that a release whose newest migration is NNNN or later works with the tables after
this one, too: it only adds tables, indexes, columns that are null or have a default, and triggers that fill its tables. The
database keeps the line, so that a release that does not know the migration can read it. Without the line, older releases
refuse to start."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.dialects import postgresql_definition

NUMBER_LENGTH = 4
# Databases of the first releases have no table of compatible migrations.
HAS_COMPATIBLE = {
    "sqlite": "SELECT 1 AS one FROM sqlite_master WHERE name = 'compatible_migrations'",
    "postgresql": "SELECT 1 AS one WHERE to_regclass('compatible_migrations') IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    script: str
    optional: bool = False

    @property
    def compatible_since(self) -> str | None:
        """The number of the oldest newest migration of a release that works with this one. None: no older release does."""
        found = _COMPATIBLE.search(self.script)
        return found.group(1) if found else None

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()


class ChangedMigration(Exception):
    """An applied migration has another checksum, so the tables may differ from what this release expects."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"migration {name} has changed since it was applied; use the release of this database, or a backup"
        )


class NewerDatabase(Exception):
    """The database has a migration that this release does not know, and that is not compatible with it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the database has migration {name}, which this release does not know and cannot work with; use a newer release"
        )


_COMPATIBLE = re.compile(r"^-- Compatible since: (\d{4})$", re.MULTILINE)
HISTORY = (
    "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_at TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS compatible_migrations (name TEXT PRIMARY KEY, since TEXT NOT NULL)",
)


def migrations(dialect: str) -> tuple[Migration, ...]:
    found = []
    for entry in sorted(files(__name__).iterdir(), key=lambda entry: entry.name):
        name, *kinds = entry.name.removesuffix(".sql").split(".")
        if not entry.name.endswith(".sql") or (kinds and dialect not in kinds):
            continue
        script = entry.read_text(encoding="utf-8")
        script = postgresql_definition(script) if dialect == "postgresql" else script
        found.append(Migration(name, script, optional="optional" in kinds))
    return tuple(found)


def pending(dialect: str, applied: Mapping[str, str], compatible: Mapping[str, str]) -> tuple[Migration, ...]:
    """The migrations still to run, given the names and checksums of the applied ones. `compatible`: since which number the
    applied ones are compatible with older releases."""
    known = migrations(dialect)
    newest = max(migration.name[:NUMBER_LENGTH] for migration in known)
    for name in sorted(applied.keys() - {migration.name for migration in known}):
        if name not in compatible or newest < compatible[name]:
            raise NewerDatabase(name)
    for migration in known:
        if applied.get(migration.name, migration.checksum) != migration.checksum:
            raise ChangedMigration(migration.name)
    return tuple(migration for migration in known if migration.name not in applied)


async def pending_in(store: Store) -> list[str]:
    """The names of the migrations that a start of this release would run. Changes nothing, and raises what a start raises.
    Without optional ones, which may never run."""
    async with store.reading() as tx:
        applied = {str(row["name"]): str(row["checksum"]) for row in await tx.fetch("SELECT * FROM migrations")}
        has_compatible = await tx.fetch(HAS_COMPATIBLE[store.dialect])
        rows = await tx.fetch("SELECT name, since FROM compatible_migrations") if has_compatible else []
    compatible = {str(row["name"]): str(row["since"]) for row in rows}
    return [each.name for each in pending(store.dialect, applied, compatible) if not each.optional]

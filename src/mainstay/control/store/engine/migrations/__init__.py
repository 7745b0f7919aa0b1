"""Numbered migrations, forward only. `0001_name.sql` is for both databases; `.sqlite.sql`, `.postgresql.sql` for one.
`.postgresql.optional.sql` may fail for want of an extension: it is skipped and tried again at the next start."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from mainstay.control.store.engine.dialects import postgresql_definition


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    script: str
    optional: bool = False

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
    def __init__(self, name: str) -> None:
        super().__init__(f"the database has migration {name}, which this release does not know; use a newer release")


HISTORY = """
CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_at TEXT NOT NULL)
"""


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


def pending(dialect: str, applied: dict[str, str]) -> tuple[Migration, ...]:
    """The migrations still to run, given the names and checksums of the applied ones."""
    known = migrations(dialect)
    for name in applied.keys() - {migration.name for migration in known}:
        raise NewerDatabase(name)
    for migration in known:
        if applied.get(migration.name, migration.checksum) != migration.checksum:
            raise ChangedMigration(migration.name)
    return tuple(migration for migration in known if migration.name not in applied)

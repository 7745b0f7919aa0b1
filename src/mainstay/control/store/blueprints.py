"""Blueprint bundles, stored by the digest of their bytes. A version of a name points to one bundle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainstay.control.domain.blueprints import BlueprintDefinition
from mainstay.control.store.engine.contract import Transaction, encode_json, fetch_column, fetch_value
from mainstay.control.store.engine.records import (
    MAX_DEPENDANTS,
    ForeignId,
    Record,
    Table,
    fold,
    to_microseconds,
    to_time,
)
from mainstay.control.store.jobs import ACTIVE_STATUSES


class BlueprintVersion(Record, frozen=True, kw_only=True):
    # The digest.
    id: ForeignId
    digest: str
    name: str
    version: str
    # None once the type is deleted.
    service_type_id: str | None = None
    # Whether new services get it.
    is_current: bool


# A view in the database: lists only.
BLUEPRINT_VERSIONS = Table("blueprint_versions", "blueprint", BlueprintVersion)


async def keep(tx: Transaction, digest: str, content: bytes, now: datetime) -> bool:
    """Stores the bundle; returns whether it is new."""
    inserted = await tx.execute(
        "INSERT INTO blueprints (digest, created_at, content) VALUES (:digest, :now, :content)"
        " ON CONFLICT (digest) DO NOTHING",
        digest=digest,
        now=to_microseconds(now),
        content=content,
    )
    return inserted > 0


async def assign_version(tx: Transaction, digest: str, definition: BlueprintDefinition, service_type_id: str) -> None:
    """Points the version to this bundle. A bundle that had it before stays, without a version, for services on it."""
    await tx.execute(
        "UPDATE blueprints SET version = NULL WHERE name = :name AND version = :version AND digest <> :digest",
        name=definition.name,
        version=definition.version,
        digest=digest,
    )
    await tx.execute(
        "UPDATE blueprints SET name = :name, name_folded = :folded, version = :version,"
        " service_type_id = :service_type_id, moves = :moves, movable = :movable WHERE digest = :digest",
        digest=digest,
        name=definition.name,
        folded=fold(definition.name),
        version=definition.version,
        service_type_id=service_type_id,
        moves=encode_json(definition.upgrades),
        movable=int(definition.movable),
    )


async def find_version(tx: Transaction, name: str, version: str) -> str | None:
    """The digest of this version's bundle."""
    statement = "SELECT digest FROM blueprints WHERE name = :name AND version = :version"
    return await fetch_value(tx, statement, name=name, version=version)


async def find_of_type(tx: Transaction, service_type_id: str, version: str) -> str | None:
    """The digest of this version for a service type. Of several names, the one of the current bundle comes first."""
    return await fetch_value(
        tx,
        "SELECT blueprints.digest FROM blueprints JOIN service_types ON service_types.id = blueprints.service_type_id"
        " LEFT JOIN blueprints AS current ON current.digest = service_types.blueprint_digest"
        " WHERE service_types.id = :id AND blueprints.version = :version"
        " ORDER BY CASE WHEN blueprints.name = current.name THEN 0 ELSE 1 END, blueprints.created_at DESC LIMIT 1",
        id=service_type_id,
        version=version,
    )


async def upgrade_target(tx: Transaction, service_type_id: str, action: str) -> str | None:
    """The digest of the type's current version, if this action upgrades a service to it (column `moves`)."""
    rows = await tx.fetch(
        "SELECT blueprints.digest, blueprints.moves FROM service_types"
        " JOIN blueprints ON blueprints.digest = service_types.blueprint_digest WHERE service_types.id = :id",
        id=service_type_id,
    )
    if not rows or rows[0]["moves"] is None:
        return None
    upgrades = msgspec.json.decode(rows[0]["moves"], type=list[str])
    return str(rows[0]["digest"]) if action in upgrades else None


async def is_movable(tx: Transaction, digest: str) -> bool:
    return bool(await fetch_value(tx, "SELECT movable FROM blueprints WHERE digest = :digest", digest=digest))


async def find(tx: Transaction, digest: str) -> bytes | None:
    return await fetch_value(tx, "SELECT content FROM blueprints WHERE digest = :digest", digest=digest)


async def find_served(tx: Transaction, digest: str, agent_id: str) -> bytes | None:
    """The bundle, if it belongs to a service type that the agent's type lists, or if a living service, an orphan or an
    active job of the agent names it."""
    return await fetch_value(
        tx,
        "SELECT content FROM blueprints WHERE digest = :digest AND ("
        "EXISTS (SELECT 1 FROM agents JOIN agent_type_service_types AS served"
        " ON served.agent_type_id = agents.agent_type_id"
        " JOIN service_types ON service_types.id = served.service_type_id WHERE agents.id = :agent_id"
        " AND (service_types.id = blueprints.service_type_id OR service_types.blueprint_digest = :digest))"
        " OR EXISTS (SELECT 1 FROM services WHERE agent_id = :agent_id AND (is_terminal = 0 OR orphan = 1)"
        " AND blueprint_digest = :digest)"
        " OR EXISTS (SELECT 1 FROM orphans WHERE agent_id = :agent_id AND closed_at IS NULL"
        " AND blueprint_digest = :digest)"
        " OR EXISTS (SELECT 1 FROM jobs WHERE agent_id = :agent_id AND blueprint_digest = :digest"
        f" AND status IN {ACTIVE_STATUSES}))",
        digest=digest,
        agent_id=agent_id,
    )


async def find_version_row(tx: Transaction, digest: str) -> BlueprintVersion | None:
    """The bundle without its content, also one whose version another bundle has now."""
    rows = await tx.fetch(
        "SELECT digest, created_at, name, version, service_type_id FROM blueprints WHERE digest = :digest",
        digest=digest,
    )
    if not rows:
        return None
    row = rows[0]
    at = to_time(row["created_at"])
    return BlueprintVersion(
        id=digest,
        created_at=at,
        updated_at=at,
        digest=digest,
        name=row["name"] or "",
        version=row["version"] or "",
        service_type_id=row["service_type_id"],
        is_current=False,
    )


async def users_of(tx: Transaction, digest: str) -> dict[str, list[str]]:
    """The ids of what needs the bundle: types whose new services get it, living services, orphans and active jobs."""
    queries = {
        "serviceTypes": "SELECT id FROM service_types WHERE blueprint_digest = :digest",
        "services": "SELECT id FROM services WHERE blueprint_digest = :digest AND is_terminal = 0",
        "orphans": "SELECT orphans.id FROM orphans JOIN services ON services.id = orphans.service_id"
        " WHERE services.blueprint_digest = :digest AND orphans.closed_at IS NULL",
        "jobs": f"SELECT id FROM jobs WHERE blueprint_digest = :digest AND status IN {ACTIVE_STATUSES}",
    }
    return {
        noun: await fetch_column(tx, f"{query} LIMIT {MAX_DEPENDANTS}", digest=digest)
        for noun, query in queries.items()
    }


async def delete(tx: Transaction, digest: str) -> None:
    await tx.execute("DELETE FROM blueprints WHERE digest = :digest", digest=digest)


async def versions_of(tx: Transaction, digests: Sequence[str]) -> dict[str, str]:
    """Digest → version, for bundles that have one."""
    rows = await tx.fetch(
        f"SELECT digest, version FROM blueprints WHERE version IS NOT NULL"
        f" AND digest IN (SELECT value FROM {tx.json_items}(:digests))",
        digests=encode_json(digests),
    )
    return {row["digest"]: row["version"] for row in rows}

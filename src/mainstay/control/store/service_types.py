"""Service types: property schema, lifecycle and current blueprint of what can be ordered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction, encode_json
from mainstay.control.store.engine.paging import SqlCondition, joined_conditions, own_rows
from mainstay.control.store.engine.records import Record, Table, to_time
from mainstay.control.store.services import LIVING_ONLY, SERVICES


class ServiceTypeRow(Record, frozen=True, kw_only=True):
    name: str
    # None: free-form properties, the built-in lifecycle. Stored exactly as written.
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None
    # The blueprint of new services; None: none was pushed.
    blueprint_digest: str | None = None


# Limit of the count of services of a type: an exact number would read the whole table.
MOST_COUNTED = 10_000
SERVICE_TYPES = Table("service_types", "service_type", ServiceTypeRow)


class TypeVersion(msgspec.Struct, frozen=True):
    """A service type without its definition, which is large and usually cached."""

    name: str
    updated_at: datetime
    blueprint_digest: str | None
    # The version of that bundle. None: the bundle has none.
    blueprint_version: str | None


VERSION_COLUMNS = (
    "service_types.name AS type_name, service_types.updated_at AS type_updated_at, service_types.blueprint_digest,"
    " (SELECT version FROM blueprints WHERE digest = service_types.blueprint_digest) AS blueprint_version"
)


async def find_version(tx: Transaction, type_id: str, *, hold: bool = False) -> TypeVersion | None:
    """With `hold`, a change of the type waits for the commit. It then examines the new service too."""
    ending = tx.for_key_share if hold else ""
    rows = await tx.fetch(f"SELECT {VERSION_COLUMNS} FROM service_types WHERE id = :id{ending}", id=type_id)
    return decode_version(rows[0]) if rows else None


def decode_version(row: Row) -> TypeVersion:
    """From a row with the `VERSION_COLUMNS`."""
    return TypeVersion(
        row["type_name"], to_time(row["type_updated_at"]), row["blueprint_digest"], row["blueprint_version"]
    )


class TypeUse(msgspec.Struct, frozen=True):
    """The living services of a type in one state and on one bundle."""

    status: str
    blueprint_digest: str | None
    services: int


class BundleVersion(msgspec.Struct, frozen=True):
    digest: str
    version: str | None
    created_at: datetime


async def count_services(tx: Transaction, type_id: str, scope: Sequence[SqlCondition]) -> list[TypeUse]:
    """Counts the newest MOST_COUNTED services that the caller may read, by status and bundle."""
    of_type = SqlCondition("service_type_id = :type_id", unindexed="(service_type_id || '') = :type_id")
    conditions = [*scope, of_type, LIVING_ONLY]
    _, parameters = joined_conditions(conditions)
    newest = f"ORDER BY created_at DESC, id DESC LIMIT {MOST_COUNTED}"
    found = own_rows(SERVICES, SERVICES.name, conditions, "id, created_at, status, blueprint_digest", newest)
    rows = await tx.fetch(
        f"SELECT status, blueprint_digest, count(*) AS number FROM (SELECT * FROM ({found}) AS found {newest}) AS newest"
        " GROUP BY status, blueprint_digest ORDER BY number DESC LIMIT 1000",
        slow=True,
        **(parameters | {"type_id": type_id}),
    )
    return [TypeUse(row["status"], row["blueprint_digest"], row["number"]) for row in rows]


async def bundle_versions(tx: Transaction, type_id: str, limit: int) -> list[BundleVersion]:
    """The bundles that were pushed for the type, newest first. A version of None points to another bundle now."""
    rows = await tx.fetch(
        "SELECT digest, version, created_at FROM blueprints WHERE service_type_id = :type_id"
        f" ORDER BY created_at DESC, digest LIMIT {int(limit)}",
        type_id=type_id,
    )
    return [BundleVersion(row["digest"], row["version"], to_time(row["created_at"])) for row in rows]


async def count_by_type(tx: Transaction, type_ids: Sequence[str], scope: Sequence[SqlCondition]) -> dict[str, int]:
    """Living services of each type, up to MOST_COUNTED."""
    _, parameters = joined_conditions(scope)
    if scope:
        # One pass over the services of the caller; the index of the type leads to those of others.
        living = own_rows(SERVICES, SERVICES.name, [*scope, LIVING_ONLY], "id, service_type_id", "")
        numbers = (
            f"SELECT service_type_id AS id, count(*) AS number FROM ({living}) AS living GROUP BY service_type_id"
        )
        rows = await tx.fetch(numbers, slow=True, **parameters)
        found = {row["id"]: min(row["number"], MOST_COUNTED) for row in rows}
        return {type_id: found.get(type_id, 0) for type_id in type_ids}
    rows = await tx.fetch(
        "SELECT id, (SELECT count(*) FROM (SELECT 1 AS one FROM services WHERE service_type_id = service_types.id"
        f" AND is_terminal = 0 LIMIT {MOST_COUNTED}) AS living) AS number FROM service_types"
        f" WHERE id IN (SELECT value FROM {tx.json_items}(:ids))",
        ids=encode_json(type_ids),
    )
    return {row["id"]: row["number"] for row in rows}

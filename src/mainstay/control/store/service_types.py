"""Service types: property schema, lifecycle and current blueprint of what can be ordered."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table, to_time


class ServiceTypeRow(Record, frozen=True, kw_only=True):
    name: str
    # None: free-form properties, the built-in lifecycle. Stored exactly as written.
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None
    # The blueprint of new services; None: none was pushed.
    blueprint_digest: str | None = None


SERVICE_TYPES = Table("service_types", "service_type", ServiceTypeRow)


class TypeVersion(msgspec.Struct, frozen=True):
    """A service type without its definition, which is large and usually cached."""

    name: str
    updated_at: datetime
    blueprint_digest: str | None


async def find_version(tx: Transaction, type_id: str, *, hold: bool = False) -> TypeVersion | None:
    """With `hold`, a change of the type waits for the commit. It then examines the new service too."""
    ending = tx.for_key_share if hold else ""
    rows = await tx.fetch(
        f"SELECT name, updated_at, blueprint_digest FROM service_types WHERE id = :id{ending}", id=type_id
    )
    if not rows:
        return None
    digest = rows[0]["blueprint_digest"]
    return TypeVersion(
        str(rows[0]["name"]), to_time(int(str(rows[0]["updated_at"]))), None if digest is None else str(digest)
    )

"""Service types: what can be ordered, and the life of what was."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.contract import Transaction
from mainstay.control.store.records import Record, Table, to_time


class ServiceType(Record, frozen=True, kw_only=True):
    name: str
    # None is free-form, or the built-in lifecycle. Kept exactly as written.
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None
    # What new services get; None where nothing was pushed.
    blueprint_digest: str | None = None


SERVICE_TYPES = Table("service_types", "service_type", ServiceType)


async def find_version(tx: Transaction, type_id: str) -> tuple[str, datetime] | None:
    """The name, and when it was last written; its definition may be known already and is large."""
    rows = await tx.fetch("SELECT name, updated_at FROM service_types WHERE id = :id", id=type_id)
    return (str(rows[0]["name"]), to_time(int(str(rows[0]["updated_at"])))) if rows else None

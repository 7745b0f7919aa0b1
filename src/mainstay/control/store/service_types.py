"""Service types: what can be ordered, and the life of what was."""

from __future__ import annotations

from mainstay.control.store.records import Record, Table


class ServiceType(Record, frozen=True, kw_only=True):
    name: str
    # None is free-form, or the built-in lifecycle. Kept exactly as written.
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None
    # What new services get; None where nothing was pushed.
    blueprint_digest: str | None = None


SERVICE_TYPES = Table("service_types", "service_type", ServiceType)

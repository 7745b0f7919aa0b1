"""Service groups: a consumer's services that belong together."""

from __future__ import annotations

from mainstay.control.store.engine.records import Record, Table


class ServiceGroup(Record, frozen=True, kw_only=True):
    name: str
    consumer_id: str


SERVICE_GROUPS = Table("service_groups", "service_group", ServiceGroup)

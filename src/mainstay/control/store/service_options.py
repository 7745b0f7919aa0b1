"""Service options: the values that a provider offers for a property, by option type."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from mainstay.control.store.engine.contract import Transaction, placeholders
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import Record, Table
from mainstay.nouns import service_option_types, service_options


@row_of(service_option_types.NOUN)
class ServiceOptionType(Record, frozen=True, kw_only=True):
    name: str
    type: str
    description: str


@row_of(service_options.NOUN)
class ServiceOption(Record, frozen=True, kw_only=True):
    provider_id: str
    service_option_type_id: str
    name: str
    value: object
    enabled: bool
    display_order: int


# SQLite allows 32,766 parameters in a statement.
MAX_PROVIDERS = 10_000
MAX_OPTIONS = 10_000

SERVICE_OPTION_TYPES = Table("service_option_types", "service_option_type", ServiceOptionType)
SERVICE_OPTIONS = Table("service_options", "service_option", ServiceOption)


async def enabled_values(tx: Transaction, option_type_id: str, provider_id: str) -> tuple[object, ...]:
    found = await SERVICE_OPTIONS.where(
        tx,
        "provider_id = :provider_id AND service_option_type_id = :type_id AND enabled = 1"
        " ORDER BY display_order, created_at, id",
        provider_id=provider_id,
        type_id=option_type_id,
    )
    return tuple(option.value for option in found)


async def enabled_options(tx: Transaction, provider_ids: AbstractSet[str]) -> list[ServiceOption]:
    """The enabled options of these providers, at most 10,000, in one query."""
    listed, marks = placeholders(sorted(provider_ids)[:MAX_PROVIDERS])
    if not marks:
        return []
    return await SERVICE_OPTIONS.where(
        tx,
        f"enabled = 1 AND provider_id IN {listed}"
        f" ORDER BY provider_id, display_order, created_at, id LIMIT {MAX_OPTIONS}",
        **marks,
    )

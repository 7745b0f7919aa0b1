"""Pool sets, pools and pool values. Constraints of the tables ensure that a value belongs to one service at most."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table, to_microseconds

PoolPropertyType = Literal["string", "integer", "number", "boolean", "json"]
GeneratorType = Literal["list", "subnet"]
ADDRESS_BYTES = 16


class ServicePoolSet(Record, frozen=True, kw_only=True):
    name: str
    provider_id: str


class ServicePool(Record, frozen=True, kw_only=True):
    name: str
    type: str
    property_type: PoolPropertyType
    generator_type: GeneratorType
    generator_config: dict[str, object] | None = None
    service_pool_set_id: str
    provider_id: str


class ServicePoolValue(Record, frozen=True, kw_only=True):
    name: str
    value: object
    service_pool_id: str
    provider_id: str
    # None: the value is free.
    service_id: str | None = None
    property_name: str | None = None
    allocated_at: datetime | None = None


SERVICE_POOL_SETS = Table("service_pool_sets", "service_pool_set", ServicePoolSet)
SERVICE_POOLS = Table("service_pools", "service_pool", ServicePool)
SERVICE_POOL_VALUES = Table("service_pool_values", "service_pool_value", ServicePoolValue)


async def find_pool(tx: Transaction, pool_set_id: str, pool_type: str) -> ServicePool | None:
    rows = await tx.fetch(
        f"SELECT {SERVICE_POOLS.select()} FROM service_pools WHERE service_pool_set_id = :set_id AND type = :type",
        set_id=pool_set_id,
        type=pool_type,
    )
    return SERVICE_POOLS.decode(rows[0]) if rows else None


async def take_listed(
    tx: Transaction, pool_id: str, service_id: str, path: str, now: datetime, value_key: str | None
) -> ServicePoolValue | None:
    """Allocates the oldest free value, or the one with this key, in one guarded UPDATE. None: no value is free."""
    wanted = "" if value_key is None else " AND value_key = :value_key"
    rows = await tx.fetch(
        "UPDATE service_pool_values SET service_id = :service_id, property_name = :path, allocated_at = :now,"
        " updated_at = :now WHERE id = (SELECT id FROM service_pool_values WHERE service_pool_id = :pool_id"
        f" AND service_id IS NULL{wanted} ORDER BY created_at, id LIMIT 1{tx.skip_locked})"
        f" AND service_id IS NULL RETURNING {SERVICE_POOL_VALUES.select()}",
        service_id=service_id,
        path=path,
        now=to_microseconds(now),
        pool_id=pool_id,
        value_key=value_key,
    )
    return SERVICE_POOL_VALUES.decode(rows[0]) if rows else None


async def values_of_service(tx: Transaction, service_id: str) -> list[ServicePoolValue]:
    return await SERVICE_POOL_VALUES.all_by(tx, "service_id", service_id, lock=True, limit=10_000)


async def free_value(tx: Transaction, value_id: str, now: datetime) -> None:
    await tx.execute(
        "UPDATE service_pool_values SET service_id = NULL, property_name = NULL, allocated_at = NULL,"
        " updated_at = :now WHERE id = :id",
        id=value_id,
        now=to_microseconds(now),
    )


def _address_bytes(number: int) -> bytes:
    return number.to_bytes(ADDRESS_BYTES, "big")


async def range_holding(tx: Transaction, pool_id: str, number: int | None) -> tuple[int, int] | None:
    """The free range that contains this address; without an address, the lowest free range."""
    inside = "" if number is None else " AND first_address <= :address"
    direction = "ASC" if number is None else "DESC"
    rows = await tx.fetch(
        "SELECT first_address, last_address FROM service_pool_ranges WHERE service_pool_id = :pool_id"
        f"{inside} ORDER BY first_address {direction} LIMIT 1",
        pool_id=pool_id,
        address=None if number is None else _address_bytes(number),
    )
    if not rows:
        return None
    first, last = (int.from_bytes(bytes(rows[0][name]), "big") for name in ("first_address", "last_address"))  # type: ignore[call-overload]
    return (first, last) if number is None or number <= last else None


async def remove_range(tx: Transaction, pool_id: str, first: int) -> None:
    await tx.execute(
        "DELETE FROM service_pool_ranges WHERE service_pool_id = :pool_id AND first_address = :first",
        pool_id=pool_id,
        first=_address_bytes(first),
    )


async def add_range(tx: Transaction, pool_id: str, first: int, last: int) -> None:
    if first <= last:
        await tx.execute(
            "INSERT INTO service_pool_ranges (service_pool_id, first_address, last_address)"
            " VALUES (:pool_id, :first, :last)",
            pool_id=pool_id,
            first=_address_bytes(first),
            last=_address_bytes(last),
        )


async def range_starting(tx: Transaction, pool_id: str, first: int) -> int | None:
    """The last address of the free range that starts at `first`."""
    rows = await tx.fetch(
        "SELECT last_address FROM service_pool_ranges WHERE service_pool_id = :pool_id AND first_address = :first",
        pool_id=pool_id,
        first=_address_bytes(first),
    )
    return int.from_bytes(bytes(rows[0]["last_address"]), "big") if rows else None  # type: ignore[call-overload]


async def clear_ranges(tx: Transaction, pool_id: str) -> None:
    await tx.execute("DELETE FROM service_pool_ranges WHERE service_pool_id = :pool_id", pool_id=pool_id)


async def count_values(tx: Transaction, pool_id: str) -> tuple[int, int]:
    """(total, allocated)."""
    rows = await tx.fetch(
        "SELECT count(*) AS total, count(service_id) AS allocated FROM service_pool_values"
        " WHERE service_pool_id = :pool_id",
        pool_id=pool_id,
    )
    return int(str(rows[0]["total"])), int(str(rows[0]["allocated"]))


async def holding_service_ids(tx: Transaction, pool_id: str) -> list[str]:
    """Some of the services that hold values of the pool."""
    rows = await tx.fetch(
        "SELECT DISTINCT service_id FROM service_pool_values"
        " WHERE service_pool_id = :pool_id AND service_id IS NOT NULL LIMIT 10",
        pool_id=pool_id,
    )
    return [str(row["service_id"]) for row in rows]

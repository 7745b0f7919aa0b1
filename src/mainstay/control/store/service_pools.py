"""Pool sets, pools and pool values. Constraints of the tables ensure that a value belongs to one service at most."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainstay.control.store.engine.contract import Transaction, encode_json, fetch_column, fetch_value
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.list_pools import ListedValues
from mainstay.nouns import service_pool_sets, service_pools

ADDRESS_BYTES = 16


@row_of(service_pool_sets.NOUN)
class ServicePoolSet(Record, frozen=True, kw_only=True):
    name: str
    provider_id: str


@row_of(service_pools.NOUN)
class ServicePool(Record, frozen=True, kw_only=True):
    name: str
    type: str
    property_type: str
    generator_type: str
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
SERVICE_VALUES = ListedValues(SERVICE_POOL_VALUES, "service_pool_id", "service_id", "services")
count_values, values_with_holders = SERVICE_VALUES.count, SERVICE_VALUES.with_holders


async def held_by(tx: Transaction, service_id: str) -> list[ServicePoolValue]:
    """The values of the service, locked; not those that its orphans on other hosts hold."""
    return await _held_values(tx, "service_id = :id AND orphan_id IS NULL", service_id)


async def held_by_orphan(tx: Transaction, orphan_id: str) -> list[ServicePoolValue]:
    return await _held_values(tx, "orphan_id = :id", orphan_id)


async def _held_values(tx: Transaction, condition: str, holder_id: str) -> list[ServicePoolValue]:
    return await SERVICE_POOL_VALUES.where(
        tx, f"{condition} ORDER BY created_at, id LIMIT 10000{tx.for_update}", id=holder_id
    )


async def give_to_orphan(tx: Transaction, value_ids: Sequence[str], orphan_id: str | None) -> None:
    """None: no orphan holds them."""
    for value_id in value_ids:
        await tx.execute(
            "UPDATE service_pool_values SET orphan_id = :orphan_id WHERE id = :id", id=value_id, orphan_id=orphan_id
        )


async def find_pool(tx: Transaction, pool_set_id: str, pool_type: str) -> ServicePool | None:
    return await SERVICE_POOLS.first(
        tx, "service_pool_set_id = :set_id AND type = :type", set_id=pool_set_id, type=pool_type
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
    first, last = (int.from_bytes(rows[0][name], "big") for name in ("first_address", "last_address"))
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
    address = await fetch_value(
        tx,
        "SELECT last_address FROM service_pool_ranges WHERE service_pool_id = :pool_id AND first_address = :first",
        pool_id=pool_id,
        first=_address_bytes(first),
    )
    return None if address is None else int.from_bytes(address, "big")


async def clear_ranges(tx: Transaction, pool_id: str) -> None:
    await tx.execute("DELETE FROM service_pool_ranges WHERE service_pool_id = :pool_id", pool_id=pool_id)


async def count_many(tx: Transaction, pool_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """(total, allocated) of each pool."""
    rows = await tx.fetch(
        "SELECT service_pool_id, count(*) AS total, count(service_id) AS allocated FROM service_pool_values"
        f" WHERE service_pool_id IN (SELECT value FROM {tx.json_items}(:ids)) GROUP BY service_pool_id",
        ids=encode_json(pool_ids),
    )
    return {row["service_pool_id"]: (row["total"], row["allocated"]) for row in rows}


async def find_pools_with_room(
    tx: Transaction, pool_set_ids: Sequence[str], pool_types: Sequence[str], most: int
) -> list[tuple[ServicePool, int]]:
    """The pools of these types, each with its number of free values, counted up to `most`. Of subnets: of free ranges."""
    rows = await tx.fetch(
        f"SELECT {SERVICE_POOLS.select('service_pools')}, CASE WHEN generator_type = 'list' THEN"
        " (SELECT count(*) FROM (SELECT 1 AS one FROM service_pool_values AS item WHERE item.service_pool_id"
        " = service_pools.id AND item.service_id IS NULL LIMIT :most) AS free_values) ELSE"
        " (SELECT count(*) FROM (SELECT 1 AS one FROM service_pool_ranges AS item WHERE item.service_pool_id"
        " = service_pools.id LIMIT :most) AS free_ranges) END AS free FROM service_pools"
        f" WHERE service_pool_set_id IN (SELECT value FROM {tx.json_items}(:sets))"
        f" AND type IN (SELECT value FROM {tx.json_items}(:types))",
        sets=encode_json(pool_set_ids),
        types=encode_json(pool_types),
        most=most,
    )
    return [(SERVICE_POOLS.decode(row), row["free"]) for row in rows]


async def find_with_free_value(tx: Transaction, pool_ids: Sequence[str], value_key: str) -> set[str]:
    """Those of the list pools in which this value is free."""
    return set(
        await fetch_column(
            tx,
            "SELECT service_pool_id FROM service_pool_values WHERE service_id IS NULL AND value_key = :value_key"
            f" AND service_pool_id IN (SELECT value FROM {tx.json_items}(:ids))",
            ids=encode_json(pool_ids),
            value_key=value_key,
        )
    )


async def count_free_addresses(tx: Transaction, pool_id: str, most: int) -> int:
    """Counts up to `most`."""
    rows = await tx.fetch(
        "SELECT first_address, last_address FROM service_pool_ranges WHERE service_pool_id = :pool_id"
        f" ORDER BY first_address LIMIT {int(most)}",
        pool_id=pool_id,
    )
    ranges = [[int.from_bytes(row[name], "big") for name in ("first_address", "last_address")] for row in rows]
    return min(most, sum(last - first + 1 for first, last in ranges))

"""Invariants of the whole database while no write is in progress. Each violation is one line."""

from __future__ import annotations

import asyncio
import ipaddress

import msgspec

from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.pool_allocation import parse_subnet
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.service_pools import SERVICE_POOLS
from mainstay.control.store.service_types import SERVICE_TYPES

QUERIES = {
    "two active jobs of one service": (
        "SELECT service_id AS what FROM jobs WHERE status IN ('Pending', 'Processing') GROUP BY service_id"
        " HAVING count(*) > 1"
    ),
    "a pool value that belongs to a terminal service": (
        "SELECT service_pool_values.id AS what FROM service_pool_values JOIN services"
        " ON services.id = service_pool_values.service_id WHERE services.is_terminal = 1 AND services.orphan = 0"
    ),
    "a duplicate pool value": (
        "SELECT value_key AS what FROM service_pool_values GROUP BY service_pool_id, value_key HAVING count(*) > 1"
    ),
    "a secret without a living owner": (
        "SELECT reference AS what FROM vault_secrets WHERE owner_kind = 'service' AND NOT EXISTS"
        " (SELECT 1 FROM services WHERE services.id = vault_secrets.owner_id"
        " AND (services.is_terminal = 0 OR services.orphan = 1))"
    ),
    "an orphan flag without an open orphan, or the reverse": (
        "SELECT services.id AS what FROM services WHERE services.orphan <> (CASE WHEN EXISTS (SELECT 1 FROM orphans"
        " WHERE orphans.service_id = services.id AND orphans.closed_at IS NULL) THEN 1 ELSE 0 END)"
    ),
    "a claimed service that ended by force without an orphan": (
        "SELECT services.id AS what FROM services JOIN jobs ON jobs.service_id = services.id AND jobs.was_claimed = 1"
        " JOIN events ON events.entity_id = services.id AND events.type = 'service.transitioned'"
        " AND events.properties LIKE '%\"forced\":true%' WHERE NOT EXISTS (SELECT 1 FROM orphans"
        " WHERE orphans.service_id = services.id)"
    ),
    "a pool value of an orphan that is closed": (
        "SELECT service_pool_values.id AS what FROM service_pool_values WHERE orphan_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM orphans WHERE orphans.id = service_pool_values.orphan_id AND orphans.closed_at IS NULL)"
    ),
    "two pool values for one property of an idle service": (
        "SELECT service_id AS what FROM service_pool_values WHERE service_id IS NOT NULL AND orphan_id IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM services WHERE services.id = service_id AND services.is_terminal = 1)"
        " AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.service_id = service_pool_values.service_id"
        " AND jobs.status IN ('Pending', 'Processing')) GROUP BY service_id, property_name HAVING count(*) > 1"
    ),
    "a secret that a closed orphan holds": (
        "SELECT reference AS what FROM orphan_secrets JOIN orphans ON orphans.id = orphan_secrets.orphan_id"
        " WHERE orphans.closed_at IS NOT NULL"
    ),
    "an item of a roll-out that runs without a job": (
        "SELECT service_id AS what FROM rollout_items WHERE status = 'Running' AND job_id IS NULL"
    ),
    "a terminal service with an active job": (
        "SELECT services.id AS what FROM services JOIN jobs ON jobs.service_id = services.id"
        " WHERE services.is_terminal = 1 AND jobs.status IN ('Pending', 'Processing')"
    ),
    "a service without a job": (
        "SELECT services.id AS what FROM services WHERE NOT EXISTS"
        " (SELECT 1 FROM jobs WHERE jobs.service_id = services.id)"
    ),
    "a service without an event service.created": (
        "SELECT services.id AS what FROM services WHERE NOT EXISTS (SELECT 1 FROM events"
        " WHERE events.entity_id = services.id AND events.type = 'service.created')"
    ),
    "a job without an event job.created": (
        "SELECT jobs.id AS what FROM jobs WHERE NOT EXISTS (SELECT 1 FROM events"
        " WHERE events.entity_id = jobs.id AND events.type = 'job.created')"
    ),
    "a gap in the numbers of events": (
        "SELECT max(sequence_number) AS what FROM events HAVING max(sequence_number) <> count(sequence_number)"
    ),
    "a finished job without completed_at": (
        "SELECT id AS what FROM jobs WHERE status IN ('Completed', 'Failed') AND completed_at IS NULL"
    ),
}


def violations(database_url: str) -> list[str]:
    return asyncio.run(_examine(database_url))


async def _examine(database_url: str) -> list[str]:
    store = await open_store(database_url)
    try:
        async with store.reading() as tx:
            found = [
                f"{invariant}: {row['what']}" for invariant, query in QUERIES.items() for row in await tx.fetch(query)
            ]
            return [*found, *await _services(tx), *await _pools(tx)]
    finally:
        await store.close()


def _references(value: object) -> set[str]:
    if isinstance(value, str):
        return {value.removeprefix("vault://")} if value.startswith("vault://") else set()
    if isinstance(value, dict):
        return set().union(*map(_references, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(_references, value)) if value else set()
    return set()


async def _services(tx: Transaction) -> list[str]:
    """Services are in a state of their lifecycle, every reference has its secret, and every secret its reference."""
    definitions = Definitions(installed_rulebook())
    lifecycles: dict[str, Lifecycle] = {}
    found: list[str] = []
    used: set[str] = set()
    known = {str(row["reference"]) for row in await tx.fetch("SELECT reference FROM vault_secrets")}
    for row in await tx.fetch("SELECT id, status, is_terminal, properties, service_type_id FROM services"):
        type_id = str(row["service_type_id"])
        if type_id not in lifecycles:
            kind = await SERVICE_TYPES.find(tx, type_id)
            assert kind is not None
            lifecycles[type_id] = definitions.of_service_type(kind).lifecycle
        if str(row["status"]) not in lifecycles[type_id].states:
            found.append(f"unknown state: {row['id']} {row['status']}")
        if (str(row["status"]) in lifecycles[type_id].terminal_states) != bool(row["is_terminal"]):
            found.append(f"is_terminal does not match the state: {row['id']}")
        used |= _references(msgspec.json.decode(str(row["properties"])))
    for row in await tx.fetch(
        "SELECT runs.new_secrets, runs.properties FROM runs JOIN jobs ON jobs.run_id = runs.id"
        " AND jobs.status IN ('Pending', 'Processing')"
    ):
        used |= _references(msgspec.json.decode(str(row["new_secrets"])))
        used |= _references(msgspec.json.decode(str(row["properties"]))) if row["properties"] else set()
    for row in await tx.fetch("SELECT snapshot FROM orphans WHERE snapshot IS NOT NULL AND closed_at IS NULL"):
        used |= _references(msgspec.json.decode(str(row["snapshot"])))
    agents = await tx.fetch("SELECT configuration FROM agents WHERE configuration IS NOT NULL")
    used |= {each for row in agents for each in _references(msgspec.json.decode(str(row["configuration"])))}
    found += [f"a reference to a missing secret: {each}" for each in used - known]
    return [*found, *(f"a secret without a reference: {each}" for each in known - used)]


async def _pools(tx: Transaction) -> list[str]:
    """Free ranges and allocated addresses cover each network exactly."""
    found: list[str] = []
    for row in await tx.fetch(f"SELECT {SERVICE_POOLS.select()} FROM service_pools WHERE generator_type = 'subnet'"):
        pool = SERVICE_POOLS.decode(row)
        subnet = parse_subnet(pool.generator_config)
        ranges = await tx.fetch(
            "SELECT first_address, last_address FROM service_pool_ranges WHERE service_pool_id = :id"
            " ORDER BY first_address",
            id=pool.id,
        )
        spans = [
            (int.from_bytes(bytes(each["first_address"])), int.from_bytes(bytes(each["last_address"])))
            for each in ranges
        ]
        values = await tx.fetch("SELECT name FROM service_pool_values WHERE service_pool_id = :id", id=pool.id)
        spans += [(int(ipaddress.ip_address(str(each["name"]))),) * 2 for each in values]
        following = subnet.first
        for first, last in sorted(spans):
            if first != following:
                found.append(f"pool {pool.id}: expected {following}, found {first}")
            following = last + 1
        if following != subnet.last + 1:
            found.append(f"pool {pool.id}: ends at {following}")
    return found

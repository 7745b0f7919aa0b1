"""Services, their references to each other and their state history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mainstay.control.domain.conditions import IN_SYNC, NOT_REPORTING, REPAIR_DOES_NOT_HOLD
from mainstay.control.store.engine.contract import (
    Row,
    Transaction,
    encode_json,
    fetch_column,
    fetch_value,
    literals,
    placeholders,
)
from mainstay.control.store.engine.paging import SqlCondition, joined_conditions
from mainstay.control.store.engine.records import MAX_DEPENDANTS, ForeignId, Record, Table, to_microseconds, to_time
from mainstay.control.store.jobs import ACTIVE_STATUSES


class ServiceRow(Record, frozen=True, kw_only=True):
    name: str
    status: str
    properties: dict[str, object]
    agent_instance_id: ForeignId | None = None
    agent_instance_data: object | None = None
    provider_id: str
    consumer_id: str
    group_id: str
    agent_id: str
    service_type_id: str
    conditions: list[dict[str, object]]
    blueprint_digest: str | None = None
    # An agent owes a clean-up: after a forced delete its own, after a move one that it left or did not reach.
    orphan: bool = False
    version: int


SERVICES = Table(
    "services",
    "service",
    ServiceRow,
    name_index="service_names",
    owner_indexes=("provider_id status", "consumer_id status", "group_id created_at", "agent_id created_at"),
    single_owner=("group_id", "agent_id"),
)
LIVING_ONLY = SqlCondition("is_terminal = 0", unindexed="is_terminal + 0 = 0")
ENDED_ONLY = SqlCondition("is_terminal = 1", unindexed="is_terminal + 0 = 1")
# Services whose agent reports nothing: what is stored of them may not be true any more.
_NOT_REPORTED = f"agent_id IN (SELECT id FROM agents WHERE status IN {literals(NOT_REPORTING)})"
# The same for one service after the other: a list of a participant must not start from the agents of others.
_IS_NOT_REPORTED = (
    "(SELECT count(*) FROM agents WHERE agents.id = services.agent_id"
    f" AND agents.status IN {literals(NOT_REPORTING)}) = 1"
)
_UNKNOWN = ("in_sync = 'Unknown'", f"(in_sync IS NOT NULL AND {_NOT_REPORTED})")
_SYNC = "(in_sync || '')"
# By the shown status of the condition `InSync`.
IN_SYNC_ONLY = {
    **{
        each: SqlCondition(
            f"(in_sync = '{each}' AND NOT {_NOT_REPORTED})",
            unindexed=f"({_SYNC} = '{each}' AND NOT {_IS_NOT_REPORTED})",
        )
        for each in ("True", "False")
    },
    "Unknown": SqlCondition(
        f"({' OR '.join(_UNKNOWN)})",
        {},
        _UNKNOWN,
        unindexed=f"({_SYNC} = 'Unknown' OR ({_SYNC} IS NOT NULL AND {_IS_NOT_REPORTED}))",
    ),
}
DRIFTED = f"drifted = 1 AND NOT {_NOT_REPORTED}"
DRIFTED_ONLY = SqlCondition(DRIFTED, unindexed=f"drifted + 0 = 1 AND NOT {_IS_NOT_REPORTED}")
# No service satisfies both.
UNKNOWN_REPORTED = f"in_sync = 'Unknown' AND is_terminal = 0 AND NOT {_NOT_REPORTED}"
UNKNOWN_OFFLINE = f"in_sync IS NOT NULL AND is_terminal = 0 AND {_NOT_REPORTED}"
UNKNOWN_ONLY = SqlCondition(
    f"({UNKNOWN_REPORTED} OR {UNKNOWN_OFFLINE})",
    {},
    (UNKNOWN_REPORTED, UNKNOWN_OFFLINE),
    unindexed=f"(is_terminal + 0 = 0 AND ({_SYNC} = 'Unknown' OR ({_SYNC} IS NOT NULL AND {_IS_NOT_REPORTED})))",
)
UNHELD_REPAIR = (
    f'{DRIFTED} AND conditions LIKE \'%"type":"{IN_SYNC}","status":"False","reason":"{REPAIR_DOES_NOT_HOLD}"%\''
)
FAILED_ONLY = SqlCondition("failed_job_id IS NOT NULL", unindexed="(failed_job_id || '') IS NOT NULL")
WITH_JOB_ONLY = SqlCondition(
    f"id IN (SELECT service_id FROM jobs WHERE status IN {ACTIVE_STATUSES})",
    # A service has at most one such job. PostgreSQL would read the active jobs of all for an EXISTS.
    unindexed=f"(SELECT 1 FROM jobs WHERE jobs.service_id = services.id AND jobs.status IN {ACTIVE_STATUSES}) = 1",
)


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a service view shows beyond the row of the service."""

    agent_name: str
    agent_status: str
    agent_last_seen: datetime
    repair_requested_at: datetime | None
    type_name: str
    type_version: datetime
    # (id, action, status) of the active job.
    job: tuple[str, str, str] | None
    provider_name: str
    consumer_name: str
    group_name: str
    # None: the service has no blueprint, or its bundle has no version any more.
    blueprint_version: str | None


@dataclass(frozen=True, slots=True)
class ServiceForUpdate:
    service: ServiceRow
    # `updated_at` of its service type: identifies the definition.
    type_version: datetime
    pool_set_id: str | None


async def find_for_update(tx: Transaction, service_id: str, *, lock: bool = False) -> ServiceForUpdate | None:
    """A service with the data that every action on it needs, in one query."""
    ending = f"{tx.for_update} OF services" if lock and tx.for_update else ""
    rows = await tx.fetch(
        f"SELECT {SERVICES.select('services')}, service_types.updated_at AS type_version,"
        " agents.service_pool_set_id AS pool_set_id FROM services"
        " JOIN service_types ON service_types.id = services.service_type_id"
        f" JOIN agents ON agents.id = services.agent_id WHERE services.id = :id{ending}",
        id=service_id,
    )
    if not rows:
        return None
    return ServiceForUpdate(SERVICES.decode(rows[0]), to_time(rows[0]["type_version"]), rows[0]["pool_set_id"])


_CONTEXT_COLUMNS = (
    "agents.name AS agent_name, agents.status AS agent_status,"
    " agents.last_status_update AS agent_last_seen, services.repair_requested_at, service_types.name AS type_name,"
    " service_types.updated_at AS type_version, jobs.id AS job_id, jobs.action AS job_action, jobs.status AS job_status,"
    " providers.name AS provider_name, consumers.name AS consumer_name, service_groups.name AS group_name,"
    " blueprints.version AS blueprint_version"
)
_CONTEXT_TABLES = (
    "services JOIN agents ON agents.id = services.agent_id"
    " JOIN service_types ON service_types.id = services.service_type_id"
    " JOIN participants AS providers ON providers.id = services.provider_id"
    " JOIN participants AS consumers ON consumers.id = services.consumer_id"
    " JOIN service_groups ON service_groups.id = services.group_id"
    " LEFT JOIN blueprints ON blueprints.digest = services.blueprint_digest"
    f" LEFT JOIN jobs ON jobs.service_id = services.id AND jobs.status IN {ACTIVE_STATUSES}"
)


async def read_contexts(tx: Transaction, ids: Sequence[str]) -> dict[str, ServiceContext]:
    listed, marks = placeholders(ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        f"SELECT services.id, {_CONTEXT_COLUMNS} FROM {_CONTEXT_TABLES} WHERE services.id IN {listed}",
        **marks,
    )
    return {row["id"]: _context(row) for row in rows}


async def find_with_context(tx: Transaction, service_id: str) -> tuple[ServiceRow, ServiceContext] | None:
    return (await read_with_contexts(tx, [service_id])).get(service_id)


async def read_with_contexts(tx: Transaction, ids: Iterable[str]) -> dict[str, tuple[ServiceRow, ServiceContext]]:
    """Existing services by id, in one query: a service with its context is what clients read most often."""
    listed, marks = placeholders(dict.fromkeys(ids))
    if not marks:
        return {}
    rows = await tx.fetch(
        f"SELECT {SERVICES.select('services')}, {_CONTEXT_COLUMNS} FROM {_CONTEXT_TABLES}"
        f" WHERE services.id IN {listed}",
        **marks,
    )
    return {row["id"]: (SERVICES.decode(row), _context(row)) for row in rows}


def _context(row: Row) -> ServiceContext:
    return ServiceContext(
        agent_name=row["agent_name"],
        agent_status=row["agent_status"],
        agent_last_seen=to_time(row["agent_last_seen"]),
        repair_requested_at=None if row["repair_requested_at"] is None else to_time(row["repair_requested_at"]),
        type_name=row["type_name"],
        type_version=to_time(row["type_version"]),
        job=None if row["job_id"] is None else (row["job_id"], row["job_action"], row["job_status"]),
        provider_name=row["provider_name"],
        consumer_name=row["consumer_name"],
        group_name=row["group_name"],
        blueprint_version=row["blueprint_version"],
    )


async def find_living(tx: Transaction, ids: Sequence[str]) -> list[tuple[ServiceRow, str]]:
    """The services that exist and are not terminal, each with the name of its type."""
    found: list[tuple[ServiceRow, str]] = []
    for service_id in ids:
        rows = await tx.fetch(
            f"SELECT {SERVICES.select('services')}, service_types.name AS type_name FROM services"
            " JOIN service_types ON service_types.id = services.service_type_id"
            " WHERE services.id = :id AND services.is_terminal = 0",
            id=service_id,
        )
        found += [(SERVICES.decode(row), row["type_name"]) for row in rows]
    return found


async def living_served_by(tx: Transaction, agent_type_id: str, service_type_id: str) -> list[str]:
    """Living services of a service type whose agents have this agent type."""
    return await fetch_column(
        tx,
        "SELECT services.id FROM services JOIN agents ON agents.id = services.agent_id"
        " WHERE agents.agent_type_id = :agent_type_id AND services.service_type_id = :service_type_id"
        f" AND services.is_terminal = 0 LIMIT {MAX_DEPENDANTS}",
        agent_type_id=agent_type_id,
        service_type_id=service_type_id,
    )


async def living_ids(tx: Transaction, column: str, value: str) -> list[str]:
    """Living services that belong to a group, agent, type or participant; `column` is a literal of this program."""
    return await fetch_column(
        tx,
        f"SELECT id FROM services WHERE {column} = :value AND is_terminal = 0 ORDER BY created_at LIMIT {MAX_DEPENDANTS}",
        value=value,
    )


async def serves_group(tx: Transaction, agent_id: str, group_id: str) -> bool:
    statement = "SELECT 1 AS found FROM services WHERE group_id = :group_id AND agent_id = :agent_id AND is_terminal = 0 LIMIT 1"
    return bool(await tx.fetch(statement, group_id=group_id, agent_id=agent_id))


async def count_unknown_by_agent(tx: Transaction, scope: Sequence[SqlCondition], limit: int) -> Sequence[Row]:
    """The agents that report nothing and serve services whose conditions are therefore Unknown: those with most first."""
    where, parameters = joined_conditions(scope, UNKNOWN_OFFLINE)
    return await tx.fetch(
        "SELECT agents.id, agents.name, agents.status, agents.last_status_update, counted.number FROM"
        f" (SELECT agent_id, count(*) AS number FROM services WHERE {where} GROUP BY agent_id) AS counted"
        f" JOIN agents ON agents.id = counted.agent_id ORDER BY counted.number DESC, agents.name LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def delete_terminal(tx: Transaction, column: str, value: str) -> None:
    """Deletes terminal services before the record they belong to is deleted; their events stay.

    Services with an open orphan stay: the database then refuses to delete the record."""
    await tx.execute(f"DELETE FROM services WHERE {column} = :value AND is_terminal = 1 AND orphan = 0", value=value)


async def last_failures(tx: Transaction, ids: Sequence[str]) -> dict[str, Row]:
    """The last job of each of these services, if it failed: `job_id`, `action`, `error_message`."""
    rows = await tx.fetch(
        "SELECT services.id, jobs.id AS job_id, jobs.action, jobs.error_message FROM services"
        " JOIN jobs ON jobs.id = services.failed_job_id"
        f" WHERE services.id IN (SELECT value FROM {tx.json_items}(:ids))",
        ids=encode_json(ids),
    )
    return {row["id"]: row for row in rows}


async def note_failure(tx: Transaction, service_id: str, failed_job_id: str | None) -> None:
    """The last job, if it failed; None: it did not."""
    await tx.defer("UPDATE services SET failed_job_id = :job WHERE id = :id", id=service_id, job=failed_job_id)


async def count_repairs(tx: Transaction, service_id: str, conditions: list[dict[str, object]]) -> None:
    """Stores conditions that differ only in a count; `updatedAt` and the version stay."""
    await tx.execute(
        "UPDATE services SET conditions = :conditions WHERE id = :id",
        id=service_id,
        conditions=encode_json(conditions),
    )


async def request_repair(tx: Transaction, service_id: str, now: datetime) -> None:
    """`updatedAt` and the version stay: the service does not change."""
    await tx.execute(
        "UPDATE services SET repair_requested_at = :now, repair_announced = 0 WHERE id = :id",
        id=service_id,
        now=to_microseconds(now),
    )


async def finish_repair(tx: Transaction, service_id: str, requested_at: datetime) -> None:
    """A request that came during the repair stays."""
    await tx.execute(
        "UPDATE services SET repair_requested_at = NULL WHERE id = :id AND repair_requested_at <= :requested_at",
        id=service_id,
        requested_at=to_microseconds(requested_at),
    )


_UNANNOUNCED_REPAIRS = "agent_id = :agent_id AND repair_requested_at IS NOT NULL AND repair_announced = 0"


async def is_repair_unannounced(tx: Transaction, agent_id: str) -> bool:
    """Whether a repair was requested that no long poll of the agent has returned for."""
    statement = f"SELECT 1 AS found FROM services WHERE {_UNANNOUNCED_REPAIRS} LIMIT 1"
    return bool(await tx.fetch(statement, agent_id=agent_id))


async def take_unannounced_repairs(tx: Transaction, agent_id: str) -> bool:
    """Whether there was one. Each is taken once, so that an agent that ignores it does not poll without a pause."""
    statement = f"UPDATE services SET repair_announced = 1 WHERE {_UNANNOUNCED_REPAIRS}"
    return await tx.execute(statement, agent_id=agent_id) > 0


async def set_references(tx: Transaction, service_id: str, references: Sequence[tuple[str, str]]) -> None:
    """Replaces the references: (path, id of the target service)."""
    await tx.execute("DELETE FROM service_references WHERE service_id = :id", id=service_id)
    for path, target_id in references:
        await tx.execute(
            "INSERT INTO service_references (service_id, path, target_id) VALUES (:id, :path, :target_id)",
            id=service_id,
            path=path,
            target_id=target_id,
        )


@dataclass(frozen=True, slots=True)
class ReferredState:
    """A living service that another one refers to."""

    id: str
    status: str
    service_type_id: str
    type_version: datetime


async def referred_states(tx: Transaction, service_id: str, *, hold: bool) -> list[ReferredState]:
    """With `hold`, a change of such a service waits for the commit, and is waited for."""
    ending = f"{tx.for_key_share} OF services" if hold and tx.for_key_share else ""
    rows = await tx.fetch(
        "SELECT services.id, services.status, services.service_type_id, service_types.updated_at"
        " FROM service_references JOIN services ON services.id = service_references.target_id"
        " AND services.is_terminal = 0 JOIN service_types ON service_types.id = services.service_type_id"
        f" WHERE service_references.service_id = :id ORDER BY services.id{ending}",
        id=service_id,
    )
    return [
        ReferredState(row["id"], row["status"], row["service_type_id"], to_time(row["updated_at"])) for row in rows
    ]


async def living_referrers(tx: Transaction, service_id: str) -> list[str]:
    """Those of the same consumer. A provider may refer to services of its consumers, but must not keep them alive."""
    return await fetch_column(
        tx,
        "SELECT DISTINCT services.id FROM service_references"
        " JOIN services ON services.id = service_references.service_id AND services.is_terminal = 0"
        " JOIN services AS target ON target.id = service_references.target_id"
        " AND target.consumer_id = services.consumer_id"
        f" WHERE service_references.target_id = :id AND services.id <> :id LIMIT {MAX_DEPENDANTS}",
        id=service_id,
    )


async def note_state(tx: Transaction, service_id: str, state: str, now: datetime) -> None:
    await tx.defer(
        "INSERT INTO service_states (service_id, entered_at, ordinal, state)"
        " SELECT :id, :now, count(*), :state FROM service_states WHERE service_id = :id",
        id=service_id,
        now=to_microseconds(now),
        state=state,
    )


async def state_history(tx: Transaction, service_id: str) -> list[tuple[datetime, str]]:
    rows = await tx.fetch(
        "SELECT entered_at, state FROM service_states WHERE service_id = :id ORDER BY ordinal", id=service_id
    )
    return [(to_time(row["entered_at"]), row["state"]) for row in rows]


async def recent_states(tx: Transaction, service_id: str, since: datetime, limit: int) -> list[tuple[datetime, str]]:
    """The states since a time, beginning with the one that the service had then; the newest `limit` of them."""
    rows = await tx.fetch(
        "SELECT entered_at, state FROM service_states WHERE service_id = :id AND ordinal >= coalesce((SELECT max(ordinal)"
        " FROM service_states WHERE service_id = :id AND entered_at <= :since), 0)"
        f" ORDER BY ordinal DESC LIMIT {int(limit)}",
        id=service_id,
        since=to_microseconds(since),
    )
    return [(to_time(row["entered_at"]), row["state"]) for row in reversed(rows)]


async def living_with_jobs(
    tx: Transaction, service_type_id: str, after_id: str, limit: int
) -> list[tuple[ServiceRow, str | None]]:
    """Living services of a type in the order of their ids, each with the action of its active job."""
    rows = await tx.fetch(
        f"SELECT {SERVICES.select('services')}, jobs.action AS active_action FROM services"
        f" LEFT JOIN jobs ON jobs.service_id = services.id AND jobs.status IN {ACTIVE_STATUSES}"
        " WHERE services.service_type_id = :type_id AND services.is_terminal = 0 AND services.id > :after_id"
        f" ORDER BY services.id LIMIT {limit}",
        type_id=service_type_id,
        after_id=after_id,
    )
    return [(SERVICES.decode(row), row["active_action"]) for row in rows]


async def lock_living(tx: Transaction, service_type_id: str) -> None:
    """Locks the living services of a type: no request changes them or queues a job for them until the commit."""
    if tx.for_update:
        await tx.fetch(
            "SELECT id FROM services WHERE service_type_id = :type_id AND is_terminal = 0"
            f" ORDER BY id{tx.for_update}",
            slow=True,
            type_id=service_type_id,
        )


async def services_of_type(
    tx: Transaction, service_type_id: str, after_id: str, limit: int
) -> list[tuple[ServiceRow, bool]]:
    """Services of a type in the order of their ids, each with whether it is in a terminal state."""
    rows = await tx.fetch(
        f"SELECT {SERVICES.select()}, is_terminal FROM services WHERE service_type_id = :type_id AND id > :after_id"
        f" ORDER BY id LIMIT {limit}",
        type_id=service_type_id,
        after_id=after_id,
    )
    return [(SERVICES.decode(row), bool(row["is_terminal"])) for row in rows]


async def read_provenance(tx: Transaction, service_id: str) -> dict[str, dict[str, object]]:
    text = await fetch_value(tx, "SELECT provenance FROM services WHERE id = :id", id=service_id)
    return {} if text is None else msgspec.json.decode(text, type=dict[str, dict[str, object]])


class ServiceDetails(msgspec.Struct, frozen=True):
    """What the page of a service shows beyond its view."""

    provider_name: str
    consumer_name: str
    group_name: str
    agent_last_seen: datetime
    # `updated_at` of its service type: identifies the definition.
    type_version: datetime
    # None: no blueprint, or a bundle whose version now points to another one.
    blueprint_version: str | None
    # The version that new services get.
    current_version: str | None
    # Whether its blueprint allows a move to another agent.
    movable: bool
    # Path → origin.
    provenance: dict[str, dict[str, object]]


async def read_details(tx: Transaction, service_id: str) -> ServiceDetails:
    (row,) = await tx.fetch(
        "SELECT services.provenance, providers.name AS provider_name, consumers.name AS consumer_name,"
        " service_groups.name AS group_name, agents.last_status_update, used.version AS used_version, used.movable,"
        " newest.version AS current_version, service_types.updated_at AS type_version FROM services"
        " JOIN participants AS providers ON providers.id = services.provider_id"
        " JOIN participants AS consumers ON consumers.id = services.consumer_id"
        " JOIN service_groups ON service_groups.id = services.group_id"
        " JOIN agents ON agents.id = services.agent_id"
        " JOIN service_types ON service_types.id = services.service_type_id"
        " LEFT JOIN blueprints AS used ON used.digest = services.blueprint_digest"
        " LEFT JOIN blueprints AS newest ON newest.digest = service_types.blueprint_digest"
        " WHERE services.id = :id",
        id=service_id,
    )
    return ServiceDetails(
        row["provider_name"],
        row["consumer_name"],
        row["group_name"],
        to_time(row["last_status_update"]),
        to_time(row["type_version"]),
        row["used_version"],
        row["current_version"],
        bool(row["movable"]),
        msgspec.json.decode(row["provenance"], type=dict[str, dict[str, object]]),
    )


@dataclass(frozen=True, slots=True)
class RelatedService:
    """A service that this one refers to, or that refers to it."""

    # Whether this service refers to it.
    outgoing: bool
    # Path of the property that refers.
    path: str
    id: str
    name: str
    status: str
    provider_id: str
    consumer_id: str
    agent_id: str
    service_type_id: str
    type_name: str
    type_version: datetime


async def read_references(tx: Transaction, service_id: str, limit: int) -> list[RelatedService]:
    """References in both directions, at most `limit` in each. First those of the same consumer."""
    parts = [
        f"SELECT * FROM (SELECT {number} AS outgoing, service_references.path, other.id, other.name, other.status,"
        " other.provider_id, other.consumer_id, other.agent_id, other.service_type_id, service_types.name AS type_name,"
        " service_types.updated_at AS type_version FROM service_references"
        f" JOIN services AS other ON other.id = service_references.{there}"
        f" JOIN services AS own ON own.id = service_references.{here}"
        " JOIN service_types ON service_types.id = other.service_type_id"
        f" WHERE service_references.{here} = :service_id"
        " ORDER BY CASE WHEN other.consumer_id = own.consumer_id THEN 0 ELSE 1 END, service_references.path, other.name,"
        f" other.id LIMIT {int(limit)}) AS part_{number}"
        for number, here, there in ((1, "service_id", "target_id"), (0, "target_id", "service_id"))
    ]
    rows = await tx.fetch(" UNION ALL ".join(parts), service_id=service_id)
    return [
        RelatedService(**{**row, "outgoing": bool(row["outgoing"]), "type_version": to_time(row["type_version"])})
        for row in rows
    ]


async def find_instance(tx: Transaction, agent_id: str, instance_id: str) -> ServiceRow | None:
    return await SERVICES.first(
        tx,
        "agent_id = :agent_id AND agent_instance_id = :instance_id",
        agent_id=agent_id,
        instance_id=instance_id,
    )

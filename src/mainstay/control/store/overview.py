"""Queries of the overview page: what needs attention and what is going on, for the rows that a caller may read.

Each has a limit or reads an index of few rows. `scope` is the condition of `paging.owned_by`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainstay.control.store.agents import OFFLINE_STATUSES
from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.engine.paging import SqlCondition, joined_conditions
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.jobs import ACTIVE_STATUSES, JOBS, JobRow
from mainstay.control.store.services import DRIFTED, UNKNOWN_OFFLINE, UNKNOWN_REPORTED

Scope = Sequence[SqlCondition]


async def count_living(tx: Transaction, scope: Scope) -> list[tuple[str, str, int]]:
    """(service type, state, number)."""
    where, parameters = joined_conditions(scope, "is_terminal = 0")
    rows = await tx.fetch(
        f"SELECT service_type_id, status, count(*) AS number FROM services WHERE {where}"
        " GROUP BY service_type_id, status",
        slow=True,
        **parameters,
    )
    return [(row["service_type_id"], row["status"], row["number"]) for row in rows]


async def count_troubles_and_jobs(tx: Transaction, services: Scope, jobs: Scope) -> dict[str, int]:
    """`drifted`, `unknown` and `failed` services, `running` and `queued` jobs."""
    drifted, parameters = joined_conditions(services, DRIFTED)
    reported, _ = joined_conditions(services, UNKNOWN_REPORTED)
    offline, _ = joined_conditions(services, UNKNOWN_OFFLINE)
    failed, _ = joined_conditions(services, "failed_job_id IS NOT NULL")
    running, more = joined_conditions(jobs, "status = 'Processing'")
    queued, _ = joined_conditions(jobs, "status = 'Pending'")
    rows = await tx.fetch(
        f"SELECT (SELECT count(*) FROM services WHERE {drifted}) AS drifted,"
        f" (SELECT count(*) FROM services WHERE {reported})"
        f" + (SELECT count(*) FROM services WHERE {offline}) AS unknown,"
        f" (SELECT count(*) FROM services WHERE {failed}) AS failed,"
        f" (SELECT count(*) FROM jobs WHERE {running}) AS running,"
        f" (SELECT count(*) FROM jobs WHERE {queued}) AS queued",
        slow=True,
        **(parameters | more),
    )
    return dict(rows[0])


async def failed_services(tx: Transaction, scope: Scope, limit: int) -> Sequence[Row]:
    """The newest first, by the end of the job."""
    where, parameters = joined_conditions(scope, "failed_job_id IS NOT NULL")
    return await tx.fetch(
        "SELECT services.id, services.name, jobs.id AS job_id, jobs.action, jobs.error_message,"
        f" jobs.completed_at FROM (SELECT id, name, failed_job_id FROM services WHERE {where}) AS services"
        f" JOIN jobs ON jobs.id = services.failed_job_id ORDER BY jobs.completed_at DESC, jobs.id LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def drifted_services(tx: Transaction, scope: Scope, limit: int) -> Sequence[Row]:
    where, parameters = joined_conditions(scope, DRIFTED)
    return await tx.fetch(
        f"SELECT id, name, provider_id, conditions, updated_at FROM services WHERE {where}"
        f" ORDER BY created_at DESC, id DESC LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def read_agents(tx: Transaction, scope: Scope, limit: int) -> Sequence[Row]:
    """Those in trouble first, with the numbers of their jobs; `services` only of those that are not connected."""
    where, parameters = joined_conditions(scope)
    return await tx.fetch(
        "SELECT id, name, status, last_status_update,"
        " (SELECT count(*) FROM jobs WHERE jobs.agent_id = agents.id AND jobs.status = 'Pending') AS queued,"
        " (SELECT count(*) FROM jobs WHERE jobs.agent_id = agents.id AND jobs.status = 'Processing') AS running,"
        f" CASE WHEN status IN {OFFLINE_STATUSES} THEN (SELECT count(*) FROM services"
        " WHERE services.agent_id = agents.id AND services.is_terminal = 0) ELSE 0 END AS services"
        f" FROM agents WHERE {where} ORDER BY CASE WHEN status IN {OFFLINE_STATUSES} THEN 0 ELSE 1 END,"
        f" created_at, id LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def active_jobs(tx: Transaction, scope: Scope, limit: int) -> list[JobRow]:
    """Running ones first, then by age."""
    where, parameters = joined_conditions(scope, f"status IN {ACTIVE_STATUSES}")
    return await JOBS.where(
        tx,
        f"{where} ORDER BY CASE status WHEN 'Processing' THEN 0 ELSE 1 END, created_at, id LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def count_ended_jobs(
    tx: Transaction, scope: Scope, since: datetime, slot_seconds: int
) -> list[tuple[int, str, int]]:
    """(number of the time slot since `since`, status, number of jobs) of jobs created since then."""
    where, parameters = joined_conditions(scope, "created_at >= :since", "status IN ('Completed', 'Failed')")
    rows = await tx.fetch(
        f"SELECT (created_at - :since) / {int(slot_seconds) * 1_000_000} AS slot, status, count(*) AS number FROM jobs"
        f" WHERE {where} GROUP BY 1, status",
        since=to_microseconds(since),
        slow=True,
        **parameters,
    )
    return [(row["slot"], row["status"], row["number"]) for row in rows]


async def read_pools(tx: Transaction, scope: Scope, limit: int) -> Sequence[Row]:
    """Pools with the numbers of their values; a subnet pool has rows only for values in use."""
    where, parameters = joined_conditions(scope)
    return await tx.fetch(
        "SELECT id, name, generator_type, generator_config,"
        " (SELECT name FROM service_pool_sets WHERE service_pool_sets.id = service_pool_set_id) AS pool_set,"
        " (SELECT count(*) FROM service_pool_values WHERE service_pool_id = service_pools.id) AS total,"
        " (SELECT count(*) FROM service_pool_values WHERE service_pool_id = service_pools.id"
        f" AND service_id IS NULL) AS free FROM service_pools WHERE {where} ORDER BY created_at, id LIMIT {int(limit)}",
        slow=True,
        **parameters,
    )


async def open_orphans(tx: Transaction, scope: Scope, limit: int) -> Sequence[Row]:
    where, parameters = joined_conditions(scope, "closed_at IS NULL")
    return await tx.fetch(
        "SELECT orphans.id, orphans.service_name, orphans.attempts, orphans.created_at, agents.name AS agent_name,"
        " agents.id AS agent_id, agents.status AS agent_status FROM"
        f" (SELECT * FROM orphans WHERE {where} ORDER BY created_at LIMIT {int(limit)}) AS orphans"
        " JOIN agents ON agents.id = orphans.agent_id ORDER BY orphans.created_at",
        slow=True,
        **parameters,
    )

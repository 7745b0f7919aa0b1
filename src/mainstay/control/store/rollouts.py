"""Roll-outs and their items. The background task locks one roll-out at a time; replicas skip locked ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mainstay.control.domain.jobs import JobStatus
from mainstay.control.domain.rollouts import OPEN, ItemStatus, RolloutStatus
from mainstay.control.store.engine.contract import Row, Transaction, encode_json, fetch_number, fetch_value, literals
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import Record, Table, to_microseconds
from mainstay.control.store.jobs import ACTIVE_STATUSES

_OPEN = literals(OPEN)


class RolloutRow(Record, frozen=True, kw_only=True):
    service_type_id: str
    action: str
    # None: the action does not change the version.
    blueprint_version: str | None = None
    blueprint_digest: str | None = None
    # As given: a number, or a percentage of the members.
    batch: int | str
    batch_size: int
    max_failures: int
    status: RolloutStatus
    # Failed job chains since the start, or since it was last resumed.
    failures: int = 0
    # The last wave that has started.
    wave: int = 0
    # Members.
    total: int = 0
    completed_at: datetime | None = None


class RolloutItem(Record, frozen=True, kw_only=True):
    """`id` is that of the service."""

    rollout_id: str
    service_id: str
    wave: int
    status: ItemStatus
    job_id: str | None = None
    reason: str | None = None


ROLLOUTS = Table("rollouts", "rollout", RolloutRow)
ROLLOUT_ITEMS = Table("rollout_items", "rollout", RolloutItem)


def items_of(rollout_id: str) -> SqlCondition:
    return SqlCondition("rollout_id = :own_rollout", {"own_rollout": rollout_id})


async def find_open(tx: Transaction, service_type_id: str) -> str | None:
    return await fetch_value(
        tx, f"SELECT id FROM rollouts WHERE service_type_id = :id AND status IN {_OPEN}", id=service_type_id
    )


async def count_members(tx: Transaction, service_type_id: str) -> int:
    return await fetch_number(
        tx,
        "SELECT count(*) FROM services WHERE service_type_id = :id AND is_terminal = 0",
        slow=True,
        id=service_type_id,
    )


async def add_members(tx: Transaction, rollout: RolloutRow) -> int:
    """The living services of the type in waves, by id. Returns how many."""
    return await tx.execute(
        "INSERT INTO rollout_items (rollout_id, service_id, id, created_at, updated_at, wave, status)"
        " SELECT :rollout_id, services.id, services.id, :now, :now,"
        f" (row_number() OVER (ORDER BY services.id) - 1) / {int(rollout.batch_size)} + 1, 'Waiting'"
        " FROM services WHERE services.service_type_id = :type_id AND services.is_terminal = 0",
        rollout_id=rollout.id,
        now=to_microseconds(rollout.created_at),
        type_id=rollout.service_type_id,
    )


async def next_due(tx: Transaction, now: datetime, pause: timedelta) -> tuple[RolloutRow, str, str] | None:
    """The roll-out that was looked at longest ago, locked, with id and name of its initiator.

    Those that run, and those with items that still run. A time in the future comes from a clock that was set back."""
    rows = await tx.fetch(
        f"SELECT {ROLLOUTS.select()}, initiator_id, initiator_name FROM rollouts WHERE (status = 'Running' OR EXISTS"
        " (SELECT 1 FROM rollout_items WHERE rollout_items.rollout_id = rollouts.id"
        " AND rollout_items.status = 'Running')) AND (advanced_at <= :before OR advanced_at > :now)"
        f" ORDER BY advanced_at, id LIMIT 1{tx.skip_locked}",
        before=to_microseconds(now - pause),
        now=to_microseconds(now),
    )
    if not rows:
        return None
    return ROLLOUTS.decode(rows[0]), rows[0]["initiator_id"], rows[0]["initiator_name"]


class EndedRun(msgspec.Struct, frozen=True):
    """The end of the run of an item. `status` None: its job was deleted."""

    service_id: str
    job_id: str | None
    status: JobStatus | None
    message: str | None


async def ended_runs(tx: Transaction, rollout_id: str, limit: int) -> list[EndedRun]:
    """The last jobs of ended job chains of Running items."""
    rows = await tx.fetch(
        "SELECT rollout_items.service_id, rollout_items.job_id AS first_id, latest.id AS job_id, latest.status,"
        " latest.error_message FROM rollout_items LEFT JOIN jobs AS begun ON begun.id = rollout_items.job_id"
        " LEFT JOIN jobs AS latest ON latest.run_id = begun.run_id AND latest.step ="
        " (SELECT max(step) FROM jobs WHERE jobs.run_id = begun.run_id)"
        " WHERE rollout_items.rollout_id = :id AND rollout_items.status = 'Running'"
        f" AND (latest.id IS NULL OR latest.status NOT IN {ACTIVE_STATUSES})"
        f" ORDER BY rollout_items.service_id LIMIT {int(limit)}",
        id=rollout_id,
    )
    return [
        EndedRun(row["service_id"], row["job_id"] or row["first_id"], row["status"], row["error_message"])
        for row in rows
    ]


async def next_waiting(tx: Transaction, rollout_id: str) -> RolloutItem | None:
    """The next item to start. None: none waits, or an earlier wave has not ended."""
    item = await ROLLOUT_ITEMS.first(
        tx, "rollout_id = :id AND status = 'Waiting' ORDER BY wave, service_id LIMIT 1", id=rollout_id
    )
    if item is None:
        return None
    earlier = await tx.fetch(
        "SELECT 1 AS found FROM rollout_items WHERE rollout_id = :id AND status = 'Running' AND wave < :wave LIMIT 1",
        id=rollout_id,
        wave=item.wave,
    )
    return None if earlier else item


async def set_item(
    tx: Transaction,
    item: tuple[str, str],
    status: ItemStatus,
    now: datetime,
    *,
    job_id: str | None,
    reason: str | None,
) -> None:
    """`item` is (roll-out, service)."""
    await tx.defer(
        "UPDATE rollout_items SET status = :status, job_id = :job_id, reason = :reason, updated_at = :now"
        " WHERE rollout_id = :rollout_id AND service_id = :service_id",
        rollout_id=item[0],
        service_id=item[1],
        status=status,
        job_id=job_id,
        reason=reason,
        now=to_microseconds(now),
    )


async def skip_waiting(tx: Transaction, rollout_id: str, reason: str, now: datetime) -> None:
    await tx.execute(
        "UPDATE rollout_items SET status = 'Skipped', reason = :reason, updated_at = :now"
        " WHERE rollout_id = :id AND status = 'Waiting'",
        id=rollout_id,
        reason=reason,
        now=to_microseconds(now),
    )


async def requeue_failed(tx: Transaction, rollout: RolloutRow, now: datetime) -> None:
    """Failed items wait again, before all others that wait, in new waves."""
    failed = await tx.fetch(
        "SELECT 1 AS found FROM rollout_items WHERE rollout_id = :id AND status = 'Failed' LIMIT 1", id=rollout.id
    )
    if not failed:
        return
    await tx.execute(
        "UPDATE rollout_items SET wave = ranked.wave, status = 'Waiting', job_id = NULL, reason = NULL, updated_at = :now"
        f" FROM (SELECT service_id, {int(rollout.wave)} + (row_number() OVER (ORDER BY CASE WHEN status = 'Failed'"
        f" THEN 0 ELSE 1 END, service_id) - 1) / {int(rollout.batch_size)} + 1 AS wave FROM rollout_items"
        " WHERE rollout_id = :id AND status IN ('Failed', 'Waiting')) AS ranked"
        " WHERE rollout_items.rollout_id = :id AND rollout_items.service_id = ranked.service_id",
        id=rollout.id,
        now=to_microseconds(now),
    )


async def count_items(tx: Transaction, rollout_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Roll-out → state → number of items."""
    rows = await tx.fetch(
        "SELECT rollout_id, status, count(*) AS number FROM rollout_items"
        f" WHERE rollout_id IN (SELECT value FROM {tx.json_items}(:ids)) GROUP BY rollout_id, status",
        slow=True,
        ids=encode_json(rollout_ids),
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["rollout_id"], {})[row["status"]] = row["number"]
    return found


async def has_items(tx: Transaction, rollout_id: str) -> tuple[bool, bool]:
    """Whether items wait, and whether items run."""
    rows = await tx.fetch(
        "SELECT EXISTS (SELECT 1 FROM rollout_items WHERE rollout_id = :id AND status = 'Waiting') AS waiting,"
        " EXISTS (SELECT 1 FROM rollout_items WHERE rollout_id = :id AND status = 'Running') AS running",
        id=rollout_id,
    )
    return bool(rows[0]["waiting"]), bool(rows[0]["running"])


class WaveCount(msgspec.Struct, frozen=True):
    wave: int
    status: ItemStatus
    items: int


async def count_waves(tx: Transaction, rollout_id: str, limit: int) -> list[WaveCount]:
    """Counts the items of the first waves by status, in order."""
    rows = await tx.fetch(
        "SELECT wave, status, count(*) AS number FROM rollout_items WHERE rollout_id = :id AND wave <= :last"
        " GROUP BY wave, status ORDER BY wave, status",
        id=rollout_id,
        last=limit,
    )
    return [WaveCount(row["wave"], row["status"], row["number"]) for row in rows]


async def last_wave(tx: Transaction, rollout_id: str) -> int:
    return await fetch_number(tx, "SELECT max(wave) FROM rollout_items WHERE rollout_id = :id", id=rollout_id)


async def stopped(tx: Transaction, limit: int) -> Sequence[Row]:
    return await tx.fetch(
        "SELECT rollouts.id, rollouts.action, rollouts.failures, service_types.name AS type_name FROM rollouts"
        " JOIN service_types ON service_types.id = rollouts.service_type_id WHERE rollouts.status = 'Stopped'"
        f" ORDER BY rollouts.created_at LIMIT {int(limit)}"
    )

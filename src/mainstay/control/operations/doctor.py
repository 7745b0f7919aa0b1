"""Lists jobs, services, pools and secrets that need an operator. Changes nothing."""

from __future__ import annotations

import shlex
from datetime import timedelta

import msgspec

from mainstay.control.domain.conditions import find_in_sync
from mainstay.control.domain.lifecycle.transitions import available_actions
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.service_pools import usage
from mainstay.control.store import doctor as store
from mainstay.control.store.agent_types import granted_by_migration
from mainstay.control.store.engine.contract import Row
from mainstay.control.store.engine.records import to_time
from mainstay.control.store.rollouts import stopped as stopped_rollouts
from mainstay.control.store.service_types import SERVICE_TYPES
from mainstay.control.store.services import count_unknown_by_agent

NEARLY_EMPTY_SHARE = 0.1
STUCK_MINUTES = 5
STUCK_AFTER = timedelta(minutes=STUCK_MINUTES)
START_AGENT = "systemctl start mainstay-agent  # on the host of the agent"
MAX_FINDINGS = 1000
ORPHAN_REASONS = {
    "forced_delete": "was deleted with force",
    "moved": "has moved to another agent",
    "move_failed": "was to move here and did not",
}


class DoctorFinding(msgspec.Struct, frozen=True):
    # Stable: programs compare it.
    code: str
    subject: str
    message: str
    # The command that helps, or that shows more.
    command: str


async def examine(work: UnitOfWork) -> list[DoctorFinding]:
    stuck_since = work.now - STUCK_AFTER
    return [
        *map(_waiting_job, await store.waiting_jobs(work.tx, stuck_since, MAX_FINDINGS)),
        *map(_unknown_services, await count_unknown_by_agent(work.tx, [], MAX_FINDINGS)),
        *map(_unheld_repair, await store.unheld_repairs(work.tx, MAX_FINDINGS)),
        *await _stuck_services(work),
        *await _empty_pools(work),
        *await _lost_secrets(work),
        *await _unconfirmed_grants(work),
        # Every move leaves an orphan; a connected agent gets some time to clean up.
        *map(_orphan, await store.open_orphans(work.tx, stuck_since, MAX_FINDINGS)),
        *await _stopped_rollouts(work),
    ]


def _waiting_job(row: Row) -> DoctorFinding:
    job, agent, status = f"job {row['job_id']}", row["agent_name"], row["agent_status"]
    what = f"'{row['action']}' of service {row['service_id']} is queued on agent {agent}"
    if status == "Connected":
        message = (
            f"{what}, which is connected but has not claimed it for {STUCK_MINUTES} minutes; see the log of the agent"
        )
        return DoctorFinding("job-waits-for-busy-agent", job, message, f"mainstay jobs show {row['job_id']}")
    code = "job-waits-for-silent-agent"
    if status == "New":
        message = f"{what}, which has never connected; enroll it on its host and start it, or cancel the job"
        return DoctorFinding(code, job, message, f"mainstay agents code {shlex.quote(agent)}")
    if status == "Disabled":
        message = f"{what}, which is disabled; enable the agent, or cancel the job"
        return DoctorFinding(code, job, message, f"mainstay agents enable {shlex.quote(agent)}")
    message = f"{what}, which is {status}; start the agent, cancel the job, or delete the service with force"
    return DoctorFinding(code, job, message, START_AGENT)


def _unknown_services(row: Row) -> DoctorFinding:
    number, agent, status = row["number"], row["name"], row["status"]
    services = f"{number} service{'' if number == 1 else 's'}"
    message = (
        f"the agent is {status} and was last seen at {to_time(row['last_status_update']):%Y-%m-%d %H:%M:%S} UTC;"
        f" the conditions of {services} are Unknown until it reports again"
    )
    command = f"mainstay agents enable {shlex.quote(agent)}" if status == "Disabled" else START_AGENT
    return DoctorFinding("services_unknown", f"agent {agent}", message, command)


def _unheld_repair(row: Row) -> DoctorFinding:
    condition = find_in_sync(msgspec.json.decode(row["conditions"], type=list[dict[str, object]]))
    message = str(condition.get("message", "")).split("\n")[0]
    return DoctorFinding(
        "repair_does_not_hold", f"service {row['name']} ({row['id']})", message, f"mainstay show {row['id']}"
    )


async def _stuck_services(work: UnitOfWork) -> list[DoctorFinding]:
    """Living services in a state without a possible action."""
    found: list[DoctorFinding] = []
    types = await SERVICE_TYPES.many(work.tx, await store.used_types(work.tx))
    for service_type in types.values():
        lifecycle = work.tools.definitions.of_service_type(service_type).lifecycle
        for service_id, state in await store.living_states(work.tx, service_type.id, MAX_FINDINGS):
            if not available_actions(lifecycle, state):
                message = f"{service_type.name} has no action from '{state}'; change the lifecycle, or delete the service with force"
                command = f"mainstay do {service_id} delete --force"
                found.append(DoctorFinding("no-way-out", f"service {service_id}", message, command))
    return found


async def _empty_pools(work: UnitOfWork) -> list[DoctorFinding]:
    found: list[DoctorFinding] = []
    for pool in await store.all_pools(work.tx, MAX_FINDINGS):
        values = await usage(work, pool)
        if values.free <= values.total * NEARLY_EMPTY_SHARE:
            message = f"{values.free} of {values.total} values are free; add values or a larger network"
            command = f"mainstay pools show {shlex.quote(pool.name)}"
            found.append(DoctorFinding("pool-nearly-empty", f"pool {pool.name} ({pool.type})", message, command))
    return found


async def _lost_secrets(work: UnitOfWork) -> list[DoctorFinding]:
    return [
        DoctorFinding(
            "secret-without-owner",
            f"secret {reference}",
            f"its {kind} {owner} does not exist or has ended; delete the secret on the server's machine",
            "mainstay vault clean",
        )
        for reference, kind, owner in await store.secrets_without_owner(work.tx, MAX_FINDINGS)
    ]


async def _unconfirmed_grants(work: UnitOfWork) -> list[DoctorFinding]:
    return [
        DoctorFinding(
            "granted_by_migration",
            f"agent type {agent_type.name}",
            f"the upgrade lets agents of {provider.name} ({provider.id}) serve other participants, because they already"
            f" did; confirm it with `mainstay agents grant` or end it with `mainstay agents withdraw`",
            f"mainstay agents grant {shlex.quote(agent_type.name)} {shlex.quote(provider.name)}",
        )
        for agent_type, provider in await granted_by_migration(work.tx, MAX_FINDINGS)
    ]


def _orphan(row: Row) -> DoctorFinding:
    status = row["agent_status"]
    message = (
        f"service {row['service_name']} ({row['service_id']}) {ORPHAN_REASONS[row['reason']]};"
        f" agent {row['agent_name']}, which is {status}, has not cleaned up its host yet ({_attempts_text(row)}); "
    )
    by_hand = "clean up by hand and forget it with `mainstay clean-ups forget`"
    if status == "Connected":
        message += f"the agent tries again by itself; if it cannot succeed, {by_hand}"
        return DoctorFinding("orphan", f"clean-up {row['id']}", message, f"mainstay clean-ups show {row['id']}")
    return DoctorFinding("orphan", f"clean-up {row['id']}", f"{message}start the agent, or {by_hand}", START_AGENT)


async def _stopped_rollouts(work: UnitOfWork) -> list[DoctorFinding]:
    return [
        DoctorFinding(
            "rollout_stopped",
            f"roll-out {row['id']}",
            f"{row['action']} of {row['type_name']} stopped after failed runs: {row['failures']}; correct the cause, then"
            " resume or abort the roll-out",
            f"mainstay rollout status {row['id']}",
        )
        for row in await stopped_rollouts(work.tx, MAX_FINDINGS)
    ]


def _attempts_text(row: Row) -> str:
    if not row["attempts"]:
        return "no attempt so far"
    first_line = (row["last_error"] or "").split("\n")[0]
    return f"failed attempts: {row['attempts']}, the last one: {first_line}"

"""The table of event types. Operations record only these; docs/reference/events.md is generated from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    # The noun of the row in `entityId`. For a secret, `entityId` is the agent or service that owns it.
    noun: str
    description: str


def _changes(noun: str) -> Iterator[EventType]:
    """The event types of a noun with create, update and delete."""
    thing = noun.replace("_", " ")
    for verb, description in (
        ("created", f"The {thing} was created."),
        ("updated", f"At least one field of the {thing} changed."),
        ("deleted", f"The {thing} was deleted."),
    ):
        yield EventType(f"{noun}.{verb}", noun, description)


_ROWS = (
    *_changes("agent"),
    *_changes("agent_type"),
    EventType(
        "blueprint.deleted",
        "blueprint",
        "The bundle was deleted; `entityId` is the first 32 digits of its digest as a uuid.",
    ),
    *_changes("config_pool"),
    EventType("config_pool_value.created", "config_pool_value", "The value was added to the config pool."),
    EventType("config_pool_value.deleted", "config_pool_value", "The value was removed from the config pool."),
    EventType("enrolment_code.created", "enrolment_code", "A code for many hosts was created."),
    EventType("enrolment_code.updated", "enrolment_code", "A host used the code; `agentId` is the new agent."),
    EventType(
        "enrolment_code.deleted", "enrolment_code", "The code was revoked, or ended with the token that made it."
    ),
    EventType(
        "events.deleted",
        "event",
        "Retention deleted the events up to the number `upTo`, whose hash is `hash`; `entityId` is the last of them.",
    ),
    *_changes("install_command"),
    EventType("job.created", "job", "The job was queued."),
    EventType("job.ready", "job", "The services that the job waited for are there; an agent may claim it."),
    EventType("job.claimed", "job", "An agent claimed the job."),
    EventType("job.released", "job", "The agent returned the job unfinished; the attempt does not count."),
    EventType("job.requeued", "job", "The lease expired; the job is queued for the next attempt."),
    EventType("job.cancel_requested", "job", "A cancellation was requested while an agent holds the job."),
    EventType("job.completed", "job", "The agent reported success."),
    EventType("job.failed", "job", "The agent reported a failure, or the job ran out of time or attempts."),
    EventType("job.cancelled", "job", "The job ended after a cancellation."),
    *_changes("metric_type"),
    EventType(
        "orphan.created", "orphan", "A forced delete or a move left a service on a host; its agent owes a clean-up."
    ),
    EventType("orphan.failed", "orphan", "The agent reported that a clean-up failed; it tries again."),
    EventType("orphan.confirmed", "orphan", "The agent confirmed the clean-up; what the orphan held is released."),
    EventType("orphan.forgotten", "orphan", "An admin closed the orphan without a clean-up."),
    *_changes("participant"),
    EventType("rollout.created", "rollout", "An admin started a roll-out."),
    EventType("rollout.paused", "rollout", "An admin paused the roll-out; running items end."),
    EventType("rollout.resumed", "rollout", "An admin resumed the roll-out, beginning with its failed items."),
    EventType("rollout.stopped", "rollout", "The failure limit was reached; no new items start, running ones end."),
    EventType("rollout.completed", "rollout", "Every item of the roll-out has ended."),
    EventType("rollout.aborted", "rollout", "An admin aborted the roll-out; nothing is undone."),
    EventType("service.created", "service", "The service was ordered."),
    EventType("service.moved", "service", "The service changed its agent; the old one owes a clean-up."),
    EventType("service.repair_requested", "service", "A repair of the service on its host was requested."),
    EventType("service.transitioned", "service", "The service moved to another state of its lifecycle."),
    EventType("service.updated", "service", "The service changed without moving to another state."),
    *_changes("service_group"),
    *_changes("service_option"),
    *_changes("service_option_type"),
    *_changes("service_pool"),
    *_changes("service_pool_set"),
    *_changes("service_pool_value"),
    *_changes("service_type"),
    *_changes("token"),
    EventType("token.regenerate", "token", "The token got a new value; the old one is no longer valid."),
    EventType(
        "vault.discarded",
        "secret",
        "An operator gave up a secret that no vault key opens; `schemaPath` is its property.",
    ),
    EventType(
        "vault.read",
        "secret",
        "An agent read a secret, recorded once per job or plan, otherwise at most once per hour; or it was opened for an"
        " install command.",
    ),
)

EVENT_TYPES: Mapping[str, EventType] = {each.name: each for each in _ROWS}

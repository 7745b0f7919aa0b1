"""Conditions of services as readers see them: what an offline agent reported last may not be true any more. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, get_args

IN_SYNC = "InSync"
ConditionStatus = Literal["True", "False", "Unknown"]
CONDITION_STATUSES = get_args(ConditionStatus)
AGENT_OFFLINE = "AgentOffline"
REPAIR_DOES_NOT_HOLD = "RepairDoesNotHold"
DIGITS = re.compile("[0-9]+")
# Statuses of agents that report nothing. A `New` agent has never reported, so nothing that it reported can be outdated.
NOT_REPORTING = ("Disconnected", "Disabled")


def shown_conditions(
    conditions: Sequence[Mapping[str, object]], agent_status: str, last_seen: datetime
) -> list[dict[str, object]]:
    """The stored conditions, or Unknown with what they were when the agent was last seen."""
    if agent_status not in NOT_REPORTING:
        return [dict(each) for each in conditions]
    return [
        {
            **each,
            "status": "Unknown",
            "reason": AGENT_OFFLINE,
            "lastStatus": each["status"],
            "lastReason": each.get("reason", ""),
            "lastReportedAt": last_seen,
        }
        for each in conditions
    ]


def differ_only_in_count(before: Sequence[Mapping[str, object]], after: Sequence[Mapping[str, object]]) -> bool:
    """Whether the conditions differ, and only in how often a repair did not hold."""
    return before != after and [_without_count(each) for each in before] == [_without_count(each) for each in after]


def _without_count(condition: Mapping[str, object]) -> dict[str, object]:
    if condition.get("reason") != REPAIR_DOES_NOT_HOLD:
        return dict(condition)
    texts = {name: str(condition.get(name, "")).partition("\n") for name in ("message", "consumerMessage")}
    return {**condition, **{name: (DIGITS.sub("", first), rest) for name, (first, _, rest) in texts.items()}}


def find_in_sync(conditions: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """The condition `InSync`; empty if the agent has not reported it."""
    return next((each for each in conditions if each.get("type") == IN_SYNC), {})

"""How long rows are kept after they have ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

# A subscriber that asked for events within this time still gets those that it has not acknowledged.
SUBSCRIBER_KEPT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """In days; 0 keeps rows for ever."""

    events: int = 400
    jobs: int = 90
    reports: int = 90
    services: int = 90
    metrics: int = 30


def expired_before(days: int, now: datetime) -> datetime | None:
    """Rows that ended before this time are deleted. None: none are."""
    return None if days == 0 else now - timedelta(days=days)

"""Decides whether a clock has stepped: it differs from the time that has passed since boot. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

# A smaller difference is drift, or a correction that NTP spreads: deadlines follow it unnoticed.
LARGEST_DRIFT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A clock, and the times it had to show right before and right after it was read."""

    actual: datetime
    earliest: datetime
    latest: datetime


def step_of(reading: ClockReading) -> timedelta | None:
    """None: no step. A reading that took long is no step either: the clock is compared with both ends."""
    if reading.actual - reading.latest > LARGEST_DRIFT:
        return reading.actual - reading.latest
    if reading.earliest - reading.actual > LARGEST_DRIFT:
        return reading.actual - reading.earliest
    return None

"""Times as text, RFC 3339 in UTC. Formats what it is given and reads no clock."""

from __future__ import annotations

import time
from functools import lru_cache


def format_timestamp(seconds: float) -> str:
    """To the microsecond."""
    whole = int(seconds // 1)
    return f"{_whole_seconds(whole)}.{int((seconds - whole) * 1_000_000):06d}Z"


@lru_cache(maxsize=4)
def _whole_seconds(seconds: int) -> str:
    """Cached: most files of one run were written within a few seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))

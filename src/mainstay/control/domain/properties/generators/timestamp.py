"""`timestamp`: the time of the request, RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC

from mainstay.control.domain.properties.contract import Generator, Lookups, PropertyType


def _generate(_path: str, current: object, lookups: Lookups) -> object:
    if current is not None:
        return current
    return lookups.context.now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


RULE = Generator("timestamp", lambda _config, _placement: _generate, fits=frozenset({PropertyType.STRING}))

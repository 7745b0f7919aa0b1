"""`timestamp`: the time of the request, RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC

from mainstay.control.domain.properties.contract import Config, Generate, Generator, Outside, Placement, PropertyType


def _generate(_path: str, current: object, outside: Outside) -> object:
    if current is not None:
        return current
    return outside.situation.now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _compile_rule(_config: Config, _placement: Placement) -> Generate:
    return _generate


RULE = Generator("timestamp", _compile_rule, fits=frozenset({PropertyType.STRING}))

"""`uuid`: a random identifier (version 4)."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Generator, Lookups, PropertyType


def _generate(path: str, current: object, lookups: Lookups) -> object:
    if current is not None:
        return current
    number = int.from_bytes(lookups.context.random_bytes(path)[:16], "big")
    # The version and variant bits of RFC 9562.
    number = number & ~(0xF << 76) | 4 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


RULE = Generator(
    "uuid", lambda _config, _placement: _generate, fits=frozenset({PropertyType.STRING, PropertyType.UUID})
)

"""Which hosts a push reaches, and in which batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from mainstay.foundation.numbers import parse_count
from mainstay.foundation.suggestions import did_you_mean
from mainstay.push.inventory import Inventory, InventoryHost

Item = TypeVar("Item")
LARGEST_BATCH = 1_000_000


class BadSelection(Exception):
    """An option that selects no hosts, or cannot be read. The text states the way out."""


def select(inventory: Inventory, limits: Sequence[str]) -> list[InventoryHost]:
    """The hosts that match any pattern and none that begins with `!`, in the order of the inventory."""
    patterns = [part for limit in limits for part in limit.split(",") if part]
    if limits and not patterns:
        raise BadSelection("--limit needs a pattern, such as 'web*'")
    chosen = [pattern for pattern in patterns if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = _matching(inventory, chosen) if chosen else set(inventory.hosts)
    unwanted = _matching(inventory, excluded)
    hosts = [host for name, host in inventory.hosts.items() if name in wanted and name not in unwanted]
    if not hosts:
        raise BadSelection(f"--limit {','.join(limits)} leaves no host")
    return hosts


def _matching(inventory: Inventory, patterns: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matching = {name for name in inventory.hosts if fnmatchcase(name, pattern)}
        for group, members in inventory.groups.items():
            if fnmatchcase(group, pattern):
                matching |= members
        if not matching:
            hint = did_you_mean(pattern, [*inventory.hosts, *inventory.groups])
            raise BadSelection(f"--limit: no host or group matches {pattern!r}{hint}")
        found |= matching
    return found


def batch_size(text: str | None, hosts: int) -> int:
    """How many hosts a batch has: a number, or a part of all hosts in percent, rounded up."""
    if text is None:
        return hosts
    if text.endswith("%"):
        percent = parse_count(text[:-1], 1, 100)
        if percent is not None:
            return max(1, -(-hosts * percent // 100))
    else:
        count = parse_count(text, 1, LARGEST_BATCH)
        if count is not None:
            return count
    raise BadSelection(f"--batch is a number of hosts or a percentage, such as 5 or 10%; got {text!r}")


def in_batches(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]

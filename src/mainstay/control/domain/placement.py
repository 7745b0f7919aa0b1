"""Placement: which of the agents that may serve an order gets it, and which tags only an admin sets.

Which agents may serve a consumer at all is a condition over tables: `store/serving.py`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Tags are written by the provider; those with this prefix state what an admin has checked.
ADMIN_TAG_PREFIX = "plane:"


@dataclass(frozen=True, slots=True)
class ServingAgent:
    """An agent that may serve the order."""

    agent_id: str
    tags: Sequence[str]
    provider_id: str
    provider_name: str


@dataclass(frozen=True, slots=True)
class SeveralProviders:
    """The order must name one of these: id → name, sorted by name."""

    names: Mapping[str, str]


def choose_agent(candidates: Sequence[ServingAgent], tags: Iterable[str]) -> ServingAgent | SeveralProviders | None:
    """The first candidate with all tags. None: no candidate has them."""
    wanted = frozenset(tags)
    fitting = [each for each in candidates if wanted <= frozenset(each.tags)]
    providers = {each.provider_id: each.provider_name for each in fitting}
    if len(providers) > 1:
        return SeveralProviders(dict(sorted(providers.items(), key=lambda each: (each[1], each[0]))))
    return fitting[0] if fitting else None


def admin_tags(tags: Iterable[str]) -> frozenset[str]:
    """The tags that only an admin sets, including those that merely look like one."""
    return frozenset(tag for tag in tags if _plain(tag).startswith(ADMIN_TAG_PREFIX))


def _plain(tag: str) -> str:
    return unicodedata.normalize("NFKC", tag).strip().casefold()

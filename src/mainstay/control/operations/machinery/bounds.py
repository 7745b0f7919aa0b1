"""Size limits of free-form documents. A service has at most 256 KiB of JSON in all, so that a page of a hundred
services stays readable."""

from __future__ import annotations

import msgspec

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.values import json_problem
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.foundation.vault import VAULT_PREFIX

MAX_PROPERTIES_BYTES = 160 * 1024
MAX_INSTANCE_DATA_BYTES = 32 * 1024
MAX_CONDITIONS_BYTES = 64 * 1024
# What an agent reports of its host.
MAX_FACTS_BYTES = 16 * 1024
# One value of a pool or of an option.
MAX_VALUE_BYTES = 32 * 1024
# A property schema, a lifecycle, a configuration schema.
MAX_DEFINITION_BYTES = 512 * 1024
# A value that will be sealed counts as its reference.
_REFERENCE = VAULT_PREFIX + "0" * 32


def size(value: object) -> int:
    return len(msgspec.json.encode(value, enc_hook=lambda _slot: _REFERENCE))


def exceeds(value: object, limit: int) -> bool:
    """Whether a document has more text than the limit. Stops there: aliases can expand a small file to gigabytes."""
    left, pending = limit, [value]
    while pending and left >= 0:
        each = pending.pop()
        if isinstance(each, dict):
            pending += [*each, *each.values()]
        elif isinstance(each, list):
            pending += each
        left -= len(each) if isinstance(each, str) else 1
    return left < 0


def excess(what: str, found: int, limit: int) -> PathFault:
    return PathFault("", f"{what} of {found} bytes as JSON exceed the maximum of {limit}")


def refuse_large(what: str, value: object, limit: int) -> None:
    if (found := size(value)) > limit:
        raise InvalidProperties([excess(what, found, limit)], code="too_large")


def refuse_unusable(what: str, value: object, limit: int) -> None:
    """For values without a schema: also refuses numbers that other clients cannot read."""
    refuse_large(what, value, limit)
    if (problem := json_problem(value)) is not None:
        raise InvalidProperties([PathFault(what, f"expected JSON, got {problem}")], code="invalid_body")

"""How many generated inputs a test takes: all with MAINSTAY_TORTURE=1 (`make torture`), otherwise a twentieth."""

from __future__ import annotations

import os

IS_TORTURE = os.environ.get("MAINSTAY_TORTURE") == "1"
# Of long tests that are not about the database. Other tests run on both.
DATABASES_OF_LONG_TESTS = ("sqlite", "postgresql") if IS_TORTURE else ("postgresql",)


def count_of(inputs: int) -> int:
    return inputs if IS_TORTURE else inputs // 20

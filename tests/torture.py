"""How many generated inputs a test takes: all with MAINSTAY_TORTURE=1 (`make torture`), otherwise a twentieth."""

from __future__ import annotations

import os

IS_TORTURE = os.environ.get("MAINSTAY_TORTURE") == "1"


def count_of(inputs: int) -> int:
    return inputs if IS_TORTURE else inputs // 20

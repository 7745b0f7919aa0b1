"""A kind of health check for tests: its output and its errors show all its values."""

from __future__ import annotations

from typing import Any

from mainstay.converge.contract import HealthCheckKind, Property
from mainstay.converge.failures import Failure
from mainstay.converge.value_kinds import TEXT, TEXTS


class ProbeCheck(HealthCheckKind):
    name = "probe"
    properties = {
        "probe": Property(TEXT, "how the check ends", choices=("good", "bad", "fail", "crash")),
        "password": Property(TEXT, "a password", secret=True),
        "pins": Property(TEXTS, "one-time codes", secret=True),
        "note": Property(TEXT, "a remark", private=True),
    }

    def run_once(self, check: Any, host: Any) -> tuple[str, str]:
        values = " ".join(str(value) for value in check.values.values())
        if check.values["probe"] == "fail":
            raise Failure(f"cannot probe with {values}, {values!r} in quotes")
        if check.values["probe"] == "crash":
            raise RuntimeError(values)
        return "OK" if check.values["probe"] == "good" else "CRITICAL", f"{values} and {values[::-1]}"


KIND = ProbeCheck()

"""What needs an operator, over the API: read only."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations.doctor import DoctorFinding, examine


async def _examine(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await examine(work))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/doctor",
        act=_examine,
        access=("doctor", "read"),
        summary="List what is stuck, why, and the command that helps",
        answer=list[DoctorFinding],
    ),
)

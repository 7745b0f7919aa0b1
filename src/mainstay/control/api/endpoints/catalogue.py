"""The catalogue: read only."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations.catalogue import Catalogue, read_catalogue


async def _show(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await read_catalogue(work))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/catalogue",
        act=_show,
        access=("catalogue", "read"),
        summary="List what can be ordered, from which provider, with which options",
        answer=Catalogue,
    ),
)

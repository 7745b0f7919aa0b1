"""The vault: agents open secrets of their services and their own."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations import vault
from mainstay.control.operations.vault import Revealed


async def _reveal(call: Call) -> Answer:
    async with call.transaction() as work:
        found = await vault.reveal(work, call.path["reference"])
    return Answer(found)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/vault/secrets/{reference}",
        act=_reveal,
        access=("secret", "read"),
        summary="Open a secret of the agent itself or of a service that it serves",
        answer=Revealed,
        refusals=(404, 409),
    ),
)

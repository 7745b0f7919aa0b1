"""The catalogue: read only."""

from __future__ import annotations

import re

from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.operations.catalogue import Catalogue, read_catalogue
from mainstay.control.operations.machinery.refusals import BadInput

ID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


async def _show(call: Call) -> Answer:
    consumer_id = next((value for key, value in call.query if key == "consumerId" and value), None)
    if consumer_id is not None and ID.fullmatch(consumer_id) is None:
        raise BadInput("consumerId must be a UUID", code="bad_query")
    async with call.reading() as work:
        return Answer(await read_catalogue(work, consumer_id))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/catalogue",
        act=_show,
        access=("catalogue", "read"),
        summary="List what can be ordered, from which provider, with which options",
        answer=Catalogue,
        query=(QueryParameter("consumerId", "What this participant may order; without it an admin sees all agents"),),
        refusals=(400, 403),
    ),
)

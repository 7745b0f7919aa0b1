"""Blueprints: bundles kept by their digest, fetched by the agents whose jobs name them."""

from __future__ import annotations

import hashlib

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations.refusals import BadInput, NotFound
from mainstay.control.store import blueprints

PATH = "/api/v1/blueprints"
GZIP = b"\x1f\x8b"


class KeptBlueprint(msgspec.Struct, frozen=True):
    digest: str
    size: int


async def keep(call: Call) -> Answer:
    if not call.raw_body.startswith(GZIP):
        raise BadInput("a blueprint is a .tar.gz", code="not_a_bundle")
    digest = f"sha256:{hashlib.sha256(call.raw_body).hexdigest()}"
    async with call.working() as work:
        await blueprints.keep(work.tx, digest, call.raw_body, work.now)
    return Answer(KeptBlueprint(digest, len(call.raw_body)))


async def fetch(call: Call) -> Answer:
    async with call.reading() as work:
        content = await blueprints.find(work.tx, call.path["digest"])
    if content is None:
        raise NotFound("blueprint", call.path["digest"])
    return Answer(content, media_type="application/gzip")


ENDPOINTS = (
    Endpoint(
        method="POST",
        path=PATH,
        act=keep,
        access=("blueprint", "write"),
        summary="Keep a blueprint; the same bytes twice are one",
        status=201,
        answer=KeptBlueprint,
        refusals=(400, 413),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{digest}}",
        act=fetch,
        access=("blueprint", "read"),
        summary="Fetch a blueprint by its digest",
        answer=bytes,
        media_type="application/gzip",
        refusals=(404,),
    ),
)

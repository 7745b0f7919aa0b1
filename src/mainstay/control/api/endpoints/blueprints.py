"""Blueprints: admins push bundles, agents fetch them by digest."""

from __future__ import annotations

import asyncio

from mainstay.control.api.contract import BOOLEAN, Answer, Call, Endpoint, QueryParameter
from mainstay.control.operations import agents, blueprints
from mainstay.control.operations.blueprints import PushedBlueprint
from mainstay.control.store.blueprints import BLUEPRINT_VERSIONS, BlueprintVersion
from mainstay.control.store.engine.paging import Page, list_page, parse_listing

PATH = "/api/v1/blueprints"


async def _push(call: Call) -> Answer:
    # In a thread: unpacking would block the event loop.
    bundle = await asyncio.to_thread(
        blueprints.read_bundle, call.raw_body, call.dependencies.tools.definitions.rulebook
    )
    dry_run = call.flag("dryRun")
    async with call.session.rolled_back() if dry_run else call.transaction() as work:
        pushed = await blueprints.push(work, bundle, force=call.flag("force"), dry_run=dry_run)
    return Answer(pushed, status=201 if pushed.created and not dry_run else 200)


async def _list_versions(call: Call) -> Answer:
    listing = parse_listing(BLUEPRINT_VERSIONS, call.query)
    async with call.reading() as work:
        return Answer(await list_page(work.tx, BLUEPRINT_VERSIONS, listing, []))


async def _fetch(call: Call) -> Answer:
    await agents.note_blueprints(call.session)
    async with call.reading() as work:
        return Answer(await blueprints.fetch(work, call.path["digest"]), media_type="application/gzip")


async def _delete(call: Call) -> Answer:
    async with call.transaction() as work:
        await blueprints.delete(work, call.path["digest"])
    return Answer()


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_list_versions,
        access=("blueprint", "list"),
        summary="List the versions of blueprints",
        answer=Page[BlueprintVersion],
        lists=BLUEPRINT_VERSIONS,
        refusals=(400,),
    ),
    Endpoint(
        method="POST",
        path=PATH,
        act=_push,
        access=("blueprint", "write"),
        summary="Push a blueprint: store it, create or change its service type, and use it for new services",
        status=201,
        raw_body="application/gzip",
        answer=PushedBlueprint,
        dry=PushedBlueprint,
        query=(
            QueryParameter(
                "force", "Replace the same version, and change the type even if services do not fit it", BOOLEAN
            ),
            QueryParameter(
                "dryRun", "Change nothing; report what would happen and which services do not fit", BOOLEAN
            ),
        ),
        refusals=(400, 408, 409, 413),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{digest}}",
        act=_fetch,
        access=("blueprint", "read"),
        summary="Fetch a blueprint by its digest",
        answer=bytes,
        media_type="application/gzip",
        refusals=(404,),
    ),
    Endpoint(
        method="DELETE",
        path=f"{PATH}/{{digest}}",
        act=_delete,
        access=("blueprint", "write"),
        summary="Delete a bundle that no service type, living service, orphan or active job uses",
        status=204,
        refusals=(404, 409),
    ),
)

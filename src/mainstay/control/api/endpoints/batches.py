"""Batches: several changes in one transaction, all or none. A dry run reports every refusal and changes nothing.

For tools that bring a whole plane to what a file says: each request is checked with what the requests before it wrote."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Annotated, Any, Literal

import msgspec

from mainstay.control.access import Role
from mainstay.control.api.admission import refuse_role
from mainstay.control.api.contract import BOOLEAN, Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.errors import HttpRefusal, refusal_answer
from mainstay.control.operations.machinery.bodies import NO_ZERO, Body
from mainstay.control.operations.machinery.forecast import version_after
from mainstay.control.operations.machinery.refusals import BadInput, BatchOutdated, BatchRefused
from mainstay.control.store.batches import next_revision, read_revision
from mainstay.control.store.engine.contract import Duplicate, StillReferenced, Transaction
from mainstay.control.store.engine.savepoints import JoinedStore, RepeatableTransaction
from mainstay.control.store.jobs import active_job

API = "/api/v1"
PATH = f"{API}/batch"
MAX_REQUESTS = 5_000
# For callers who are not admins: one transaction holds up the writes of others with the embedded database.
MAX_REQUESTS_OF_PARTICIPANTS = 500
# How long a dry run holds the only writer of the embedded database at a time, and leaves it to others then.
HOLDING_SECONDS = 0.02
# Nouns whose rows a batch creates, changes and deletes. Others answer with tokens or codes, or belong to agents.
NOUNS = frozenset(
    {
        "agent",
        "agent_type",
        "blueprint",
        "config_pool",
        "config_pool_value",
        "metric_type",
        "participant",
        "service",
        "service_group",
        "service_option",
        "service_option_type",
        "service_pool",
        "service_pool_set",
        "service_pool_value",
        "service_type",
    }
)
# The collection of a noun, or one row of it.
ROWS = re.compile(rf"{API}/[a-z-]+(?:/\{{id\}})?")
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=2000, pattern=NO_ZERO)]
Pointer = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=NO_ZERO)]
# More than a request may hold by default; the size of the request bounds it.
Content = Annotated[str, msgspec.Meta(max_length=2**30, pattern=NO_ZERO)]


class PartRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: Literal["POST", "PATCH", "DELETE"]
    # Below /api/v1.
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=NO_ZERO)]
    body: dict[str, object] | None = None
    # Base64 of a body that is not JSON: the bundle of a blueprint.
    content: Content | None = None
    force: bool = False
    # By which later requests refer to the id of what this one creates. Of a blueprint: the id of its service type.
    key: Key | None = None
    # JSON pointers into the body → the key whose id goes there.
    references: Annotated[dict[Pointer, Key], msgspec.Meta(max_length=1000)] = {}


class RequestBatch(Body, frozen=True, kw_only=True):
    # The revision of `GET /batch`, read before the rows that the requests are based on. The batch is refused if another one
    # came in between.
    if_revision: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    requests: Annotated[list[PartRequest], msgspec.Meta(min_length=1, max_length=MAX_REQUESTS)]


class PartJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The job of a service that a request started, or a delete that was active before."""

    id: str
    run_id: str
    service_id: str
    action: str
    # The version of the blueprint after the job, if the job changes it.
    blueprint_version: str | None = None


class PartResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of one request. `error` is the document of a refusal."""

    status: int
    id: str | None = None
    job: PartJob | None = None
    error: dict[str, object] | None = None


class BatchResult(msgspec.Struct, frozen=True):
    results: list[PartResult]


class BatchRevision(msgspec.Struct, frozen=True):
    # The number of batches that this participant, or the admins together, have sent.
    revision: int


async def _show_revision(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(BatchRevision(await read_revision(work.tx, call.required_caller.participant_id)))


async def _send(call: Call) -> Answer:
    batch, dry_run = call.read(RequestBatch), call.flag("dryRun")
    _admit(call, len(batch.requests))
    if dry_run:
        return Answer(BatchResult(await _forecast(call, batch.requests)))
    async with call.transaction() as work:
        revision = await next_revision(work.tx, call.required_caller.participant_id)
        if batch.if_revision not in (None, revision - 1):
            raise BatchOutdated
        parts = _Parts(call, work.tx, {}, stops=True)
        results = [await parts.carry_out(number, request) for number, request in enumerate(batch.requests, 1)]
    return Answer(BatchResult(results))


async def _forecast(call: Call, requests: list[PartRequest]) -> list[PartResult]:
    """Commits nothing. The embedded database has one writer: a long dry run gives it up between requests, and repeats
    its writes, without the decisions that led to them, when it gets the writer back."""
    results: list[PartResult] = []
    writes: list[tuple[str, dict[str, Any]]] = []
    ids: dict[str, str] = {}
    while len(results) < len(requests):
        async with call.session.rolled_back() as work:
            tx = RepeatableTransaction(work.tx, writes)
            started = monotonic()
            try:
                await tx.repeat()
            except (Duplicate, StillReferenced):
                raise BatchOutdated from None
            parts = _Parts(call, tx, ids, stops=False)
            # At least as long as repeating took, so that a batch of an admin with thousands of writes comes to an end.
            now = monotonic()
            until = now + max(HOLDING_SECONDS, now - started) if call.dependencies.store.dialect == "sqlite" else inf
            while len(results) < len(requests):
                results.append(await parts.carry_out(len(results) + 1, requests[len(results)]))
                if monotonic() >= until:
                    break
        if len(results) < len(requests):
            await asyncio.sleep(HOLDING_SECONDS)
    return results


def _admit(call: Call, count: int) -> None:
    caller = call.required_caller
    if caller.role is not Role.ADMIN and count > MAX_REQUESTS_OF_PARTICIPANTS:
        raise BadInput(
            f"a batch of a participant has at most {MAX_REQUESTS_OF_PARTICIPANTS} requests, this one {count}"
        )
    if count > 1:
        # The request itself is counted already.
        call.dependencies.limits.admit(caller, count - 1)


class _Parts:
    """The requests of one batch. `ids`: by the keys of requests before. `stops`: at the first refusal; otherwise every
    request is tried."""

    def __init__(self, call: Call, tx: Transaction, ids: dict[str, str], *, stops: bool) -> None:
        store = JoinedStore(call.dependencies.store, tx)
        self._call = replace(call, dependencies=replace(call.dependencies, store=store), headers={})
        self._tx = tx
        self._stops = stops
        self._ids = ids

    async def carry_out(self, number: int, request: PartRequest) -> PartResult:
        # The embedded database answers without a pause: other requests get their turn here.
        await asyncio.sleep(0)
        try:
            async with self._tx.savepoint():
                answer, job = await self._act(request)
        except Exception as error:
            refusal = refusal_answer(error)
            if refusal is None or refusal[0] >= 500:
                raise
            status, document, _ = refusal
            if self._stops:
                message = (
                    f"request {number} ({request.method} {request.path}): {document['error']}; nothing was changed"
                )
                raise BatchRefused(message, details={"number": number, "refusal": document}) from error
            return PartResult(status, error=document)
        created = _created_id(answer)
        if request.key is not None and created is not None:
            self._ids[request.key] = created
        return PartResult(200, created, job)

    async def _act(self, request: PartRequest) -> tuple[Answer, PartJob | None]:
        from mainstay.control.api.inner_calls import find_endpoint

        found = find_endpoint(request.method, f"{API}{request.path}")
        if (
            found is None
            or found[0].access is None
            or found[0].access[0] not in NOUNS
            or not ROWS.fullmatch(found[0].path)
        ):
            raise HttpRefusal(400, "not_in_batch", f"a batch cannot contain {request.method} {request.path}")
        endpoint, parameters = found
        refuse_role(self._call.required_caller, endpoint)
        is_service = found[0].access[0] == "service"
        # A change that only renames starts no job, but another one may be active.
        before = (
            await active_job(self._tx, parameters["id"].lower()) if is_service and request.method == "PATCH" else None
        )
        answer = await endpoint.act(
            replace(
                self._call,
                path=parameters,
                query=[("force", "true")] if request.force else [],
                raw_body=self._body(request),
            )
        )
        if not is_service:
            return answer, None
        service_id = parameters["id"].lower() if "id" in parameters else _created_id(answer)
        job = None if service_id is None else await active_job(self._tx, service_id)
        if job is None or (before is not None and job.id == before.id):
            return answer, None
        current = getattr(answer.body, "blueprint_digest", None)
        version = await version_after(self._tx, job, current) if request.method == "PATCH" else None
        return answer, PartJob(job.id, job.run_id, job.service_id, job.action, version)

    def _body(self, request: PartRequest) -> bytes:
        if request.content is not None:
            try:
                return base64.b64decode(request.content, validate=True)
            except (binascii.Error, ValueError):
                raise BadInput("content must be base64") from None
        if request.body is None:
            return b""
        body: object = request.body
        for pointer, key in request.references.items():
            if key not in self._ids:
                raise BadInput(f"this needs {key}, which was not created", code="missing_reference")
            _set_at(body, pointer, self._ids[key])
        return msgspec.json.encode(body)


def _created_id(answer: Answer) -> str | None:
    body = answer.body
    service_type = getattr(body, "service_type", None)
    if hasattr(body, "digest") and service_type is not None:
        return str(service_type.id)
    found = getattr(body, "id", None)
    return None if found is None else str(found)


def _set_at(document: object, pointer: str, value: str) -> None:
    """Writes into the body, which no other request uses."""
    *outer, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]] or [""]
    try:
        for part in outer:
            document = document[int(part)] if isinstance(document, list) else document[part]  # type: ignore[index]
        if isinstance(document, list):
            document[int(last)] = value
        else:
            document[last] = value  # type: ignore[index]
    except (LookupError, ValueError, TypeError):
        raise BadInput(f"the body has no place {pointer}") from None


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_show_revision,
        access=("batch", "read"),
        summary="Show the revision that a batch can name, so that it is refused after another one",
        answer=BatchRevision,
    ),
    Endpoint(
        method="POST",
        path=PATH,
        act=_send,
        access=("batch", "send"),
        summary="Carry out several changes in one transaction: all or none",
        body=RequestBatch,
        answer=BatchResult,
        query=(QueryParameter("dryRun", "Change nothing; report the outcome of every request", BOOLEAN),),
        refusals=(400, 409, 413),
    ),
)

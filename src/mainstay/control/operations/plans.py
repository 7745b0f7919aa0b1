"""Plans: what a request would do, here and on the host, and whether it would still do the same later.

A request is rehearsed in a transaction that is undone; what its first job would need goes to the agent as a question,
and is gone when the answer has come. Nothing else of a plan is kept: its digest is all that there is."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from mainstay.control.domain.properties.traversal import secrets_in
from mainstay.control.operations.machinery import runs
from mainstay.control.operations.machinery.bodies import Body, Text
from mainstay.control.operations.machinery.forecast import Forecast, HostForecast, forecast_action, forecast_order
from mainstay.control.operations.machinery.refusals import BadInput, PlanFailed, PlanOutdated
from mainstay.control.operations.machinery.secret_sealing import digest_of, open_secret
from mainstay.control.operations.machinery.unit_of_work import PlannedValues, UnitOfWork, new_id
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store import plans as store
from mainstay.control.store import secrets as secret_store
from mainstay.control.store.jobs import JobRow, active_job, latest_job_id
from mainstay.control.store.plans import PLAN_REQUESTS, PlanRequest
from mainstay.control.store.service_types import find_version
from mainstay.control.store.services import ServiceRow
from mainstay.control.vault.seal import CannotOpen, SealContext, Sealed, Vault
from mainstay.foundation.vault import VAULT_PREFIX

LIFETIME = timedelta(minutes=10)
GRACE = timedelta(seconds=10)
NOTICED_WITHIN = timedelta(seconds=2)
WOKEN_AT_ONCE = 1000
NO_HOST = "none"
DIGEST = re.compile(r"([0-9a-f]{16})\.([0-9]{1,11})\.([0-9a-f]{32})\.([0-9a-f]{64}|none)")
NONCE_BYTES = 8
KEY_ID_CHARACTERS = 16
# Instead of a key's name, where there is no vault.
OPEN = b"-" * KEY_ID_CHARACTERS
MAX_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class PlanSeed:
    """A plan before anything is known of it. All that it leaves to chance follows from these two."""

    nonce: str
    expires_at: datetime

    @property
    def made_at(self) -> datetime:
        return self.expires_at - LIFETIME


@dataclass(frozen=True, slots=True)
class PlanDigest:
    """A plan by its digest: what went in, and what the host said to it."""

    draft: PlanSeed
    inputs: str
    host: str

    def __str__(self) -> str:
        seconds = int(self.draft.expires_at.timestamp())
        return f"{self.draft.nonce}.{seconds}.{self.inputs}.{self.host}"


def new_plan_seed(now: datetime) -> PlanSeed:
    return PlanSeed(secrets.token_hex(NONCE_BYTES), now.replace(microsecond=0) + LIFETIME)


def parse_plan_digest(text: str) -> PlanDigest:
    found = DIGEST.fullmatch(text)
    if found is None:
        raise BadInput("planDigest is not the planDigest of a plan", code="bad_plan_digest")
    nonce, seconds, inputs, host = found.groups()
    return PlanDigest(PlanSeed(nonce, datetime.fromtimestamp(int(seconds), UTC)), inputs, host)


def refuse_expired(promise: PlanDigest, now: datetime) -> None:
    expires_at = promise.draft.expires_at
    if not now < expires_at <= now + LIFETIME:
        raise PlanOutdated("expired", f"the plan was good until {expires_at.isoformat().replace('+00:00', 'Z')}")


def pin_to_plan(work: UnitOfWork, draft: PlanSeed, host: str | None = None) -> None:
    """From here on the request draws what the plan has drawn. Only who has the vault's key knows what that is."""
    parts = [draft.nonce, int(draft.expires_at.timestamp()), work.required_caller.token_id]
    work.planned = PlannedValues(digest_of(work, "plan", *parts).encode(), draft.made_at, host)


# ---- rehearsing ----
@dataclass(frozen=True, slots=True)
class Carried:
    """What a request did: to which service (as it was before), by which action. No plan: nothing was queued."""

    service: ServiceRow
    action: str
    plan: runs.RunPlan | None
    is_order: bool = False

    async def forecast(self, work: UnitOfWork) -> Forecast:
        if self.is_order:
            return await forecast_order(work, self.service)
        return await forecast_action(work, self.service, self.action, self.plan)


class Question(msgspec.Struct, frozen=True):
    """The job as the agent would get it, and the secrets in its properties by their references."""

    job: JobView
    secrets: dict[str, object]


@dataclass(frozen=True, slots=True)
class PlanPreview:
    forecast: Forecast
    inputs: str
    agent_id: str
    # None: the agent would have nothing to do.
    question: Question | None


async def preview(work: UnitOfWork, carried: Carried, wanted: object, draft: PlanSeed) -> PlanPreview:
    """Tells what was done from inside the transaction that will be undone."""
    job = None if carried.plan is None else await active_job(work.tx, carried.service.id)
    forecast = await carried.forecast(work)
    return PlanPreview(
        forecast,
        await _inputs_of(work, carried, forecast, job, wanted, draft),
        carried.service.agent_id,
        None if job is None else await _question(work, carried.service, job),
    )


async def check_inputs(work: UnitOfWork, carried: Carried, wanted: object, promise: PlanDigest) -> None:
    """Once more, in the transaction that will stay."""
    job = None if carried.plan is None else await active_job(work.tx, carried.service.id)
    inputs = await _inputs_of(work, carried, await carried.forecast(work), job, wanted, promise.draft)
    refuse_other_inputs(promise, inputs)


def refuse_other_inputs(promise: PlanDigest, inputs: str) -> None:
    if inputs != promise.inputs:
        raise PlanOutdated(
            "inputs", "the request, the service, its type or what pools offer is not what the plan was made for"
        )


async def _inputs_of(
    work: UnitOfWork, carried: Carried, forecast: Forecast, job: JobRow | None, wanted: object, draft: PlanSeed
) -> str:
    """A digest of all that the outcome follows from. What an agent says of a service's condition is not among it."""
    service = carried.service
    service_type = await find_version(work.tx, service.service_type_id)
    known = [service.id, service.name, service.status, service.agent_id, service.agent_instance_data]
    inputs = {
        "plan": [draft.nonce, int(draft.expires_at.timestamp())],
        "wanted": wanted,
        "service": known if carried.is_order else [*known, service.properties],
        "type": None if service_type is None else service_type.updated_at,
        "blueprint": service.blueprint_digest if job is None else job.blueprint_digest,
        # Whatever was done to the service since is a reason to look again; so no plan is carried out twice.
        "before": await latest_job_id(work.tx, service.id, other_than="" if job is None else job.id),
        "forecast": [forecast.properties, forecast.path, sorted(forecast.pool_values, key=lambda each: each.path)],
    }
    return digest_of(work, "inputs", inputs)[:32]


async def _question(work: UnitOfWork, service: ServiceRow, job: JobRow) -> Question:
    (shown,) = await show_jobs(work, [job])
    properties = shown.service.properties if job.params is None else job.params
    schema = (await runs.definition_of(work, service)).properties
    opened: dict[str, object] = {}
    vault = work.tools.vault
    for _, reference in secrets_in(schema, properties):
        found = await secret_store.find(work.tx, reference.removeprefix(VAULT_PREFIX))
        if found is not None and vault is not None:
            opened[reference] = open_secret(vault, found)
    return Question(shown, opened)


# ---- asking the agent ----
class PlanQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """`job` and `secrets` are what the agent would get; after `seconds` nobody waits for the answer."""

    id: str
    seconds: float
    job: dict[str, object]
    secrets: dict[str, object]


class PlanAnswer(Body, frozen=True, kw_only=True):
    # Why there is no forecast.
    error: Text | None = None
    # Of the forecast, by the agent's own reckoning: the same as long as the host would answer the same.
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    manifest: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    events: Annotated[list[dict[str, object]], msgspec.Meta(max_length=MAX_EVENTS)] = []
    summary: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class HostAnswer:
    digest: str
    forecast: HostForecast


NOTHING_TO_DO = HostAnswer(NO_HOST, HostForecast())


def question_topic(agent_id: str) -> str:
    return f"plans:{agent_id}"


def answer_topic(request_id: str) -> str:
    return f"plan:{request_id}"


async def ask(work: UnitOfWork, rehearsal: PlanPreview, seconds: float) -> str:
    """Puts the question where the agent finds it, on whichever replica it asks."""
    request = PlanRequest(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        agent_id=rehearsal.agent_id,
        deadline_at=work.now + timedelta(seconds=seconds),
    )
    sealed = _seal(work.tools.vault, msgspec.to_builtins(rehearsal.question), request, "question")
    await PLAN_REQUESTS.insert(work.tx, request, taken=0, question=sealed)
    work.tx.announce(question_topic(request.agent_id))
    return request.id


async def is_asked(work: UnitOfWork) -> bool:
    return await store.is_waiting(work.tx, str(work.required_caller.agent_id), work.now)


async def take_questions(work: UnitOfWork, limit: int) -> list[PlanQuestion]:
    found = []
    for request, sealed in await store.take(work.tx, str(work.required_caller.agent_id), limit, work.now):
        question = _open(work.tools.vault, sealed, request, "question")
        seconds = (request.deadline_at - work.now).total_seconds()
        if question is not None:
            found.append(PlanQuestion(request.id, seconds, question["job"], question["secrets"]))
    return found


async def answer(work: UnitOfWork, request: PlanRequest, given: PlanAnswer) -> None:
    if (given.digest is None) == (given.error is None):
        raise BadInput("an answer has either a digest or an error")
    sealed = _seal(work.tools.vault, msgspec.to_builtins(given), request, "answer")
    await store.keep_answer(work.tx, request.id, sealed)
    work.tx.announce(answer_topic(request.id))


async def read_answer(work: UnitOfWork, request_id: str) -> HostAnswer | None:
    """None: there is none yet. Raises `PlanFailed` if the agent cannot say."""
    request = await PLAN_REQUESTS.find(work.tx, request_id)
    sealed = await store.answer_of(work.tx, request_id)
    document = None if request is None or sealed is None else _open(work.tools.vault, sealed, request, "answer")
    if document is None:
        return None
    given = msgspec.convert(document, PlanAnswer)
    if given.digest is None:
        raise PlanFailed(str(given.error))
    return HostAnswer(given.digest, HostForecast(given.manifest, given.events, given.summary))


async def forget_abandoned(work: UnitOfWork) -> None:
    """Whoever waits takes his own question away; only what is long over was left by a crash."""
    await store.forget_older(work.tx, work.now - GRACE)


async def wake(work: UnitOfWork) -> None:
    """A notice may get lost between replicas, when one of them ends between a commit and its telling."""
    for request in await store.older(work.tx, work.now - NOTICED_WITHIN, WOKEN_AT_ONCE):
        work.tx.announce(question_topic(request.agent_id))
        work.tx.announce(answer_topic(request.id))


def refuse_other_host(promise: PlanDigest, found: HostAnswer) -> None:
    if found.digest != promise.host:
        raise PlanOutdated("host", "on the host something else would be done now than the plan says")


# ---- sealing ----
def _place(request: PlanRequest, part: str) -> SealContext:
    return SealContext(request.id, "agent", request.agent_id, f"plan {part}")


def _seal(vault: Vault | None, document: object, request: PlanRequest, part: str) -> bytes:
    if vault is None:
        return OPEN + msgspec.json.encode(document)
    sealed = vault.seal(document, _place(request, part))
    return sealed.key_id.encode() + sealed.ciphertext


def _open(vault: Vault | None, sealed: bytes, request: PlanRequest, part: str) -> dict[str, dict[str, object]] | None:
    """None: another replica has sealed it with a key that this one does not have yet."""
    key, content = sealed[:KEY_ID_CHARACTERS], sealed[KEY_ID_CHARACTERS:]
    if key == OPEN:
        return msgspec.json.decode(content, type=dict)
    try:
        opened = None if vault is None else vault.open(Sealed(key.decode(), content), _place(request, part))
    except CannotOpen:
        return None
    return opened if isinstance(opened, dict) else None

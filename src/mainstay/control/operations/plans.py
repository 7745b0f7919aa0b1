"""Plans: the preview of an order, the agent's forecast for its first job, and the digest that covers both.

The question to the agent is a row for as long as the caller waits. The server stores nothing else of a plan: the
caller sends the digest back, and the server compares."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from mainstay.control.domain.properties.traversal import SecretPlace, secrets_in
from mainstay.control.operations.machinery import job_chains
from mainstay.control.operations.machinery.bodies import HEX_DIGEST, NO_ZERO, Body, Text
from mainstay.control.operations.machinery.forecast import Forecast, HostForecast, OrderOutcome, forecast_outcome
from mainstay.control.operations.machinery.refusals import BadInput, PlanFailed, PlanOutdated
from mainstay.control.operations.machinery.secret_sealing import digest_of, read_secret
from mainstay.control.operations.machinery.unit_of_work import PlannedValues, UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store import plans as store
from mainstay.control.store.jobs import JobRow, active_job, latest_job_id
from mainstay.control.store.plans import PLAN_REQUESTS, PlanRequest
from mainstay.control.store.service_types import find_version
from mainstay.control.store.services import ServiceRow
from mainstay.control.vault.seal import CannotOpen, SealContext, Sealed, Vault

LIFETIME = timedelta(minutes=10)
GRACE = timedelta(seconds=10)
ANNOUNCE_AGAIN_AFTER = timedelta(seconds=2)
MAX_ANNOUNCED = 1000
NO_HOST = "none"
DIGEST = re.compile(r"([0-9a-f]{16})\.([0-9]{1,11})\.([0-9a-f]{32})\.([0-9a-f]{64}|none)")
NONCE_BYTES = 8
KEY_ID_CHARACTERS = 16
# Takes the place of the key id when there is no vault.
UNSEALED = b"-" * KEY_ID_CHARACTERS
MAX_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class PlanSeed:
    """The source of everything random in a plan: ids, generated values and the time that generators see."""

    nonce: str
    expires_at: datetime

    @property
    def made_at(self) -> datetime:
        return self.expires_at - LIFETIME


@dataclass(frozen=True, slots=True)
class PlanDigest:
    """Identifies a plan: its seed, a digest of the inputs on the server, and the agent's digest of the host."""

    seed: PlanSeed
    inputs: str
    host: str

    def __str__(self) -> str:
        seconds = int(self.seed.expires_at.timestamp())
        return f"{self.seed.nonce}.{seconds}.{self.inputs}.{self.host}"


def new_plan_seed(now: datetime) -> PlanSeed:
    return PlanSeed(secrets.token_hex(NONCE_BYTES), now.replace(microsecond=0) + LIFETIME)


def parse_plan_digest(text: str) -> PlanDigest:
    found = DIGEST.fullmatch(text)
    if found is None:
        raise BadInput("planDigest is malformed; copy it from a plan", code="bad_plan_digest")
    nonce, seconds, inputs, host = found.groups()
    return PlanDigest(PlanSeed(nonce, datetime.fromtimestamp(int(seconds), UTC)), inputs, host)


def refuse_expired(digest: PlanDigest, now: datetime) -> None:
    expires_at = digest.seed.expires_at
    if not now < expires_at <= now + LIFETIME:
        raise PlanOutdated("expired", f"the plan expired at {expires_at.isoformat().replace('+00:00', 'Z')}")


def pin_to_plan(work: UnitOfWork, seed: PlanSeed, host: str | None = None) -> None:
    """Makes the unit of work draw the values of the plan. Guessing them requires the vault key."""
    parts = [seed.nonce, int(seed.expires_at.timestamp()), work.required_caller.token_id]
    work.planned = PlannedValues(digest_of(work, "plan", *parts).encode(), seed.made_at, host)


# ---- preview ----
class Question(msgspec.Struct, frozen=True):
    """The job as the agent would get it, and the secrets in its properties by their references and with their places."""

    job: JobView
    secrets: dict[str, object]
    places: list[SecretPlace]
    # Whether the order gives or clears secrets.
    changes_secrets: bool = False


@dataclass(frozen=True, slots=True)
class PlanPreview:
    forecast: Forecast
    inputs: str
    agent_id: str
    provider_id: str
    # None: the agent would have nothing to do.
    question: Question | None


async def preview_order(work: UnitOfWork, outcome: OrderOutcome, requested: object, seed: PlanSeed) -> PlanPreview:
    """Called after the order was executed, inside the transaction that is rolled back."""
    job = None if outcome.changes is None else await active_job(work.tx, outcome.service.id)
    forecast = await forecast_outcome(work, outcome)
    return PlanPreview(
        forecast,
        await _inputs_of(work, outcome, forecast, job, requested, seed),
        # A move asks its target.
        outcome.service.agent_id if job is None else job.agent_id,
        outcome.service.provider_id if job is None else job.provider_id,
        None if job is None else await _question(work, outcome, job),
    )


async def check_inputs(work: UnitOfWork, outcome: OrderOutcome, requested: object, digest: PlanDigest) -> None:
    """The same comparison inside the transaction that commits."""
    job = None if outcome.changes is None else await active_job(work.tx, outcome.service.id)
    inputs = await _inputs_of(work, outcome, await forecast_outcome(work, outcome), job, requested, digest.seed)
    refuse_other_inputs(digest, inputs)


def refuse_other_inputs(digest: PlanDigest, inputs: str) -> None:
    if inputs != digest.inputs:
        raise PlanOutdated(
            "inputs", "the request, the service, its type or the free pool values are not those of the plan"
        )


async def _inputs_of(
    work: UnitOfWork, outcome: OrderOutcome, forecast: Forecast, job: JobRow | None, requested: object, seed: PlanSeed
) -> str:
    """Digest of everything that determines the outcome. Not of conditions: a drift report must not outdate a plan."""
    service = outcome.service
    service_type = await find_version(work.tx, service.service_type_id)
    known = [service.id, service.name, service.status, service.agent_id, service.agent_instance_data]
    inputs = {
        "plan": [seed.nonce, int(seed.expires_at.timestamp())],
        "wanted": requested,
        "service": known if outcome.is_new else [*known, service.properties],
        "type": None if service_type is None else service_type.updated_at,
        "blueprint": service.blueprint_digest if job is None else job.blueprint_digest,
        # A job since the plan outdates it, so no plan is executed twice.
        "before": await latest_job_id(work.tx, service.id, other_than="" if job is None else job.id),
        "forecast": [forecast.properties, forecast.path, sorted(forecast.pool_values, key=lambda each: each.path)],
    }
    return digest_of(work, "inputs", inputs)[:32]


async def _question(work: UnitOfWork, outcome: OrderOutcome, job: JobRow) -> Question:
    service = outcome.service
    (shown,) = await show_jobs(work, [job])
    properties = shown.service.properties if job.params is None else job.params
    schema = (await job_chains.definition_of(work, service)).properties
    # A new service already has the properties of its first job.
    before = () if outcome.is_new else secrets_in(schema, shown.service.properties)
    opened: dict[str, object] = {}
    places: list[SecretPlace] = []
    for place in dict.fromkeys(secrets_in(schema, properties)):
        found = await read_secret(work, job_chains.secrets_owner(service.id), place)
        if found is not None:
            opened[place.reference] = found.reveal()
            places.append(place)
    return Question(shown, opened, places, changes_secrets=secrets_in(schema, properties) != before)


# ---- asking the agent ----
class PlanQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """`job` and `secrets` are what the agent would get; after `seconds` the caller no longer waits."""

    id: str
    seconds: float
    job: dict[str, object]
    secrets: dict[str, object]


class PlanAnswer(Body, frozen=True, kw_only=True):
    # Why there is no forecast.
    error: Text | None = None
    # Computed by the agent over its forecast; the same as long as the host would answer the same.
    digest: Annotated[str, msgspec.Meta(max_length=64, pattern=HEX_DIGEST)] | None = None
    manifest: Annotated[str, msgspec.Meta(max_length=4096, pattern=NO_ZERO)] | None = None
    events: Annotated[list[dict[str, object]], msgspec.Meta(max_length=MAX_EVENTS)] = []
    summary: dict[str, object] = {}
    # Whether forecast and digest are the same for every value of the secrets that the order gives.
    secrets_hidden: bool = False


@dataclass(frozen=True, slots=True)
class HostAnswer:
    digest: str
    forecast: HostForecast
    secrets_hidden: bool = True


NOTHING_TO_DO = HostAnswer(NO_HOST, HostForecast())


def question_topic(agent_id: str) -> str:
    return f"plans:{agent_id}"


def answer_topic(request_id: str) -> str:
    return f"plan:{request_id}"


async def ask_agent(work: UnitOfWork, preview: PlanPreview, seconds: float, plan: str | None) -> str:
    """Stores the question as a row, because the agent may be connected to another replica.

    `plan` names the plan in the events that record which secrets the agent read. None: they are already recorded."""
    request = PlanRequest(
        **work.new_record(),
        agent_id=preview.agent_id,
        deadline_at=work.now + timedelta(seconds=seconds),
    )
    document = {"plan": plan, **msgspec.to_builtins(preview.question)}
    sealed = _seal(work.tools.vault, document, request, "question")
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
            await _record_reading(work, question)
            found.append(PlanQuestion(request.id, seconds, question["job"], question["secrets"]))
    return found


async def _record_reading(work: UnitOfWork, question: dict[str, Any]) -> None:
    """Records one event per secret and plan. A plan of a new service names the id that the service would get."""
    if question["plan"] is None:
        return
    service = msgspec.convert(question["job"]["service"], ServiceRow)
    for place in msgspec.convert(question["places"], list[SecretPlace]):
        await work.record_event(
            "vault.read",
            service,
            service,
            reference=place.reference,
            schemaPath=place.schema_path,
            jobId=None,
            plan=question["plan"],
        )


async def answer(work: UnitOfWork, request: PlanRequest, given: PlanAnswer) -> None:
    if (given.digest is None) == (given.error is None):
        raise BadInput("an answer has either a digest or an error")
    sealed = _seal(work.tools.vault, msgspec.to_builtins(given), request, "answer")
    await store.keep_answer(work.tx, request.id, sealed)
    work.tx.announce(answer_topic(request.id))


async def read_answer(work: UnitOfWork, request_id: str) -> HostAnswer | None:
    """None: the agent has not answered yet. Raises `PlanFailed` if the agent reports an error."""
    request = await PLAN_REQUESTS.find(work.tx, request_id)
    sealed = await store.answer_of(work.tx, request_id)
    document = None if request is None or sealed is None else _open(work.tools.vault, sealed, request, "answer")
    if document is None:
        return None
    given = msgspec.convert(document, PlanAnswer)
    if given.digest is None:
        raise PlanFailed(str(given.error))
    forecast = HostForecast(given.manifest, given.events, given.summary)
    return HostAnswer(given.digest, forecast, given.secrets_hidden)


def refuse_answer_about_secrets(question: Question, found: HostAnswer) -> None:
    """Agents of earlier releases compare new secrets with the host, and their forecast would confirm a guess."""
    if question.changes_secrets and not found.secrets_hidden:
        raise PlanFailed(
            "the agent is of a release whose plans confirm guesses of secrets; upgrade the agent, or order without a plan"
        )


async def forget_abandoned(work: UnitOfWork) -> None:
    """Deletes the questions that a crashed server left; a waiting request deletes its own."""
    await store.delete_older(work.tx, work.now - GRACE)


async def wake(work: UnitOfWork) -> None:
    """Announces again: a replica that crashes between commit and announcement loses the announcement."""
    for request in await store.find_older(work.tx, work.now - ANNOUNCE_AGAIN_AFTER, MAX_ANNOUNCED):
        work.tx.announce(question_topic(request.agent_id))
        work.tx.announce(answer_topic(request.id))


def refuse_other_host(digest: PlanDigest, found: HostAnswer) -> None:
    if found.digest != digest.host:
        raise PlanOutdated("host", "the changes on the host would differ from those of the plan")


# ---- sealing ----
def _place(request: PlanRequest, part: str) -> SealContext:
    return SealContext(request.id, "agent", request.agent_id, f"plan {part}")


def _seal(vault: Vault | None, document: object, request: PlanRequest, part: str) -> bytes:
    if vault is None:
        return UNSEALED + msgspec.json.encode(document)
    sealed = vault.seal(document, _place(request, part))
    return sealed.key_id.encode() + sealed.ciphertext


def _open(vault: Vault | None, sealed: bytes, request: PlanRequest, part: str) -> dict[str, Any] | None:
    """None: another replica sealed it with a key that this replica does not have yet."""
    key, content = sealed[:KEY_ID_CHARACTERS], sealed[KEY_ID_CHARACTERS:]
    if key == UNSEALED:
        return msgspec.json.decode(content, type=dict)
    try:
        opened = None if vault is None else vault.open(Sealed(key.decode(), content), _place(request, part))
    except CannotOpen:
        return None
    return opened if isinstance(opened, dict) else None

"""The types of this folder: an endpoint, a call of it, its answer, and the dependencies of all endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from mainstay.control.access import Caller
from mainstay.control.api.bodies import parse_body, parse_change
from mainstay.control.api.limits import FailedAttempts, RequestLimits
from mainstay.control.api.live_hub import LiveHub
from mainstay.control.api.long_poll import UNAVAILABLE_SECONDS, LongPollSlots, first_of
from mainstay.control.api.open_connections import OpenConnections
from mainstay.control.api.prometheus import FigureReader, ServerMetrics
from mainstay.control.domain.values import is_uuid
from mainstay.control.operations.machinery.bodies import Body, NoFields, refuse_other_values
from mainstay.control.operations.machinery.caller_session import CallerSession
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.store.engine.contract import Store, Unavailable, try_write
from mainstay.control.store.engine.paging import parse_time
from mainstay.control.store.engine.records import Record
from mainstay.foundation.numbers import parse_count

if TYPE_CHECKING:
    from mainstay.control.settings import ServerSettings

B = TypeVar("B", bound=Body)
T = TypeVar("T")


# Between two trial writes, however often clients ask; also how long one waits for other writers.
TRIAL_WRITE_SECONDS = 5.0


@dataclass(slots=True)
class Readiness:
    """`stopping` is set when a shutdown begins, so that load balancers send no more requests."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _writes: bool = True
    _tried_at: float = -TRIAL_WRITE_SECONDS

    async def can_write(self, store: Store) -> bool:
        """Whether the last trial write succeeded: reads go on while the disk is full."""
        if time.monotonic() < self._tried_at + TRIAL_WRITE_SECONDS:
            return self._writes
        self._tried_at = time.monotonic()
        try:
            async with asyncio.timeout(TRIAL_WRITE_SECONDS), store.transaction() as tx:
                # On a full disk SQLite still finds space for a small write.
                await try_write(tx, 64 if store.dialect == "sqlite" else 1)
            self._writes = True
        except TimeoutError:
            # Other writers are at work.
            self._writes = True
        except Unavailable:
            self._writes = False
        return self._writes


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that endpoints use. Built once, in `serve.py`."""

    store: Store
    settings: ServerSettings
    tools: OperationTools
    clock: Callable[[], datetime]
    measures: ServerMetrics
    # Limits requests by caller.
    limits: RequestLimits
    # Limits wrong enrolment codes and wrong tokens at the sign-in, by address.
    enrolments: FailedAttempts
    sign_ins: FailedAttempts
    # What /ready reports.
    readiness: Readiness
    long_poll_slots: LongPollSlots = field(default_factory=LongPollSlots)
    open_connections: OpenConnections = field(default_factory=OpenConnections)
    figures: FigureReader = field(default_factory=FigureReader)
    # Feeds all streams of this process.
    live: LiveHub = field(init=False)
    # Whether these are the dependencies of the second port, which only operators reach.
    is_health_port: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "live", LiveHub(self.store, self.readiness.stopping))


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` None: no body."""

    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    # None: the status of the endpoint.
    status: int | None = None
    # A stream is sent instead of a body.
    stream: AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    dependencies: Dependencies
    path: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    raw_body: bytes
    # None for endpoints that need no token.
    caller: Caller | None
    client: str
    # How the client reached the server: http or https.
    scheme: str = "http"

    @property
    def required_caller(self) -> Caller:
        if self.caller is None:
            raise RuntimeError("an endpoint without a token has no caller")
        return self.caller

    @property
    def session(self) -> CallerSession:
        dependencies = self.dependencies
        return CallerSession(dependencies.store, dependencies.clock, dependencies.tools, self.caller)

    def read(self, body: type[B]) -> B:
        return parse_body(self.raw_body, body)

    def read_change(self, body: type[B], before: Record) -> B:
        """The body of a PATCH. It may repeat members that it cannot change, if they equal those of `before`."""
        wanted, echoed = parse_change(self.raw_body, body, type(before))
        refuse_other_values(echoed, before)
        return wanted

    def refuse_body(self) -> None:
        """For an endpoint without fields."""
        self.read(NoFields)

    def flag(self, name: str) -> bool:
        return any(key == name and value in ("true", "1") for key, value in self.query)

    def last(self, name: str) -> str | None:
        """The last value of a query parameter. None: not given."""
        return next((value for key, value in reversed(self.query) if key == name), None)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.last(name)
        if not text:
            return default
        number = parse_count(text, least, most)
        if number is None:
            raise BadInput(f"{name} must be an integer from {least} to {most}", code="bad_query")
        return number

    def uuid(self, name: str) -> str | None:
        """None: not given."""
        text = self.last(name)
        if not text:
            return None
        if not is_uuid(text):
            raise BadInput(f"{name} must be a uuid", code="bad_query")
        return text.lower()

    def time(self, name: str) -> datetime | None:
        """None: not given."""
        text = self.last(name)
        try:
            return None if text is None else parse_time(text)
        except (ValueError, OverflowError):
            raise BadInput(f"{name} must be a time such as 2026-01-31T12:00:00Z", code="bad_query") from None

    def transaction(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self.session.transaction()

    def autocommit(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self.session.autocommit()

    def reading(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self.session.reading()

    async def wait_until_found(self, topic: str, check: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Calls `check` now and after each announcement, until it finds something or the time is up or the server stops.
        Raises the refusal if the token of the caller ends meanwhile, also if that is found only when there is something. While the database is unavailable it goes on waiting."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        dependencies = self.dependencies
        stopping = dependencies.readiness.stopping
        caller = self.required_caller
        has_waited = False
        with dependencies.open_connections.opened(caller) as connection:
            while True:
                with dependencies.store.bus.listening(topic) as news:
                    connection.refuse_if_ended()
                    try:
                        found = await check()
                        if found and has_waited:
                            await dependencies.open_connections.confirm(
                                connection, dependencies.store, dependencies.clock
                            )
                        left = until - loop.time()
                        if found or left <= 0 or stopping.is_set():
                            return found
                    except Unavailable:
                        left = min(until - loop.time(), UNAVAILABLE_SECONDS)
                        if left <= 0 or stopping.is_set():
                            raise
                    dependencies.long_poll_slots.refuse_if_full(caller)
                    has_waited = True
                    with dependencies.long_poll_slots.taken(caller):
                        await first_of((news, stopping, connection.ended), left)

    async def wait_for(self, topic: str, check: Callable[[], Awaitable[T | None]], seconds: float) -> T | None:
        """Like `wait_until_found`, but raises `Unavailable` if the server shuts down."""
        found = await self.wait_until_found(topic, check, seconds)
        if found is None and self.dependencies.readiness.stopping.is_set():
            raise Unavailable("the server is shutting down")
        return found


@dataclass(frozen=True, slots=True)
class QueryParameter:
    name: str
    description: str
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})


BOOLEAN: Mapping[str, object] = {"type": "boolean"}
TIME: Mapping[str, object] = {"type": "string", "format": "date-time"}
# Query parameters of long polls.
LIMIT = QueryParameter("limit", "Maximum number", {"type": "integer", "minimum": 1, "maximum": 100})
MAX_WAIT_SECONDS = 60
WAIT = QueryParameter("wait", "Seconds to wait", {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECONDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    act: Callable[[Call], Awaitable[Answer]]
    # The row of the access table. None: no token required.
    access: tuple[str, str] | None
    summary: str
    status: int = 200
    body: type[Body] | None = None
    # The media type of a body that is not JSON. None: there is none.
    raw_body: str | None = None
    # The type of the response body, for the API description. None: no body.
    answer: object = None
    # Other possible types, such as the forecast of a dry run.
    also: tuple[object, ...] = ()
    # The type of a response with 200, if `status` is another: of a dry run, or of a deletion that ended more.
    dry: object = None
    query: tuple[QueryParameter, ...] = ()
    # The table whose columns filter the list.
    lists: object = None
    refusals: tuple[int, ...] = ()
    media_type: str = "application/json"
    # Whether a readOnly token may call it; None: if it is a GET.
    only_reads: bool | None = None

    @property
    def admits_read_only(self) -> bool:
        return self.method == "GET" if self.only_reads is None else self.only_reads

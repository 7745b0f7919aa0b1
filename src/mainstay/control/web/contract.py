"""The types of this folder: a page, a call of it by a browser, its answer, and the navigation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from mainstay.control.access import Caller
from mainstay.control.api.admission import refuse_role
from mainstay.control.api.contract import Call
from mainstay.control.api.errors import refusal_answer
from mainstay.control.api.inner_calls import find_endpoint
from mainstay.control.api.live_hub import LiveHub
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

Audience = Literal["everyone", "provider", "admin"]


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """The entry of a page in the side bar. `audience` provider: admins, and participants that have an agent."""

    label: str
    icon: str
    # Entries of a group are sorted by it.
    position: int
    # Entries without a group are above all groups.
    group: str = ""
    audience: Audience = "everyone"


@dataclass(frozen=True, slots=True)
class BrowserSession:
    # The hash of the cookie.
    id: str
    # Every form sends it back.
    csrf_token: str


class ApiRefusal(Exception):
    """An endpoint refused what a page asked of it. `document` is the body of its answer."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("error", "")))
        self.status = status
        self.code = str(document.get("code", ""))
        self.document = document

    @property
    def faults(self) -> list[tuple[str, str]]:
        """(path, message) of each invalid member."""
        return [(str(each["path"]), str(each["message"])) for each in self.document.get("errors", ())]


@dataclass(frozen=True, slots=True)
class PageCall:
    """A request of a browser. `call` is the same request as the API sees it."""

    call: Call
    # None on pages that need no session.
    session: BrowserSession | None
    # Path and query, as the browser sent them.
    url: str
    hub: LiveHub
    # The newest event before the page is read; the stream of the page starts after it.
    live_after: int = 0
    form: Sequence[tuple[str, str]] = ()

    @property
    def caller(self) -> Caller:
        return self.call.required_caller

    @property
    def path(self) -> Mapping[str, str]:
        return self.call.path

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        """The query without the parameter of a live region."""
        return [(name, value) for name, value in self.call.query if name != "fragment"]

    @property
    def fragment(self) -> str | None:
        """The live regions that script asks for, separated by commas. None: the whole page."""
        return next((value for name, value in self.call.query if name == "fragment"), None)

    def asked(self, name: str, default: str = "") -> str:
        """The last value of a query parameter."""
        return next((value for key, value in reversed(self.call.query) if key == name), default)

    def typed(self, name: str, default: str = "") -> str:
        """The last value of a form field."""
        return next((value for key, value in reversed(self.form) if key == name), default)

    def posted(self, name: str, default: str = "") -> str:
        """The last value of a form field, without surrounding space."""
        return self.typed(name, default).strip()

    def reading(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self.call.reading()

    async def api(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Calls an endpoint of the API in process, with the rights of this caller: pages have no rules of their own.
        Returns the JSON document of the answer as plain values; raises `ApiRefusal`."""
        found = find_endpoint(method, path)
        if found is None:
            raise LookupError(f"there is no endpoint {method} {path}")
        endpoint, parameters = found
        raw_body = b"" if body is None else msgspec.json.encode(body)
        inner = replace(self.call, path=parameters, query=query, headers=headers or {}, raw_body=raw_body)
        try:
            refuse_role(self.caller, endpoint)
            answer = await endpoint.act(inner)
        except Exception as error:
            refusal = refusal_answer(error)
            if refusal is None:
                raise
            raise ApiRefusal(refusal[0], refusal[1]) from error
        # The stored answer to a repeated idempotency key is JSON.
        return (
            msgspec.json.decode(answer.body) if isinstance(answer.body, bytes) else msgspec.to_builtins(answer.body)
        )


@dataclass(frozen=True, slots=True)
class PageAnswer:
    # The file in templates/; "" for a redirect or a stream.
    template: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    # See Other: where a browser goes after a form.
    redirect: str | None = None
    # Shown once, on the page that the redirect leads to.
    notice: str = ""
    # Values of `Set-Cookie`.
    cookies: Sequence[str] = ()
    # Headers beside those of every page, such as `Retry-After`.
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None
    # A JSON document is sent instead of a template.
    document: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    method: Literal["GET", "POST"]
    path: str
    act: Callable[[PageCall], Awaitable[PageAnswer]]
    # The row of the access table. None: no session required.
    access: tuple[str, str] | None
    navigation: NavigationEntry | None = None
    # Answers clients that ask for JSON, without a session. None: they get the page, too.
    as_json: Callable[[PageCall], Awaitable[PageAnswer]] | None = None
    # Whether a session of a readOnly token may use it; None: if it is a GET.
    only_reads: bool | None = None

    @property
    def admits_read_only(self) -> bool:
        return self.method == "GET" if self.only_reads is None else self.only_reads

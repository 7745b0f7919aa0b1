"""The way of a browser's request: session, rights, form, page, template. Errors become pages, too."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from mainstay.control.api.admission import refuse_role
from mainstay.control.api.application import (
    SAFE_HEADERS,
    HttpRoute,
    read_call,
    record_request,
    refusal_or_bug,
    request_id_of,
)
from mainstay.control.api.asgi import HttpRequest, HttpResponse
from mainstay.control.api.bodies import PARSED_ON_LOOP_BYTES
from mainstay.control.api.contract import Call, Dependencies
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.web import sessions
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.navigation import read_navigation
from mainstay.control.web.pages import all_pages
from mainstay.control.web.rendering import render, render_block
from mainstay.control.web.sessions import Cookies
from mainstay.control.web.static_files import files_by_served_name

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    **SAFE_HEADERS,
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
HTML = "text/html"
FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 5000
# Live regions that one request may ask for.
MAX_REGIONS = 20
FOR_EVER = "public, max-age=31536000, immutable"
# Sent by script with requests that no person made.
AUTOMATIC = "x-mainstay-live"
# What `frame.html` shows without a session.
BARE_FRAME: Mapping[str, Any] = {
    "viewer": None,
    "navigation": None,
    "csrf": "",
    "url": "/",
    "page_path": "/",
    "notice": "",
    "host": "",
    "live_after": 0,
    "now_milliseconds": 0,
    "live_session": "",
}
ERROR_TITLES = {
    403: "You may not do this",
    404: "There is no such page",
    409: "This cannot be done now",
    429: "Too many requests",
    500: "The server has a defect",
    503: "The database is not available",
    504: "The agent does not answer",
}


class WebPipeline:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._hub = dependencies.live

    def routes(self) -> Sequence[HttpRoute]:
        pages = (HttpRoute(page.method, page.path, partial(self._serve, page)) for page in all_pages())
        return [*pages, HttpRoute("GET", "/static/{name}", _serve_static)]

    async def _serve(self, page: WebPage, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        request_id = request_id_of(request)
        cookies = Cookies(request.headers, request.scheme)
        try:
            response = await self._act(page, request, cookies)
        except Exception as error:  # noqa: BLE001 - a bug is logged with an id and answered with 500
            response = await self._refuse(request, error, request_id, cookies)
        response.headers = {**response.headers, **PAGE_HEADERS, "X-Request-Id": request_id}
        record_request(self._dependencies, request, request_id, page, response.status, started)
        return response

    async def _act(self, page: WebPage, request: HttpRequest, cookies: Cookies) -> HttpResponse:
        if page.as_json is not None and _prefers_json(request):
            call = await read_call(self._dependencies, request)
            open_call = PageCall(call, None, page.path, self._hub)
            return await self._respond(open_call, await page.as_json(open_call), cookies)
        session = None
        cookie = cookies.get(sessions.SESSION)
        if page.access is not None:
            sessions.refuse_foreign_read(request.headers)
            in_use = AUTOMATIC not in request.headers
            caller, session = await sessions.find_session(self._dependencies, cookie, in_use=in_use)
            request.caller = caller
            self._dependencies.limits.admit(caller)
            refuse_role(caller, page)
        call = await read_call(self._dependencies, request)
        live_after = 0 if session is None else await self._hub.position()
        is_large = len(call.raw_body) > PARSED_ON_LOOP_BYTES
        form = await asyncio.to_thread(_read_form, page, call) if is_large else _read_form(page, call)
        page_call = PageCall(call, session, request.url, self._hub, live_after, form)
        if page.method == "POST":
            purpose = sessions.SIGN_IN if session is None else sessions.SESSION
            sessions.refuse_foreign_form(call.headers, call.scheme, cookies.get(purpose), page_call.posted("csrf"))
        answer = await page.act(page_call)
        return await self._respond(page_call, answer, cookies)

    async def _respond(self, call: PageCall, answer: PageAnswer, cookies: Cookies) -> HttpResponse:
        set_cookies = list(answer.cookies)
        if answer.stream is not None:
            unbuffered = {"X-Accel-Buffering": "no"}
            return HttpResponse(headers=unbuffered, media_type="text/event-stream", stream=answer.stream)
        if answer.redirect is not None:
            if answer.notice:
                set_cookies.append(cookies.set(sessions.NOTICE, answer.notice[: sessions.MAX_NOTICE]))
            return HttpResponse(status=303, headers={"Location": answer.redirect}, cookies=set_cookies)
        if not answer.template:
            body = msgspec.json.encode(answer.document)
            return HttpResponse(body, answer.status, cookies=set_cookies)
        values = await self._frame_values(call) | dict(answer.values)
        if call.fragment is not None:
            text = _render_regions(answer.template, call.fragment, values)
            return HttpResponse(text.encode(), answer.status, media_type=HTML)
        notice = cookies.get(sessions.NOTICE)
        if notice:
            set_cookies.append(cookies.set(sessions.NOTICE, ""))
        text = render(answer.template, {**values, "notice": notice})
        return HttpResponse(text.encode(), answer.status, answer.headers, HTML, set_cookies)

    async def _frame_values(self, call: PageCall) -> dict[str, Any]:
        """What `frame.html` shows on every page."""
        caller = call.call.caller
        navigation = None
        if caller is not None and call.fragment is None:
            navigation = await read_navigation(self._dependencies.store, caller)
        return {
            **BARE_FRAME,
            "viewer": caller,
            "navigation": navigation,
            "csrf": "" if call.session is None else call.session.csrf_token,
            "url": call.url,
            "page_path": call.url.partition("?")[0],
            "host": call.call.headers.get("host", ""),
            "live_after": call.live_after,
            "now_milliseconds": int(self._dependencies.clock().timestamp() * 1000),
            # Names the stream that the tabs of a session share.
            "live_session": "" if call.session is None else call.session.id[:16],
        }

    async def _refuse(
        self, request: HttpRequest, error: Exception, request_id: str, cookies: Cookies
    ) -> HttpResponse:
        if isinstance(error, ApiRefusal):
            status, document, headers = error.status, error.document, dict[str, str]()
        else:
            status, document, headers = refusal_or_bug(error, request_id)
        if status == 401 and request.method == "GET" and AUTOMATIC not in request.headers:
            where = request.url
            target = "/signin" if where == "/" else f"/signin?next={quote(where, safe='')}"
            return HttpResponse(status=303, headers={"Location": target})
        if status == 429:
            # A refusal must cost less than what it refuses: no session and no side bar.
            return _error_response(BARE_FRAME, status, document, headers)
        caller, session = None, None
        # Without a session, or without a database, the error has no side bar.
        with contextlib.suppress(Exception):
            cookie = cookies.get(sessions.SESSION)
            caller, session = await sessions.find_session(self._dependencies, cookie, in_use=False)
        shown_to = None if status == 503 else caller
        inner = Call(self._dependencies, {}, (), request.headers, b"", shown_to, "")
        frame = await self._frame_values(PageCall(inner, session, request.url, self._hub))
        return _error_response(frame, status, document, headers)

    def error_page(self, request: HttpRequest, status: int, document: Mapping[str, object]) -> HttpResponse | None:
        """For paths that are neither a page nor an endpoint. None: the client did not ask for HTML."""
        if request.url.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
            return None
        return _error_response(BARE_FRAME, status, document, PAGE_HEADERS)


def _render_regions(template: str, names: str, values: Mapping[str, Any]) -> str:
    """The block of one region; of several, separated by commas, each in a `template` element."""
    blocks = []
    for name in names.split(",")[:MAX_REGIONS]:
        text = render_block(template, name, values)
        if text is None:
            raise HttpRefusal(404, "not_found", f"this page has no region {name[:100]!r}")
        blocks.append(text)
    return blocks[0] if len(blocks) == 1 else "".join(f"<template>{each}</template>" for each in blocks)


def _prefers_json(request: HttpRequest) -> bool:
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def _error_response(
    frame: Mapping[str, Any], status: int, document: Mapping[str, object], headers: Mapping[str, str]
) -> HttpResponse:
    title = ERROR_TITLES.get(status, "This request is not valid")
    text = render("error.html", {**frame, "status": status, "document": document, "title": title})
    return HttpResponse(text.encode(), status, headers, HTML)


def _read_form(page: WebPage, call: Call) -> Sequence[tuple[str, str]]:
    if page.method != "POST":
        return ()
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if call.raw_body and kind != FORM:
        raise HttpRefusal(400, "bad_request", f"a form must be sent as {FORM}")
    try:
        form = parse_qsl(
            call.raw_body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except (UnicodeDecodeError, ValueError):
        raise HttpRefusal(400, "bad_request", f"the form is damaged or has more than {MAX_FIELDS} fields") from None
    # Browsers send line breaks of text areas as CR LF.
    return [(name, value.replace("\r\n", "\n")) for name, value in form]


async def _serve_static(request: HttpRequest) -> HttpResponse:
    found = files_by_served_name().get(request.parameters["name"])
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'"}
    if found is None:
        return HttpResponse(status=404, headers=headers)
    return HttpResponse(found.content, 200, headers | {"Cache-Control": FOR_EVER}, found.media_type)

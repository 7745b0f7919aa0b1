"""Sign in with a token, sign out."""

from __future__ import annotations

from dataclasses import replace

from mainstay.control.api.errors import HttpRefusal
from mainstay.control.web import sessions
from mainstay.control.web.contract import PageAnswer, PageCall, WebPage
from mainstay.control.web.sessions import Cookies


def _next_page(asked: str) -> str:
    """Only paths of this server: `//host` and `/\\host` lead elsewhere. Addresses of pages are ASCII."""
    is_local = asked.startswith("/") and not asked.startswith(("//", "/\\"))
    return asked if is_local and asked.isascii() and asked.isprintable() else "/"


def _cookies_of(call: PageCall) -> Cookies:
    return Cookies(call.call.headers, call.call.scheme)


def _form(call: PageCall, *, fault: str = "", status: int = 200, next_page: str) -> PageAnswer:
    cookies = _cookies_of(call)
    cookie = cookies.get(sessions.SIGN_IN) or sessions.new_sign_in_cookie()
    values = {"fault": fault, "next": next_page, "csrf": sessions.csrf_token(cookie)}
    return PageAnswer("signin.html", values, status=status, cookies=[cookies.set(sessions.SIGN_IN, cookie)])


async def _show(call: PageCall) -> PageAnswer:
    next_page = _next_page(call.asked("next", "/"))
    cookies = _cookies_of(call)
    try:
        await sessions.find_session(call.call.dependencies, cookies.get(sessions.SESSION), in_use=False)
    except HttpRefusal:
        return _form(call, next_page=next_page)
    return PageAnswer(redirect=next_page)


async def _sign_in(call: PageCall) -> PageAnswer:
    dependencies, next_page = call.call.dependencies, _next_page(call.posted("next", "/"))
    try:
        sessions.refuse_plain_http(dependencies, call.call.scheme, call.call.client)
        cookie = await sessions.sign_in(dependencies, call.posted("token"), call.call.client)
    except HttpRefusal as refusal:
        if refusal.code == "rate_limited":
            raise
        form = _form(call, fault=str(refusal), status=refusal.status, next_page=next_page)
        return replace(form, headers=refusal.headers)
    cookies = _cookies_of(call)
    changed = [cookies.set(sessions.SESSION, cookie), cookies.set(sessions.SIGN_IN, "")]
    return PageAnswer(redirect=next_page, cookies=changed)


async def _sign_out(call: PageCall) -> PageAnswer:
    if call.session is not None:
        await sessions.sign_out(call.call.dependencies, call.session)
    cookies = _cookies_of(call)
    return PageAnswer(redirect="/signin", cookies=[cookies.set(sessions.SESSION, "")])


PAGES = (
    WebPage(method="GET", path="/signin", act=_show, access=None),
    WebPage(method="POST", path="/signin", act=_sign_in, access=None),
    WebPage(method="POST", path="/signout", act=_sign_out, access=("token", "be"), only_reads=True),
)

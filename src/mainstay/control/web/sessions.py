"""The cookies of a browser: its session, and the proof that a form came from a page of this server."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import quote, unquote, urlsplit

from mainstay.control.access import Caller, Role
from mainstay.control.api.admission import refusal_of
from mainstay.control.api.authentication import caller_of, note_token_use
from mainstay.control.api.contract import Dependencies
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.operations import browser_sessions
from mainstay.control.store import browser_sessions as store
from mainstay.control.store.engine.records import to_time
from mainstay.control.store.tokens import find_caller
from mainstay.control.web.contract import BrowserSession
from mainstay.foundation.addresses import is_loopback_host

SEEN_EVERY = timedelta(minutes=1)
MAX_COOKIE = 200
MAX_NOTICE = 500
SESSION, SIGN_IN, NOTICE = "session", "sign-in", "notice"


class Cookies:
    """The cookies of one request. Their names contain the port, since browsers share cookies between ports; under TLS
    they are bound to the host."""

    def __init__(self, headers: Mapping[str, str], scheme: str) -> None:
        self._secure = scheme == "https"
        self._port = headers.get("host", "").rpartition("]")[2].rpartition(":")[2] or "80"
        self._sent = _read_cookies(headers.get("cookie", ""))

    def _name(self, purpose: str) -> str:
        if self._secure:
            return f"__Host-mainstay-{purpose}"
        port = self._port if self._port.isdecimal() else "80"
        return f"mainstay-{purpose}-{port}"

    def get(self, purpose: str) -> str:
        found = self._sent.get(self._name(purpose), "")
        return unquote(found) if len(found) <= MAX_NOTICE * 3 else ""

    def set(self, purpose: str, value: str) -> str:
        """A value of `Set-Cookie`. An empty `value` deletes the cookie."""
        lifetime = "" if value else "Max-Age=0; "
        secure = "; Secure" if self._secure else ""
        written = quote(value, safe="") or '""'
        return f"{self._name(purpose)}={written}; HttpOnly; {lifetime}Path=/; SameSite=lax{secure}"


def _read_cookies(header: str) -> dict[str, str]:
    """Not `SimpleCookie`, which reads no cookie at all if one has an unusual value: browsers also send those of other
    programs on the same host. Of a repeated name the last one counts, which has the shortest path."""
    pairs = (each.partition("=") for each in header.split(";"))
    return {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def new_sign_in_cookie() -> str:
    return secrets.token_urlsafe(32)


def csrf_token(cookie: str) -> str:
    """Derived from the cookie, which other sites cannot read."""
    return hashlib.sha256(f"csrf:{cookie}".encode(errors="surrogatepass")).hexdigest()


def refuse_foreign_read(headers: Mapping[str, str]) -> None:
    """Raises if a page of another site, or of another port of this host, loads this one as a part of itself: it cannot
    read the answer, but would use up the streams and the requests of the user. Links from there are fine."""
    is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if is_foreign and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document"):
        raise HttpRefusal(403, "foreign_origin", "this page is not part of pages of other sites; open it by itself")


def refuse_foreign_form(headers: Mapping[str, str], scheme: str, cookie: str, given: str) -> None:
    """Raises unless the form comes from a page of this server that was rendered for this cookie."""
    origin = headers.get("origin", "")
    if origin != f"{scheme}://{headers.get('host', '')}":
        raise HttpRefusal(403, "foreign_origin", _foreign_text(origin, scheme, headers.get("host", "")))
    if not cookie or not hmac.compare_digest(csrf_token(cookie).encode(), given.encode(errors="surrogatepass")):
        raise HttpRefusal(403, "foreign_form", "this form is outdated; load the page again and repeat your input")


def _foreign_text(origin: str, scheme: str, host: str) -> str:
    if urlsplit(origin).netloc == host and host:
        return (
            f"the browser uses {urlsplit(origin).scheme}, but the server was reached by {scheme}; if a proxy ends TLS,"
            " name it in the server setting trusted_proxies"
        )
    return "the form was sent by a page of another site; nothing was changed"


def refuse_plain_http(dependencies: Dependencies, scheme: str, client: str) -> None:
    if scheme == "https" or dependencies.settings.insecure == "on" or is_loopback_host(client):
        return
    raise HttpRefusal(
        403,
        "plain_http",
        "signing in would send your token unencrypted: use https, or a tunnel to the server's loopback address."
        " An operator may allow it with the server setting insecure",
    )


async def sign_in(dependencies: Dependencies, value: str, client: str) -> str:
    """The cookie of a new session."""
    now = dependencies.clock()
    async with dependencies.store.autocommit() as tx:
        found = await find_caller(tx, value)
    refusal = refusal_of(found, now)
    if found is None or refusal is not None:
        dependencies.sign_ins.count(client)
        raise refusal or HttpRefusal(401, "unauthorized", "unknown token")
    if found["role"] == Role.AGENT:
        raise HttpRefusal(
            403, "agent_token", "a token of an agent cannot sign in; use one of a participant or an admin"
        )
    # A session is two writes.
    dependencies.limits.admit(caller_of(found))
    async with dependencies.store.transaction() as tx:
        return await browser_sessions.open_session(tx, str(found["hash"]), now)


async def sign_out(dependencies: Dependencies, session: BrowserSession) -> None:
    async with dependencies.store.transaction() as tx:
        await store.delete_session(tx, session.id)


async def find_session(dependencies: Dependencies, cookie: str, *, in_use: bool) -> tuple[Caller, BrowserSession]:
    """Raises if there is no such session, or it or its token has ended. `in_use`: the request is one of a person, not
    an automatic one of an open page."""
    ended = HttpRefusal(401, "session_ended", "sign in to see this page")
    if not cookie or len(cookie) > MAX_COOKIE:
        raise ended
    now = dependencies.clock()
    async with dependencies.store.autocommit() as tx:
        found = await store.find_session(tx, cookie)
    if found is None:
        raise ended
    refusal = refusal_of(found, now)
    if refusal is not None:
        raise HttpRefusal(401, refusal.code, str(refusal))
    created_at, last_seen_at = _time(found["created_at"]), _time(found["last_seen_at"])
    if browser_sessions.has_ended(created_at, last_seen_at, now):
        raise HttpRefusal(401, "session_ended", "your session has ended; sign in again")
    caller = caller_of(found)
    session = BrowserSession(str(found["session_id"]), csrf_token(cookie))
    if in_use and now > last_seen_at + SEEN_EVERY:
        async with dependencies.store.transaction() as tx:
            await store.note_seen(tx, session.id, now)
    await note_token_use(dependencies, caller, found["last_used_at"], now)
    return caller, session


def _time(value: object) -> datetime:
    return to_time(int(str(value)))

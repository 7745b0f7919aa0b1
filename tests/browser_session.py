"""A signed-in browser without a browser: cookies, forms and pages over plain HTTP."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import urllib3

CSRF = re.compile(r'name="csrf" value="([0-9a-f]*)"')


@dataclass
class PageReply:
    status: int
    text: str
    headers: urllib3.HTTPHeaderDict

    @property
    def location(self) -> str:
        return str(self.headers.get("location", ""))

    @property
    def csrf(self) -> str:
        found = CSRF.search(self.text)
        assert found, f"the page has no form: {self.text[:500]}"
        return found.group(1)


@dataclass
class WebSession:
    """Keeps cookies like a browser and sends `Origin` with forms."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(maxsize=8))

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> PageReply:
        sent = {"Accept": "text/html", **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = self.pool.request(
            method, f"{self.url}{path}", body=body, headers=sent, redirect=False, retries=False, timeout=90
        )
        for header in reply.headers.getlist("set-cookie"):
            for name, morsel in SimpleCookie(header).items():
                self.cookies.pop(name, None)
                if morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
        return PageReply(reply.status, reply.data.decode(), reply.headers)

    def get(self, path: str, *, expect: int | None = 200, **headers: str) -> PageReply:
        reply = self.send("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})
        assert expect in (None, reply.status), f"GET {path} → {reply.status} {reply.location}: {reply.text[:2000]}"
        return reply

    def open_stream(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        """A response whose body is not read yet, on its own connection."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return urllib3.PoolManager(maxsize=1).request(
            "GET",
            f"{self.url}{path}",
            headers=sent,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=30,
        )

    def post(
        self,
        path: str,
        fields: Mapping[str, object] | list[tuple[str, object]],
        *,
        csrf: str,
        origin: str | None = "",
        expect: int | None = 303,
    ) -> PageReply:
        """`origin` "": of this server; None: no header."""
        pairs = [*(fields.items() if isinstance(fields, Mapping) else fields), ("csrf", csrf)]
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if origin is not None:
            headers["Origin"] = origin or self.url
        reply = self.send("POST", path, urlencode(pairs, doseq=True).encode(), headers)
        assert expect in (None, reply.status), f"POST {path} → {reply.status}: {html.unescape(reply.text)[:2000]}"
        return reply

    @property
    def csrf(self) -> str:
        """The token of the forms of this session."""
        return self.get("/services").csrf


def signed_in(url: str, token: str) -> WebSession:
    session = WebSession(url)
    form = session.get("/signin")
    session.post("/signin", {"token": token, "next": "/"}, csrf=form.csrf)
    return session

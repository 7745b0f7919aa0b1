"""Signing in over TLS, through a proxy, over plain HTTP, and after too many wrong tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from browser_session import PageReply, WebSession
from certificates import make_certificate
from control_plane import Server, running

ELSEWHERE = "203.0.113.9"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Believes what a proxy on this host reports about its clients."""
    environment = {"MAINSTAY_TRUSTED_PROXIES": "127.0.0.1"}
    with running(tmp_path_factory.mktemp("proxy") / "data", environment=environment) as server:
        yield server


def sign_in(session: WebSession, token: str, headers: dict[str, str], origin: str) -> PageReply:
    form = session.send("GET", "/signin", None, headers)
    body = f"csrf={form.csrf}&token={token}".encode()
    return session.send("POST", "/signin", body, {**headers, "Origin": origin, "Content-Type": FORM})


def set_cookie(reply: PageReply) -> str:
    (found,) = (each for each in reply.headers.getlist("set-cookie") if "session" in each.partition("=")[0])
    return found


def test_under_tls_the_cookie_is_bound_to_the_host_and_to_tls(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    environment = {
        "MAINSTAY_TLS_CERTIFICATE": str(tmp_path / "tls.pem"),
        "MAINSTAY_TLS_KEY": str(tmp_path / "tls.key"),
    }
    with running(tmp_path / "data", environment=environment, ca_file=tmp_path / "tls.pem") as server:
        pool = urllib3.PoolManager(ca_certs=str(tmp_path / "tls.pem"))
        session = WebSession(server.url, pool=pool)
        assert server.url.startswith("https://")
        reply = session.post("/signin", {"token": server.admin.token}, csrf=session.get("/signin").csrf)
        cookie = set_cookie(reply)
        assert cookie.startswith("__Host-")
        assert {"secure", "httponly", "path=/", "samesite=lax"} <= {
            each.strip().lower() for each in cookie.split(";")
        }
        assert "domain" not in cookie.lower()
        session.get("/services")
        plain = f"http://{server.url.removeprefix('https://')}"
        session.post("/signout", {}, csrf=session.csrf, origin=plain, expect=403)


def test_a_proxy_that_ends_tls_is_like_tls(behind_proxy: Server) -> None:
    host = behind_proxy.url.removeprefix("http://")
    session = WebSession(behind_proxy.url)
    forwarded = {"X-Forwarded-For": ELSEWHERE, "X-Forwarded-Proto": "https"}
    reply = sign_in(session, str(behind_proxy.admin.token), forwarded, f"https://{host}")
    assert reply.status == 303, reply.text
    assert set_cookie(reply).startswith("__Host-")
    assert "Secure" in set_cookie(reply)


def test_a_token_is_not_sent_over_plain_http_beyond_this_host(behind_proxy: Server) -> None:
    session = WebSession(behind_proxy.url)
    token = str(behind_proxy.admin.token)
    reply = sign_in(session, token, {"X-Forwarded-For": ELSEWHERE}, behind_proxy.url)
    assert reply.status == 403
    assert "https" in reply.text
    assert not any("session" in name for name in session.cookies)
    assert token not in reply.text


def test_an_operator_may_allow_plain_http(tmp_path: Path) -> None:
    environment = {"MAINSTAY_TRUSTED_PROXIES": "127.0.0.1", "MAINSTAY_INSECURE": "on"}
    with running(tmp_path / "data", environment=environment) as server:
        reply = sign_in(WebSession(server.url), str(server.admin.token), {"X-Forwarded-For": ELSEWHERE}, server.url)
        assert reply.status == 303, reply.text
        assert "Secure" not in set_cookie(reply)


def test_a_client_cannot_claim_to_be_behind_a_proxy(embedded: Server) -> None:
    host = embedded.url.removeprefix("http://")
    forwarded = {"X-Forwarded-For": ELSEWHERE, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    reply = sign_in(WebSession(embedded.url), str(embedded.admin.token), forwarded, f"https://{host}")
    assert reply.status == 403
    assert "trusted_proxies" in reply.text
    assert not reply.headers.getlist("set-cookie")


def test_wrong_tokens_are_limited_by_address_and_a_right_one_always_works(behind_proxy: Server) -> None:
    host = behind_proxy.url.removeprefix("http://")

    def attempt(token: str, address: str) -> PageReply:
        forwarded = {"X-Forwarded-For": address, "X-Forwarded-Proto": "https"}
        return sign_in(WebSession(behind_proxy.url), token, forwarded, f"https://{host}")

    replies = [attempt(f"wrong-{number}", "198.51.100.1") for number in range(14)]
    assert {reply.status for reply in replies[:10]} == {401}
    assert replies[-1].status == 429
    assert int(replies[-1].headers["retry-after"]) > 0
    assert "try again in" in replies[-1].text
    assert attempt(str(behind_proxy.admin.token), "198.51.100.1").status == 303
    assert attempt("wrong", "198.51.100.2").status == 401


def test_a_very_long_token_is_refused_as_wrong(behind_proxy: Server) -> None:
    for token in ("x" * 100_000, "%00", "%ff", "%F0%9F%98%80", ""):
        reply = sign_in(WebSession(behind_proxy.url), token, {}, behind_proxy.url)
        assert reply.status in (400, 401, 413, 429), (token[:20], reply.status, reply.text[:500])

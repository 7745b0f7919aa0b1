"""Sessions of browsers: fixation, and every way in which a session ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from database_rows import run_sql
from mainstay.control.store.tokens import hash_token
from scenario import Scenario, unique


def session_cookie(session: WebSession) -> str:
    (found,) = (value for name, value in session.cookies.items() if "session" in name)
    return found


def cookie_name(server: Server) -> str:
    return f"mainstay-session-{server.url.rpartition(':')[2]}"


@pytest.fixture
def token(scenario: Scenario) -> Any:
    """Of a participant of its own."""
    body = {"name": unique("t"), "role": "participant", "scopeId": scenario.participant()}
    return scenario.admin.post("/tokens", body)


def is_signed_in(session: WebSession) -> bool:
    reply = session.get("/services", expect=None)
    assert reply.status in (200, 303), reply.text[:2000]
    assert reply.status == 200 or reply.location.startswith("/signin")
    return reply.status == 200


def test_a_planted_cookie_is_neither_accepted_nor_adopted(server: Server, token: Any) -> None:
    planted = "A" * 43
    session = WebSession(server.url, {cookie_name(server): planted})
    assert not is_signed_in(session)
    form = session.get("/signin")
    session.post("/signin", {"token": token["value"]}, csrf=form.csrf)
    assert session_cookie(session) != planted
    assert is_signed_in(session)
    assert not is_signed_in(WebSession(server.url, {cookie_name(server): planted}))


def test_every_sign_in_has_a_cookie_of_its_own(server: Server, token: Any) -> None:
    sessions = [signed_in(server.url, token["value"]) for _ in range(3)]
    assert len({session_cookie(each) for each in sessions}) == 3
    sessions[0].post("/signout", {}, csrf=sessions[0].csrf)
    assert [is_signed_in(each) for each in sessions] == [False, True, True]


def test_a_sign_in_over_another_session_takes_over_nothing(server: Server, scenario: Scenario, token: Any) -> None:
    """A victim that signs in on a machine where an attacker is signed in gets a session of its own."""
    attacker = signed_in(server.url, str(scenario.stranger.token))
    shared = WebSession(server.url, dict(attacker.cookies))
    attacker_csrf, cookie = attacker.csrf, session_cookie(attacker)
    shared.get("/signin", expect=303)
    form = WebSession(server.url)
    csrf = form.get("/signin").csrf
    shared.cookies |= form.cookies
    shared.post("/signin", {"token": token["value"]}, csrf=csrf)
    assert session_cookie(shared) != cookie
    assert shared.csrf != attacker_csrf


def test_the_cookie_is_hidden_from_script_and_other_sites(server: Server, token: Any) -> None:
    session = WebSession(server.url)
    reply = session.post("/signin", {"token": token["value"]}, csrf=session.get("/signin").csrf)
    (header,) = (each for each in reply.headers.getlist("set-cookie") if "session" in each)
    attributes = {each.strip().lower() for each in header.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/"} <= attributes
    assert not any(each.startswith("domain") for each in attributes)
    assert header.startswith(f"{cookie_name(server)}=")
    assert token["value"] not in str(reply.headers)
    assert token["value"] not in session.get("/").text


def test_the_database_does_not_contain_the_cookie(server: Server, token: Any) -> None:
    session = signed_in(server.url, token["value"])
    rows = run_sql(server.data_dir, server.database_url, "SELECT * FROM browser_sessions")
    assert session_cookie(session) not in rows
    assert session.csrf not in rows


def delete(scenario: Scenario, token: Any) -> None:
    scenario.admin.delete(f"/tokens/{token['id']}")


def regenerate(scenario: Scenario, token: Any) -> None:
    scenario.admin.post(f"/tokens/{token['id']}/regenerate", expect=200)


def expire(scenario: Scenario, token: Any) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    scenario.admin.patch(f"/tokens/{token['id']}", {"expireAt": past.isoformat()})


def disable(scenario: Scenario, token: Any) -> None:
    scenario.admin.patch(f"/participants/{token['participantId']}", {"status": "Disabled"})


@pytest.mark.parametrize("end", [delete, regenerate, expire, disable])
def test_a_session_ends_with_its_token(
    server: Server, scenario: Scenario, token: Any, end: Callable[[Scenario, Any], None]
) -> None:
    session, other = signed_in(server.url, token["value"]), signed_in(server.url, str(scenario.stranger.token))
    csrf = session.csrf
    end(scenario, token)
    assert not is_signed_in(session)
    session.get("/services", expect=401, X_Mainstay_Live="1")
    assert session.post("/signout", {}, csrf=csrf, expect=None).status in (303, 401)
    assert is_signed_in(other)


def test_a_disabled_and_enabled_participant_is_signed_in_again(
    server: Server, scenario: Scenario, token: Any
) -> None:
    """The session itself did not end; a deleted or regenerated token ends it for ever."""
    session = signed_in(server.url, token["value"])
    disable(scenario, token)
    assert not is_signed_in(session)
    scenario.admin.patch(f"/participants/{token['participantId']}", {"status": "Enabled"})
    assert is_signed_in(session)
    regenerate(scenario, token)
    assert not is_signed_in(session)


def age(server: Server, session: WebSession, column: str, by: timedelta) -> None:
    """Moves a time of the session into the past."""
    run_sql(
        server.data_dir,
        server.database_url,
        f"UPDATE browser_sessions SET {column} = {column} - {by // timedelta(microseconds=1)}"
        f" WHERE id = '{hash_token(session_cookie(session))}'",
    )


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("last_seen_at", timedelta(hours=11, minutes=58), timedelta(minutes=3)),
        ("created_at", timedelta(days=6, hours=23, minutes=58), timedelta(minutes=3)),
    ],
    ids=["12 hours without use", "7 days"],
)
def test_a_session_ends_after(server: Server, token: Any, column: str, before: timedelta, after: timedelta) -> None:
    session = signed_in(server.url, token["value"])
    age(server, session, column, before)
    # An automatic request of an open page is answered and is no use by a person.
    assert session.get("/services", X_Mainstay_Live="1").status == 200
    age(server, session, column, after)
    assert not is_signed_in(session)
    assert is_signed_in(signed_in(server.url, token["value"])), "only the session ends, not the token"


def test_the_use_of_a_page_extends_a_session(server: Server, token: Any) -> None:
    session = signed_in(server.url, token["value"])
    for _ in range(3):
        age(server, session, "last_seen_at", timedelta(hours=11))
        assert is_signed_in(session)


def test_a_token_has_a_bounded_number_of_sessions(server: Server, token: Any) -> None:
    first = signed_in(server.url, token["value"])
    for _ in range(100):
        session = signed_in(server.url, token["value"])
    assert is_signed_in(session)
    assert not is_signed_in(first)


@pytest.mark.parametrize("cookie", ["", "x", "é", "A" * 5000, "a b", '"', "%00", "a;b=c", "\x7f"])
def test_a_damaged_cookie_is_no_session_and_no_defect(server: Server, cookie: str) -> None:
    reply = WebSession(server.url).send(
        "GET", "/services", None, {"Cookie": f"{cookie_name(server)}={cookie}".encode().decode("latin-1")}
    )
    assert reply.status in (303, 400, 431), reply.text[:500]


def test_two_session_cookies_do_not_confuse_the_server(server: Server, token: Any) -> None:
    """A neighbour on the same host can set a cookie of the same name for another path."""
    session = signed_in(server.url, token["value"])
    name, value = cookie_name(server), session_cookie(session)
    for sent in (f"{name}={value}; {name}=planted", f"{name}=planted; {name}={value}"):
        reply = WebSession(server.url).send("GET", "/services", None, {"Cookie": sent})
        assert reply.status in (200, 303)


OTHER_COOKIES = (
    'a={"x": 1, "y": 2}',
    "two words=1",
    "x=\u00e9",
    'x="open',
    "=x",
    "a[1]=2",
    "a=b c",
    "bare",
    "expires=Mon, 1 Jan",
)


@pytest.mark.parametrize("other", OTHER_COOKIES)
def test_cookies_of_other_programs_on_the_host_do_not_end_the_session(server: Server, token: Any, other: str) -> None:
    browser = signed_in(server.url, token["value"])
    ((name, value),) = ((name, value) for name, value in browser.cookies.items() if "session" in name)
    sender = WebSession(server.url)
    sender.get("/services", Cookie=f"{other}; {name}={value}")
    sender.get("/services", Cookie=f"{name}={value}; {other}")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/services", "/services?fragment=list", "/live"])
def test_pages_of_other_sites_cannot_load_a_page_as_a_part(server: Server, token: Any, site: str, path: str) -> None:
    browser = signed_in(server.url, token["value"])
    for mode, kind in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "script")):
        marks = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": kind}
        assert "other sites" in browser.get(path, expect=403, **marks).text


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
def test_a_link_from_another_site_opens_a_page(server: Server, token: Any, site: str) -> None:
    browser = signed_in(server.url, token["value"])
    browser.get("/services", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")

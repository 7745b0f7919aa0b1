"""Rules that hold for every page of the registry, over HTTP: headers, forms of other sites, foreign rows, read-only
sessions. A new page is covered by its entry in the registry; `web_samples.py` needs a line for a new parameter."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from browser_session import PageReply, WebSession, signed_in
from control_plane import Client, Server
from mainstay.control.access import ACCESS, Role
from mainstay.control.web.contract import WebPage
from sample_rows import SampleRows
from scenario import unique
from web_markup import missing_icons, unsafe_markup
from web_samples import form_posts, page_name, readable_pages, sample_path, sample_urls

PAGES, POSTS = readable_pages(), form_posts()
GUARDED_PAGES = [page for page in PAGES if page.access is not None]
GUARDED_POSTS = [page for page in POSTS if page.access is not None]
CHANGING_POSTS = [page for page in GUARDED_POSTS if not page.admits_read_only]
PAGES_OF_ROWS = [page for page in PAGES if "{" in page.path]
POSTS_OF_ROWS = [page for page in CHANGING_POSTS if "{" in page.path]
# Rows that every participant may read.
SHARED = {"service-types", "agent-types", "metric-types", "service-option-types"}
# Rows that a page shows on purpose: the catalogue offers agents to the participants that they may serve.
OFFERED = {"/order/{id}": {"agents"}}
ABSENT = "/no/such/page"
# Beside those of the forms and links of a page.
QUERY_NAMES = {"after", "fragment", "name", "next", "sort"}


@pytest.fixture(scope="module")
def people(server: Server, rows: SampleRows) -> dict[str, WebSession]:
    """A session for each kind of caller that may sign in."""
    tokens = {name: str(client.token) for name, client in rows.clients.items() if "agent" not in name}
    scope = rows.named["consumerId"]
    body = {"name": unique("reader"), "role": "participant", "scopeId": scope, "readOnly": True}
    tokens["read-only"] = server.admin.post("/tokens", body)["value"]
    tokens["read-only admin"] = server.admin.post(
        "/tokens", {"name": unique("reader"), "role": "admin", "readOnly": True}
    )["value"]
    return {name: signed_in(server.url, token) for name, token in tokens.items()}


def viewer(people: dict[str, WebSession], page: WebPage) -> WebSession:
    """An admin; for pages that need no session, a browser without one."""
    return people["admin"] if page.access is not None else WebSession(people["admin"].url)


def last_action(admin: Client) -> Any:
    """The newest event that no background task caused."""
    found = admin.get("/events?sort=-createdAt&pageSize=50&after=")["items"]
    return next((each["id"] for each in found if each["initiatorType"] != "system"), None)


def assert_guarded(reply: PageReply) -> None:
    policy = reply.headers["content-security-policy"]
    parts = dict(each.strip().partition(" ")[::2] for each in policy.split(";"))
    assert parts["default-src"] == "'none'"
    assert parts["frame-ancestors"] == "'none'"
    assert parts["base-uri"] == "'none'"
    assert parts["form-action"] == "'self'"
    assert "unsafe" not in policy
    assert "*" not in policy
    assert reply.headers["x-frame-options"] == "DENY"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["referrer-policy"] in ("same-origin", "no-referrer")
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_an_admin_sees_the_page_and_its_markup_is_strict(
    people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    for url in sample_urls(page, rows):
        reply = viewer(people, page).get(url)
        assert_guarded(reply)
        if reply.headers["content-type"].startswith("text/html"):
            assert unsafe_markup(reply.text) == []
            assert missing_icons(reply.text) == []
            assert reply.text.startswith("<!doctype html>")


@pytest.mark.parametrize("page", GUARDED_PAGES, ids=page_name)
def test_a_page_asks_for_a_session_and_leads_back(server: Server, rows: SampleRows, page: WebPage) -> None:
    for cookies in ({}, {f"mainstay-session-{server.url.rpartition(':')[2]}": "A" * 43}):
        reply = WebSession(server.url, dict(cookies)).get(sample_path(page, rows), expect=303)
        assert reply.location.startswith("/signin")
        assert_guarded(reply)
        automatic = WebSession(server.url, dict(cookies)).get(
            sample_path(page, rows), expect=401, X_Mainstay_Live="1"
        )
        assert_guarded(automatic)


@pytest.mark.parametrize("page", GUARDED_PAGES, ids=page_name)
def test_a_page_does_not_accept_the_token_of_the_api(server: Server, rows: SampleRows, page: WebPage) -> None:
    """Another site cannot send it, but a page must not be a second API with rules of its own."""
    reply = WebSession(server.url).get(
        sample_path(page, rows), expect=303, Authorization=f"Bearer {server.admin.token}"
    )
    assert reply.location.startswith("/signin")


@pytest.mark.parametrize("page", GUARDED_PAGES, ids=page_name)
def test_a_role_without_access_is_refused_and_the_others_get_a_page(
    people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    assert page.access is not None
    for name, session in people.items():
        if name == "foreign participant":
            continue
        role = Role.ADMIN if "admin" in name else Role.PARTICIPANT
        for url in sample_urls(page, rows):
            reply = session.get(url, expect=None)
            assert_guarded(reply)
            if role not in ACCESS[page.access] or ("read-only" in name and not page.admits_read_only):
                assert reply.status == 403, (name, url)
            else:
                assert reply.status in (200, 303, 403, 404), (name, url, reply.text[:2000])
                assert "admin" not in name or reply.status in (200, 303), (name, url, reply.text[:2000])


@pytest.mark.parametrize("page", GUARDED_PAGES, ids=page_name)
def test_a_participant_sees_no_row_of_others(people: dict[str, WebSession], rows: SampleRows, page: WebPage) -> None:
    for url in sample_urls(page, rows):
        reply = people["foreign participant"].get(url, expect=None)
        assert reply.status in (200, 303, 403, 404), (url, reply.text[:2000])
        if reply.status == 200:
            known = SHARED | OFFERED.get(page.path, set())
            foreign = {noun: id_ for noun, id_ in rows.ids.items() if noun not in known}
            shown = [noun for noun, id_ in foreign.items() if id_ in reply.text]
            assert not shown, f"{url} shows rows of others: {shown}"


@pytest.mark.parametrize("page", PAGES_OF_ROWS, ids=page_name)
def test_an_absent_or_damaged_id_is_an_error_page_and_no_defect(
    people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    known = sample_path(page, rows)
    for id_ in (str(uuid4()), "0", "%00", "%22%3E%3Cx-hostile%3E", "a" * 5000, "%F0%9F%98%80", "..%2f..%2fetc"):
        path = "/".join(
            id_ if part.startswith("{") else shown
            for part, shown in zip(page.path.split("/"), known.split("/"), strict=True)
        )
        reply = people["admin"].get(path, expect=None)
        assert 400 <= reply.status < 500 or reply.status == 303, (path[:200], reply.status, reply.text[:2000])
        assert unsafe_markup(reply.text) == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_query_cannot_break_a_page(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    hostile = "%22%3E%3Cx-hostile%20onclick%3D1%3E"
    session = viewer(people, page)
    path = sample_path(page, rows)
    names = {*QUERY_NAMES, *re.findall(r'(?: name="|[?&;])(\w+)(?:"|=)', session.get(path).text)}
    for value in (hostile, "%00", "-1", "9" * 40, "%ff%fe", ""):
        reply = session.get(f"{path}?" + "&".join(f"{name}={value}" for name in names), expect=None)
        assert reply.status in (200, 303, 400, 404), (value, reply.status, reply.text[:2000])
        assert_guarded(reply)
        assert unsafe_markup(reply.text) == [], value
        # One by one, so that the refusal of one parameter does not hide the next. PostgreSQL is the stricter database.
        if value in (hostile, "%00") and server.database_url is not None:
            for name in names:
                reply = session.get(f"{path}?{name}={value}", expect=None)
                assert reply.status in (200, 303, 400, 404), (name, value, reply.status, reply.text[:2000])
                assert unsafe_markup(reply.text) == [], (name, value)


@pytest.mark.parametrize("page", POSTS, ids=page_name)
def test_a_form_of_another_site_changes_nothing(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    path = sample_path(page, rows)
    if page.access is None:
        session = WebSession(server.url)
        token, other = session.get(path).csrf, WebSession(server.url).get(path).csrf
        fields: dict[str, object] = {"token": str(server.admin.token)}
    else:
        session, fields = people["admin"], {}
        token, other = session.csrf, people["provider"].csrf
    before, cookies = last_action(server.admin), dict(session.cookies)
    host = server.url.removeprefix("http://")
    attempts: list[tuple[str, str | None]] = [
        *(("", ""), ("0" * 64, ""), (token[:-1], ""), (token.upper(), ""), ("é\x00", ""), (other, "")),
        *(
            (token, origin)
            for origin in (None, "null", "https://evil.example", f"https://{host}", "http://127.0.0.1:1")
        ),
        *(
            (token, origin)
            for origin in (f"{server.url}.evil.example", f"{server.url}/", f"http://user@{host}", "file://")
        ),
    ]
    for given, origin in attempts:
        reply = session.post(path, fields, csrf=given, origin=origin, expect=403)
        assert_guarded(reply)
        assert "location" not in reply.headers
        assert "set-cookie" not in reply.headers, "a refused form must not sign in or out"
    assert session.cookies == cookies
    assert last_action(server.admin) == before
    if page.access is not None:
        session.get("/services")


@pytest.mark.parametrize("page", GUARDED_POSTS, ids=page_name)
def test_a_form_needs_a_session(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    before = last_action(server.admin)
    csrf = people["admin"].csrf
    for session in (
        WebSession(server.url),
        WebSession(server.url, {f"mainstay-session-{server.url.rpartition(':')[2]}": "x"}),
    ):
        reply = session.post(sample_path(page, rows), {}, csrf=csrf, expect=None)
        assert reply.status in (303, 401)
        assert reply.status == 401 or reply.location.startswith("/signin")
        assert_guarded(reply)
    assert last_action(server.admin) == before


@pytest.mark.parametrize("page", CHANGING_POSTS, ids=page_name)
def test_a_read_only_session_changes_nothing(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    before = last_action(server.admin)
    for name in ("read-only", "read-only admin"):
        session = people[name]
        reply = session.post(sample_path(page, rows), {}, csrf=session.csrf, expect=403)
        assert_guarded(reply)
    assert last_action(server.admin) == before


@pytest.mark.parametrize("page", POSTS_OF_ROWS, ids=page_name)
def test_a_participant_changes_no_row_of_others(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    before = last_action(server.admin)
    session = people["foreign participant"]
    reply = session.post(sample_path(page, rows), {}, csrf=session.csrf, expect=None)
    assert 400 <= reply.status < 500, (reply.status, reply.location)
    assert last_action(server.admin) == before


@pytest.mark.parametrize("page", POSTS, ids=page_name)
def test_a_damaged_form_is_refused_and_no_defect(
    server: Server, people: dict[str, WebSession], rows: SampleRows, page: WebPage
) -> None:
    session = viewer(people, page)
    path = sample_path(page, rows)
    headers = {"Origin": server.url}
    for kind, body in (
        ("application/json", b'{"csrf": 1}'),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("application/x-www-form-urlencoded", b"csrf=%ff%fe&name=\xff"),
        ("application/x-www-form-urlencoded", b"&".join(b"a=1" for _ in range(6000))),
        ("application/x-www-form-urlencoded", b"a" * 20_000_000),
    ):
        reply = session.send("POST", path, body, {**headers, "Content-Type": kind})
        assert reply.status in (400, 403, 413), (kind, reply.status, reply.text[:500])


def test_errors_outside_of_pages_have_the_same_headers(server: Server, people: dict[str, WebSession]) -> None:
    for session in (WebSession(server.url), people["admin"]):
        for reply in (
            session.get(ABSENT, expect=404),
            session.get(f"{ABSENT}/%22%3E%3Cx-hostile%3E", expect=404),
            session.get("/services/", expect=None),
            session.send("PUT", "/services", b"", {}),
            session.send("POST", "/services", b"", {}),
        ):
            assert_guarded(reply)
            assert unsafe_markup(reply.text) == []


def test_the_api_accepts_no_cookie_on_any_method(server: Server, people: dict[str, WebSession]) -> None:
    session = people["admin"]
    for method in ("GET", "POST", "PATCH", "DELETE"):
        path = "/api/v1/participants" if method in ("GET", "POST") else f"/api/v1/participants/{uuid4()}"
        assert session.send(method, path, b"{}", {"Origin": server.url}).status == 401
    assert session.get("/api/v1/events/stream", expect=None).status == 401


def test_static_files_need_no_session_and_run_nothing(server: Server) -> None:
    text = WebSession(server.url).get("/signin").text
    names = set(re.findall(r'"(/static/[^"]+)"', text))
    assert names
    for name in names:
        reply = WebSession(server.url).get(name)
        assert reply.headers["content-security-policy"] == "default-src 'none'"
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["x-content-type-options"] == "nosniff"
    for name in (
        "/static/../serve.py",
        "/static/%2e%2e/contract.py",
        "/static/mainstay.css%00",
        "/static/absent.css",
    ):
        assert WebSession(server.url).get(name, expect=None).status in (400, 404)


def test_only_live_regions_are_fragments(people: dict[str, WebSession], rows: SampleRows) -> None:
    for page in GUARDED_PAGES:
        url = sample_path(page, rows)
        for name in ("content", "title", "head", "alone", "list,content"):
            reply = people["admin"].get(f"{url}{'&' if '?' in url else '?'}fragment={name}", expect=None)
            if reply.status not in (303, 200) or name != "list,content":
                assert reply.status in (303, 404), f"{url} {name}: {reply.status}"

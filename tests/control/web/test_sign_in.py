"""Sign in with a token, stay signed in, sign out."""

from __future__ import annotations

from browser_session import WebSession, signed_in
from control_plane import Server
from scenario import Scenario


def test_a_token_signs_in_and_the_page_names_its_owner(server: Server) -> None:
    browser = signed_in(server.url, str(server.admin.token))
    assert "admin" in browser.get("/").text


def test_a_page_without_a_session_leads_to_the_sign_in_and_back(server: Server) -> None:
    browser = WebSession(server.url)
    refused = browser.get("/services?name=a%20b", expect=303)
    assert refused.location == "/signin?next=%2Fservices%3Fname%3Da%2520b"
    form = browser.get(refused.location)
    reply = browser.post("/signin", {"token": server.admin.token, "next": "/services?name=a%20b"}, csrf=form.csrf)
    assert reply.location == "/services?name=a%20b"


def test_the_sign_in_leads_to_no_other_host(server: Server) -> None:
    for target in (
        "//evil.example/",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil",
        "/中",
        "/é",
    ):
        browser = WebSession(server.url)
        form = browser.get("/signin")
        reply = browser.post("/signin", {"token": server.admin.token, "next": target}, csrf=form.csrf)
        assert reply.location == "/"


def test_a_wrong_token_is_refused_in_words_and_not_shown_again(server: Server) -> None:
    browser = WebSession(server.url)
    reply = browser.post("/signin", {"token": "wrong-token-value"}, csrf=browser.get("/signin").csrf, expect=401)
    assert "unknown token" in reply.text
    assert "wrong-token-value" not in reply.text


def test_signing_out_ends_the_session(server: Server) -> None:
    browser = signed_in(server.url, str(server.admin.token))
    kept = dict(browser.cookies)
    browser.post("/signout", {}, csrf=browser.csrf)
    assert browser.get("/services", expect=303).location.startswith("/signin")
    assert WebSession(server.url, kept).get("/services", expect=303).location.startswith("/signin")


def test_an_agent_token_cannot_sign_in(server: Server, scenario: Scenario) -> None:
    browser = WebSession(server.url)
    token = str(scenario.agent.token)
    reply = browser.post("/signin", {"token": token}, csrf=browser.get("/signin").csrf, expect=403)
    assert "a token of an agent cannot sign in" in reply.text


def test_the_root_still_answers_programs_with_json(server: Server) -> None:
    reply = server.admin.call("GET", "/", headers={"Accept": "application/json"}, expect=200)
    assert reply.body["api"] == "/api/v1"


def test_the_api_does_not_accept_the_cookie(server: Server) -> None:
    browser = signed_in(server.url, str(server.admin.token))
    assert browser.get("/api/v1/services", expect=None).status == 401

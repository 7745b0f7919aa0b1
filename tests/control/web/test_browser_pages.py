"""Every page of the registry in Chromium, as an admin: no console error, no policy violation, no request to another
host; accessible in light and dark, operable by keyboard, and usable on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser import (
    PHONE_WIDTH,
    BrowserUser,
    assert_accessible,
    assert_fits,
    assert_operable_by_keyboard,
    browser_user,
    provide_axe,
)
from browser_session import WebSession, signed_in
from control_plane import Server, running
from mainstay.control.web.contract import WebPage
from sample_rows import SampleRows
from scenario import Scenario, unique
from torture import DATABASES_OF_LONG_TESTS
from web_samples import page_name, readable_pages, sample_urls

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = readable_pages()


@pytest.fixture(scope="module", params=DATABASES_OF_LONG_TESTS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of its own: rows of other tests make pages long and change them while they are looked at. The look of a page
    does not depend on the database; `test_every_page.py` fetches each page from both."""
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    with running(tmp_path_factory.mktemp("pages") / "data", database_url=url) as found:
        yield found


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


@pytest.fixture(scope="module")
def admin_session(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


@pytest.fixture(scope="module")
def admin_tab(browser: Browser, server: Server, admin_session: WebSession) -> Iterator[tuple[BrowserUser, Page]]:
    """One tab for all pages: a new one costs as much as the page."""
    with browser_user(browser, server.url) as user:
        user.adopt(admin_session)
        shown = user.new_page()
        provide_axe(shown)
        yield user, shown


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.test_all)])
def scheme(request: pytest.FixtureRequest) -> str:
    """The colour scheme of a visit. `make test` has one of each page; the second visit is also one by keyboard."""
    return str(request.param)


@pytest.mark.parametrize("page", [page for page in PAGES if page.access is not None], ids=page_name)
def test_an_admin_uses_the_page(
    admin_tab: tuple[BrowserUser, Page], rows: SampleRows, server: Server, page: WebPage, scheme: str
) -> None:
    user, shown = admin_tab
    use_page(shown, server, page, rows, scheme)
    user.watch.check()


@pytest.mark.parametrize("page", [page for page in PAGES if page.access is None], ids=page_name)
def test_a_visitor_uses_the_page(
    browser: Browser, rows: SampleRows, server: Server, page: WebPage, scheme: str
) -> None:
    with browser_user(browser, server.url) as user:
        use_page(user.new_page(), server, page, rows, scheme)


def use_page(shown: Page, server: Server, page: WebPage, rows: SampleRows, scheme: str) -> None:
    for number, url in enumerate(sample_urls(page, rows)):
        reply = shown.goto(f"{server.url}{url}")
        assert reply is not None
        if not reply.headers["content-type"].startswith("text/html"):
            continue
        assert shown.title()
        assert shown.locator("h1").count() == 1
        assert_fits(shown)
        assert_accessible(shown, schemes=(scheme,))
        if number == 0 and scheme == "dark":
            assert_operable_by_keyboard(shown)


def test_a_person_signs_in_and_out(browser: Browser, server: Server, scenario: Scenario) -> None:
    with browser_user(browser, server.url) as user:
        page = user.sign_in(str(scenario.consumer.token))
        name = scenario.consumer.get(f"/participants/{scenario.consumer_id}")["name"]
        assert name in page.locator(".side .who").inner_text()
        page.get_by_role("button", name="Sign out").first.click()
        page.wait_for_url("**/signin")
        assert not any("session" in each["name"] for each in user.context.cookies())
        page.goto(f"{server.url}/services")
        assert "/signin?next=" in page.url
        # What was seen before is not in the browser's cache.
        page.go_back()
        page.wait_for_load_state()
        assert name not in page.content()


@pytest.mark.parametrize("caller", ["provider", "consumer", "read-only"])
def test_other_roles_use_services_and_orders(browser: Browser, server: Server, rows: SampleRows, caller: str) -> None:
    token = str(rows.clients[caller].token) if caller in rows.clients else ""
    if caller == "read-only":
        body = {
            "name": unique("reader"),
            "role": "participant",
            "scopeId": rows.named["consumerId"],
            "readOnly": True,
        }
        token = server.admin.post("/tokens", body)["value"]
    with browser_user(browser, server.url) as user:
        user.adopt(signed_in(server.url, token))
        page = user.new_page()
        for path in (
            "/",
            "/services",
            f"/services/{rows.ids['services']}",
            "/order",
            f"/order/{rows.ids['service-types']}",
        ):
            page.goto(f"{server.url}{path}")
            assert page.url == f"{server.url}{path}"
            assert_fits(page)


def test_a_wrong_token_is_explained_at_its_field(browser: Browser, server: Server) -> None:
    with browser_user(browser, server.url) as user:
        user.watch.expected_statuses = {401}
        page = user.new_page()
        page.goto(f"{server.url}/signin")
        page.fill("input[type=password]", "wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        assert "unknown token" in page.get_by_role("alert").inner_text()
        assert page.input_value("input[type=password]") == ""
        assert_accessible(page)


def test_error_pages_pass_the_same_checks(browser: Browser, embedded: Server) -> None:
    session = signed_in(embedded.url, str(embedded.admin.token))
    with browser_user(browser, embedded.url) as user:
        user.watch.expected_statuses = {404}
        for is_signed_in in (False, True):
            if is_signed_in:
                user.adopt(session)
            page = user.new_page()
            page.goto(f"{embedded.url}/no/such/page")
            assert_accessible(page)
            assert_fits(page)
            assert_operable_by_keyboard(page)


def test_the_pages_work_without_script(browser: Browser, embedded: Server) -> None:
    with browser_user(browser, embedded.url, script=False, width=PHONE_WIDTH) as user:
        page = user.sign_in(str(embedded.admin.token))
        page.locator("summary", has_text="Menu").click()
        page.get_by_role("link", name="Services").first.click()
        assert page.url.endswith("/services")
        page.locator("summary", has_text="Menu").click()
        page.get_by_role("button", name="Sign out").first.click()
        assert page.url.endswith("/signin")


def test_another_site_can_neither_frame_a_page_nor_post_to_it(browser: Browser, embedded: Server) -> None:
    """A real browser with a live session opens a hostile page on another origin."""
    session = signed_in(embedded.url, str(embedded.admin.token))
    form = f'<form method=post action="{embedded.url}/signout"><button>Win</button></form>'
    with browser_user(browser, embedded.url) as user:
        user.adopt(session)
        page = user.context.new_page()
        page.route("http://evil.example/*", lambda route: route.fulfill(content_type="text/html", body=form))
        page.goto("http://evil.example/form")
        with page.expect_navigation() as navigation:
            page.get_by_role("button").click()
        # `SameSite` keeps the cookie away, and without it `Origin` would be refused.
        assert navigation.value.status in (401, 403)
        frame = f'<iframe src="{embedded.url}/signin"></iframe>'
        page.unroute("http://evil.example/*")
        page.route("http://evil.example/*", lambda route: route.fulfill(content_type="text/html", body=frame))
        page.goto("http://evil.example/frame")
        assert page.frames[1].locator("form").count() == 0
        shown = user.new_page()
        shown.goto(f"{embedded.url}/services")
        assert shown.url.endswith("/services"), "the session is still open"

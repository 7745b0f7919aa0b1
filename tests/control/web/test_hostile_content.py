"""Hostile content of rows is shown as text, on every page and as every role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from browser import BrowserUser, assert_cells_contain_their_text, assert_fits, browser_user
from browser_session import WebSession, signed_in
from control_plane import Server, running
from hostile_rows import MARKS, RENDERED, HostileRows
from mainstay.control.web.contract import WebPage
from torture import DATABASES_OF_LONG_TESTS
from web_markup import HOSTILE, unsafe_markup
from web_samples import page_name, readable_pages, sample_urls

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = [page for page in readable_pages() if page.access is not None]
# Pages list and cut; a page that shows everything of a large row would be of no use.
MAX_PAGE_BYTES = 3_000_000


@dataclass
class HostilePlane:
    """A server of its own, since other tests must not meet these rows."""

    server: Server
    rows: HostileRows
    sessions: dict[str, WebSession]


@pytest.fixture(scope="module", params=DATABASES_OF_LONG_TESTS)
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostilePlane]:
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    with running(tmp_path_factory.mktemp("hostile") / "data", database_url=url) as server:
        rows = HostileRows(server)
        sessions = {
            name: signed_in(server.url, str(rows.clients[name].token)) for name in ("admin", "provider", "consumer")
        }
        yield HostilePlane(server, rows, sessions)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_shows_hostile_content_as_text(plane: HostilePlane, page: WebPage) -> None:
    for url in sample_urls(page, plane.rows):
        for name, session in plane.sessions.items():
            reply = session.get(url, expect=200 if name == "admin" else None)
            assert reply.status in (200, 303, 403, 404), (name, url, reply.text[:2000])
            assert unsafe_markup(reply.text) == [], (name, url)
            assert RENDERED not in reply.text, (name, url)
            assert len(reply.text) < MAX_PAGE_BYTES, (name, url)


def test_the_list_of_services_shows_the_hostile_name(plane: HostilePlane) -> None:
    """Without it the tests of this module would check pages that show nothing."""
    text = plane.sessions["admin"].get("/services").text
    assert "&lt;x-hostile onclick=alert(1)&gt;" in text
    assert HOSTILE not in text


@pytest.fixture(scope="module")
def admin_tab(browser: Browser, plane: HostilePlane) -> Iterator[tuple[BrowserUser, Page]]:
    """One tab for all pages: a new one costs as much as the page."""
    with browser_user(browser, plane.server.url) as user:
        user.adopt(plane.sessions["admin"])
        yield user, user.new_page()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
@pytest.mark.test_all
def test_a_browser_runs_nothing_of_it(
    admin_tab: tuple[BrowserUser, Page], plane: HostilePlane, page: WebPage
) -> None:
    """Pages without a hostile text are those of `test_browser_pages.py`."""
    user, shown = admin_tab
    for url in sample_urls(page, plane.rows):
        text = plane.sessions["admin"].get(url).text
        if not any(mark in text for mark in MARKS):
            continue
        shown.goto(f"{plane.server.url}{url}")
        assert shown.locator("x-hostile").count() == 0
        assert_cells_contain_their_text(shown)
        assert_fits(shown)
    user.watch.check()

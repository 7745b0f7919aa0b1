"""The pictures of the documentation: `pytest --update-screenshots` writes them. Each of their pages is opened in any
case, with a plausible plane: no console error and no overlapping cell."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from browser import (
    PHONE_WIDTH,
    BrowserUser,
    Screenshots,
    assert_accessible,
    assert_cells_contain_their_text,
    assert_fits,
    browser_user,
)
from browser_session import signed_in
from control_plane import running
from pictured_plane import MAIN, PicturedPlane

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.test_all

BOTH = ("light", "dark")
PICTURE_SIZE = (1280, 800)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PicturedPlane]:
    with running(tmp_path_factory.mktemp("pictures") / "data") as server:
        yield PicturedPlane(server)


@pytest.fixture
def user(browser: Browser, plane: PicturedPlane) -> Iterator[BrowserUser]:
    with browser_user(browser, plane.server.url) as found:
        found.adopt(signed_in(plane.server.url, str(plane.operator.token)))
        yield found


def opened(user: BrowserUser, path: str) -> Page:
    page = user.new_page()
    page.set_viewport_size({"width": PICTURE_SIZE[0], "height": PICTURE_SIZE[1]})
    page.goto(f"{user.url}{path}")
    return page


@pytest.mark.parametrize(
    ("name", "path", "schemes"),
    [
        ("overview", "/", BOTH),
        ("services", "/services", ("light",)),
        ("agents", "/agents", ("light",)),
        ("pools", "/pools", ("light",)),
        ("events", "/events", ("light",)),
        ("type", "/service-types/{type}", ("light",)),
    ],
)
def test_a_picture_of_a_page(
    user: BrowserUser, plane: PicturedPlane, screenshots: Screenshots, name: str, path: str, schemes: tuple[str, ...]
) -> None:
    page = opened(user, path.format(type=plane.types["postgresql"]))
    # Other tests check all pages with fewer rows. Findings, drift and a nearly used-up pool are only here.
    if name in ("overview", "services"):
        assert_accessible(page)
    assert_cells_contain_their_text(page)
    screenshots.take(page, name, schemes=schemes)


def test_a_picture_of_a_service_with_a_running_job(
    user: BrowserUser, plane: PicturedPlane, screenshots: Screenshots
) -> None:
    page = opened(user, f"/services/{plane.services[MAIN]}")
    page.get_by_text("9 of 14").first.wait_for()
    assert_accessible(page)
    assert_fits(page)
    screenshots.take(page, "service", schemes=BOTH)
    page.set_viewport_size({"width": PHONE_WIDTH, "height": 844})
    screenshots.take(page, "service-phone")


def test_pictures_of_an_order_and_its_plan(browser: Browser, plane: PicturedPlane, screenshots: Screenshots) -> None:
    with browser_user(browser, plane.server.url) as user:
        user.adopt(signed_in(plane.server.url, str(plane.consumer.token)))
        user.watch.expected_statuses = {400}
        page = opened(user, f"/order/{plane.types['postgresql']}")
        page.fill("#name", "orders-db-2")
        page.fill("[id='p.database']", "Orders-2")
        page.fill("[id='p.user']", "orders_app")
        page.fill("[id='p.password']", "long-enough-password")
        page.get_by_text("Standard", exact=True).click()
        page.fill("[id='p.allow.0']", "10.20.0.0/16")
        page.get_by_role("button", name="See the plan").click()
        page.get_by_role("alert").wait_for()
        screenshots.take(page, "order", schemes=BOTH)
        page.fill("[id='p.database']", "orders_2")
        page.fill("[id='p.password']", "long-enough-password")
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(plane.answer_plan)
            page.get_by_role("button", name="See the plan").click()
            page.get_by_role("heading", name="Plan: order orders-db-2").wait_for()
            answered.result()
        screenshots.take(page, "plan", schemes=BOTH)

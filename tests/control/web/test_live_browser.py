"""Live pages in Chromium: updates without a reload, one stream for all tabs, a lost connection, an ended session."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import seed_text
from browser import BrowserUser, assert_accessible, browser_user
from browser_session import signed_in
from control_plane import Cluster, Server, running, start
from scenario import Scenario, unique

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.test_all

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
LIVE = ".side [data-live-state][data-state=live]"


@pytest.fixture
def user(browser: Browser, embedded: Server) -> Iterator[BrowserUser]:
    with browser_user(browser, embedded.url) as found:
        found.adopt(signed_in(embedded.url, str(embedded.admin.token)))
        yield found


@pytest.fixture
def plane(embedded: Server) -> Scenario:
    return Scenario(embedded.admin)


def open_live(user: BrowserUser, path: str) -> Page:
    page = user.new_page()
    page.goto(f"{user.url}{path}")
    page.locator(LIVE).wait_for()
    return page


def order_named(plane: Scenario, prefix: str) -> tuple[str, Any]:
    """A filter that shows one service, and the service."""
    name = unique(prefix)
    return f"/services?name={name}", plane.order(plane.service_type(None, SIMPLE), name=name)


def wait_until_pages_know(user: BrowserUser, plane: Scenario, entity: str) -> None:
    """Pages that are opened from now on do not receive the events that a row has so far."""
    page = user.new_page()
    until = time.monotonic() + 30
    number = None
    while number is None or page.evaluate("Number(document.body.dataset.liveAfter)") < number:
        assert time.monotonic() < until
        found = plane.admin.get(f"/events?entityId={entity}&sort=-sequenceNumber")["items"]
        number = found[0]["sequenceNumber"] if found else None
        page.goto(f"{user.url}/services")
    page.close()


def mark(page: Page) -> None:
    """A reload loses the mark."""
    page.evaluate("window.isTheSame = true")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.isTheSame === true"))


def test_an_update_arrives_without_a_reload(user: BrowserUser, plane: Scenario) -> None:
    path, service = order_named(plane, "shown")
    page = open_live(user, path)
    mark(page)
    row = page.locator("tbody tr", has_text=service["name"])
    before = row.inner_text()
    plane.complete(service)
    page.wait_for_function("([row, before]) => row.innerText !== before", arg=[row.element_handle(), before])
    assert is_marked(page)


def test_a_change_between_the_page_and_its_stream_is_shown(user: BrowserUser, plane: Scenario) -> None:
    path, service = order_named(plane, "between")
    page = user.new_page()

    def late(route: Any) -> None:
        plane.complete(service)
        route.continue_()

    page.route("**/live", late)
    page.goto(f"{user.url}{path}")
    state = plane.service(service["id"])["status"]
    page.locator("tbody tr", has_text=state).wait_for()


def test_ten_tabs_share_one_stream_and_survive_its_reader(user: BrowserUser, plane: Scenario) -> None:
    streams: list[str] = []
    user.context.on("request", lambda request: streams.append(request.url) if request.url.endswith("/live") else None)
    path, service = order_named(plane, "tabs")
    pages = [open_live(user, path) for _ in range(10)]
    assert len(streams) == 1
    plane.complete(service)
    state = plane.service(service["id"])["status"]
    for page in pages:
        page.bring_to_front()
        page.locator("tbody tr", has_text=state).wait_for()
    # The first tab reads the stream. What happens while no tab reads it is not lost.
    pages[0].close()
    plane.do(service, "start")
    plane.complete(service)
    state = plane.service(service["id"])["status"]
    for page in pages[1:]:
        page.bring_to_front()
        page.locator("tbody tr", has_text=state).wait_for()
    assert len(streams) == 2


def test_a_region_is_fetched_at_most_every_five_seconds(user: BrowserUser, plane: Scenario) -> None:
    path, _ = order_named(plane, "often")
    page = open_live(user, path)
    until = time.monotonic() + 7
    while time.monotonic() < until:
        order_named(plane, "noise")
        page.wait_for_timeout(200)
    # The times of the browser: those of the test are late on a busy machine.
    fetched = page.evaluate(
        "performance.getEntriesByType('resource').filter((each) => each.name.includes('fragment=')).map((each) => each.startTime)"
    )
    assert fetched
    assert all(later - earlier >= 4990 for earlier, later in pairwise(fetched))


def test_regions_that_are_due_together_are_one_request(user: BrowserUser, plane: Scenario) -> None:
    kind = plane.service_type(None, SIMPLE)
    # The agent, the group and the tokens are new with the first order.
    wait_until_pages_know(user, plane, plane.order(kind)["id"])
    page = open_live(user, "/")
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url) if "fragment=" in request.url else None)
    with page.expect_response(lambda response: "fragment=" in response.url):
        plane.order(kind)
    page.wait_for_timeout(1000)
    assert len(fetched) == 1
    assert fetched[0].count("%2C") >= 1


def test_a_lost_connection_is_shown_and_regained(browser: Browser, tmp_path: Path) -> None:
    server = start(tmp_path / "data")
    port = urlsplit(server.url).port or 0
    try:
        plane = Scenario(server.admin)
        path, service = order_named(plane, "lost")
        with browser_user(browser, server.url) as user:
            user.watch.expects_interruption = True
            user.adopt(signed_in(server.url, str(server.admin.token)))
            page = open_live(user, path)
            mark(page)
            server.stop()
            state = page.locator(".side [data-live-state][data-state=lost]")
            state.wait_for()
            assert re.fullmatch(r"Not live since \d\d:\d\d:\d\d", state.inner_text())
            note = page.locator(".page > .note", has_text="Not live since")
            note.wait_for()
            assert service["name"] in page.inner_text("main")
            server = start(tmp_path / "data", port=port)
            plane.complete(service)
            # The page tries at growing intervals, and at once when the browser finds a network.
            page.evaluate("dispatchEvent(new Event('online'))")
            page.locator(LIVE).wait_for(timeout=40_000)
            note.wait_for(state="detached")
            page.locator("tbody tr", has_text=plane.service(service["id"])["status"]).wait_for()
            assert is_marked(page)
    finally:
        server.process.kill()
        server.process.wait(timeout=30)


def test_a_page_shows_within_five_seconds_that_its_session_was_revoked(
    browser: Browser, embedded: Server, plane: Scenario
) -> None:
    token = plane.admin.post("/tokens", {"name": unique("t"), "role": "participant", "scopeId": plane.consumer_id})
    path, _ = order_named(plane, "revoked")
    with browser_user(browser, embedded.url) as user:
        user.adopt(signed_in(embedded.url, token["value"]))
        first, second = open_live(user, path), open_live(user, path)
        requests: list[str] = []
        # An event that arrives right after the revocation makes the page ask once more.
        user.watch.expected_statuses.add(401)
        plane.admin.delete(f"/tokens/{token['id']}")
        started = time.monotonic()
        for page in (first, second):
            page.locator(".page > .note", has_text="You are signed out").wait_for(timeout=5000)
        assert time.monotonic() - started < 5
        user.context.on("request", lambda request: requests.append(request.url))
        order_named(plane, "after")
        first.wait_for_timeout(2000)
        assert requests == []
        first.get_by_role("link", name="Sign in").click()
        first.fill("input[type=password]", str(plane.consumer.token))
        first.keyboard.press("Enter")
        first.wait_for_url(f"**{path}")


def test_a_page_of_one_replica_shows_what_the_other_commits(
    browser: Browser, postgresql: Cluster, tmp_path: Path
) -> None:
    url = postgresql.new_database()
    with running(tmp_path / "a", database_url=url) as one, running(tmp_path / "b", database_url=url) as two:
        plane = Scenario(one.admin)
        path, service = order_named(plane, "replica")
        with browser_user(browser, two.url) as user:
            user.adopt(signed_in(two.url, str(one.admin.token)))
            page = open_live(user, path)
            plane.complete(service)
            page.locator("tbody tr", has_text=plane.service(service["id"])["status"]).wait_for()


def test_a_tab_without_locks_has_a_stream_of_its_own(user: BrowserUser, plane: Scenario) -> None:
    user.context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
    path, service = order_named(plane, "alone")
    pages = [open_live(user, path) for _ in range(2)]
    plane.complete(service)
    for page in pages:
        page.bring_to_front()
        page.locator("tbody tr", has_text=plane.service(service["id"])["status"]).wait_for()


def serve_region(page: Page, contents: list[str], attributes: str = "") -> None:
    """The page /services with one region, which shows the first content at first and the others after each fetch."""
    left = list(contents)

    def whole(route: Any) -> None:
        reply = route.fetch()
        region = f'<div data-region="demo" data-topics="participant" {attributes}>{left.pop(0)}</div>'
        head, _, rest = reply.text().partition('<div class="page">')
        _, _, end = rest.partition("</main>")
        route.fulfill(response=reply, body=f'{head}<div class="page"><h1>Demo</h1>{region}</div></main>{end}')

    page.route("**/services", whole)
    page.route("**/services?fragment=demo", lambda route: route.fulfill(content_type="text/html", body=left.pop(0)))


def row(name: str, state: str) -> str:
    return f'<tr data-row="{name}"><td><input type="checkbox" name="id" value="{name}"></td><td>{name}</td><td>{state}</td></tr>'


def table(*rows: tuple[str, str]) -> str:
    return f"<form><div data-bulk><b data-bulk-count></b></div><table><thead><tr><th><input type=checkbox data-select-all hidden></th></tr></thead><tbody>{''.join(row(*each) for each in rows)}</tbody></table></form>"


def show_region(user: BrowserUser, contents: list[str], attributes: str = "") -> Page:
    page = user.new_page()
    serve_region(page, contents, attributes)
    page.goto(f"{user.url}/services")
    page.locator(LIVE).wait_for()
    return page


def names(page: Page) -> list[str]:
    return page.locator("tbody td:nth-child(2)").all_inner_texts()


def test_a_list_does_not_move_under_the_pointer(user: BrowserUser, plane: Scenario) -> None:
    contents = [
        table(("a", "queued"), ("b", "queued")),
        table(("new", "queued"), ("b", "done"), ("a", "running")),
        table(("newer", "queued"), ("new", "queued"), ("a", "done")),
    ]
    page = show_region(user, contents, "data-rows")
    page.hover("tbody tr:first-child")
    plane.participant()
    page.locator("tbody", has_text="running").wait_for()
    assert names(page) == ["a", "b"]
    button = page.get_by_role("button", name="Show 1 new")
    box = page.locator("tbody tr:first-child").bounding_box()
    button.wait_for()
    assert page.locator("tbody tr:first-child").bounding_box() == box
    plane.participant()
    page.get_by_role("button", name="Show 2 new").click()
    assert names(page) == ["newer", "new", "a"]
    assert page.locator(".fresh").count() == 0


def test_a_list_out_of_use_updates_by_itself(user: BrowserUser, plane: Scenario) -> None:
    page = show_region(user, [table(("a", "queued")), table(("new", "queued"), ("a", "queued"))], "data-rows")
    page.mouse.move(0, 0)
    plane.participant()
    page.locator("tbody", has_text="new").wait_for()
    assert names(page) == ["new", "a"]


def test_an_update_keeps_focus_ticks_open_parts_and_typed_text(user: BrowserUser, plane: Scenario) -> None:
    def content(state: str) -> str:
        return (
            f"<p>{state}</p><details><summary>More</summary><p>{state}</p></details><input aria-label=Text>"
            f'{table(("a", state), ("b", state))}<ol class="log">{"<li>line</li>" * (500 if state == "old" else 600)}</ol>'
        )

    page = show_region(user, [content("old"), content("fresh")])
    page.click("summary:has-text('More')")
    page.check("input[value=b]")
    page.fill("[aria-label=Text]", "typed")
    page.focus("[aria-label=Text]")
    assert page.evaluate(
        "(log => log.scrollTop + log.clientHeight >= log.scrollHeight - 2)(document.querySelector('.log'))"
    )
    plane.participant()
    page.locator("details p", has_text="fresh").wait_for()
    assert page.locator("details[open]").count() >= 1
    assert page.is_checked("input[value=b]")
    assert not page.is_checked("input[value=a]")
    assert page.input_value("[aria-label=Text]") == "typed"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Text"
    assert page.evaluate(
        "(log => log.scrollTop + log.clientHeight >= log.scrollHeight - 2)(document.querySelector('.log'))"
    )
    assert page.inner_text("[data-bulk-count]") == "1 of 2 selected"


def test_a_hidden_tab_asks_for_nothing(user: BrowserUser, plane: Scenario) -> None:
    page = show_region(user, ["old", "fresh"])
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    plane.participant()
    page.wait_for_timeout(1500)
    assert "old" in page.inner_text("[data-region]")
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("[data-region]", has_text="fresh").wait_for()


def test_events_of_other_rows_do_not_refresh_a_region(user: BrowserUser, plane: Scenario) -> None:
    first = plane.participant()
    wait_until_pages_know(user, plane, first)
    page = show_region(user, ["old", "fresh"], f'data-entity="{first}"')
    plane.participant()
    page.wait_for_timeout(1500)
    assert "old" in page.inner_text("[data-region]")
    plane.admin.patch(f"/participants/{first}", {"name": unique("renamed")})
    page.locator("[data-region]", has_text="fresh").wait_for()


def test_ticking_the_head_ticks_the_page(user: BrowserUser) -> None:
    page = show_region(user, [table(("a", "x"), ("b", "x"))])
    assert page.locator("[data-bulk]").is_hidden()
    page.check("[data-select-all]")
    assert page.inner_text("[data-bulk-count]") == "2 of 2 selected"
    page.uncheck("input[value=a]")
    assert page.evaluate("document.querySelector('[data-select-all]').indeterminate")
    page.check("input[value=a]")
    page.uncheck("[data-select-all]")
    assert page.locator("[data-bulk]").is_hidden()


def test_the_palette_opens_by_key_and_leads_to_a_service(user: BrowserUser, plane: Scenario) -> None:
    _, service = order_named(plane, "palette")
    user.watch.expected_statuses = {404}
    page = open_live(user, "/services")
    page.locator("body").press("/")
    box = page.get_by_role("combobox")
    page.get_by_role("option", name="Overview").wait_for()
    assert_accessible(page)
    box.fill(service["name"][3:])
    page.get_by_role("option", name=service["name"]).wait_for()
    assert box.get_attribute("aria-activedescendant") == "palette-0"
    assert_accessible(page)
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    page.locator(".side [data-palette]").focus()
    page.keyboard.press("Control+k")
    box.fill(service["name"])
    page.locator("[role=option][aria-selected=true]", has_text=service["name"]).wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/services/{service['id']}")


def test_the_palette_gives_the_focus_back_and_leaves_typing_alone(user: BrowserUser) -> None:
    page = open_live(user, "/services")
    page.locator(".side [data-palette]").click()
    page.get_by_role("combobox").fill("agents")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('.side [data-palette]')")
    page.locator("input[type=search]").first.press("/")
    assert page.get_by_role("dialog").count() == 0
    assert page.locator("input[type=search]").first.input_value() == "/"


def test_a_filter_applies_when_its_menu_closes(user: BrowserUser, plane: Scenario) -> None:
    _, service = order_named(plane, "filtered")
    page = open_live(user, "/services")
    assert page.locator("[data-apply]").is_hidden()
    page.locator("details.filter summary", has_text="State").click()
    state = plane.service(service["id"])["status"]
    page.locator(f"input[name=status][value='{state}']").check()
    assert "status=" not in page.url
    with page.expect_navigation():
        page.keyboard.press("Escape")
    # Empty fields are not in the address.
    assert urlsplit(page.url).query == f"status={state}"


def test_times_go_on_and_texts_are_copied(user: BrowserUser) -> None:
    user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    content = (
        '<time data-ago datetime="{}">just now</time><b data-since="{}"></b><code id="command">mainstay  &lt;x&gt;</code>'
        '<button type="button" data-copy="command" hidden>Copy</button>'
    )
    now = datetime.now(UTC)
    old, started = (now - timedelta(hours=2, minutes=5), now - timedelta(hours=1, seconds=62))
    page = show_region(user, [content.format(old.isoformat(), started.isoformat())])
    page.locator("time", has_text="2 h ago").wait_for()
    page.locator("b", has_text=re.compile(r"^1:01:\d\d$")).wait_for()
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "mainstay  <x>"
    page.get_by_role("button", name="Copy", exact=True).wait_for()


def test_a_region_with_a_mark_inside_is_polled_until_the_mark_is_gone(user: BrowserUser) -> None:
    mark = '<span data-poll="1" hidden></span>'
    page = show_region(user, [f"first{mark}", "second"])
    started = time.monotonic()
    page.locator("[data-region]", has_text="second").wait_for()
    # Not more often than every five seconds.
    assert time.monotonic() - started > 3

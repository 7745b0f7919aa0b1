"""The checks of `browser.py` find what they look for. Each page here has one defect."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

import browser as checks
from browser import browser_user, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; form-action 'self'"
SCRIPTS = {
    "/logs.js": 'console.error("it failed")',
    "/throws.js": 'throw new Error("not caught")',
    "/asks.js": 'alert("hello")',
}
STYLES = {
    "/focus.css": ":focus-visible { outline: 2px solid }",
    "/none.css": "* { outline: none }",
    "/narrow.css": "table { table-layout: fixed; width: 10rem }",
    "/dark.css": "p { color: #444; background: light-dark(#fff, #333) } :root { color-scheme: light dark }",
}
SOUND = '<main><h1>Title</h1><p>Text</p><a href="/">Home</a> <button>Go</button></main>'


class Defects(BaseHTTPRequestHandler):
    """Serves the body that the path contains."""

    def do_GET(self) -> None:
        path = unquote(self.path)
        kind, text = "text/html", ""
        if path in SCRIPTS:
            kind, text = "text/javascript", SCRIPTS[path]
        elif path in STYLES:
            kind, text = "text/css", STYLES[path]
        elif path.startswith("/page/"):
            text = path.removeprefix("/page/")
            style = "" if "stylesheet" in text else '<link rel="stylesheet" href="/focus.css">'
            text = f'<!doctype html><html lang="en"><head><title>Page</title>{style}</head><body>{text}</body></html>'
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        """Nothing: the test's output is the report."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Defects)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def visit(browser: Browser, site: str, body: str) -> None:
    with browser_user(browser, site) as user:
        page = user.new_page()
        page.goto(f"{site}/page/{body}")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<script src="/logs.js"></script>', "console error: it failed"),
        ('<script src="/throws.js"></script>', "uncaught error: not caught"),
        ('<script src="/asks.js"></script>', "dialog: alert 'hello'"),
        ("<script>document.title = 1</script>", "policy violation: script-src-elem blocked inline"),
        ('<p style="color: red">Text</p>', "policy violation: style-src-attr blocked inline"),
        ('<script src="/absent.js"></script>', "response 404: GET"),
        ('<script src="http://other.invalid/a.js"></script>', "http://other.invalid/a.js"),
    ],
)
def test_a_defect_of_a_page_fails_the_test(browser: Browser, site: str, body: str, problem: str) -> None:
    with pytest.raises(AssertionError) as raised:
        visit(browser, site, SOUND + body)
    assert problem in str(raised.value)


def test_a_sound_page_passes_every_check(browser: Browser, site: str) -> None:
    with browser_user(browser, site) as user:
        page = user.new_page()
        page.goto(f"{site}/page/{SOUND}")
        checks.assert_accessible(page)
        checks.assert_fits(page)
        checks.assert_operable_by_keyboard(page)


@pytest.mark.parametrize(
    ("check", "body", "problem"),
    [
        ("assert_accessible", "<main><h1>Title</h1><input></main>", "light: label"),
        ("assert_accessible", f"{SOUND}<h4>Deep</h4>", "heading-order"),
        ("assert_fits", f"{SOUND}<p>{'x' * 400}</p>", "is wider than 390 px"),
        (
            "assert_cells_contain_their_text",
            f'<link rel="stylesheet" href="/narrow.css">{SOUND}<table><tr><td>{"x" * 99}<td>Next</table>',
            "px in",
        ),
        ("assert_operable_by_keyboard", f'{SOUND}<span role="button">Go</span>', "Tab does not reach <span"),
        ("assert_accessible", f'{SOUND}<link rel="stylesheet" href="/dark.css">', "dark: color-contrast"),
        (
            "assert_operable_by_keyboard",
            f'{SOUND}<link rel="stylesheet" href="/none.css">',
            "the focus is not visible on <button>",
        ),
    ],
)
def test_a_check_names_the_element_that_fails_it(
    browser: Browser, site: str, check: str, body: str, problem: str
) -> None:
    with browser_user(browser, site) as user:
        page = user.new_page()
        page.goto(f"{site}/page/{body}")
        with pytest.raises(AssertionError) as raised:
            getattr(checks, check)(page)
    assert problem in str(raised.value)


def test_pictures_are_written_only_on_request(browser: Browser, site: str, tmp_path: Path) -> None:
    with browser_user(browser, site) as user:
        page = user.new_page()
        page.goto(f"{site}/page/{SOUND}")
        checks.Screenshots(enabled=False, folder=tmp_path).take(page, "sound")
        assert not list(tmp_path.glob("*.png"))
        checks.Screenshots(enabled=True, folder=tmp_path).take(page, "sound", schemes=("light", "dark"))
    assert {each.name for each in tmp_path.glob("*.png")} == {"sound-light.png", "sound-dark.png"}

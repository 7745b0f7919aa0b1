"""Debian's Chromium, driven by Playwright: pages whose errors fail the test, and checks that every page must pass."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from browser_session import WebSession
from required_parts import need, need_part

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Playwright, Request, Response

# Read at import: tests change the environment.
TEST_PARTS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainstay-test-parts"
AXE = TEST_PARTS / "axe.min.js"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
DESKTOP = (1440, 900)
PHONE_WIDTH = 390
TIMEOUT_MILLISECONDS = 20_000
MAX_TABS = 400
LAUNCHES = 3
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# Chromium's own line for a response that `responded` records with its address.
FAILED_LOAD = "Failed to load resource"
# Loads that end because the page was left.
ABORTED = "net::ERR_ABORTED"
# Tests open one site in few tabs. Processes for graphics and for each tab take a fifth of the time.
ONE_PROCESS_FOR_ALL = ["--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1"]
VIOLATION_LISTENER = """
document.addEventListener("securitypolicyviolation", (event) =>
  window.reportPolicyViolation(`${event.effectiveDirective} blocked ${event.blockedURI || "inline"}`));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A new Chromium. While it runs, asyncio refuses to run another loop in this thread: Playwright occupies it."""
    program = shutil.which("chromium")
    need_part(present=program is not None, what="the program chromium")
    need_part(present=AXE.exists(), what=f"axe-core ({AXE})")
    need(present=find_spec("playwright") is not None, what="the Python package playwright; scripts/setup installs it")
    from playwright.sync_api import sync_playwright

    environment: dict[str, str | float | bool] = {
        **os.environ,
        "FONTCONFIG_FILE": str(Path(__file__).with_name("fonts.conf")),
    }
    # Chromium refuses to sandbox the processes of root.
    rights = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = _launch(
            playwright,
            executable_path=program,
            args=[*rights, *ONE_PROCESS_FOR_ALL, "--font-render-hinting=none"],
            env=environment,
        )
        try:
            yield browser
        finally:
            browser.close()


def _launch(playwright: Playwright, **options: Any) -> Browser:
    """Tries again: Chromium was seen to crash at its start (`LaunchProcess: failed to execvp`), for an unknown reason."""
    from playwright.sync_api import Error

    for _ in range(LAUNCHES - 1):
        with suppress(Error):
            return playwright.chromium.launch(**options)
    return playwright.chromium.launch(**options)


@dataclass
class Watch:
    """Records what a page must not do."""

    origin: str
    # Statuses from 400 on that the test expects.
    expected_statuses: set[int] = field(default_factory=set)
    expects_dialogs: bool = False
    # Loads that fail because the test interrupts the connection.
    expects_interruption: bool = False
    problems: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        page.expose_function("reportPolicyViolation", lambda text: self.problems.append(f"policy violation: {text}"))
        page.add_init_script(VIOLATION_LISTENER)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught error: {error}"))
        page.on("request", self._requested)
        page.on("requestfailed", self._failed)
        page.on("response", self._responded)
        page.on("dialog", self._asked)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and FAILED_LOAD not in message.text:
            self.problems.append(f"console {message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(f"{self.origin}/"):
            self.problems.append(f"request to another host: {request.url[:200]}")

    def _failed(self, request: Request) -> None:
        if request.failure != ABORTED and not self.expects_interruption:
            self.problems.append(f"request failed: {request.method} {request.url}: {request.failure}")

    def _responded(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_statuses:
            self.problems.append(f"response {response.status}: {response.request.method} {response.url}")

    def _asked(self, dialog: Dialog) -> None:
        if not self.expects_dialogs:
            self.problems.append(f"dialog: {dialog.type} {dialog.message[:200]!r}")
        dialog.dismiss()

    def check(self) -> None:
        """Forgets what it reports, for users who look at one page after the other."""
        problems, self.problems = self.problems, []
        assert not problems, "\n".join(problems)


@dataclass
class BrowserUser:
    """A person at a browser with its own cookies. All pages are watched."""

    browser: Browser
    url: str
    watch: Watch
    context: Any

    def new_page(self) -> Page:
        page: Page = self.context.new_page()
        self.watch.attach(page)
        page.set_default_timeout(TIMEOUT_MILLISECONDS)
        return page

    def adopt(self, session: WebSession) -> None:
        """Takes over the cookies of a session that was opened without a browser, which is quicker."""
        self.context.add_cookies(
            [{"name": name, "value": value, "url": self.url} for name, value in session.cookies.items()]
        )

    def sign_in(self, token: str) -> Page:
        """Signs in through the form and returns the page that follows."""
        page = self.new_page()
        page.goto(f"{self.url}/signin")
        page.fill("input[type=password]", token)
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert "/signin" not in page.url, page.inner_text("main")
        return page


@contextmanager
def browser_user(
    browser: Browser, url: str, *, script: bool = True, width: int = DESKTOP[0]
) -> Iterator[BrowserUser]:
    """Fails the test at the end if a page logged an error, violated its policy, asked another host, or got a refusal
    that `watch` does not expect."""
    parts = urlsplit(url)
    # Without motion, colours and focus rings have their final values at once.
    context = browser.new_context(
        viewport={"width": width, "height": DESKTOP[1]}, reduced_motion="reduce", java_script_enabled=script
    )
    watch = Watch(f"{parts.scheme}://{parts.netloc}")
    try:
        yield BrowserUser(browser, url, watch, context)
        watch.check()
    finally:
        context.close()


@cache
def _axe_source() -> str:
    return AXE.read_text(encoding="utf-8")


def provide_axe(page: Page) -> None:
    """For a page whose every document is checked: cheaper than to send the program to each."""
    page.add_init_script(_axe_source())


def assert_accessible(page: Page, *, schemes: Sequence[str] = ("light", "dark")) -> None:
    """No violation of WCAG 2.2 A and AA or of axe's best practices. Contrast is checked in each colour scheme; what
    does not depend on colours, in the first."""
    if not page.evaluate("() => typeof window.axe === 'object'"):
        page.evaluate(_axe_source())
    found = []
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type,unused-ignore]
        only: dict[str, Any] = {"type": "tag", "values": AXE_TAGS}
        if scheme != schemes[0]:
            only = {"type": "rule", "values": ["color-contrast"]}
        violations = page.evaluate(
            "(only) => axe.run(document, {runOnly: only, resultTypes: ['violations']}).then((found) => found.violations)",
            only,
        )
        found += [
            f"{scheme}: {violation['id']}: {violation['help']}: {node['html'][:200]} {node['failureSummary']}"
            for violation in violations
            for node in violation["nodes"][:5]
        ]
    page.emulate_media(color_scheme="light")
    assert not found, f"{page.url}\n" + "\n".join(found)


OVERFLOW = """(width) => {
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = (each) => { for (let up = each.parentElement; up && up !== document.body; up = up.parentElement)
    if (getComputedStyle(up).overflowX !== "visible") return true; return false; };
  const wide = [...document.body.querySelectorAll("*")].filter(
    (each) => each.getBoundingClientRect().right > width + 0.5 && !scrolls(each));
  return [`document: ${document.documentElement.scrollWidth} px`, ...wide.slice(0, 8).map((each) =>
    `${each.outerHTML.slice(0, 120)}: to ${Math.round(each.getBoundingClientRect().right)} px`)];
}"""


def assert_fits(page: Page, width: int = PHONE_WIDTH) -> None:
    """The document does not scroll sideways in a window of this width, nor by a pixel or two downwards."""
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 844})
    found = page.evaluate(OVERFLOW, width)
    higher = page.evaluate("document.documentElement.scrollHeight - window.innerHeight")
    if higher in (1, 2):
        found.append(f"document: {higher} px higher than the window")
    if before is not None:
        page.set_viewport_size(before)
    assert not found, f"{page.url} is wider than {width} px:\n" + "\n".join(found)


COVERED_CELLS = """() => [...document.querySelectorAll("td, th")].filter((each) =>
  each.checkVisibility() && getComputedStyle(each).overflowX === "visible" && each.scrollWidth > each.clientWidth + 1
).slice(0, 8).map((each) => `${each.innerText.slice(0, 80)}: ${each.scrollWidth} px in ${each.clientWidth} px`)"""


def assert_cells_contain_their_text(page: Page) -> None:
    """No cell of a table covers the next."""
    found = page.evaluate(COVERED_CELLS)
    assert not found, f"{page.url}\n" + "\n".join(found)


# Radio buttons of a group are one stop; the rest of the group is reached with arrow keys.
START_FOCUS_RECORD = """() => {
  const wanted = "a[href], button, input, select, textarea, summary, iframe, [tabindex], [contenteditable], "
    + "[role=button], [role=link], [role=tab], [role=menuitem], [role=checkbox], [role=switch], [role=option]";
  const look = (each) => { const style = getComputedStyle(each);
    return [style.outlineStyle === "none" ? "" : style.outline, style.boxShadow, style.borderColor,
      style.backgroundColor, style.textDecoration, style.stroke, style.strokeWidth].join("|"); };
  // A link in a drawing shows the focus on its shape.
  const looks = (each) => [each, ...(each instanceof SVGElement ? each.children : [])].map(look).join();
  const key = (each) => each.type === "radio" ? [...document.querySelectorAll("input[type=radio]")].find(
    (other) => other.name === each.name && other.form === each.form) : each;
  const usable = [...document.querySelectorAll(wanted)].filter((each) =>
    each.checkVisibility({visibilityProperty: true}) && !each.matches(":disabled, [tabindex='-1'], input[type=hidden]")
    && !each.closest("[inert]"));
  const record = {left: new Map(), hidden: []};
  if (document.activeElement) document.activeElement.blur();
  for (const each of usable) if (!record.left.has(key(each))) record.left.set(key(each), looks(each));
  record.before = new Map(usable.map((each) => [each, looks(each)]));
  document.addEventListener("focusin", (event) => {
    const at = event.target;
    record.left.delete(key(at));
    const holder = [at, at.parentElement, at.nextElementSibling].filter(Boolean);
    const shown = looks(at) !== record.before.get(at) || holder.slice(1).some((each) =>
      each.matches(":has(:focus-visible), :focus-within, :focus-visible + *") && getComputedStyle(each).outlineStyle !== "none");
    const box = at.getBoundingClientRect();
    if (record.before.has(at) && (!shown || box.width === 0 || box.height === 0))
      record.hidden.push(at.outerHTML.slice(0, 160));
  }, true);
  window.focusRecord = record;
  return record.left.size;
}"""
READ_FOCUS_RECORD = """() => ({
  unreached: [...window.focusRecord.left.keys()].map((each) => each.outerHTML.slice(0, 160)),
  hidden: window.focusRecord.hidden})"""


def assert_operable_by_keyboard(page: Page) -> None:
    """Tab reaches every visible control, and the focus is visible on each."""
    count = page.evaluate(START_FOCUS_RECORD)
    assert count < MAX_TABS, f"{page.url} has {count} controls"
    # Some more: rows that scroll are stops as well. A held key repeats, which takes half of the events.
    for _ in range(count + 10):
        page.keyboard.down("Tab")
    page.keyboard.up("Tab")
    found = page.evaluate(READ_FOCUS_RECORD)
    problems = [f"Tab does not reach {each}" for each in found["unreached"]]
    problems += [f"the focus is not visible on {each}" for each in found["hidden"]]
    assert not problems, f"{page.url}\n" + "\n".join(problems)


@dataclass
class Screenshots:
    """Writes pictures for the docs, if `--update-screenshots` is given."""

    enabled: bool
    folder: Path = PICTURES

    def take(self, page: Page, name: str, *, schemes: Sequence[str] = ("light",)) -> None:
        """Writes NAME-SCHEME.png of what the window shows."""
        if not self.enabled:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        page.evaluate("() => { document.activeElement?.blur(); window.scrollTo(0, 0); }")
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type,unused-ignore]
            page.screenshot(path=self.folder / f"{name}-{scheme}.png", animations="disabled")
        page.emulate_media(color_scheme="light")

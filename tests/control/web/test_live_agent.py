"""A page in Chromium while a real agent runs a job: progress, then the new state, then drift, without a reload."""

from __future__ import annotations

import os
from grp import getgrgid
from pathlib import Path
from pwd import getpwuid
from typing import TYPE_CHECKING

import pytest

from bridge import bridge_on, new_type_name, write_blueprint
from browser import browser_user
from browser_session import signed_in
from control_plane import running
from torture import DATABASES_OF_LONG_TESTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.test_all

# The second resource waits until the test has seen the first one done.
CREATE = """
resources:
  - file:
      - {root}/greeting: {{ensure: present, owner: {user}, group: {group}, mode: "0644", content: "hello\\n"}}
  - exec:
      - wait for the test:
          command: "while [ ! -e {root}/go ]; do sleep 0.1; done"
          provider: shell
          timeout: 60s
"""
KEEP = """
resources:
  - file:
      - {root}/greeting: {{ensure: present, owner: {user}, group: {group}, mode: "0644", content: "hello\\n"}}
"""


@pytest.mark.parametrize("database", DATABASES_OF_LONG_TESTS)
def test_a_page_follows_the_work_of_a_real_agent(
    browser: Browser, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = request.getfixturevalue("postgresql").new_database() if database == "postgresql" else None
    host = tmp_path / "host"
    host.mkdir()
    with (
        running(tmp_path / "data", database_url=url, environment={"MAINSTAY_RATE_LIMIT": "0"}) as server,
        bridge_on(server, tmp_path / "bridge") as bridge,
        browser_user(browser, server.url) as user,
    ):
        names = {"root": host, "user": getpwuid(os.getuid()).pw_name, "group": getgrgid(os.getgid()).gr_name}
        manifests = {"create": CREATE.format_map(names), "keep": KEEP.format_map(names)}
        blueprint = write_blueprint(
            tmp_path / "blueprint",
            type_name=new_type_name(),
            manifests=manifests,
            actions={"create": {"manifest": "manifests/create.yaml"}},
            keeps={"Stopped": "manifests/keep.yaml"},
        )
        pushed = bridge.push(blueprint)
        bridge.start_agent("--drift-interval", "1s")
        user.adopt(signed_in(server.url, str(server.admin.token)))
        service = bridge.scenario.order(pushed["serviceType"])
        page = user.new_page()
        page.goto(f"{server.url}/services/{service['id']}")
        page.get_by_text("50 %").first.wait_for(timeout=20_000)
        (host / "go").touch()
        page.locator("h1 + .st, .head .st").get_by_text("Stopped").first.wait_for(timeout=20_000)
        (host / "greeting").write_text("changed by hand\n")
        page.locator("ins").get_by_text("hello").first.wait_for(timeout=30_000)

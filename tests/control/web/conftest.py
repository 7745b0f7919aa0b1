"""A browser for the tests of pages, and sample rows that every page can show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser import Screenshots, chromium
from control_plane import Server
from sample_rows import SampleRows

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module: see `chromium`. Such a module must not run asyncio."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Screenshots:
    return Screenshots(enabled=bool(request.config.getoption("--update-screenshots")))

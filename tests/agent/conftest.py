"""One embedded server for all agent tests; each test has its own agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge import Bridge, bridge_on
from control_plane import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Tests poll faster than the default rate limit admits.
    unlimited = {"MAINSTAY_RATE_LIMIT": "0"}
    with running(tmp_path_factory.mktemp("bridge") / "data", environment=unlimited) as server:
        yield server


@pytest.fixture
def bridge(server: Server, tmp_path: Path) -> Iterator[Bridge]:
    with bridge_on(server, tmp_path / "bridge") as bridge:
        yield bridge

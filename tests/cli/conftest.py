"""Fixtures: one real server on the embedded database for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from command_line import Shell
from control_plane import Server, running
from scenario import Scenario


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Without a limit of requests: the tests are faster than any caller.
    unlimited = {"MAINSTAY_RATE_LIMIT": "0"}
    with running(tmp_path_factory.mktemp("plane") / "data", environment=unlimited) as server:
        yield server


@pytest.fixture
def scenario(server: Server) -> Scenario:
    return Scenario(server.admin)


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server)

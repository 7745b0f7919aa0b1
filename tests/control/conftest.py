"""The control plane's tests run on both databases; each database has one server for the whole session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane import Client, Cluster, Server, postgresql_cluster, running
from scenario import Scenario


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    # Not below pytest's own directory: the path of a socket is short, and another user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o755)
    try:
        with postgresql_cluster(folder / "c") as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Without a limit of requests: the tests are faster than any caller.
UNLIMITED = {"MAINSTAY_RATE_LIMIT": "0"}
VAULT_KEY = "ab" * 32


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(request.param) / "data"
    database_url = None
    if request.param == "postgresql":
        database_url = request.getfixturevalue("postgresql").new_database()
    with running(
        folder, database_url=database_url, environment={**UNLIMITED, "VAULT_ENCRYPTION_KEY": VAULT_KEY}
    ) as server:
        yield server


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For what does not depend on the database."""
    with running(tmp_path_factory.mktemp("embedded") / "data", environment=UNLIMITED) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Client:
    return server.admin


@pytest.fixture
def scenario(admin: Client) -> Scenario:
    return Scenario(admin)

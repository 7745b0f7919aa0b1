"""Opens the database that a URL names."""

from __future__ import annotations

from pathlib import Path

from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.sqlite import SqliteStore


async def open_store(database_url: str) -> Store:
    """`sqlite:///path/to/file`, or the URL of a PostgreSQL database."""
    if database_url.startswith("sqlite:///"):
        return SqliteStore(Path(database_url.removeprefix("sqlite://")))
    from mainstay.control.store.engine.postgresql import PostgresqlStore

    store = PostgresqlStore(database_url)
    await store.open()
    return store

"""Opens the database that a URL names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def connected_store(database_url: str) -> AsyncIterator[Store]:
    """Opens the store and closes it at the end."""
    store = await open_store(database_url)
    try:
        yield store
    finally:
        await store.close()

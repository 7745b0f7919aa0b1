"""Connections to PostgreSQL that notice the loss of a machine. A machine that crashes, or a cable that is pulled, closes no
connection: without these limits a statement waits for minutes, and a dead host in the URL hides the living ones."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

# To reach one of several hosts and sign in.
HOST_SECONDS = 5.0
# Close a connection whose peer acknowledges nothing for this long.
SILENT_SECONDS = 10
PROBE_AFTER_SECONDS, PROBE_EVERY_SECONDS = 5, 2
# Try the next host.
UNUSABLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def single_host_urls(url: str) -> list[str]:
    """The URL once for each of its hosts, in their order."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}")) for host in hosts.split(",")]


async def connect(url: str, **options: Any) -> Any:
    """A connection to the first host that fits `target_session_attrs`. Each host has a time limit of its own: with one limit
    for all of them, a host that does not answer would use it up."""
    last: Exception | None = None
    urls = single_host_urls(url)
    limit: dict[str, Any] = {"timeout": HOST_SECONDS} if len(urls) > 1 else {}
    for each in urls:
        try:
            connection: Any = await asyncpg.connect(each, **options, **limit)
        except UNUSABLE as error:
            last = error
            continue
        # asyncpg has no option for this, and no public access to the socket.
        notice_silence(connection._transport)
        return connection
    raise last or OSError("the URL of the database names no host")


def notice_silence(transport: asyncio.BaseTransport) -> None:
    """Lets the kernel end the connection once its peer is silent, also while nothing is sent."""
    found = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_SECONDS),
        ("TCP_KEEPINTVL", PROBE_EVERY_SECONDS),
        ("TCP_USER_TIMEOUT", SILENT_SECONDS * 1000),
    ):
        # Not all systems have all of them.
        if hasattr(socket, option):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

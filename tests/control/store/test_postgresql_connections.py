"""Connections to PostgreSQL: a host that does not answer does not hide the next one, and a silent peer is noticed."""

from __future__ import annotations

import asyncio
import socket
import time
from urllib.parse import urlsplit

import pytest

from control_plane import Cluster
from mainstay.control.store.engine.postgresql_connections import (
    HOST_SECONDS,
    SILENT_SECONDS,
    connect,
    notice_silence,
    single_host_urls,
)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p@a/d", ["postgresql://u:p@a/d"]),
        (
            "postgresql://u:p@a:1,b,[::1]:3/d?target_session_attrs=read-write",
            [
                "postgresql://u:p@a:1/d?target_session_attrs=read-write",
                "postgresql://u:p@b/d?target_session_attrs=read-write",
                "postgresql://u:p@[::1]:3/d?target_session_attrs=read-write",
            ],
        ),
        ("postgresql:///d?host=/run/postgresql", ["postgresql:///d?host=/run/postgresql"]),
    ],
)
def test_a_url_is_split_by_its_hosts(url: str, found: list[str]) -> None:
    assert single_host_urls(url) == found


def test_a_host_that_does_not_answer_does_not_hide_the_next_one(postgresql: Cluster) -> None:
    living = urlsplit(postgresql.new_database())
    credentials, at, host = living.netloc.rpartition("@")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            # It accepts connections and never answers, like a machine behind a filter that drops packets.
            hosts = f"127.0.0.1:{silent.getsockname()[1]},{host}"
            started = time.monotonic()
            connection = await connect(living._replace(netloc=f"{credentials}{at}{hosts}").geturl())
            assert HOST_SECONDS <= time.monotonic() - started < HOST_SECONDS + 20
            try:
                assert await connection.fetchval("SELECT 1") == 1
            finally:
                await connection.close()

    asyncio.run(main())


def test_the_kernel_ends_a_connection_whose_peer_is_silent() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            _, writer = await asyncio.open_connection(*listening.getsockname())
            notice_silence(writer.transport)
            found = writer.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_SECONDS * 1000
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            writer.close()

    asyncio.run(main())


def test_the_error_of_the_last_host_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(OSError, match=str(port)):
        asyncio.run(connect(f"postgresql://u:p@127.0.0.1:{port}/d"))

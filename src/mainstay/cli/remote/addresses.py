"""Addresses of servers as people write them."""

from __future__ import annotations

from urllib.parse import urlsplit

from mainstay.cli.main import CommandRefused
from mainstay.cli.views.run_display import printable


def read_url(text: str) -> str:
    """A full address: a bare name is meant as https, one of this machine as http."""
    if "://" not in text:
        text = f"http://{text}" if is_loopback(f"http://{text}") else f"https://{text}"
    parts = urlsplit(text)
    try:
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment or parts.username is not None:
        raise CommandRefused(f"{printable(_shown(text))!r} is no address of a server, such as https://plane.example")
    return text.rstrip("/").removesuffix("/api/v1")


def _shown(text: str) -> str:
    """Without what may be a password."""
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def is_open(url: str) -> bool:
    """Whether what is sent there can be read on the way."""
    return url.startswith("http://") and not is_loopback(url)

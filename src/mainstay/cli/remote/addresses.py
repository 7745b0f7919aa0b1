"""Parses server addresses from arguments and the environment."""

from __future__ import annotations

from urllib.parse import urlsplit

from mainstay.agent.client import is_loopback
from mainstay.cli.main import CommandRefused
from mainstay.cli.views.run_display import printable


def read_url(text: str) -> str:
    """Returns a full URL. Without a scheme the default is https, on loopback http."""
    if "://" not in text:
        text = f"http://{text}" if is_loopback(f"http://{text}") else f"https://{text}"
    parts = urlsplit(text)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise CommandRefused(
            f"{printable(_without_credentials(text))!r} is not a server address, such as https://plane.example"
        )
    return text.rstrip("/").removesuffix("/api/v1")


def _without_credentials(text: str) -> str:
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"

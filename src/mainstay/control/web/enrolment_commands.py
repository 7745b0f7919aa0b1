"""The command that enrolls a host, as pages show it. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from mainstay.foundation.addresses import is_loopback_host


def enroll_command(address: str, code: str) -> str:
    """`address`: of the server, as the host reaches it."""
    unencrypted = urlsplit(address).scheme == "http" and not is_loopback_address(address)
    return f"mainstay agent enroll {address} {code}{' --insecure' if unencrypted else ''}"


def is_loopback_address(address: str) -> bool:
    return is_loopback_host(urlsplit(address).hostname or "")

"""Network addresses: whether a host is this machine."""

from __future__ import annotations

import ipaddress


def is_loopback_host(host: str) -> bool:
    """Parsed, not compared by prefix: 127.example.com is a name of another machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

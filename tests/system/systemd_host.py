"""Throw-away hosts with a real systemd: the program has them, for `mainstay blueprint test`."""

from mainstay.agent.systemd_host import GATEWAY, SEARCH_PATH, SystemdHost, why_not

__all__ = ["GATEWAY", "SEARCH_PATH", "SystemdHost", "why_not"]

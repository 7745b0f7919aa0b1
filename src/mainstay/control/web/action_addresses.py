"""Addresses of the pages that run an action of a service. An action may have any name, also one that no segment of a
path can carry: servers decode `%2F` before they split a path, and browsers resolve `..` and `%2e%2e`."""

from __future__ import annotations

from urllib.parse import quote, unquote


def action_address(service_id: str, action: str) -> str:
    base = f"/services/{quote(service_id, safe='')}"
    return f"{base}/update" if action == "update" else f"{base}/do/{quote(_segment(action), safe='')}"


def action_in(segment: str) -> str:
    """The name of the action, of a segment that the server has decoded once."""
    return unquote(segment)


def _segment(action: str) -> str:
    """Plain names stay as they are. The rest is encoded here and, with the address, a second time."""
    kept = action.replace("%", "%25").replace("/", "%2F")
    return kept.replace(".", "%2E") if kept in (".", "..") else kept

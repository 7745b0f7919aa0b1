"""One digest of what a dry run says: the same as long as a real run would find and do the same."""

from __future__ import annotations

import hmac
import json

from mainstay.converge.resources.file import FileState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.converge.host.files import Files
    from mainstay.converge.report import Event, Report

TOLD = (
    "type",
    "name",
    "provider",
    "outcome",
    "changed",
    "refreshed",
    "noop_message",
    "reason",
    "errors",
    "warnings",
    "unmet",
    "diff",
)
PLAIN = (str, int, float, bool, list, tuple, type(None))


def forecast_digest(report: Report, files: Files, key: bytes) -> str:
    """What is secret counts too, though reports do not show it; without the key nobody finds it by trying."""
    report.complete(files)
    document = [_seen(event) for event in report.events]
    content = json.dumps([document, report.output_errors], sort_keys=True, default=_members).encode()
    return hmac.digest(key, content, "sha256").hex()


def _members(value: Any) -> dict[str, Any]:
    """Of a value inside a property, such as a health check."""
    return {name: getattr(value, name) for name in getattr(value, "__slots__", None) or vars(value)}


def _seen(event: Event) -> list[Any]:
    """What was told of a resource, what it is to be, and how it is."""
    told = event.as_json()
    wanted = {name: value for name, value in vars(event.resource).items() if isinstance(value, PLAIN)}
    state = dict(told["state"] or {})
    # Times tell nothing, nor how large a directory's own list of names is.
    state.pop("mtime", None)
    if state.get("type") == "directory":
        state.pop("size", None)
    if isinstance(event.state, FileState):
        state |= {"checksum": event.state.known_checksum(), "target": event.state.link_target}
    return [{name: told[name] for name in TOLD}, wanted, state]

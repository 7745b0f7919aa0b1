"""Digest of a dry run: equal digests mean that a real run would find and do the same."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from typing import Any

from mainstay.agent.job_documents import Place
from mainstay.converge.host.files import Files
from mainstay.converge.report import Event, Report
from mainstay.converge.resources.file import FileState

COMPARED_FIELDS = (
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
PLAIN_TYPES = (str, int, float, bool, list, tuple, type(None))


def forecast_digest(report: Report, files: Files, key: bytes, new_secrets: Iterable[Place]) -> str:
    """Includes secret values, which reports omit; the key prevents guessing them from the digest.

    It also includes where the request gives new secrets: otherwise a plan with the right guess of a secret would have the
    digest of a plan that does not mention the secret."""
    report.complete(files)
    document = [_comparable(event) for event in report.events]
    content = json.dumps(
        [document, report.output_errors, sorted(new_secrets)], sort_keys=True, default=_fields
    ).encode()
    return hmac.digest(key, content, "sha256").hex()


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object inside a property, such as a health check."""
    return {name: getattr(value, name) for name in getattr(value, "__slots__", None) or vars(value)}


def _comparable(event: Event) -> list[Any]:
    """The compared fields of the event, and the desired and the actual state of the resource."""
    document = event.as_json()
    desired = {name: value for name, value in vars(event.resource).items() if isinstance(value, PLAIN_TYPES)}
    state = dict(document["state"] or {})
    # Timestamps and the size of a directory change without a change of content.
    state.pop("mtime", None)
    if state.get("type") == "directory":
        state.pop("size", None)
    if isinstance(event.state, FileState):
        state |= {"checksum": event.state.known_checksum(), "target": event.state.link_target}
    return [{name: document[name] for name in COMPARED_FIELDS}, desired, state]

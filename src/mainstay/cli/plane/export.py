"""Entries to a document for a plane file: kinds, owners and names as nested maps. Pure."""

from __future__ import annotations

from mainstay.cli.plane.kinds import GLOBAL_KINDS, KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from mainstay.cli.plane.entries import Path
    from mainstay.cli.plane.snapshot import Snapshot


def export_document(snapshot: Snapshot, kinds: Collection[str]) -> dict[str, Any]:
    """Sorted by name, so that an export changes only where the plane does. A participant exports what it owns."""
    document: dict[str, Any] = {}
    below = {path[:-1] for kind, path in snapshot.entries if kind in ("pools", "orders") and kind in kinds}
    for kind in KINDS:
        if kind not in kinds or (snapshot.participant_id is not None and kind in GLOBAL_KINDS):
            continue
        entries = sorted((path, entry) for (name, path), entry in snapshot.entries.items() if name == kind)
        for path, entry in entries:
            if KINDS[kind].implied and path in below and not entry.attributes:
                # The entries below it say so.
                continue
            _place(document.setdefault(kind, {}), path, entry.attributes)
    return document


def _place(level: dict[str, Any], path: Path, attributes: dict[str, Any]) -> None:
    for name in path[:-1]:
        level = level.setdefault(name, {})
    level[path[-1]] = dict(attributes)

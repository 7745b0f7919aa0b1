"""Entries to the text of a plane file: kinds, owners and names as nested maps, in YAML that `foundation/yaml` reads back as the
same values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from mainstay.cli.plane.entries import Path
from mainstay.cli.plane.kinds import GLOBAL_KINDS, KINDS
from mainstay.cli.plane.snapshot import Snapshot
from mainstay.foundation.yaml.scalars import core_value

# Plain without doubt: no character that YAML could give a meaning, whatever surrounds it.
PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+@~-]*(?: [A-Za-z0-9_./+@~-]+)*")
MAX_INLINE = 100
MAX_INLINE_MEMBERS = 4
INDENT = "  "
NEWLINE = "\n"


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


# ---- YAML ----
def write_yaml(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return "{}\n"
    return "".join(f"{line}\n" for line in _map_lines(value, ""))


def _map_lines(value: dict[str, Any], indent: str) -> Iterator[str]:
    for name, inner in value.items():
        yield from _member_lines(f"{indent}{_scalar(name)}:", inner, indent)


def _member_lines(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, str) and _fits_literal(value):
        yield f"{head} {'|' if value.endswith(NEWLINE) else '|-'}"
        yield from (f"{indent}{INDENT}{line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    elif isinstance(value, dict) and value and not _is_short(value):
        yield head
        yield from _map_lines(value, indent + INDENT)
    elif isinstance(value, list) and value and not _is_short(value):
        yield head
        yield from _list_lines(value, indent + INDENT)
    else:
        yield f"{head} {_inline(value)}"


def _list_lines(value: list[Any], indent: str) -> Iterator[str]:
    for each in value:
        if isinstance(each, dict) and each and not _is_short(each):
            first, *rest = _map_lines(each, indent + INDENT)
            yield f"{indent}- {first.removeprefix(indent + INDENT)}"
            yield from rest
        elif isinstance(each, list) and each and not _is_short(each):
            yield f"{indent}-"
            yield from _list_lines(each, indent + INDENT)
        else:
            yield f"{indent}- {_inline(each)}"


def _is_short(value: Any) -> bool:
    """Whether a map or list of scalars reads well in one line."""
    items = list(value.values()) if isinstance(value, dict) else value
    return (
        not any(isinstance(each, (dict, list)) or (isinstance(each, str) and "\n" in each) for each in items)
        and len(_inline(value)) <= MAX_INLINE
        and (isinstance(value, list) or len(items) <= MAX_INLINE_MEMBERS)
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(name)}: {_inline(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(each) for each in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if PLAIN.fullmatch(value) and core_value(value) == value:
            return value
        return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    """A JSON string; characters that a terminal or YAML does not show as they are become escapes."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in quoted)


def _fits_literal(text: str) -> bool:
    """Whether a literal block holds exactly this text."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0])
        and bool(lines[-1])
        and lines[0][0] not in " \t"
        and all(line.isprintable() and not line.endswith(" ") for line in lines)
        and not any(line.startswith(("---", "...")) for line in lines)
    )

"""The difference between two documents as an RFC 6902 patch. Pure."""

from __future__ import annotations

from mainstay.control.domain.values import equal


def diff(before: object, after: object, path: str = "") -> list[dict[str, object]]:
    """Compares objects member by member; any other value is replaced as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        patch: list[dict[str, object]] = []
        for name in before:
            if name not in after:
                patch.append({"op": "remove", "path": _join(path, name)})
        for name, value in after.items():
            if name not in before:
                patch.append({"op": "add", "path": _join(path, name), "value": value})
            else:
                patch += diff(before[name], value, _join(path, name))
        return patch
    return [] if equal(before, after) else [{"op": "replace", "path": path, "value": after}]


def _join(path: str, name: object) -> str:
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"

"""The difference between two documents as an RFC 6902 patch, with the old value as a `test` operation. Pure."""

from __future__ import annotations

from mainstay.control.domain.values import equal


def diff(before: object, after: object, path: str = "") -> list[dict[str, object]]:
    """Compares objects member by member; any other value is replaced as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        patch: list[dict[str, object]] = []
        for name in before:
            if name not in after:
                place = _join(path, name)
                patch += [{"op": "test", "path": place, "value": before[name]}, {"op": "remove", "path": place}]
        for name, value in after.items():
            if name not in before:
                patch.append({"op": "add", "path": _join(path, name), "value": value})
            else:
                patch += diff(before[name], value, _join(path, name))
        return patch
    if equal(before, after):
        return []
    return [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": after}]


def _join(path: str, name: object) -> str:
    text = str(name)
    if "~" in text or "/" in text:
        text = text.replace("~", "~0").replace("/", "~1")
    return f"{path}/{text}"

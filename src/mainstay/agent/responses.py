"""The shapes of the responses of the server, checked before use. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mainstay.agent.client import Unreachable

ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def _is_id(value: object) -> bool:
    """Ids become file names, so they must not contain path separators."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


SERVICE: Mapping[str, Any] = {
    "id": _is_id,
    "name": str,
    "status": str,
    "properties": dict,
    "serviceType": {"name": str},
}
CHECKED_SERVICE: Mapping[str, Any] = {**SERVICE, "conditions": list, "availableActions": list}
JOB: Mapping[str, Any] = {"id": _is_id, "serviceId": _is_id, "action": str, "attempt": int, "service": SERVICE}
LEASED: Mapping[str, Any] = {"leaseToken": str, "job": JOB}
RENEWED: Mapping[str, Any] = {"leaseExpiresAt": str, "cancelRequested": bool}
PLAN: Mapping[str, Any] = {"id": _is_id, "seconds": float, "job": JOB, "secrets": dict}
ORPHAN: Mapping[str, Any] = {"id": _is_id, "serviceId": _is_id, "attempts": int, "service": SERVICE}
SECRET: Mapping[str, Any] = {"value": object}


def require_shape(answer: Any, shape: Mapping[str, Any]) -> Any:
    """Returns the answer. Raises `Unreachable` if it has another shape: then it is not from a control plane."""
    wrong = _first_mismatch(answer, shape)
    if wrong is not None:
        raise Unreachable(f"unexpected response of the server: {wrong}")
    return answer


def require_items(answer: Any, shape: Mapping[str, Any]) -> list[Any]:
    if not isinstance(answer, list):
        raise Unreachable("unexpected response of the server: it is not a list")
    return [require_shape(item, shape) for item in answer]


def _first_mismatch(value: Any, shape: Any, at: str = "it") -> str | None:
    if isinstance(shape, type):
        return None if isinstance(value, shape) else f"{at} is not of type {shape.__name__}"
    if not isinstance(shape, dict):
        return None if shape(value) else f"{at} is not an id"
    if not isinstance(value, dict):
        return f"{at} is not a map"
    for name, inner in shape.items():
        if name not in value:
            return f"{at} has no {name}"
        wrong = _first_mismatch(value[name], inner, name)
        if wrong is not None:
            return wrong
    return None

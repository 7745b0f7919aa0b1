"""Frames that a host sends: one JSON document per line, behind a mark. Pure. A host is not trusted.

Every value is checked and every text stays text: what is printed later is escaped there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

from mainstay.converge.report import OUTCOMES
from mainstay.push.outcome import HostFault

Value = TypeVar("Value")

MARK = b"mainstay-push "
KINDS = ("hello", "need", "start", "at", "event", "report", "stable", "message", "end")
REFUSALS = ("fault", "faults", "locked", "stopped")
TEXTS = ("alias", "provider", "ensure", "noop_message", "reason", "output", "diff", "error_kind")
FLAGS = ("changed", "refreshed", "failed", "skipped", "noop")
LISTS = ("errors", "warnings", "unmet", "within")
LARGEST_COUNT = 1_000_000_000
# Deepest nesting of states and outputs, which are any JSON. Writing them must not exhaust the stack of a pusher.
DEEPEST = 64
LONGEST_MESSAGE = 4000
MOST_FAULTS = 200
# Kinds of faults that the host itself may report.
HOST_KINDS = ("refused", "disk_full", "system")


class Unexpected(Exception):
    """A value that no host of ours sends."""


@dataclass
class Frame:
    """One frame: its kind and its checked value."""

    kind: str
    value: Any
    # The number of the resource, for events.
    index: int


def parse_frame(line: bytes) -> Frame:
    """Returns the frame of a line; raises `HostFault` for a refusal of the host, and for what is no frame."""
    try:
        document = _of(dict, json.loads(line[len(MARK) :], parse_float=_finite, parse_constant=_finite))
        for kind in REFUSALS:
            if kind in document:
                raise _refusal(kind, document[kind])
        for kind in KINDS:
            if kind in document:
                return Frame(kind, READERS[kind](document[kind]), _count(document.get("index", 0)))
        raise Unexpected
    except (ValueError, RecursionError, Unexpected):
        raise HostFault("protocol", f"it sent a response that cannot be read: {shown(line)}") from None


def shown(line: bytes) -> str:
    """The beginning of what a host sent, for a message."""
    return repr(line[:80].decode("utf-8", "replace"))


def _refusal(kind: str, value: Any) -> HostFault:
    if kind == "locked":
        return HostFault("locked", _message(value))
    if kind == "stopped":
        return HostFault("stopped", "the run was stopped before it began")
    if kind == "faults":
        if not _of(list, value):
            raise Unexpected
        return HostFault("does_not_load", "\n".join(_fault_line(each) for each in value[:MOST_FAULTS]))
    if _of(dict, value).get("kind") not in HOST_KINDS:
        raise Unexpected
    return HostFault(value["kind"], _message(value.get("message")))


def _fault_line(fault: Any) -> str:
    parts = [_of(dict, fault).get(key) for key in ("file", "line", "column")]
    place = ":".join(str(part)[:200] for part in parts if part is not None)
    return f"{place}: {_message(fault.get('message'))}"


def _message(value: Any) -> str:
    return _text(value)[:LONGEST_MESSAGE]


def _text(value: Any) -> str:
    return _of(str, value)


def _of(kind: type[Value], value: Any) -> Value:
    if not isinstance(value, kind):
        raise Unexpected
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_COUNT:
        raise Unexpected
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -LARGEST_COUNT <= value <= LARGEST_COUNT:
        raise Unexpected
    return value


def _finite(text: str) -> float:
    """JSON has no other numbers; Python also reads and writes NaN and Infinity."""
    value = float(text)
    if not isfinite(value):
        raise Unexpected
    return value


def _object(value: Any) -> dict[str, Any] | None:
    """Any JSON object of a bounded depth."""
    if value is None:
        return None
    level: list[Any] = [_of(dict, value)]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return _of(dict, value)
    raise Unexpected


def _texts(value: Any) -> list[str]:
    return [_text(each) for each in _of(list, value)]


def _hello(value: Any) -> dict[str, Any]:
    python = _of(list, _of(dict, value).get("python"))
    if len(python) != 3:
        raise Unexpected
    return {
        "python": tuple(_count(part) for part in python),
        "program": value.get("has_program") is True,
        "index": value.get("has_index") is True,
    }


def _numbers(value: Any) -> list[int]:
    numbers = [_count(each) for each in _of(list, value)]
    if len(set(numbers)) != len(numbers):
        raise Unexpected
    return numbers


def _position(value: Any) -> tuple[int, str]:
    if len(_of(list, value)) != 2:
        raise Unexpected
    return _count(value[0]), _message(value[1])


def _event(value: Any) -> dict[str, Any]:
    if _of(dict, value).get("outcome") not in OUTCOMES:
        raise Unexpected
    event: dict[str, Any] = {"type": _text(value.get("type")), "name": _text(value.get("name"))}
    event |= {key: None if value.get(key) is None else _text(value[key]) for key in TEXTS}
    event["outcome"] = value["outcome"]
    event |= {key: value.get(key) is True for key in FLAGS}
    event |= {key: _texts(value.get(key, [])) for key in LISTS}
    event["duration_seconds"] = _number(value.get("duration_seconds", 0))
    event["state"] = _object(value.get("state"))
    return event


def _ending(value: Any) -> dict[str, Any]:
    counts = _of(dict, _of(dict, value).get("summary"))
    return {
        "summary": {
            **{key: _count(counts.get(key)) for key in ("total", *OUTCOMES)},
            "duration_seconds": _number(counts.get("duration_seconds")),
        },
        "outputs": _object(value.get("outputs")),
        "errors": _texts(value.get("errors", [])),
        "warnings": _texts(value.get("warnings", [])),
        "stopped_by": None if value.get("stopped_by") is None else _message(value["stopped_by"]),
    }


READERS = {
    "hello": _hello,
    "need": _numbers,
    "start": _count,
    "at": _position,
    "event": _event,
    "report": _event,
    "stable": _texts,
    "message": _message,
    "end": _ending,
}

"""Log lines read like those that structlog writes to a terminal, without its colours."""

from __future__ import annotations

import pytest
import structlog

from mainstay.control.log_lines import render_line

STAMPS = {"timestamp": "2026-03-01T12:00:00.000001Z", "level": "info"}
REQUEST = {
    "event": "request",
    "id": "0a1b",
    "method": "POST",
    "route": "/api/v1/services/{id}",
    "status": 201,
    "ms": 3.1,
}
HOSTILE = [
    "",
    "two words",
    "a=b",
    "tab\there",
    "new\nline",
    "\r",
    'double "quotes"',
    "it's",
    "ünï",
    "\x1b[31m",
    "back\\slash",
]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "listening"},
        REQUEST,
        {**REQUEST, "caller": "Customer A", "token": None, "on": True, "tags": ["a", "b c"]},
        {"event": "bug", "level": "error", "exception": "Traceback:\n  line\nValueError: x", "incident": "ff"},
        {"event": "a message that is longer than the column of messages", "level": "warning", "seconds": -1},
        {f"value_{number}": text for number, text in enumerate(HOSTILE)} | {"event": "values", "level": "critical"},
    ],
)
def test_a_line_equals_that_of_structlog(event: dict[str, object]) -> None:
    expected = structlog.dev.ConsoleRenderer(colors=False)(None, "", {**STAMPS, **event})
    assert render_line(None, "", {**STAMPS, **event}) == expected

"""Log lines read like those that structlog writes to a terminal, without its colours."""

from __future__ import annotations

import subprocess
import sys

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


LOG_TO_TERMINAL = """
import io, sys
if sys.argv[1] == "without":
    # Python refuses the import of a module whose entry is None.
    sys.modules["rich"] = None

class Terminal(io.StringIO):
    def isatty(self):
        return True

sys.stderr = Terminal()
from mainstay.control import serve
from mainstay.control.settings import ServerSettings

serve._configure_logging(ServerSettings())
try:
    1 / 0
except ZeroDivisionError as error:
    serve.log.error("bug", incident="ff", exc_info=error)
# Without the time.
print(sys.stderr.getvalue().partition(" ")[2])
"""


def test_lines_on_a_terminal_do_not_depend_on_installed_packages() -> None:
    """structlog would format exceptions with `rich`, with local variables, if that happens to be installed."""
    written = [
        subprocess.run(
            [sys.executable, "-c", LOG_TO_TERMINAL, rich], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for rich in ("with", "without")
    ]
    assert written[0] == written[1]
    assert "ZeroDivisionError: division by zero" in written[0]
    assert "\x1b[" in written[0]

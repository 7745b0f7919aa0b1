"""What the agent says of itself on standard error: lines for people or JSON for programs. Never a value of a manifest."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class Log:
    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._as_json = as_json
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def info(self, message: str, **facts: object) -> None:
        self._say("info", message, facts)

    def warning(self, message: str, **facts: object) -> None:
        self._say("warning", message, facts)

    def error(self, message: str, **facts: object) -> None:
        self._say("error", message, facts)

    def _say(self, level: str, message: str, facts: dict[str, object]) -> None:
        seconds = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
        if self._as_json:
            line = json.dumps({"time": at, "level": level, "message": message, **facts}, default=str)
        else:
            told = "".join(f" {name}={_quoted(str(value))}" for name, value in facts.items())
            line = f"{at} {level:<7} {message}{told}"
        with self._lock:
            try:
                print(line, file=self._stream, flush=True)
            except (OSError, ValueError):
                # Work goes on when nobody can be told of it.
                return


def _quoted(text: str) -> str:
    return text if text.isprintable() and " " not in text and text else json.dumps(text, ensure_ascii=False)


def place_of(error: Exception) -> str:
    """Where in our code it happened. Not its text, which may hold anything that was at hand."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"

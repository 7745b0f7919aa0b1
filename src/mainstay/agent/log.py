"""The log of the agent on standard error, as text or JSON lines. Never contains a value of a manifest."""

from __future__ import annotations

import json
import os
import sys
import threading
import time


class Log:
    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()

    def info(self, message: str, **fields: object) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, object]) -> None:
        seconds = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
        if self._as_json:
            line = json.dumps({"time": at, "level": level, "message": message, **fields}, default=str)
        else:
            shown = "".join(f" {name}={_quoted(str(value))}" for name, value in fields.items())
            line = f"{at} {level:<7} {message}{shown}"
        with self._lock:
            try:
                print(line, file=sys.stderr, flush=True)
            except (OSError, ValueError):
                # The agent continues without a log.
                return


def _quoted(text: str) -> str:
    return text if text.isprintable() and " " not in text and text else json.dumps(text, ensure_ascii=False)


def origin_of(error: Exception) -> str:
    """Type, file and line of an exception. Not its message, which may contain secrets."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"

"""Events of one host, kept in a private file: many hosts with many events do not fit into memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from mainstay.foundation import Any


class EventSpool:
    """Events by the number of their resource. A later event of the same resource replaces the earlier one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._places: dict[int, tuple[int, int]] = {}
        self._end = 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = open(descriptor, "wb")  # noqa: SIM115  # closed by `close`

    def add(self, index: int, event: dict[str, Any]) -> None:
        # Only ASCII, so that no text of a host can control a terminal.
        line = json.dumps(event).encode("ascii")
        self._file.write(line)
        self._places[index] = (self._end, len(line))
        self._end += len(line)

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def lines(self) -> Iterator[str]:
        """The events as JSON, in the order of their resources; of a closed spool."""
        with open(self.path, "rb") as file:
            for _, (start, size) in sorted(self._places.items()):
                file.seek(start)
                yield file.read(size).decode("ascii")

    def events(self) -> Iterator[dict[str, Any]]:
        for line in self.lines():
            yield json.loads(line)

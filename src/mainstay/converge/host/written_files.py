"""The files that the runs of one service wrote last: path → digest. What has another digest was written by others.

A digest is recorded after the write and is not made durable: a lost one only hides content of the service's own."""

from __future__ import annotations

import json

from mainstay.converge.host.state import AppendOnly, StateDirectory
from mainstay.foundation.private_files import remove

# The oldest are forgotten first.
MOST_FILES = 100_000


class WrittenFiles:
    def __init__(self, path: str) -> None:
        self._file = AppendOnly(path)
        self._digests: dict[str, str] = {}
        self._lines = 0
        for line in self._file.lines():
            self._lines += 1
            try:
                written, digest = json.loads(line)
            except (TypeError, ValueError):
                # Damaged by a power cut.
                continue
            self._note(str(written), str(digest))

    def holds(self, path: str, digest: str | None) -> bool:
        """Whether the service wrote the content with this digest last to this path."""
        return digest is not None and self._digests.get(path) == digest

    def record(self, path: str, digest: str | None) -> None:
        if digest is None or self.holds(path, digest):
            return
        self._note(path, digest)
        self._lines += 1
        try:
            self._file.append(json.dumps([path, digest]), durable=False)
        except OSError:
            # A full disk: the write itself succeeded.
            return

    def close(self, state: StateDirectory) -> None:
        """Rewrites the file once most of its lines are superseded, or it has too many."""
        self._file.close()
        if self._lines <= 2 * len(self._digests) + 100 and len(self._digests) <= MOST_FILES:
            return
        kept = list(self._digests.items())[-MOST_FILES:]
        try:
            state.write(self._file.path, "".join(f"{json.dumps(entry)}\n" for entry in kept).encode())
        except OSError:
            # No space for a shorter file; without it, the content of these files counts as written by others.
            remove(self._file.path)

    def _note(self, path: str, digest: str) -> None:
        # Moves the path to the end, as the newest.
        self._digests.pop(path, None)
        self._digests[path] = digest

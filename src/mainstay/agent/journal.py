"""The job journal: one small file per started job or finished clean-up, replaced atomically. The agent writes it before the claim, whose id
returns the same lease again, and with the result before delivery. Only the result is synced to disk: claims are on the
critical path, and a claim lost in a power cut only delays its job until the lease ends.

A result that contains a secret is never written; after a kill the resumed job computes it again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from mainstay.converge.host.state import StateDirectory, list_names, read_text
from mainstay.converge.manifest.scope import holds_secret
from mainstay.foundation.private_files import remove


# No repr: the result may contain secrets.
@dataclass(repr=False)
class JobJournalEntry:
    """`lease_token` None: claim again with the same claim id to get it. `result` None: the job has not finished."""

    job_id: str
    service_id: str
    claim_id: str
    lease_token: str | None = None
    # (complete or fail, the body of the request).
    result: tuple[str, dict[str, Any]] | None = None


class JobJournal:
    def __init__(self, state: StateDirectory, folder: str = "jobs") -> None:
        self._state = state
        self._folder = state.directory("agent", folder)

    def write(self, entry: JobJournalEntry, *, durable: bool) -> None:
        document = {**vars(entry), "result": None if holds_secret(entry.result) else entry.result}
        content = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._state.write(self._path(entry.job_id), content, durable=durable)

    def remove(self, job_id: str) -> None:
        remove(self._path(job_id))

    def entries(self) -> list[JobJournalEntry]:
        """Jobs that an earlier process started. Removes files damaged by a full disk or a power cut."""
        found = []
        for name in sorted(list_names(self._folder)):
            if not name.endswith(".json"):
                remove(os.path.join(self._folder, name))
                continue
            entry = _read_entry(read_text(os.path.join(self._folder, name)) or "")
            if entry is None:
                remove(os.path.join(self._folder, name))
            else:
                found.append(entry)
        return found

    def _path(self, job_id: str) -> str:
        return os.path.join(self._folder, f"{job_id}.json")


def _read_entry(text: str) -> JobJournalEntry | None:
    try:
        document: Any = json.loads(text)
        result = document.pop("result")
        return JobJournalEntry(**document, result=None if result is None else (result[0], result[1]))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None

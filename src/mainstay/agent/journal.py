"""What the agent has begun, on disk: one small file per job, replaced whole. It is written before the claim, whose name gives
the same lease again, and with the result before that is sent. Only the result is made durable: everybody waits for a claim,
and one that a power cut makes us forget costs its job no more than the wait for the end of its lease.

A result with a secret in it is never written here; after a kill such a job is resumed and finds it out again."""

from __future__ import annotations

import json
import os

from mainstay.converge.host.state import list_names, read_text
from mainstay.converge.manifest.expressions import holds_secret
from mainstay.foundation.private_files import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.converge.host.state import StateDirectory


class JobJournalEntry:
    """`lease_token` None: asked again under the claim's name, the server tells it. `result` None: there is none yet."""

    def __init__(
        self,
        job_id: str,
        service_id: str,
        claim_id: str,
        lease_token: str | None = None,
        result: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        self.job_id = job_id
        self.service_id = service_id
        self.claim_id = claim_id
        self.lease_token = lease_token
        # (complete or fail, what is sent with it).
        self.result = result


class JobJournal:
    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._folder = state.directory("agent", "jobs")

    def write(self, entry: JobJournalEntry, *, durable: bool) -> None:
        document = {**vars(entry), "result": None if holds_secret(entry.result) else entry.result}
        content = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._state.write(self._place(entry.job_id), content, durable=durable)

    def remove(self, job_id: str) -> None:
        remove(self._place(job_id))

    def entries(self) -> list[JobJournalEntry]:
        """What an earlier process began; a file that a full disk or a power cut spoilt is thrown away."""
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

    def _place(self, job_id: str) -> str:
        return os.path.join(self._folder, f"{job_id}.json")


def _read_entry(text: str) -> JobJournalEntry | None:
    try:
        document: Any = json.loads(text)
        result = document.pop("result")
        return JobJournalEntry(**document, result=None if result is None else (result[0], result[1]))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None

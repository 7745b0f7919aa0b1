"""What a report has to say about a definition that is allowed but may not be meant: a code, the place and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    # Stable, for programs; the sentence is for people.
    code: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}"

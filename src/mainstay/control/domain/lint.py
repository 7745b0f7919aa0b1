"""Findings about a definition that is valid but probably not intended: a code, a subject and a message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    # Stable, for programs.
    code: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}"

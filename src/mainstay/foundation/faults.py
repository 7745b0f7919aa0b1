"""Faults of a document, with their places. Callers collect them, so that all are reported at once."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.foundation import Any, Struct, TypeAlias

# Keys and indexes from the root of a document. The text of a type: nothing evaluates it in a run.
DocumentPath: TypeAlias = "tuple[str | int, ...]"


class Fault(Struct):
    """One mistake in a document, with its place."""

    file: str
    line: int | None
    column: int | None
    message: str

    @property
    def place(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "column": self.column, "message": self.message}


class DoesNotLoad(Exception):
    """The document has faults. Raised before anything is changed."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = list(faults)


def refused(file: str, message: str) -> DoesNotLoad:
    """The refusal of a file as a whole."""
    return DoesNotLoad([Fault(file, None, None, message)])

"""Findings of `blueprint check`, with their places in the files of a blueprint. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.yaml.document import locate, nearest_place

STEP = re.compile(r'([^.\[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


@dataclass(frozen=True, slots=True)
class Findings:
    """Faults make a blueprint unusable; warnings are probably not intended."""

    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    def add_faults(self, refusal: DoesNotLoad) -> None:
        known = {str(fault) for fault in self.faults}
        self.faults.extend(fault for fault in refusal.faults if str(fault) not in known)

    def lines(self) -> Iterator[str]:
        yield from (str(fault) for fault in self.faults)
        for found in self.warnings:
            yield str(Fault(found.file, found.line, found.column, f"warning: {found.message}"))

    def sort(self) -> None:
        for found in (self.faults, self.warnings):
            found.sort(key=lambda fault: (fault.file, fault.line or 0, fault.column or 0))


@dataclass(frozen=True, slots=True)
class FileFindings:
    """Adds findings in one file, with the line and column of a path in it."""

    file: str
    text: str
    findings: Findings

    def fault(self, path: DocumentPath, message: str, **where: Any) -> None:
        self._add(self.findings.faults, path, message, **where)

    def warn(self, path: DocumentPath, message: str, **where: Any) -> None:
        self._add(self.findings.warnings, path, message, **where)

    def _add(self, to: list[Fault], path: DocumentPath, message: str, *, at_key: bool = False, line: int = 0) -> None:
        places = locate(self.text, [path])
        row, column = nearest_place(places, path, at_key=at_key)
        written = self.text.splitlines()[row - 1 : row]
        is_block = bool(written) and written[0][column - 1 : column] in ("|", ">")
        if is_block and (line or not at_key):
            # The text of a block scalar starts in the line below `|` or `>`.
            row, column = row + 1 + line, 1
        if all((fault.line, fault.message) != (row, message) or fault.file != self.file for fault in to):
            to.append(Fault(self.file, row, column, message))


def document_path(text: str) -> DocumentPath:
    """`actions[0].name` as ("actions", 0, "name")."""
    return tuple(
        int(index) if index else name or quoted.replace('\\"', '"') for name, index, quoted in STEP.findall(text)
    )

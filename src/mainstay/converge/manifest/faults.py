"""Collects the faults of a manifest by path; lines are looked up only if there are faults."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mainstay.foundation import Struct
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.document import locate, nearest_place

# Keys of a related manifest family that are refused by name.
FOREIGN_EXPRESSION = r"(?i)\$\{\s*(?:(?:data|facts|environ)\b|lookup\()"
UNSUPPORTED_KEYS = {"register_when_stable", "resources_jet_file", "noop", "allow_apply", "health_check_only"}


def foreign_problem(text: str) -> str | None:
    """What is wrong with a text that has an expression of a related manifest family, `${ … }`, which is text here.

    Other texts with `${` are most likely meant for a shell or a configuration file."""
    if "${" in text and re.search(FOREIGN_EXPRESSION, text):
        return "${ … } is not supported; write {{ … }}"
    return None


class Faults(Struct):
    """Collected faults, each with its document path."""

    file: str
    text: str
    found: list[tuple[DocumentPath, bool, str]] = []
    # How many were added, repeated ones included.
    seen: int = 0
    known: set[tuple[DocumentPath, bool, str]] = set()

    def add(self, path: DocumentPath, message: str, *, at_key: bool = False) -> None:
        self.seen += 1
        # A fault in `defaults` is found at every resource they apply to, and reported once.
        if (path, at_key, message) not in self.known:
            self.known.add((path, at_key, message))
            self.found.append((path, at_key, message))

    def refuse_foreign(self, text: str, path: DocumentPath, prefix: str, *, at_key: bool = False) -> bool:
        """Refuses `${ … }` where it would silently be taken as text."""
        problem = foreign_problem(text)
        if problem is not None:
            self.add(path, f"{prefix}{problem}", at_key=at_key)
        return problem is not None

    def add_follow_up(self) -> None:
        """Counts a fault that follows from a reported one, and reports nothing."""
        self.seen += 1

    def unknown_key(
        self, key: str, path: DocumentPath, known: Iterable[str], prefix: str = "", *, of_type: str | None = None
    ) -> None:
        """`of_type` is the type of the resource that has the key; None: it is a key of something else."""
        if key in UNSUPPORTED_KEYS:
            self.add(path, f"{prefix}`{key}` is not supported", at_key=True)
        elif of_type is not None:
            from mainstay.converge.migration_hints import advice_on_key

            advice = advice_on_key(key, of_type, known)
            self.add(path, f"{prefix}unknown key {shorten(key)!r}{advice}", at_key=True)
        else:
            self.add(path, f"{prefix}unknown key {shorten(key)!r}{did_you_mean(key, known)}", at_key=True)

    def raise_if_any(self) -> None:
        if self.found:
            raise DoesNotLoad(self.located())

    def located(self) -> list[Fault]:
        """The faults with line and column, in the order of the text."""
        if not self.text:
            # A document built by a program has no lines.
            return [Fault(self.file, None, None, message) for _, _, message in self.found]
        places = locate(self.text, [path for path, _, _ in self.found]) if self.found else {}
        faults = [
            Fault(self.file, *nearest_place(places, path, at_key=at_key), message)
            for path, at_key, message in self.found
        ]
        return sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0))

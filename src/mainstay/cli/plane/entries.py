"""An entry of a plane: one row of a kind, from a file or from the server, in the same form."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from mainstay.cli.plane.kinds import Kind
from mainstay.cli.remote.service_types import Members
from mainstay.foundation import Struct

Path = tuple[str, ...]


class Entry(Struct):
    """`path`: the names of the owners and its own. `id` None: only known by name.

    `row` is the document of the API, None for an entry of a file. `members` are the schema of its properties, None: free.
    `source`: the file and the path in it, for faults; None: the entry is implied by another one, or from the server.
    `faulty`: attributes that the file gives and that cannot be used; their faults are reported."""

    kind: Kind
    path: Path
    attributes: dict[str, Any]
    id: str | None = None
    row: Mapping[str, Any] | None = None
    members: Members | None = None
    source: EntrySource | None = None
    faulty: AbstractSet[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the row; the key of the entry may be another text."""
        given = self.attributes.get("name") if "name" not in self.kind.attributes else None
        return str(given) if given is not None else self.path[-1]

    def place(self, *steps: str | int) -> EntrySource | None:
        return None if self.source is None else self.source.below(*steps)

    def __repr__(self) -> str:
        return f"Entry({self.kind.name} {'/'.join(self.path)})"


class EntrySource(Struct):
    """A place in a plane file, found only for faults."""

    file: PlaneFile
    path: tuple[str | int, ...]

    def below(self, *steps: str | int) -> EntrySource:
        return EntrySource(self.file, (*self.path, *steps))


class PlaneFile(Struct):
    """One document of a plane file: the name of the file, and the text of the document at its lines."""

    name: str
    text: str
    directory: str


class PlaneFault(Struct):
    """A fault of the files, or a refusal of the server, with the place of its entry. `source` None: of no entry."""

    source: EntrySource | None
    message: str


def same(left: Any, right: Any) -> bool:
    """JSON equality: 1 equals 1.0, true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)

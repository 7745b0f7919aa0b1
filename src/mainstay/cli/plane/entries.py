"""An entry of a plane: one row of a kind, from a file or from the server, in the same form."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.cli.plane.kinds import Kind
    from mainstay.cli.remote.service_types import Members

    Path = tuple[str, ...]


class Entry:
    """`path`: the names of the owners and its own. `id` None: only known by name.

    `row` is the document of the API, None for an entry of a file. `members` are the schema of its properties, None: free.
    `source`: the file and the path in it, for faults; None: the entry is implied by another one, or from the server.
    `faulty`: attributes that the file gives and that cannot be used; their faults are reported."""

    __slots__ = ("attributes", "faulty", "id", "kind", "members", "path", "row", "source")

    def __init__(
        self,
        kind: Kind,
        path: Path,
        attributes: dict[str, Any],
        *,
        id: str | None = None,  # noqa: A002 (the name in files and in the API)
        row: Mapping[str, Any] | None = None,
        members: Members | None = None,
        source: EntrySource | None = None,
    ) -> None:
        self.kind = kind
        self.path = path
        self.attributes = attributes
        self.id = id
        self.row = row
        self.members = members
        self.source = source
        self.faulty: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the row; the key of the entry may be another text."""
        given = self.attributes.get("name") if "name" not in self.kind.attributes else None
        return str(given) if given is not None else self.path[-1]

    def __repr__(self) -> str:
        return f"Entry({self.kind.name} {'/'.join(self.path)})"


class EntrySource:
    """A place in a plane file, found only for faults."""

    __slots__ = ("file", "path")

    def __init__(self, file: PlaneFile, path: tuple[str | int, ...]) -> None:
        self.file = file
        self.path = path

    def below(self, *steps: str | int) -> EntrySource:
        return EntrySource(self.file, (*self.path, *steps))


class PlaneFile:
    """One document of a plane file: the name of the file, and the text of the document at its lines."""

    __slots__ = ("directory", "name", "text")

    def __init__(self, name: str, text: str, directory: str) -> None:
        self.name = name
        self.text = text
        self.directory = directory


class PlaneFault:
    """A fault of the files, or a refusal of the server, with the place of its entry. `source` None: of no entry."""

    __slots__ = ("message", "source")

    def __init__(self, source: EntrySource | None, message: str) -> None:
        self.source = source
        self.message = message


def same(left: Any, right: Any) -> bool:
    """JSON equality: 1 equals 1.0, true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)

"""YAML text to nodes, strictly: maps, lists, text as written, and plain scalars that may be more than text.

`blocks` reads the plainest YAML. The composer, loaded on demand, reads all other YAML and reports all faults. Nodes
carry no positions, because only faults need them: a fault names a path into the document, and `locate` reads the
text again to find its position.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.foundation import TypeAlias
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault, refused
from mainstay.foundation.yaml import blocks
from mainstay.foundation.yaml.scalars import Node

# Path → (position of its key, position of its value), each as (line, column).
Places: TypeAlias = "dict[DocumentPath, tuple[tuple[int, int], tuple[int, int]]]"


LARGEST_DOCUMENT_BYTES = 256 * 1024 * 1024


def parse(text: str, file: str) -> Node:
    """Returns the one document in `text`; raises `DoesNotLoad` with every fault found."""
    node = blocks.read(text)
    if node is None:
        from mainstay.foundation.yaml.composer import compose

        return compose(text, file)
    return node


def decode(content: bytes, file: str) -> str:
    """Decodes the bytes of a file; anything but UTF-8 is a fault."""
    if len(content) > LARGEST_DOCUMENT_BYTES:
        limit = LARGEST_DOCUMENT_BYTES // 1024 // 1024
        raise refused(file, f"the file is larger than {limit} MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        from mainstay.foundation.yaml.composer import position

        line, column = position(content[: error.start])
        fault = Fault(
            file,
            line,
            column,
            f"not UTF-8: byte 0x{content[error.start]:02x} is not valid here; save the file as UTF-8",
        )
        raise DoesNotLoad([fault]) from None


def locate(text: str, wanted: Iterable[DocumentPath]) -> Places:
    """Finds paths in a text that is known to parse: (position of the key, position of the value), 1-based.

    Leaves out paths that are not in the document.
    """
    from mainstay.foundation.yaml.composer import places

    return places(text, wanted)


def nearest_place(places: Places, path: DocumentPath, *, at_key: bool = False) -> tuple[int, int]:
    """Returns line and column of a path, or of the innermost key around it that `locate` found."""
    nearest = path
    while nearest and nearest not in places:
        nearest = nearest[:-1]
    return places[nearest][0 if at_key or nearest != path else 1] if nearest in places else (1, 1)

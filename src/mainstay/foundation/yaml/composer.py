"""Composes nodes from the events of libyaml, or of PyYAML where libyaml is missing, for all of YAML, and finds the position of a path in a text.

Loaders that build values lose how a scalar is written and accept duplicate keys silently; events do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainstay.foundation import Any
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.libyaml import (
    AliasEvent,
    CParser,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    MarkedYAMLError,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)
from mainstay.foundation.yaml.scalars import CORE, DEEPEST_NESTING, FIRST_OF_CORE, Node, PlainScalar

MOST_NODES_BY_ALIASES = 1_000_000
# A long text counts as several nodes, so that the bound holds for bytes too.
CHARACTERS_PER_NODE = 100
# Advice on problems that the parser reports, by a part of its message.
ADVICE = (
    ("mapping values are not allowed", "; quote a text that contains `: `, or indent the line below its key"),
    ("expected key", "; indent the line like its neighbours"),
    ("expected <block end>", "; indent the line like its neighbours"),
    ("expected '-' indicator", "; indent the line like its neighbours, or begin it with `- `"),
    ("expected ',' or", "; close the bracket, or quote a text that contains `: `"),
    ("could not find expected ':'", "; a line in a map is `key: value`"),
    ("unknown escape character", "; write \\\\ for a backslash, or use single quotes"),
)
CORE_TAGS = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"}


def compose(text: str, file: str) -> Node:
    """Returns the one document in `text`; raises `DoesNotLoad` with every fault found."""
    return Composer(text, file).compose()


def position(before: bytes) -> tuple[int, int]:
    """Line and column, 1-based, of the character after these bytes."""
    line = before[before.rfind(b"\n") + 1 :]
    return before.count(b"\n") + 1, len(line.decode("utf-8", "replace")) + 1


class Composer:
    """One pass over the events. Faults are collected; only broken syntax ends the pass."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.anchors: dict[str, Node] = {}
        # Sizes of aliased nodes by identity (nodes, depth), and the number of nodes that all aliases add.
        self.measured: dict[int, tuple[int, int]] = {}
        self.nodes_by_aliases = 0
        # A lone surrogate cannot be encoded; libyaml would raise a bare UnicodeEncodeError.
        self.bytes = text.encode("utf-8", "replace")
        self.next: Callable[[], Any] = CParser(self.bytes).get_event

    def compose(self) -> Node:
        try:
            root = self.document()
        except YAMLError as error:
            self.faults.append(_syntax_fault(error, self.file, self.bytes))
            root = {}
        if self.faults:
            raise DoesNotLoad(self.faults)
        return root

    def document(self) -> Node:
        self.next()
        event = self.next()
        if event.__class__ is StreamEndEvent:
            return PlainScalar("")
        root = self.node(self.next(), 0)
        while event.__class__ is not DocumentEndEvent:
            event = self.next()
        event = self.next()
        if event.__class__ is DocumentStartEvent:
            self.fault(event, "a second document begins here; write one document per file")
        return root

    def node(self, event: Any, depth: int) -> Node:
        if depth > DEEPEST_NESTING:
            raise BeyondBound(f"nested more than {DEEPEST_NESTING} levels deep", event)
        kind = event.__class__
        if kind is AliasEvent:
            return self.alias(event, depth)
        if event.tag is not None and event.tag not in CORE_TAGS:
            self.fault(event, f"the tag {event.tag} is not supported; write the value without it")
        node: Node
        if kind is ScalarEvent:
            node = _scalar(event)
        elif kind is MappingStartEvent:
            node = self._mapping(depth)
        else:
            node = self.sequence(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _mapping(self, depth: int) -> Node:
        entries: dict[str, Node] = {}
        take = self.next
        while True:
            event = take()
            # A short path for the most common keys and values.
            if type(event) is ScalarEvent and event.tag is None and event.anchor is None:
                key = event.value
                if key in entries or key == "<<":
                    key = self.key(event, entries, depth)
            elif type(event) is MappingEndEvent:
                return entries
            else:
                key = self.key(event, entries, depth)
            event = take()
            if type(event) is ScalarEvent and event.tag is None and event.anchor is None:
                value: Any = event.value
                if not event.style and (not value or value[0] in FIRST_OF_CORE) and CORE.fullmatch(value):
                    value = PlainScalar(value)
                entries[key] = value
            else:
                entries[key] = self.node(event, depth + 1)

    def key(self, event: Any, entries: dict[str, Node], depth: int) -> str:
        if event.__class__ is not ScalarEvent:
            node = self.alias(event, depth) if event.__class__ is AliasEvent else self.node(event, depth + 1)
            if isinstance(node, PlainScalar):
                node = node.text
            if not isinstance(node, str):
                self.fault(event, "a key must be text, not a map or a list; quote a text that begins with {{")
                return f"\0{len(entries)}"
            key: str = node
        else:
            key = event.value
            if event.tag is not None and event.tag not in CORE_TAGS:
                self.fault(event, f"the tag {event.tag} is not supported; write the key without it")
            if event.anchor is not None:
                self.anchors[event.anchor] = key
        if key in entries:
            self.fault(event, f"duplicate key {shorten(key)!r}; the map already contains it")
        if key == "<<" and not event.style:
            self.fault(
                event, "merge keys (<<) are not supported; repeat the keys, or use the `defaults` of a manifest"
            )
        return key

    def sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while True:
            event = self.next()
            if event.__class__ is SequenceEndEvent:
                return items
            items.append(self.node(event, depth + 1))

    def alias(self, event: Any, depth: int) -> Node:
        if event.anchor not in self.anchors:
            self.fault(event, f"the alias *{event.anchor} has no complete anchor before it")
            return PlainScalar("")
        node = self.anchors[event.anchor]
        size, height = _measure(node, self.measured)
        self.nodes_by_aliases += size
        if self.nodes_by_aliases > MOST_NODES_BY_ALIASES:
            raise BeyondBound("aliases expand to more than a million nodes", event)
        if depth + height > DEEPEST_NESTING:
            raise BeyondBound(f"nested more than {DEEPEST_NESTING} levels deep by aliases", event)
        return node

    def fault(self, event: Any, message: str) -> None:
        mark = event.start_mark
        self.faults.append(Fault(self.file, mark.line + 1, mark.column + 1, message))


class BeyondBound(MarkedYAMLError):
    """A bound is exceeded; a parser error, because the rest of the document cannot be read."""

    def __init__(self, problem: str, event: Any) -> None:
        super().__init__(problem=problem, problem_mark=event.start_mark)


def _scalar(event: Any) -> Node:
    value: str = event.value
    if not event.style and event.tag is None and CORE.fullmatch(value):
        return PlainScalar(value)
    return value


def _measure(node: Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Returns the number of nodes with every alias expanded, and their depth."""
    if isinstance(node, PlainScalar):
        node = node.text
    if not node or isinstance(node, str):
        return 1 + len(node) // CHARACTERS_PER_NODE, 0
    if id(node) not in known:
        keys = sum(len(key) // CHARACTERS_PER_NODE for key in node) if isinstance(node, dict) else 0
        sizes = [_measure(child, known) for child in (node.values() if isinstance(node, dict) else node)]
        known[id(node)] = 1 + keys + sum(size for size, _ in sizes), 1 + max(height for _, height in sizes)
    return known[id(node)]


def _syntax_fault(error: YAMLError, file: str, content: bytes) -> Fault:
    from yaml.reader import ReaderError

    if isinstance(error, ReaderError):
        # The reader reports an offset in bytes, not a line.
        line, column = position(content[: error.position])
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = (
            f"not valid YAML: the character U+{code:04X} is not allowed here; in double quotes write \\u{code:04x}"
        )
        return Fault(file, line, column, message)
    mark: Any = getattr(error, "problem_mark", None)
    began: Any = getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None) or ""
    if mark is None:
        return Fault(file, None, None, f"not valid YAML: {problem}")
    if "quoted scalar" in context and "unexpected end" in problem and began is not None:
        # The beginning of the quote is more useful than the end of the text.
        return Fault(
            file, began.line + 1, began.column + 1, "not valid YAML: the quote that begins here is not closed"
        )
    if "cannot start any token" in problem:
        character = _character_at(content, mark)
        message = (
            "a tab cannot be used for indentation; use spaces"
            if character == "\t"
            else f"a value cannot begin with {character}; quote it"
        )
        return Fault(file, mark.line + 1, mark.column + 1, f"not valid YAML: {message}")
    message = f"not valid YAML: {problem}"
    if context and began is not None and began.line != mark.line:
        message += f" ({context} that begins on line {began.line + 1})"
    elif context:
        message += f" ({context})"
    return Fault(file, mark.line + 1, mark.column + 1, message + _advice_on(problem))


def _character_at(content: bytes, mark: Any) -> str:
    """The character a mark points to; `index` counts characters."""
    text = content.decode("utf-8", "replace")
    return text[mark.index : mark.index + 1]


def _advice_on(problem: str) -> str:
    for part, advice in ADVICE:
        if part in problem:
            return advice
    return ""


def places(text: str, wanted: Iterable[DocumentPath]) -> dict[DocumentPath, tuple[tuple[int, int], tuple[int, int]]]:
    """See `document.locate`."""
    paths = {path[:length] for path in wanted for length in range(len(path) + 1)}
    found: dict[DocumentPath, tuple[tuple[int, int], tuple[int, int]]] = {}
    texts: dict[str, str] = {}
    take: Callable[[], Any] = CParser(text.encode("utf-8", "replace")).get_event

    def place(event: Any) -> tuple[int, int]:
        return event.start_mark.line + 1, event.start_mark.column + 1

    def text_of(event: Any) -> str:
        """The text of a scalar; for an alias, the text of its anchor."""
        anchor: Any = event.anchor
        if event.__class__ is AliasEvent:
            return texts[anchor]
        if anchor is not None:
            texts[anchor] = event.value
        text: str = event.value
        return text

    def walk(event: Any, path: DocumentPath, key: tuple[int, int]) -> None:
        if path in paths:
            found[path] = (key, place(event))
        if event.__class__ is ScalarEvent:
            text_of(event)
        elif event.__class__ is MappingStartEvent:
            while (inner := take()).__class__ is not MappingEndEvent:
                walk(take(), (*path, text_of(inner)), place(inner))
        elif event.__class__ is SequenceStartEvent:
            index = 0
            while (inner := take()).__class__ is not SequenceEndEvent:
                walk(inner, (*path, index), place(inner))
                index += 1

    take()
    if take().__class__ is DocumentStartEvent:
        first = take()
        walk(first, (), place(first))
    return found

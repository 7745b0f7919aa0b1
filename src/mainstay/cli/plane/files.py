"""Plane files to entries: several files, several documents per file, every fault with its place. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mainstay.cli.plane.entries import Entry, EntrySource, Path, PlaneFault, PlaneFile
from mainstay.cli.plane.kinds import ANY, BOOLEAN, ID, KINDS, NAME, TEXTS, Attribute, Kind
from mainstay.cli.remote.connection import is_id
from mainstay.foundation import Struct
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.suggestions import closest, did_you_mean
from mainstay.foundation.yaml.document import locate, nearest_place

# `null` takes these away; other attributes cannot be unset.
CLEARABLE = frozenset({("agents", "poolSet"), ("agents", "capacity")})
MAX_DOCUMENTS = 1000


class PlaneContent(Struct):
    """The entries of all files. `kinds`: those that occur, also without entries; only they are pruned.
    `unreadable`: faults of documents that are not YAML; what they define is not known."""

    entries: dict[tuple[str, Path], Entry] = {}
    kinds: set[str] = set()
    faults: list[PlaneFault] = []
    unreadable: list[Fault] = []


def read_plane(files: Sequence[tuple[str, str]]) -> PlaneContent:
    """`files`: names and texts. All faults are in the result."""
    content = PlaneContent()
    for name, text in files:
        documents = _split_documents(name, text)
        if len(documents) > MAX_DOCUMENTS:
            content.unreadable.append(
                Fault(name, None, None, f"the file has more than {MAX_DOCUMENTS} documents; split it")
            )
            continue
        for document in documents:
            try:
                value = read_yaml(document.text, name)
            except DoesNotLoad as refusal:
                content.unreadable += refusal.faults
                continue
            _read_document(content, document, value)
    return content


def _split_documents(name: str, text: str) -> list[PlaneFile]:
    """The documents of a file, each padded with empty lines so that its places are those in the file."""
    directory = os.path.dirname(name) if name != "-" else ""
    found: list[str] = []
    current: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("---") and line[3:4] in ("", " ", "\t", "\r"):
            found.append("\n".join(current))
            current = [""] * number + ["   " + line[3:]]
        else:
            current.append(line)
    found.append("\n".join(current))
    return [PlaneFile(name, each, directory) for each in found if each.strip()]


def _read_document(content: PlaneContent, document: PlaneFile, value: Any) -> None:
    root = EntrySource(document, ())
    if value is None:
        return
    if not isinstance(value, dict):
        content.faults.append(PlaneFault(root, f"a plane is a map of kinds: {', '.join(KINDS)}"))
        return
    for name, inner in value.items():
        if name not in KINDS:
            hint = did_you_mean(name, KINDS) or f"; known kinds: {', '.join(KINDS)}"
            content.faults.append(PlaneFault(root.below(name), f"there is no kind {name!r}{hint}"))
        meant = _kind_named(name)
        if meant is None:
            continue
        kind = KINDS[meant]
        content.kinds.add(kind.name)
        _read_level(content, kind, (), inner, root.below(name))


def _kind_named(name: str) -> str | None:
    """A misspelt kind is read as the one that is meant, for the faults in it and for what refers to it."""
    return name if name in KINDS else closest(name, KINDS)


def kind_in_file(entry: Entry) -> str | None:
    """The kind that the entry is written below: for a pool set or group that is implied, the one that implies it."""
    return None if entry.source is None else _kind_named(str(entry.source.path[0]))


def _read_level(content: PlaneContent, kind: Kind, path: Path, value: Any, source: EntrySource) -> None:
    """One level of names: of an owner, or of the entries themselves."""
    if value is None:
        return
    levels = [*(KINDS[owner].noun for owner in kind.owners), kind.noun]
    if not isinstance(value, dict):
        content.faults.append(PlaneFault(source, f"must be a map by {levels[len(path)]}"))
        return
    for name, inner in value.items():
        here = (*path, name)
        place = source.below(name)
        if not name:
            content.faults.append(PlaneFault(place, f"the name of a {levels[len(path)]} is empty"))
        elif len(here) <= len(kind.owners):
            _imply(content, kind, here, place)
            _read_level(content, kind, here, inner, place)
        else:
            _add(content, _read_entry(content, kind, here, inner, place))


def _imply(content: PlaneContent, kind: Kind, path: Path, source: EntrySource) -> None:
    """A pool set or group exists once something is below it."""
    owner = KINDS[kind.owners[len(path) - 1]]
    if owner.implied and (owner.name, path) not in content.entries:
        content.entries[owner.name, path] = Entry(owner, path, {}, source=EntrySource(source.file, source.path))


def _add(content: PlaneContent, entry: Entry) -> None:
    known = content.entries.get((entry.kind.name, entry.path))
    if known is not None and known.source is not None and not _is_implied(known):
        place = fault_of(PlaneFault(known.source, "")).place
        message = f"{entry.kind.noun} {' / '.join(entry.path)} is defined twice; first at {place}"
        content.faults.append(PlaneFault(entry.source, message))
        return
    content.entries[entry.kind.name, entry.path] = entry


def _is_implied(entry: Entry) -> bool:
    return entry.source is not None and kind_in_file(entry) != entry.kind.name


def _read_entry(content: PlaneContent, kind: Kind, path: Path, value: Any, source: EntrySource) -> Entry:
    attributes: dict[str, Any] = {}
    faulty: set[str] = set()
    given = {} if value is None else value
    if not isinstance(given, dict):
        content.faults.append(PlaneFault(source, f"must be a map with {', '.join(_known(kind))}"))
        given = {}
        faulty = set(kind.attributes)
    row_id = None
    for name, each in given.items():
        place = source.below(name)
        attribute = kind.attributes.get(name)
        if attribute is not None:
            message = _unfit(kind, name, attribute, each)
        elif name == ID:
            message = "" if _is_id(each) else "must be the id of a row: a uuid"
        elif name == NAME:
            message = "" if isinstance(each, str) and each else "must be a name"
        else:
            message = f"{kind.noun} has no {name!r}{did_you_mean(name, _known(kind)) or '; it has: ' + ', '.join(_known(kind))}"
        if message:
            content.faults.append(PlaneFault(place, message))
            # One that is misspelt is not missing, too.
            faulty.add(name if name in _known(kind) else closest(name, _known(kind)) or name)
        elif name == ID:
            row_id = each.lower()
        else:
            attributes[name] = each
    entry = Entry(kind, path, attributes, id=row_id, source=source)
    entry.faulty = faulty - attributes.keys()
    return entry


def _known(kind: Kind) -> list[str]:
    return list(dict.fromkeys([*kind.attributes, ID, NAME]))


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and is_id(value)


def _unfit(kind: Kind, name: str, attribute: Attribute, value: Any) -> str:
    """Why the value does not fit its attribute; empty if it does."""
    if value is None:
        return "" if (kind.name, name) in CLEARABLE else "must not be null; leave it out to keep what is there"
    form = attribute.form
    if not isinstance(value, form.types) or (isinstance(value, bool) and form not in (BOOLEAN, ANY)):
        return f"must be {form.shown}"
    if form == TEXTS and isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return f"must be {form.shown}"
    if attribute.choices and value not in attribute.choices:
        return f"must be {' or '.join(attribute.choices)}{did_you_mean(str(value), attribute.choices)}"
    return ""


def fault_of(fault: PlaneFault) -> Fault:
    """The fault with file, line and column."""
    (found,) = place_faults([fault])
    return found


def place_faults(faults: Sequence[PlaneFault]) -> list[Fault]:
    """The faults with file, line and column. Each document is searched once."""
    wanted: dict[PlaneFile, list[tuple[str | int, ...]]] = {}
    for source in (fault.source for fault in faults):
        if source is not None:
            wanted.setdefault(source.file, []).append(source.path)
    places = {file: locate(file.text, paths) for file, paths in wanted.items()}
    found = []
    for fault in faults:
        source = fault.source
        if source is None:
            found.append(Fault("server", None, None, fault.message))
        else:
            line, column = nearest_place(places[source.file], source.path, at_key=True)
            found.append(Fault(source.file.name, line, column, fault.message))
    return found

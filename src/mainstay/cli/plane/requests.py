"""Steps to the requests of one batch. Pure, but for secrets, which `read_secret` gets from files and the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mainstay.cli.plane.difference import CREATE, DELETE, Difference, PlaneStep, find_order
from mainstay.cli.plane.entries import Entry, Path, PlaneFault
from mainstay.cli.plane.files import PlaneContent
from mainstay.cli.plane.kinds import KINDS, PROPERTIES, VALUE_COLLECTIONS, Attribute
from mainstay.cli.plane.properties import KEEP, SecretValue, Steps, is_directive, is_named_service, replaced
from mainstay.cli.plane.snapshot import Snapshot
from mainstay.cli.remote.service_types import Definition
from mainstay.foundation import Struct

ReadSecret = Callable[[Mapping[str, Any], str], str]


class SecretMissing(Exception):
    """A secret cannot be read; the message names the file or variable."""


class PlaneRequests(Struct):
    """`requests` of the batch; `steps` has the step of each one. `faults`: secrets that cannot be read."""

    requests: list[dict[str, Any]] = []
    steps: list[PlaneStep] = []
    faults: list[PlaneFault] = []


def build_requests(
    found: Difference, content: PlaneContent, snapshot: Snapshot, read_secret: ReadSecret
) -> PlaneRequests:
    """In the order of the steps: an entry is created before what refers to it, deletions come last."""
    builder = _Builder(found, content, snapshot, read_secret, PlaneRequests())
    for step in found.steps:
        builder.add(step)
    return builder.built


class _Builder(Struct):
    _found: Difference
    _content: PlaneContent
    _snapshot: Snapshot
    _read_secret: ReadSecret
    built: PlaneRequests

    def _send(self, step: PlaneStep, method: str, path: str, body: dict[str, Any] | None = None, **more: Any) -> None:
        request = {"method": method, "path": path, **{name: each for name, each in more.items() if each}}
        if body is not None:
            request["body"] = body
        self.built.requests.append(request)
        self.built.steps.append(step)

    def add(self, step: PlaneStep) -> None:
        kind = step.entry.kind
        if step.action == DELETE:
            self._send(step, "DELETE", f"{kind.collection}/{step.entry.id}")
        elif kind.name == "blueprints":
            packed = step.entry.row or {}
            self._send(
                step, "POST", kind.collection, content=packed["content"], key=_key("blueprints", step.entry.path)
            )
        else:
            self._add_row(step)
            self._add_values(step)

    def _add_row(self, step: PlaneStep) -> None:
        entry, kind = step.entry, step.entry.kind
        references: dict[str, str] = {}
        body: dict[str, Any] = {}
        if step.action == CREATE:
            body[kind.key] = entry.path[-1]
            self._set_owners(entry, body, references)
        for name, value in step.body.items():
            attribute = kind.attributes.get(name)
            if attribute is None:
                body[name] = value
            elif attribute.form == PROPERTIES:
                body[attribute.member] = self._properties(entry, name, value, attribute.member, references)
            elif attribute.refers_to is not None:
                body[attribute.member] = self._referred(entry, attribute, value, references)
            elif (kind.name, name) == ("agents", "disabled"):
                body["status"] = "Disabled" if value else "Disconnected"
            else:
                body[attribute.member] = value
        if kind.name == "pools" and step.action == CREATE:
            body["generatorType"] = "subnet" if "subnet" in step.body else "list"
        elif kind.name in VALUE_COLLECTIONS and step.action == CREATE:
            body["generatorType"] = "list"
        if step.action == CREATE:
            self._send(step, "POST", kind.collection, body, key=_key(kind.name, entry.path), references=references)
        elif body:
            self._send(step, "PATCH", f"{kind.collection}/{step.actual.id}", body, references=references)  # type: ignore[union-attr]

    def _set_owners(self, entry: Entry, body: dict[str, Any], references: dict[str, str]) -> None:
        owners = entry.kind.owner_paths(entry.path)
        for member, (kind, path) in zip(entry.kind.owner_members, owners, strict=False):
            if member is not None:
                body[member] = self._row(kind, path, f"/{member}", references)

    def _row(self, kind: str, path: Path, pointer: str, references: dict[str, str]) -> str:
        """The id of a row. If a step creates it: empty, and a reference at this place of the body."""
        row_id = self._id_of(kind, path)
        if row_id is None:
            references[pointer] = _key(kind, path)
        return row_id or ""

    def _id_of(self, kind: str, path: Path) -> str | None:
        """None: a step of this plan creates it."""
        if (kind, path) in self._found.targets:
            return self._found.targets[kind, path]
        return self._snapshot.ids.get((kind, path))

    def _referred(self, entry: Entry, attribute: Attribute, value: Any, references: dict[str, str]) -> Any:
        """The ids for the name or names that an attribute gives."""
        kind, pointer = str(attribute.refers_to), f"/{attribute.member}"
        if isinstance(value, list):
            return [
                self._row(*self._named(entry, kind, name), f"{pointer}/{number}", references)
                for number, name in enumerate(value)
            ]
        return None if value is None else self._row(*self._named(entry, kind, value), pointer, references)

    def _named(self, entry: Entry, kind: str, name: str) -> tuple[str, Path]:
        """The entry that a name refers to. A service type may be that of a blueprint in the files."""
        if kind == "agents":
            return kind, next(path for known, path in self._snapshot.ids if known == "agents" and path[-1] == name)
        path = (*entry.path[:1], name) if kind == "poolSets" else (name,)
        if kind == "serviceTypes" and self._id_of(kind, path) is None and (kind, path) not in self._content.entries:
            for each in self._content.entries.values():
                if each.kind.name == "blueprints" and each.row and each.row["typeName"] == name:
                    return "blueprints", each.path
        return kind, path

    def _properties(
        self, entry: Entry, name: str, value: Any, member: str, references: dict[str, str]
    ) -> dict[str, Any]:
        def replace(steps: Steps, each: Any, known: Definition) -> Any:
            if isinstance(each, SecretValue):
                return self._secret(entry, each, (name, *steps))
            order = find_order(entry, each, self._content, self._snapshot) if is_named_service(each, known) else each
            if not isinstance(order, tuple):
                return each if order is None else order
            return self._row("orders", order, "/".join(["", member, *map(_escaped, steps)]), references)

        schema = None if entry.members is None else {"properties": entry.members}
        found: dict[str, Any] = replaced(value, schema, replace)
        return found

    def _secret(self, entry: Entry, value: SecretValue, steps: Steps) -> str:
        if not is_directive(value.directive):
            # Its fault is reported already.
            return ""
        try:
            if KEEP not in value.directive:
                return self._read_secret(value.directive, "" if entry.source is None else entry.source.file.directory)
            if value.stored is None:
                raise SecretMissing("there is no value to keep: write {file: FILE} or {env: NAME}")
            return str(value.stored)
        except SecretMissing as problem:
            self.built.faults.append(PlaneFault(entry.place(*steps), str(problem)))
            return ""

    def _add_values(self, step: PlaneStep) -> None:
        collection, member = VALUE_COLLECTIONS.get(step.entry.kind.name, ("", ""))
        for value, name in step.new_values:
            references: dict[str, str] = {}
            pool = self._row(step.entry.kind.name, step.entry.path, f"/{member}", references)
            self._send(step, "POST", collection, {"name": name, "value": value, member: pool}, references=references)
        for row, name in step.renamed_values:
            self._send(step, "PATCH", f"{collection}/{row['id']}", {"name": name})
        for row in step.old_values:
            self._send(step, "DELETE", f"{collection}/{row['id']}")


def _key(kind: str, path: Path) -> str:
    """By which later requests refer to a new row."""
    return f"{KINDS[kind].noun} {' / '.join(path)}"


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")

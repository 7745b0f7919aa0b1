"""The difference between the entries of files and those of a server: the steps that remove it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mainstay.cli.plane.entries import Entry, EntrySource, Path, PlaneFault, same
from mainstay.cli.plane.files import PlaneContent
from mainstay.cli.plane.kinds import ID, KINDS, NEVER_DELETED, PROPERTIES, TEXTS, VALUES, Attribute
from mainstay.cli.plane.pool_ranges import UnfitValues, read_values, value_key
from mainstay.cli.plane.properties import (
    changed_properties,
    complete_value,
    references_in,
    secret_faults,
    with_references,
)
from mainstay.cli.plane.snapshot import Snapshot
from mainstay.cli.remote.connection import is_id
from mainstay.cli.remote.service_types import Members, hide_secret_value, members_of
from mainstay.foundation import Struct
from mainstay.foundation.suggestions import did_you_mean

CREATE, CHANGE, DELETE = "create", "change", "delete"
# Set at the creation of an order; the server does not keep them.
ONLY_AT_CREATION = frozenset({("orders", "tags")})


class PlaneStep(Struct):
    """What must happen to one entry.

    `changes`: (attribute, old, new) for people, without secrets. `body`: attributes to send, with `SecretValue`s.
    `new_values`, `renamed_values`, `old_values`: of a pool, as (value, name), (row, name) and rows."""

    action: str
    entry: Entry
    actual: Entry | None
    changes: list[tuple[str, Any, Any]] = []
    body: dict[str, Any] = {}
    new_values: list[tuple[Any, str]] = []
    renamed_values: list[tuple[Mapping[str, Any], str]] = []
    old_values: list[Mapping[str, Any]] = []

    @property
    def deletions(self) -> int:
        return (self.action == DELETE) + len(self.old_values)

    @property
    def is_empty(self) -> bool:
        return self.action == CHANGE and not (self.body or self.new_values or self.renamed_values or self.old_values)


class Difference(Struct):
    """`targets`: (kind, path in the files) → the id of its row, or None if a step creates it."""

    steps: list[PlaneStep] = []
    faults: list[PlaneFault] = []
    notices: list[str] = []
    targets: dict[tuple[str, Path], str | None] = {}

    @property
    def deletions(self) -> int:
        return sum(step.deletions for step in self.steps)


def find_difference(
    content: PlaneContent, snapshot: Snapshot, *, prune: bool, prune_orders: bool, set_secrets: bool
) -> Difference:
    comparison = _Comparison(content, snapshot, prune, set_secrets, Difference())
    comparison.compare_all()
    if prune or prune_orders:
        comparison.prune(orders=prune_orders, others=prune)
    return comparison.found


class _EntryFault(Exception):
    """What keeps an entry from being compared, at `steps` below it."""

    def __init__(self, message: str, *steps: str) -> None:
        super().__init__(message)
        self.steps = steps


class _Comparison(Struct):
    """`_aliases`: (kind, path in the files) → path on the server, where they differ. `_unknown_owners`: their places, if
    they are reported."""

    _content: PlaneContent
    _snapshot: Snapshot
    _prune: bool
    _set_secrets: bool
    found: Difference
    _aliases: dict[tuple[str, Path], Path] = {}
    _matched: set[tuple[str, Path]] = set()
    _unknown_owners: set[object] = set()

    def compare_all(self) -> None:
        for entry in sorted(self._content.entries.values(), key=_place_of_kind):
            try:
                self._compare(entry)
            except _EntryFault as fault:
                self._fault(entry, str(fault), *fault.steps)
        self._sort_orders()

    def _name_references(self, entry: Entry) -> None:
        """Writes references as exports do, `GROUP/NAME`, so that other forms of the same reference are no change."""
        if entry.kind.name != "orders" or not entry.members:
            return

        def translate(steps: tuple[str | int, ...], text: str) -> str:
            found = find_order(entry, text, self._content, self._snapshot)
            if found is None:
                known = _orders_of(entry, self._content, self._snapshot)
                hint = did_you_mean(text, [name for path in known for name in ("/".join(path[1:]), path[-1])])
                message = (
                    f"there is no service {text!r} of {entry.path[0]}{hint}; write GROUP/NAME, or the id of a service"
                )
                self._fault(entry, message, "properties", *steps)
            return "/".join(found[1:]) if isinstance(found, tuple) else text

        schema = {"properties": entry.members}
        entry.attributes["properties"] = with_references(entry.attributes.get("properties") or {}, schema, translate)

    def _fault(self, entry: Entry, message: str, *steps: str | int) -> None:
        self.found.faults.append(PlaneFault(entry.place(*steps), message))

    def _known_names(self, kind: str, owner: Path = ()) -> list[str]:
        """Names in the files and on the server, for suggestions."""
        known = (*self._content.entries, *self._snapshot.ids)
        names = dict.fromkeys(path[-1] for each, path in known if each == kind and path[: len(owner)] == owner)
        if kind == "serviceTypes":
            names |= dict.fromkeys(str(each["typeName"]) for each in self._packed_blueprints())
        return list(names)

    def _packed_blueprints(self) -> Iterator[Mapping[str, Any]]:
        for entry in self._content.entries.values():
            if entry.kind.name == "blueprints" and entry.row is not None:
                yield entry.row

    # ---- identity ----
    def _server_path(self, kind: str, path: Path) -> Path:
        """The path with the names of the server for the owners."""
        known = KINDS[kind]
        names = list(path)
        for depth, owner in enumerate(known.owners):
            first = depth - len(KINDS[owner].owners)
            alias = self._aliases.get((owner, path[first : depth + 1]))
            if alias is not None:
                names[first : depth + 1] = alias
        return tuple(names)

    def _compare(self, entry: Entry) -> None:
        # Without a usable id it is not known which row it is.
        if not self._has_owners(entry) or ID in entry.faulty:
            return
        actual = self._match(entry)
        # An order may be known to the snapshot by a name that a file gives a new one: the id decides.
        self.found.targets[entry.kind.name, entry.path] = None if actual is None else actual.id
        entry.members = self._schema_of(entry, actual)
        self._check_secrets(entry)
        self._name_references(entry)
        if entry.kind.name == "blueprints":
            self._compare_blueprint(entry, actual)
        elif actual is None:
            self._create(entry)
        else:
            self._change(entry, actual)

    def _match(self, entry: Entry) -> Entry | None:
        """The row of the entry on the server; None: it is to be created."""
        kind, noun = entry.kind.name, entry.kind.noun
        path = self._server_path(kind, entry.path)
        actual = self._snapshot.entries.get((kind, path))
        if entry.id is not None:
            actual = self._snapshot.find(kind, entry.id)
            if actual is None:
                raise _EntryFault(f"there is no {noun} with the id {entry.id}", "id")
            if actual.path[:-1] != path[:-1]:
                owner, given = (" / ".join(each[:-1]) for each in (actual.path, path))
                raise _EntryFault(f"{noun} {entry.id} belongs to {owner}, not to {given}", "id")
            self._aliases[kind, entry.path] = actual.path
        elif actual is None and (kind, path) in self._snapshot.ambiguous:
            ids = ", ".join(self._snapshot.ambiguous[kind, path])
            raise _EntryFault(f"several {noun}s have this name; add `id:` with one of {ids}")
        elif "name" in entry.attributes and "name" not in entry.kind.attributes:
            raise _EntryFault("a name other than the key needs `id:`, which says which row it is", "name")
        if actual is not None and (kind, actual.path) in self._matched:
            raise _EntryFault(f"another entry is the same {noun} ({actual.id})")
        if actual is not None:
            self._matched.add((kind, actual.path))
        return actual

    def _has_owners(self, entry: Entry) -> bool:
        """Reports an unknown owner once, at its name, whatever is below it."""
        for depth, (kind, path) in enumerate(entry.kind.owner_paths(entry.path)):
            if self.is_known(kind, path):
                continue
            noun, name = KINDS[kind].noun, path[-1]
            if (kind, self._server_path(kind, path)) in self._snapshot.ambiguous:
                message = f"several {noun}s are named {name!r}; name the right one under `{kind}` with `id:`"
            else:
                hint = did_you_mean(name, self._known_names(kind, path[:-1])) or f"; add it under `{kind}`"
                message = f"there is no {noun} {name!r}{hint}"
            # Below the name of the kind.
            source = None if entry.source is None else EntrySource(entry.source.file, entry.source.path[: depth + 2])
            place = None if source is None else (source.file, source.path)
            if place not in self._unknown_owners:
                self._unknown_owners.add(place)
                self.found.faults.append(PlaneFault(source, message))
            return False
        return True

    def is_known(self, kind: str, path: Path) -> bool:
        return (kind, path) in self._content.entries or (kind, self._server_path(kind, path)) in self._snapshot.ids

    # ---- schemas ----
    def _schema_of(self, entry: Entry, actual: Entry | None) -> Members | None:
        """The properties of an order or a configuration, as they will be once the file is applied."""
        if entry.kind.name == "agents":
            return None if actual is None else actual.members
        if entry.kind.name != "orders":
            return None
        name = entry.attributes.get("type") or (actual and actual.attributes["type"])
        wanted = self._content.entries.get(("serviceTypes", (str(name),)))
        if wanted is not None and "propertySchema" in wanted.attributes:
            return members_of(wanted.attributes)
        for packed in self._packed_blueprints():
            if packed["typeName"] == name:
                return members_of(packed)
        type_id = self._snapshot.ids.get(("serviceTypes", (str(name),)))
        return members_of(self._snapshot.rows["serviceTypes", type_id]) if type_id else None

    def _check_secrets(self, entry: Entry) -> None:
        for name, attribute in entry.kind.attributes.items():
            if attribute.form == PROPERTIES and entry.members is not None:
                for member, value in (entry.attributes.get(name) or {}).items():
                    for steps, message in secret_faults(value, entry.members.get(member)):
                        self._fault(entry, message, name, member, *steps)

    # ---- steps ----
    def _create(self, entry: Entry) -> None:
        kind, own = entry.kind, entry.path[-1]
        if kind.name == "agents":
            enrolled = [
                path[-1] for known, path in self._snapshot.ids if known == "agents" and path[0] == entry.path[0]
            ]
            raise _EntryFault(
                f"there is no agent {own!r} of {entry.path[0]}{did_you_mean(own, enrolled)}; agents enroll, they are not"
                f" created by a file: `mainstay agents add {own}`"
            )
        required = [name for name, each in kind.attributes.items() if each.required and name not in entry.faulty]
        missing = [f"`{name}`" for name in required if entry.attributes.get(name) is None]
        if missing:
            raise _EntryFault(f"a new {kind.noun} needs {' and '.join(missing)}")
        step = PlaneStep(CREATE, entry, None)
        for name, given in entry.attributes.items():
            attribute = kind.attributes[name]
            value = self._without_unknown_names(entry, name, attribute, given)
            if value is _UNKNOWN:
                entry.faulty |= {name}
            elif attribute.form == VALUES:
                step.new_values = self._values(entry, name, value) or []
                step.changes.append((name, None, value))
            elif attribute.form == PROPERTIES:
                schema = {"properties": entry.members} if entry.members is not None else None
                step.body[name] = complete_value(value, None, schema)
                step.changes.append((name, None, hide_secret_value(value, schema)))
            else:
                step.body[name] = value
                step.changes.append((name, None, value))
        if not any(kind.attributes[name].required for name in entry.faulty & kind.attributes.keys()):
            self.found.steps.append(step)

    def _change(self, entry: Entry, actual: Entry) -> None:
        step = PlaneStep(CHANGE, entry, actual)
        row = actual.row or {}
        if entry.id is not None and entry.name != row[entry.kind.key]:
            step.body[entry.kind.key] = entry.name
            step.changes.append((entry.kind.key, row[entry.kind.key], entry.name))
        for name, value in entry.attributes.items():
            attribute = entry.kind.attributes.get(name)
            if attribute is None or (entry.kind.name, name) in ONLY_AT_CREATION:
                continue
            known = self._without_unknown_names(entry, name, attribute, value)
            if known is not _UNKNOWN:
                self._change_attribute(step, actual, name, attribute, known)
        if not step.is_empty:
            self.found.steps.append(step)

    def _change_attribute(self, step: PlaneStep, actual: Entry, name: str, attribute: Attribute, value: Any) -> None:
        entry = step.entry
        old = actual.attributes.get(name, attribute.default)
        if (entry.kind.name, name) == ("orders", "agent"):
            old = (actual.row or {})["agent"]["name"]
        if attribute.form == VALUES:
            self._change_values(step, actual, name, value)
        elif attribute.form == PROPERTIES:
            stored = (actual.row or {}).get(attribute.member) or {}
            sent, lines = changed_properties(value, old or {}, stored, entry.members, set_secrets=self._set_secrets)
            if sent:
                step.body[name] = sent
                step.changes += [(f"{name}.{path}", before, after) for path, before, after in lines]
        elif self._is_same(attribute, value, old):
            return
        elif attribute.fixed:
            way = (
                "order another one"
                if entry.kind.name == "orders"
                else "remove it first, or give the new one another name"
            )
            if name == "agent":
                way = f"use `mainstay move {entry.path[-1]}`"
            self._fault(entry, f"{name} cannot be changed from {old!r} to {value!r}; {way}", name)
        else:
            step.body[name] = value
            step.changes.append((name, old, value))

    def _is_same(self, attribute: Attribute, value: Any, old: Any) -> bool:
        kind = attribute.refers_to
        if kind is None:
            return sorted(value) == sorted(old or []) if attribute.form == TEXTS else same(value, old)
        names = value if isinstance(value, list) else [value]
        server = [self._aliases.get((kind, (name,)), (name,))[-1] if name is not None else None for name in names]
        return sorted(map(str, server)) == sorted(map(str, old if isinstance(old, list) else [old]))

    def _without_unknown_names(self, entry: Entry, name: str, attribute: Attribute, value: Any) -> Any:
        """A list of references without the unknown names, or `_UNKNOWN` for a single one. Reports them."""
        if attribute.refers_to is None or value is None:
            return value
        known = []
        for number, each in enumerate(value if isinstance(value, list) else [value]):
            if self.target_of(entry, attribute.refers_to, each) is not _UNKNOWN:
                known.append(each)
            elif attribute.refers_to != "serviceTypes" or not self._has_faulty_blueprints():
                # A blueprint that cannot be packed may have the type.
                steps = (name, number) if isinstance(value, list) else (name,)
                self._fault(entry, self._unknown_name(entry, attribute.refers_to, each), *steps)
        if isinstance(value, list):
            return known
        return known[0] if known else _UNKNOWN

    def _unknown_name(self, entry: Entry, kind: str, name: str) -> str:
        known = KINDS[kind]
        if kind == "agents" and name in self._known_names(kind):
            return f"several agents are named {name!r}; leave `agent` out, and select one by `provider` and `tags`"
        owner = entry.path[:1] if kind == "poolSets" else ()
        return f"there is no {known.noun} {name!r}{did_you_mean(name, self._known_names(kind, owner))}"

    def _has_faulty_blueprints(self) -> bool:
        return any(each.kind.name == "blueprints" and each.faulty for each in self._content.entries.values())

    def target_of(self, entry: Entry, kind: str, name: str) -> Any:
        """The path of the row that a name refers to, `_UNKNOWN` if there is none."""
        owner = entry.path[:1] if kind == "poolSets" else ()
        if kind == "agents":
            found = [path for known, path in self._snapshot.ids if known == "agents" and path[-1] == name]
            return found[0] if len(found) == 1 else _UNKNOWN
        path = (*owner, name)
        if self.is_known(kind, path):
            return path
        if kind == "serviceTypes" and any(each["typeName"] == name for each in self._packed_blueprints()):
            return path
        return _UNKNOWN

    # ---- values of pools ----
    def _values(
        self, entry: Entry, name: str, written: Any, actual: Entry | None = None
    ) -> list[tuple[Any, str]] | None:
        """None: the list has a fault."""
        property_type = entry.attributes.get("propertyType") or (actual and actual.attributes.get("propertyType"))
        try:
            return read_values(written, str(property_type))
        except UnfitValues as problem:
            self._fault(entry, str(problem), name, *([] if problem.index is None else [problem.index]))
            return None

    def _change_values(self, step: PlaneStep, actual: Entry, name: str, written: Any) -> None:
        stored = {value_key(each["value"]): each for each in (actual.row or {}).get("values", ())}
        values = self._values(step.entry, name, written, actual)
        if values is None:
            return
        wanted = {value_key(value): (value, label) for value, label in values}
        step.new_values = [each for key, each in wanted.items() if key not in stored]
        renamed = [
            (stored[key], label)
            for key, (_, label) in wanted.items()
            if key in stored and stored[key]["name"] != label
        ]
        if renamed and step.entry.kind.name != "pools":
            self._fault(step.entry, "values of a config pool cannot be renamed; remove them first", name)
            return
        step.renamed_values = renamed
        if self._prune:
            step.old_values = [row for key, row in stored.items() if key not in wanted]
        if step.new_values:
            step.changes.append((f"{name} added", None, [value for value, _ in step.new_values]))
        if step.old_values:
            step.changes.append((f"{name} removed", [row["value"] for row in step.old_values], None))
        step.changes += [(f"{name} {row['value']}", row["name"], label) for row, label in renamed]

    # ---- blueprints ----
    def _compare_blueprint(self, entry: Entry, actual: Entry | None) -> None:
        """`row` of the entry is the packed directory, if it names one."""
        version, packed = entry.attributes.get("version"), entry.row
        if entry.faulty:
            return
        current = None if actual is None else actual.attributes["version"]
        if packed is None:
            if actual is None or version not in (None, current):
                pushed = [path[-1] for kind, path in self._snapshot.ids if kind == "blueprints"]
                missing = f"the server does not have it{did_you_mean(entry.path[-1], pushed)}"
                held = missing if actual is None else f"its current version is {current}"
                self._fault(entry, f"{held}; push it with `mainstay blueprint push`, or name its `directory:`")
            return
        if version not in (None, packed["version"]):
            self._fault(entry, f"the directory has version {packed['version']}, not {version}", "version")
        elif actual is None or (actual.row or {})["digest"] != packed["digest"]:
            step = PlaneStep(CREATE if actual is None else CHANGE, entry, actual)
            step.body["digest"] = packed["digest"]
            step.changes.append(("version", current, packed["version"]))
            step.changes.append(
                ("digest", None if actual is None else (actual.row or {})["digest"], packed["digest"])
            )
            self.found.steps.append(step)

    # ---- orders that refer to orders ----
    def _sort_orders(self) -> None:
        """Creates orders after those that they refer to."""
        orders = [each for each in self.found.steps if each.entry.kind.name == "orders"]
        others = [each for each in self.found.steps if each.entry.kind.name != "orders"]
        new = {each.entry.path: each for each in orders if each.action == CREATE}
        done: dict[Path, bool] = {}
        sorted_steps: list[PlaneStep] = []

        def visit(step: PlaneStep) -> None:
            path = step.entry.path
            if path in done:
                if not done[path]:
                    self._fault(step.entry, "this order and others refer to each other in a circle", "properties")
                return
            done[path] = False
            for needed in self._orders_named_by(step.entry):
                if needed in new:
                    visit(new[needed])
            done[path] = True
            sorted_steps.append(step)

        for step in orders:
            visit(step)
        self.found.steps = [*others, *sorted_steps]

    def _orders_named_by(self, entry: Entry) -> Iterable[Path]:
        members = entry.members or {}
        for name, value in (entry.attributes.get("properties") or {}).items():
            for text in references_in(value, members.get(name)):
                path = find_order(entry, text, self._content, self._snapshot)
                if isinstance(path, tuple):
                    yield path

    # ---- deletions ----
    def prune(self, *, orders: bool, others: bool) -> None:
        doomed: list[Entry] = []
        for (kind, path), actual in self._snapshot.entries.items():
            wanted = orders if kind == "orders" else others and kind not in NEVER_DELETED
            own = self._snapshot.participant_id is None or not KINDS[kind].is_global
            if wanted and own and kind in self._content.kinds and (kind, path) not in self._matched:
                doomed.append(actual)
        busy = {each.path[:2] for each in doomed if each.kind.name == "orders"}
        for actual in sorted(doomed, key=lambda each: -_place_of_kind(each)):
            if actual.kind.name == "groups" and actual.path in busy:
                # Its services are still being deleted when the group would be.
                self.found.notices.append(
                    f"group {' / '.join(actual.path)} stays until its services are deleted; apply again then"
                )
                continue
            self.found.steps.append(PlaneStep(DELETE, actual, actual))


_UNKNOWN = object()


def _place_of_kind(entry: Entry) -> int:
    return list(KINDS).index(entry.kind.name)


def _orders_of(entry: Entry, content: PlaneContent, snapshot: Snapshot) -> list[Path]:
    """The orders of the same customer, in the files and on the server."""
    known = (path for kind, path in (*content.entries, *snapshot.ids) if kind == "orders")
    return list(dict.fromkeys(path for path in known if path[:1] == entry.path[:1]))


def find_order(entry: Entry, text: str, content: PlaneContent, snapshot: Snapshot) -> Path | str | None:
    """The order that a reference names: its path, the id of a service that is no entry, or None.

    GROUP/NAME, or a name that is unique among the orders of the customer."""
    if is_id(text):
        path = snapshot.paths.get(("orders", text.lower()))
        return path if path is not None and path[:1] == entry.path[:1] else text.lower()
    known = _orders_of(entry, content, snapshot)
    found = [path for path in known if "/".join(path[1:]) == text] or [path for path in known if path[-1] == text]
    return found[0] if len(found) == 1 else None

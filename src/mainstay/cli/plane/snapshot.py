"""Reads the plane of a server as entries: the same form as plane files, with names instead of ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused
from mainstay.cli.plane.entries import Entry, Path
from mainstay.cli.plane.kinds import KINDS, VALUE_COLLECTIONS, Kind
from mainstay.cli.plane.pool_ranges import write_values
from mainstay.cli.plane.properties import exported
from mainstay.cli.remote.connection import list_items
from mainstay.cli.remote.service_types import members_of
from mainstay.foundation import Struct

Row = Mapping[str, Any]


MAX_ROWS = 100_000
ID_DIGITS = 8
# Attributes for the creation only: which agent has the service is not part of the plane.
NOT_EXPORTED = frozenset({("orders", "agent"), ("orders", "tags")})


class Snapshot(Struct):
    """`entries` of kinds without blueprints; `paths` names every row that can be referred to, by kind and id.

    `ambiguous`: paths whose last name several rows have → their ids. `participant_id` None: the caller is an admin.
    `revision`: of the batches that were carried out before. `rows`: documents by kind and id."""

    participant_id: str | None
    revision: int
    entries: dict[tuple[str, Path], Entry] = {}
    paths: dict[tuple[str, str], Path] = {}
    ids: dict[tuple[str, Path], str] = {}
    ambiguous: dict[tuple[str, Path], list[str]] = {}
    rows: dict[tuple[str, str], Row] = {}

    def label(self, kind: str, row_id: str | None) -> str | None:
        """The last name of a row; its id if the caller may not read it."""
        if row_id is None:
            return None
        path = self.paths.get((kind, row_id))
        return path[-1] if path else row_id

    def find(self, kind: str, row_id: str) -> Entry | None:
        path = self.paths.get((kind, row_id))
        return None if path is None else self.entries.get((kind, path))


def read_snapshot(client: Client, *, orders: bool) -> Snapshot:
    """`orders`: also the services, of which there may be many."""
    # First: what another apply changes after this is noticed.
    revision = client.get("/batch")["revision"]
    snapshot = Snapshot(client.get("/tokens/me").get("participantId"), revision)
    reader = _Reader(client, snapshot, {})
    # An owner is read before what belongs to it.
    for kind in KINDS.values():
        if kind.name != "orders" or orders:
            reader.read(kind)
    return snapshot


class _Reader(Struct):
    """`_lists`: rows by path, because two kinds may share a list."""

    _client: Client
    _snapshot: Snapshot
    _lists: dict[str, list[Row]]

    def read(self, kind: Kind) -> None:
        """Names all rows that can be referred to, and adds those that a file can contain."""
        rows = self._rows(kind)
        self._name_rows(kind, rows)
        values = self._values(kind)
        for row in rows:
            path = self._snapshot.paths.get((kind.name, row["id"]))
            if path is not None and _is_entry(kind, row):
                self._add(kind, path, row, values[row["id"]])

    def _list(self, path: str, query: Mapping[str, object] | None = None) -> list[Row]:
        if path not in self._lists:
            self._lists[path] = list_items(self._client, path, query, MAX_ROWS + 1)
        if len(self._lists[path]) > MAX_ROWS:
            raise CommandRefused(
                f"the server has more than {MAX_ROWS} rows of {path}; `mainstay plane` reads no more"
            )
        return self._lists[path]

    def _rows(self, kind: Kind) -> Sequence[Row]:
        own = self._snapshot.participant_id
        if kind.name == "blueprints":
            # Only admins read blueprints.
            return [] if own is not None else [each for each in self._list("/blueprints") if each["isCurrent"]]
        rows = self._list(kind.collection, {"living": "true"} if kind.name == "orders" else None)
        if kind.name == "participants":
            known = {each["id"] for each in rows}
            offers = [offer for item in self._client.get("/catalogue")["items"] for offer in item["offers"]]
            providers = {offer["provider"]["id"]: offer["provider"] for offer in offers}
            return [*rows, *(each for row_id, each in providers.items() if row_id not in known)]
        if kind.collection == KINDS["configPools"].collection:
            return [each for each in rows if (each["participantId"] is None) == kind.is_global]
        owner = next(iter(_owner_members(kind)), None)
        return rows if own is None or owner is None else [each for each in rows if each[owner] == own]

    def _name_rows(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Names rows by owner and name. Rows of one owner with the same name get a part of their ids."""
        snapshot = self._snapshot
        groups: dict[Path, list[Row]] = defaultdict(list)
        for row in rows:
            owner = self._owner_path(kind, row)
            snapshot.rows[kind.name, row["id"]] = row
            if owner is not None:
                groups[(*owner, row[kind.key])].append(row)
        for path, same_name in groups.items():
            if len(same_name) > 1:
                snapshot.ambiguous[kind.name, path] = [row["id"] for row in same_name]
            for row in same_name:
                label = path if len(same_name) == 1 else (*path[:-1], f"{path[-1]}~{row['id'][:ID_DIGITS]}")
                if label in groups and len(same_name) > 1:
                    label = (*path[:-1], f"{path[-1]}~{row['id']}")
                snapshot.paths[kind.name, row["id"]] = label
                snapshot.ids[kind.name, label] = row["id"]

    def _owner_path(self, kind: Kind, row: Row) -> Path | None:
        """None: the caller may not read an owner."""
        found: Path = ()
        for owner, member in zip(kind.owners, _owner_members(kind), strict=True):
            if member is not None:
                path = self._snapshot.paths.get((owner, row[member]))
                if path is None:
                    return None
                # The path of a group or pool set begins with that of its participant.
                found = path if KINDS[owner].owners else found + path
        return found

    def _values(self, kind: Kind) -> dict[str, list[Row]]:
        """The values of pools by the id of the pool."""
        found: dict[str, list[Row]] = defaultdict(list)
        if kind.name in VALUE_COLLECTIONS:
            path, member = VALUE_COLLECTIONS[kind.name]
            for each in self._list(path):
                found[each[member]].append(each)
        return found

    def _add(self, kind: Kind, path: Path, row: Row, values: list[Row]) -> None:
        """Leaves out attributes that are unset or have their default value."""
        snapshot, attributes, members = self._snapshot, self._attributes(kind, row), None
        if kind.name == "agents":
            agent_type = snapshot.rows.get(("agentTypes", row["agentTypeId"]), {})
            members = members_of({"propertySchema": agent_type.get("configurationSchema")})
            attributes["disabled"] = row["status"] == "Disabled"
            attributes["configuration"] = exported(row["configuration"] or {}, members, lambda _id: None) or None
        elif kind.name == "orders":
            members = members_of(snapshot.rows["serviceTypes", row["serviceTypeId"]])
            attributes["properties"] = exported(row["properties"], members, self._namer(row)) or None
        elif kind.name in VALUE_COLLECTIONS:
            is_list = row["generatorType"] == "list"
            written = write_values([(each["value"], each["name"]) for each in values], row["propertyType"])
            attributes["values"] = (written or None) if is_list else None
            if kind.name == "pools":
                attributes["subnet"] = None if is_list else row["generatorConfig"]
            else:
                attributes["generatorConfig"] = row["generatorConfig"] or None
            row = {**row, "values": values}
        named = {} if path[-1] == row[kind.key] else {"id": row["id"], kind.key: row[kind.key]}
        kept = {name: each for name, each in attributes.items() if each not in (None, kind.attributes[name].default)}
        snapshot.entries[kind.name, path] = Entry(
            kind, path, {**named, **kept}, id=row["id"], row=row, members=members
        )

    def _attributes(self, kind: Kind, row: Row) -> dict[str, Any]:
        """The attributes that members hold, with names instead of ids."""
        return {
            name: row.get(each.member)
            if each.refers_to is None
            else self._labels(each.refers_to, row.get(each.member))
            for name, each in kind.attributes.items()
            if each.member and (kind.name, name) not in NOT_EXPORTED
        }

    def _labels(self, kind: str, value: Any) -> Any:
        if isinstance(value, list):
            return sorted(str(self._snapshot.label(kind, each)) for each in value)
        return self._snapshot.label(kind, value)

    def _namer(self, row: Row) -> Callable[[str], str | None]:
        """Names services of the same customer as `group/name`; others are known by their id only."""
        consumer = self._snapshot.paths.get(("participants", row["consumerId"]))

        def name_of(service_id: str) -> str | None:
            path = self._snapshot.paths.get(("orders", service_id))
            return "/".join(path[1:]) if path is not None and path[:1] == consumer else None

        return name_of


def _owner_members(kind: Kind) -> tuple[str | None, ...]:
    # Agents enroll: files name their provider, but no request of a plane sets it.
    return ("providerId",) if kind.name == "agents" else kind.owner_members


def _is_entry(kind: Kind, row: Row) -> bool:
    """Not a provider that only the catalogue names, nor the type of a blueprint."""
    if kind.name == "participants":
        return "createdAt" in row
    return kind.name != "serviceTypes" or row.get("blueprintDigest") is None

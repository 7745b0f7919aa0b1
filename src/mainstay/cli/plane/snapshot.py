"""Reads the plane of a server as entries: the same form as plane files, with names instead of ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused
from mainstay.cli.plane.entries import Entry, Path
from mainstay.cli.plane.kinds import KINDS, Kind
from mainstay.cli.plane.pool_ranges import write_values
from mainstay.cli.plane.properties import exported
from mainstay.cli.remote.connection import list_items
from mainstay.cli.remote.service_types import members_of
from mainstay.foundation import Struct

Row = Mapping[str, Any]


MAX_ROWS = 100_000
ID_DIGITS = 8


class Snapshot:
    """`entries` of kinds without blueprints; `paths` names every row that can be referred to, by kind and id.

    `ambiguous`: paths whose last name several rows have → their ids. `participant_id` None: the caller is an admin.
    `revision`: of the batches that were carried out before."""

    __slots__ = ("ambiguous", "entries", "ids", "participant_id", "paths", "revision", "rows")

    def __init__(self, participant_id: str | None, revision: int) -> None:
        self.participant_id = participant_id
        self.revision = revision
        self.entries: dict[tuple[str, Path], Entry] = {}
        self.paths: dict[tuple[str, str], Path] = {}
        self.ids: dict[tuple[str, Path], str] = {}
        self.ambiguous: dict[tuple[str, Path], list[str]] = {}
        # Documents by kind and id.
        self.rows: dict[tuple[str, str], Row] = {}

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
    reader = _Reader(client, snapshot)
    # An owner is read before what belongs to it.
    for kind in KINDS.values():
        if kind.name != "orders" or orders:
            reader.read(kind)
    return snapshot


def _no_owner(_row: Row) -> Path:
    return ()


class _Reader(Struct):
    _client: Client
    _snapshot: Snapshot

    def _list(self, path: str, query: Mapping[str, object] | None = None) -> list[Any]:
        found = list_items(self._client, path, query, MAX_ROWS + 1)
        if len(found) > MAX_ROWS:
            raise CommandRefused(
                f"the server has more than {MAX_ROWS} rows of {path}; `mainstay plane` reads no more"
            )
        return found

    def _own(self, rows: Iterable[Row], member: str) -> list[Row]:
        own = self._snapshot.participant_id
        return [each for each in rows if own is None or each[member] == own]

    def _name_rows(self, kind: str, rows: Iterable[Row], owner_of: Callable[[Row], Path | None] = _no_owner) -> None:
        """Names rows by owner and name. Rows of one owner with the same name get a part of their ids."""
        snapshot, key = self._snapshot, KINDS[kind].key
        groups: dict[Path, list[Row]] = defaultdict(list)
        for row in rows:
            owner = owner_of(row)
            snapshot.rows[kind, row["id"]] = row
            if owner is not None:
                groups[(*owner, row[key])].append(row)
        for path, same_name in groups.items():
            if len(same_name) > 1:
                snapshot.ambiguous[kind, path] = [row["id"] for row in same_name]
            for row in same_name:
                label = path if len(same_name) == 1 else (*path[:-1], f"{path[-1]}~{row['id'][:ID_DIGITS]}")
                if label in groups and len(same_name) > 1:
                    label = (*path[:-1], f"{path[-1]}~{row['id']}")
                snapshot.paths[kind, row["id"]] = label
                snapshot.ids[kind, label] = row["id"]

    def _add(self, kind: str, row: Row, attributes: dict[str, Any], **more: Any) -> None:
        """Leaves out attributes that are unset or have their default value."""
        path = self._snapshot.paths.get((kind, row["id"]))
        if path is None:
            return
        known = KINDS[kind].attributes
        kept = {
            name: value for name, value in attributes.items() if value is not None and value != known[name].default
        }
        if path[-1] != row[KINDS[kind].key]:
            kept = {"id": row["id"], KINDS[kind].key: row[KINDS[kind].key], **kept}
        self._snapshot.entries[kind, path] = Entry(KINDS[kind], path, kept, id=row["id"], row=row, **more)

    def _members(self, kind: str, row: Row) -> dict[str, Any]:
        """The attributes that members hold, with names instead of ids."""
        found: dict[str, Any] = {}
        for name, each in KINDS[kind].attributes.items():
            if each.member:
                value = row.get(each.member)
                found[name] = value if each.refers_to is None else self._labels(each.refers_to, value)
        return found

    def _labels(self, kind: str, value: Any) -> Any:
        if isinstance(value, list):
            return sorted(str(self._snapshot.label(kind, each)) for each in value)
        return self._snapshot.label(kind, value)

    def read(self, kind: Kind) -> None:
        readers = {
            "participants": self._participants,
            "blueprints": self._blueprints,
            "serviceTypes": self._service_types,
            "pools": self._pools,
            "configPools": self._config_pools,
            "globalConfigPools": lambda: None,
            "agents": self._agents,
            "orders": self._orders,
        }
        readers.get(kind.name, lambda: self._plain(kind))()

    def _plain(self, kind: Kind) -> None:
        """Rows of a noun that has nothing but the attributes of its declaration."""
        rows: list[Row] = self._list(kind.collection)
        if kind.owner_members and kind.owner_members[0] is not None:
            rows = self._own(rows, kind.owner_members[0])
        self._name_rows(kind.name, rows, lambda row: self._owner_path(kind, row))
        for row in rows:
            self._add(kind.name, row, self._members(kind.name, row))

    def _owner_path(self, kind: Kind, row: Row) -> Path | None:
        """None: the caller may not read an owner."""
        found: Path = ()
        for owner, member in zip(kind.owners, kind.owner_members, strict=True):
            if member is not None:
                path = self._snapshot.paths.get((owner, row[member]))
                if path is None:
                    return None
                found += path
        return found

    def _participants(self) -> None:
        rows = self._list("/participants")
        known = {each["id"] for each in rows}
        offers = [offer for item in self._client.get("/catalogue")["items"] for offer in item["offers"]]
        providers = {offer["provider"]["id"]: offer["provider"] for offer in offers}
        others = [each for row_id, each in providers.items() if row_id not in known]
        self._name_rows("participants", [*rows, *others])
        for row in rows:
            self._add("participants", row, self._members("participants", row))

    def _service_types(self) -> None:
        types = self._list("/service-types")
        self._name_rows("serviceTypes", types)
        for row in types:
            if row.get("blueprintDigest") is None:
                self._add("serviceTypes", row, self._members("serviceTypes", row))

    def _blueprints(self) -> None:
        if self._snapshot.participant_id is not None:
            # Only admins read blueprints.
            return
        current = [each for each in self._list("/blueprints") if each["isCurrent"]]
        self._name_rows("blueprints", current)
        for row in current:
            self._add("blueprints", row, {"version": row["version"]})

    def _owner(self, member: str, kind: str = "participants") -> Callable[[Row], Path | None]:
        return lambda row: self._snapshot.paths.get((kind, row[member]))

    def _pools(self) -> None:
        pools = self._own(self._list("/service-pools"), "providerId")
        self._name_rows("pools", pools, self._owner("servicePoolSetId", "poolSets"))
        values = self._values("/service-pool-values", "servicePoolId")
        for row in pools:
            is_list = row["generatorType"] == "list"
            attributes = {
                **self._members("pools", row),
                "subnet": None if is_list else row["generatorConfig"],
                "values": self._written(row, values[row["id"]]) if is_list else None,
            }
            self._add("pools", {**row, "values": values[row["id"]]}, attributes)

    def _values(self, path: str, member: str) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for each in self._list(path):
            found[each[member]].append(each)
        return found

    def _written(self, pool: Row, values: list[Row]) -> list[Any] | None:
        return write_values([(each["value"], each["name"]) for each in values], pool["propertyType"]) or None

    def _config_pools(self) -> None:
        rows = self._list("/config-pools")
        values = self._values("/config-pool-values", "configPoolId")
        for kind, chosen in (
            ("configPools", [each for each in rows if each["participantId"] is not None]),
            ("globalConfigPools", [each for each in rows if each["participantId"] is None]),
        ):
            owner = self._owner("participantId") if kind == "configPools" else _no_owner
            self._name_rows(kind, chosen, owner)
            for row in chosen:
                attributes = {
                    **self._members(kind, row),
                    "generatorConfig": row["generatorConfig"] or None,
                    "values": self._written(row, values[row["id"]]),
                }
                self._add(kind, {**row, "values": values[row["id"]]}, attributes)

    def _agents(self) -> None:
        rows = self._own(self._list("/agents"), "providerId")
        self._name_rows("agents", rows, self._owner("providerId"))
        for row in rows:
            agent_type = self._snapshot.rows.get(("agentTypes", row["agentTypeId"]), {})
            members = members_of({"propertySchema": agent_type.get("configurationSchema")})
            attributes = {
                **self._members("agents", row),
                "disabled": row["status"] == "Disabled",
                "configuration": exported(row["configuration"] or {}, members, lambda _id: None) or None,
            }
            self._add("agents", row, attributes, members=members)

    def _orders(self) -> None:
        rows = self._own(self._list("/services", {"living": "true"}), "consumerId")
        self._name_rows("orders", rows, self._owner("groupId", "groups"))
        for row in rows:
            members = members_of(self._snapshot.rows["serviceTypes", row["serviceTypeId"]])
            attributes = {
                "type": self._snapshot.label("serviceTypes", row["serviceTypeId"]),
                "provider": self._snapshot.label("participants", row["providerId"]),
                "properties": exported(row["properties"], members, self._namer(row)) or None,
            }
            self._add("orders", row, attributes, members=members)

    def _namer(self, row: Row) -> Callable[[str], str | None]:
        """Names services of the same customer as `group/name`; others are known by their id only."""
        consumer = self._snapshot.paths.get(("participants", row["consumerId"]))

        def name_of(service_id: str) -> str | None:
            path = self._snapshot.paths.get(("orders", service_id))
            return "/".join(path[1:]) if path is not None and path[:1] == consumer else None

        return name_of

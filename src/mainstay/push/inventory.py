"""The inventory: hosts and groups with their data, checked as a whole. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.document import locate, nearest_place
from mainstay.push.inventory_schema import GROUP_KEYS, HOST_KEYS, KEYS

# What is wrong, each with its place in the document.
Findings = list[tuple["DocumentPath", str]]
# A name of ssh: host, user@host, an address, or ssh://user@host:port. Never an option, a path or a shell word.
HOST_NAME = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9._+-]*@)?[A-Za-z0-9_:\[][A-Za-z0-9._:%\[\]-]*")
GROUP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
LONGEST_NAME = 255
LONGEST_PATH = 4096
MOST_HOSTS = 10_000
MOST_GROUPS = 10_000
MOST_FAULTS = 100
NAME_RULE = (
    "a host is a name, user@name or address as ssh knows it: letters, digits and . _ - : %, not beginning with -"
)


@dataclass
class InventoryHost:
    """One host: its Python, and its data from the least to the most specific layer, each with its origin."""

    name: str
    python: str | None
    layers: Sequence[tuple[str, Mapping[str, Any]]]


@dataclass
class Inventory:
    hosts: Mapping[str, InventoryHost]
    # Group → names of its hosts.
    groups: Mapping[str, frozenset[str]]


def inventory_of_names(names: Iterable[str]) -> Inventory:
    """The inventory of hosts that are named on the command line; raises `DoesNotLoad`."""
    unique = list(dict.fromkeys(names))
    faults = [Fault("HOST", None, None, _name_problem(name)) for name in unique if not _is_host_name(name)]
    if faults:
        raise DoesNotLoad(faults)
    return Inventory({name: InventoryHost(name, None, ()) for name in unique}, {})


def parse_inventory(document: Any, file: str, text: str | None) -> Inventory:
    """Checks a document; raises `DoesNotLoad` with all faults. `text` is its YAML, for places; None for JSON."""
    found: Findings = []
    if not isinstance(document, dict):
        raise DoesNotLoad([Fault(file, 1, 1, "an inventory is a map with `hosts` and `groups`")])
    _refuse_unknown(document, KEYS, (), found)
    hosts = _map_of(document, "hosts", found)
    groups = _map_of(document, "groups", found)
    if not hosts and not found:
        found.append(((), "it has no hosts; list them as keys of `hosts`"))
    if len(hosts) > MOST_HOSTS or len(groups) > MOST_GROUPS:
        found.append(((), f"it has more than {MOST_HOSTS:,} hosts or {MOST_GROUPS:,} groups"))
    for name, entry in hosts.items():
        _check_host(name, entry, found)
    for name, entry in groups.items():
        _check_group(name, entry, hosts, found)
    if found:
        raise DoesNotLoad(_placed(found[:MOST_FAULTS], file, text))
    members = {name: frozenset((entry or {}).get("hosts") or ()) for name, entry in groups.items()}
    return Inventory({name: _host_of(name, entry or {}, groups, members) for name, entry in hosts.items()}, members)


def _host_of(
    name: str, entry: Mapping[str, Any], groups: Mapping[str, Any], members: Mapping[str, frozenset[str]]
) -> InventoryHost:
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (f"group {group}", groups[group]["data"])
        for group in groups
        if name in members[group] and groups[group].get("data")
    ]
    if entry.get("data"):
        layers.append((f"host {name}", entry["data"]))
    return InventoryHost(name, entry.get("python"), layers)


def _map_of(document: Mapping[str, Any], key: str, found: Findings) -> dict[str, Any]:
    value = document.get(key)
    if isinstance(value, list) and key == "hosts":
        found.append(((key,), "hosts is a map: write each name as a key, `web1:`, not as an item of a list"))
        return {}
    if value is not None and not isinstance(value, dict):
        found.append(((key,), f"{key} is a map with names as keys"))
        return {}
    return value or {}


def _check_host(name: str, entry: Any, found: Findings) -> None:
    path = ("hosts", name)
    if not _is_host_name(name):
        found.append((path, _name_problem(name)))
    if not _check_entry(entry, path, HOST_KEYS, found):
        return
    python = entry.get("python")
    if python is not None and (not isinstance(python, str) or not _is_program(python)):
        found.append(((*path, "python"), "python is the path or name of a program, without blanks or options"))


def _check_group(name: str, entry: Any, hosts: Mapping[str, Any], found: Findings) -> None:
    path = ("groups", name)
    if not GROUP_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        found.append((path, f"{shorten(name)!r} is no name of a group: letters, digits and . _ -"))
    if name in hosts:
        found.append((path, f"{shorten(name)!r} is also the name of a host; --limit could not tell them apart"))
    if not _check_entry(entry, path, GROUP_KEYS, found):
        return
    members = entry.get("hosts")
    if members is not None and not isinstance(members, list):
        found.append(((*path, "hosts"), "hosts of a group is a list of names"))
        return
    for index, member in enumerate(members or ()):
        if not isinstance(member, str) or member not in hosts:
            hint = did_you_mean(str(member), hosts)
            found.append(((*path, "hosts", index), f"{shorten(str(member))!r} is not below `hosts`{hint}"))


def _check_entry(entry: Any, path: DocumentPath, known: Mapping[str, Any], found: Findings) -> bool:
    """Returns whether there are values to check."""
    if entry is None:
        return False
    if not isinstance(entry, dict):
        found.append((path, f"expected a map with {', '.join(known)}"))
        return False
    _refuse_unknown(entry, known, path, found)
    if entry.get("data") is not None and not isinstance(entry["data"], dict):
        found.append(((*path, "data"), "data is a map of values"))
    return True


def _refuse_unknown(entry: Mapping[str, Any], known: Mapping[str, Any], path: DocumentPath, found: Findings) -> None:
    found.extend(
        ((*path, key), f"unknown key {shorten(str(key))!r}{did_you_mean(str(key), known)}; known: {', '.join(known)}")
        for key in entry
        if key not in known
    )


def _is_host_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and HOST_NAME.fullmatch(name) is not None


def _name_problem(name: str) -> str:
    return f"{shorten(name)!r} is no name of a host: {NAME_RULE}"


def _is_program(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*", text)) and len(text) <= LONGEST_PATH


def _placed(found: Findings, file: str, text: str | None) -> list[Fault]:
    if text is None:
        return [Fault(file, None, None, _with_path(path, message)) for path, message in found]
    places = locate(text, [path for path, _ in found if path])
    return [Fault(file, *nearest_place(places, path, at_key=True), message) for path, message in found]


def _with_path(path: DocumentPath, message: str) -> str:
    return f"{shorten('.'.join(map(str, path)))}: {message}" if path else message

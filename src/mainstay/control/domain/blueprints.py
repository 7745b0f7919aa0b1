"""Blueprints in the control plane: name, version, service type, and the actions that upgrade a service to the version.
The agent interprets the manifests."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.names import NOT_PLAIN, is_plain_name
from mainstay.control.domain.properties.contract import Rulebook
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.domain.service_types import parse_service_type

KEYS = frozenset({"name", "version", "service_type", "description", "actions", "keeps", "drift", "movable"})
ACTION_KEYS = frozenset({"manifest", "timeout", "upgrades"})
# The name of `upgrades` in earlier releases, still accepted.
OLD_UPGRADES = "moves"
TYPE_KEYS = frozenset({"name", "propertySchema", "lifecycleSchema"})
DRIFT_POLICIES = ("report", "repair")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
MAX_VERSION = 100
MAX_TYPE_NAME = 255
# Prefix of fault paths in blueprint.yaml; paths without it are in service-type.yaml.
ROOT = "blueprint"


@dataclass(frozen=True, slots=True)
class BlueprintDefinition:
    name: str
    version: str
    type_name: str
    # None: free-form properties, or the built-in lifecycle.
    property_schema: dict[str, object] | None
    lifecycle_schema: dict[str, object] | None
    # The actions that bring a service to this version.
    upgrades: tuple[str, ...]
    # Whether a service may move to another agent: its files on the host are not copied.
    movable: bool = False


def parse_blueprint(
    blueprint: object, service_type: object, files: Collection[str], rulebook: Rulebook
) -> BlueprintDefinition:
    """`files` are the names of the files in the bundle. Raises `InvalidDefinition` with every fault."""
    faults: list[PathFault] = []
    given = _map(blueprint, ROOT, faults)
    typed = _map(service_type, "", faults)
    _refuse_unknown(given, KEYS, ROOT, faults)
    _refuse_unknown(typed, TYPE_KEYS, "", faults)
    name = _text(given, "name", NAME, faults)
    version = _text(given, "version", VERSION, faults)
    if len(version) > MAX_VERSION:
        faults.append(PathFault(f"{ROOT}.version", f"must have at most {MAX_VERSION} characters"))
    type_name = given.get("service_type") or typed.get("name") or name
    if not isinstance(type_name, str) or len(type_name) > MAX_TYPE_NAME:
        faults.append(PathFault(f"{ROOT}.service_type", f"must be text of at most {MAX_TYPE_NAME} characters"))
    elif not is_plain_name(type_name):
        faults.append(PathFault(f"{ROOT}.service_type", NOT_PLAIN))
    if given.get("drift") not in (None, *DRIFT_POLICIES):
        faults.append(PathFault(f"{ROOT}.drift", f"must be {' or '.join(DRIFT_POLICIES)}"))
    movable = given.get("movable", False)
    if not isinstance(movable, bool):
        faults.append(PathFault(f"{ROOT}.movable", "must be true or false"))
    schemas = {key: _schema(typed, key, faults) for key in ("propertySchema", "lifecycleSchema")}
    actions = _map(given.get("actions"), f"{ROOT}.actions", faults)
    keeps = _map(given.get("keeps") or {}, f"{ROOT}.keeps", faults)
    upgrades = tuple(action for action, entry in actions.items() if _read_upgrades(action, entry, files, faults))
    for state, manifest in keeps.items():
        _check_manifest(manifest, locate(f"{ROOT}.keeps", state), files, faults)
    try:
        definition = parse_service_type(schemas["propertySchema"], schemas["lifecycleSchema"], rulebook)
        faults += undeclared_names(definition.lifecycle, actions, keeps)
    except InvalidDefinition as refusal:
        faults += refusal.faults
    if faults:
        raise InvalidDefinition(faults)
    return BlueprintDefinition(
        name,
        version,
        str(type_name),
        schemas["propertySchema"],
        schemas["lifecycleSchema"],
        upgrades,
        movable=movable is True,
    )


def manifests_of(blueprint: object) -> list[str]:
    """The paths of the manifests that a valid blueprint names, each once."""
    given = blueprint if isinstance(blueprint, dict) else {}
    entries = [entry["manifest"] if isinstance(entry, dict) else entry for entry in given["actions"].values()]
    return list(dict.fromkeys(posixpath.normpath(path) for path in (*entries, *(given.get("keeps") or {}).values())))


def manifest_of(blueprint: object, action: str) -> str | None:
    """The manifest of an action of a valid blueprint. None: it has none."""
    entry = blueprint["actions"].get(action) if isinstance(blueprint, dict) else None
    path = entry["manifest"] if isinstance(entry, dict) else entry
    return None if path is None else posixpath.normpath(str(path))


def kept_manifest(blueprint: object, state: str) -> str | None:
    """The manifest that describes the host in a state. None: there is none."""
    keeps = blueprint.get("keeps") if isinstance(blueprint, dict) else None
    path = (keeps or {}).get(state)
    return None if path is None else posixpath.normpath(str(path))


def undeclared_names(lifecycle: Lifecycle, actions: Collection[str], keeps: Collection[str]) -> Iterator[PathFault]:
    """Faults for actions and states of a blueprint that the lifecycle does not declare."""
    for noun, key, names, known in (
        ("action", "actions", actions, lifecycle.actions),
        ("state", "keeps", keeps, lifecycle.states),
    ):
        for name in names:
            if name not in known:
                message = f"the lifecycle has no {noun} {name}; it has: {', '.join(known)}"
                yield PathFault(locate(f"{ROOT}.{key}", name), message)


def _map(value: object, path: str, faults: list[PathFault]) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    faults.append(PathFault(path, "required field is missing" if value is None else "must be a map"))
    return {}


def _refuse_unknown(given: Mapping[str, object], known: frozenset[str], path: str, faults: list[PathFault]) -> None:
    for key in given:
        if key not in known:
            faults.append(PathFault(locate(path, key), f"unknown key; known keys: {', '.join(sorted(known))}"))


def _text(given: Mapping[str, object], key: str, form: re.Pattern[str], faults: list[PathFault]) -> str:
    value = given.get(key)
    if isinstance(value, str) and form.fullmatch(value):
        return value
    wanted = "a version such as 1.4.0" if key == "version" else "letters, digits, dots, dashes and underscores"
    faults.append(PathFault(f"{ROOT}.{key}", "required field is missing" if value is None else f"must be {wanted}"))
    return ""


def _schema(typed: Mapping[str, object], key: str, faults: list[PathFault]) -> dict[str, object] | None:
    value = typed.get(key)
    if value is None or isinstance(value, dict):
        return value
    faults.append(PathFault(key, "must be a map"))
    return None


def _read_upgrades(action: str, entry: object, files: Collection[str], faults: list[PathFault]) -> bool:
    path = locate(f"{ROOT}.actions", action)
    if isinstance(entry, str):
        entry = {"manifest": entry}
    found = _map(entry, path, faults)
    key = OLD_UPGRADES if OLD_UPGRADES in found and "upgrades" not in found else "upgrades"
    _refuse_unknown({name: value for name, value in found.items() if name != key}, ACTION_KEYS, path, faults)
    if found:
        _check_manifest(found.get("manifest"), f"{path}.manifest", files, faults)
    upgrades = found.get(key, False)
    if not isinstance(upgrades, bool):
        faults.append(PathFault(f"{path}.{key}", "must be true or false"))
    return upgrades is True


def _check_manifest(manifest: object, path: str, files: Collection[str], faults: list[PathFault]) -> None:
    if not isinstance(manifest, str):
        faults.append(PathFault(path, "must be the path of a manifest in the blueprint"))
    elif posixpath.normpath(manifest) not in files:
        faults.append(PathFault(path, f"the blueprint has no file {manifest[:200]}"))

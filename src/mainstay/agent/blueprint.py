"""A blueprint: what one service type means on a host. Reads it from a directory, with the line of every fault, and packs
it reproducibly. Checking it against its service type is in blueprints/check.py."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mainstay.converge.host.sources import read_bytes
from mainstay.converge.manifest.faults import Faults
from mainstay.converge.value_kinds import Unfit, describe, parse_duration
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault, refused
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.yaml.document import decode

DEFINITION = "blueprint.yaml"
SERVICE_TYPE = "service-type.yaml"
KEYS = ("name", "version", "service_type", "description", "actions", "keeps", "drift", "movable")
ACTION_KEYS = ("manifest", "timeout", "upgrades")
# The name of `upgrades` in earlier releases, still accepted.
OLD_UPGRADES = "moves"
TYPE_KEYS = ("name", "propertySchema", "lifecycleSchema")
# Names of files and directories that do not belong to a blueprint.
LEFT_OUT = frozenset({".git", "__pycache__", ".DS_Store"})
DRIFT_POLICIES = ("report", "repair")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")


@dataclass
class ActionEntry:
    """The manifest of an action. `upgrades`: the action also brings the service to this version of the blueprint."""

    manifest: str
    timeout_seconds: float | None
    upgrades: bool
    uses_old_key: bool = False


@dataclass
class Blueprint:
    directory: str
    name: str
    version: str
    type_name: str
    actions: Mapping[str, ActionEntry]
    # Lifecycle status → the manifest that describes the host in that status.
    keeps: Mapping[str, str]
    drift: str
    service_type: Mapping[str, Any]
    # A service may move to another agent, although the files on its host are not copied.
    movable: bool

    @property
    def secret_paths(self) -> frozenset[tuple[str, ...]]:
        """Paths of the secret properties; `[]` is any item of an array."""
        return frozenset(find_secrets(schema_members(self.service_type.get("propertySchema"))))

    @property
    def old_keys(self) -> list[DocumentPath]:
        """Places in blueprint.yaml with a key of earlier releases."""
        return [("actions", name, OLD_UPGRADES) for name, entry in self.actions.items() if entry.uses_old_key]

    def manifest_path(self, manifest: str) -> str:
        return os.path.join(self.directory, manifest)


def read_blueprint(directory: str) -> Blueprint:
    """Raises `DoesNotLoad` with all faults of `blueprint.yaml` and of the top level of `service-type.yaml`."""
    found, faults = read_map(os.path.join(directory, DEFINITION))
    for key in found:
        if key not in KEYS:
            faults.unknown_key(key, (key,), KEYS)
    name = _text_of(found, "name", faults, NAME, "letters, digits, dots, dashes and underscores") or ""
    version = _text_of(found, "version", faults, VERSION, "a version such as 1.4.0") or ""
    type_name = _text_of(found, "service_type", faults, None, "", required=False)
    _text_of(found, "description", faults, None, "", required=False)
    drift = _text_of(found, "drift", faults, None, "", required=False) or DRIFT_POLICIES[0]
    if drift not in DRIFT_POLICIES:
        faults.add(("drift",), f"drift must be {' or '.join(DRIFT_POLICIES)}{did_you_mean(drift, DRIFT_POLICIES)}")
    movable = found.get("movable", False)
    if not isinstance(movable, bool):
        faults.add(("movable",), f"movable must be true or false, got {describe(movable)}")
    actions = {
        action: entry
        for action, given in _map_of(found, "actions", faults)
        if (entry := _read_action(directory, action, given, faults)) is not None
    }
    keeps = {
        state: manifest
        for state, given in _map_of(found, "keeps", faults, required=False)
        if (manifest := _manifest_of(directory, given, ("keeps", state), faults)) is not None
    }
    problems: list[Fault] = []
    service_type: Mapping[str, Any] = {}
    try:
        service_type, type_faults = read_map(os.path.join(directory, SERVICE_TYPE))
        for key in service_type:
            if key not in TYPE_KEYS:
                type_faults.unknown_key(key, (key,), TYPE_KEYS)
        type_faults.raise_if_any()
    except DoesNotLoad as refusal:
        problems = refusal.faults
    try:
        faults.raise_if_any()
    except DoesNotLoad as refusal:
        problems = [*refusal.faults, *problems]
    if problems:
        raise DoesNotLoad(problems)
    known_as = type_name or service_type.get("name") or name
    return Blueprint(directory, name, version, str(known_as), actions, keeps, drift, service_type, movable=movable)


def read_map(path: str) -> tuple[dict[str, Any], Faults]:
    text = decode(read_bytes(path), path)
    value = read_yaml(text, path)
    if not isinstance(value, dict):
        raise DoesNotLoad([Fault(path, 1, 1, f"expected a map, got {describe(value)}")])
    return value, Faults(path, text)


def _text_of(
    found: Mapping[str, Any],
    key: str,
    faults: Faults,
    form: re.Pattern[str] | None,
    wanted: str,
    *,
    required: bool = True,
) -> str | None:
    value = found.get(key)
    if value is None:
        if required:
            faults.add((), f"`{key}` is missing")
        return None
    # A version such as 1.4 is read as a number.
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, (dict, list, bool)) or (form is not None and not form.fullmatch(text)):
        faults.add((key,), f"{key} must be {wanted or 'text'}, got {text if form else describe(value)}")
        return None
    return text


def _map_of(
    found: Mapping[str, Any], key: str, faults: Faults, *, required: bool = True
) -> Iterator[tuple[str, Any]]:
    value = found.get(key)
    if value is None:
        if required:
            faults.add((), f"`{key}` is missing: it names the manifest of each action")
        return
    if not isinstance(value, dict):
        faults.add((key,), f"{key} must be a map, got {describe(value)}")
        return
    yield from value.items()


def _read_action(directory: str, action: str, given: Any, faults: Faults) -> ActionEntry | None:
    """`given` is a map or the path of the manifest."""
    path: DocumentPath = ("actions", action)
    if isinstance(given, str):
        given = {"manifest": given}
        manifest = _manifest_of(directory, given["manifest"], path, faults)
    elif isinstance(given, dict):
        for key in given:
            if key == OLD_UPGRADES and "upgrades" in given:
                faults.add((*path, key), f"`{key}` is the old name of `upgrades`; remove it")
            elif key not in (*ACTION_KEYS, OLD_UPGRADES):
                faults.unknown_key(key, (*path, key), ACTION_KEYS)
        manifest = _manifest_of(directory, given.get("manifest"), (*path, "manifest"), faults)
    else:
        faults.add(path, f"expected `{{manifest: …}}`, got {describe(given)}")
        return None
    seconds: float | None = None
    timeout = given.get("timeout")
    if timeout is not None:
        try:
            seconds = parse_duration(str(timeout))
        except Unfit as error:
            faults.add((*path, "timeout"), str(error))
    key = OLD_UPGRADES if OLD_UPGRADES in given else "upgrades"
    upgrades = given.get(key, False)
    if not isinstance(upgrades, bool):
        faults.add((*path, key), f"{key} must be true or false, got {describe(upgrades)}")
    if manifest is None:
        return None
    return ActionEntry(manifest, seconds, upgrades=upgrades is True, uses_old_key=key == OLD_UPGRADES)


def _manifest_of(directory: str, given: Any, path: DocumentPath, faults: Faults) -> str | None:
    if not isinstance(given, str):
        faults.add(path, f"expected the path of a manifest in the blueprint, got {describe(given)}")
        return None
    clean = os.path.normpath(given)
    if clean.startswith(("/", "..")):
        faults.add(path, f"{given} is outside the blueprint")
    elif not os.path.isfile(os.path.join(directory, clean)):
        faults.add(path, f"there is no {given} in the blueprint")
    else:
        return clean
    return None


# ---- secrets ----
def schema_members(schema: Any) -> Mapping[str, Any]:
    """The top-level properties of a schema: either a flat map or `{properties, validators}`."""
    if not isinstance(schema, dict):
        return {}
    inner = schema.get("properties")
    is_wrapped = set(schema) <= {"properties", "validators"} and not (
        isinstance(inner, dict) and isinstance(inner.get("type"), str)
    )
    members = inner if is_wrapped else schema
    return members if isinstance(members, dict) else {}


def find_secrets(members: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, declared in members.items():
        if isinstance(declared, dict):
            yield from _secrets_of(declared, (*at, name))


def _secrets_of(declared: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if declared.get("secret") is not None:
        yield at
    nested = declared.get("properties")
    if isinstance(nested, dict):
        yield from find_secrets(nested, at)
    items = declared.get("items")
    if isinstance(items, dict):
        yield from _secrets_of(items, (*at, "[]"))


# ---- bundles ----
def unpack(bundle: bytes, directory: str) -> None:
    """Creates the directory, which may exist if it is empty. Raises `DoesNotLoad` if the bytes are not a bundle."""
    from tempfile import NamedTemporaryFile

    from mainstay.converge.host.bundles import BundleRefused, tar_entries, write_entries

    os.makedirs(directory, exist_ok=True)
    with NamedTemporaryFile(suffix=".tar.gz") as packed:
        packed.write(bundle)
        packed.flush()
        try:
            write_entries(tar_entries(packed.name), directory)
        except (BundleRefused, EOFError) as error:
            raise refused(directory, f"the bundle cannot be unpacked: {error}") from None


def digest_of(bundle: bytes) -> str:
    return f"sha256:{hashlib.sha256(bundle).hexdigest()}"

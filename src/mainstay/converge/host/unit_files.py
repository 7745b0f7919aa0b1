"""Reads unit files as systemd would after a reload: whether a unit is enabled, masked, and some of its settings.

In a dry run the files include what earlier resources would have written."""

from __future__ import annotations

from collections.abc import Iterator

from mainstay.converge.host.files import Files
from mainstay.converge.host.systemctl import UNIT_DIRECTORIES, UNIT_SUFFIXES

INSTALL_KEYS = ("WantedBy", "RequiredBy", "UpheldBy", "Alias")
# Directories of links by which a unit is enabled.
LINK_SUFFIXES = (".wants", ".requires", ".upholds")
# Where `systemctl mask` and `systemctl mask --runtime` put their links.
MASK_DIRECTORY, RUNTIME_MASK_DIRECTORY = "/etc/systemd/system", "/run/systemd/system"
MASK_TARGET = "/dev/null"
LARGEST_UNIT_FILE_BYTES = 1024 * 1024


def find_unit_file(unit: str, files: Files) -> str | None:
    """Returns the path that decides about a unit: its file, a link to it, or its mask."""
    places = (f"{directory}/{unit}" for directory in UNIT_DIRECTORIES)
    return next((path for path in places if files.lexists(path)), None)


def find_behind_masks(unit: str, files: Files) -> str | None:
    """Returns the path that would decide about a masked unit without its masks."""
    places = (f"{directory}/{unit}" for directory in UNIT_DIRECTORIES)
    return next((path for path in places if files.lexists(path) and not is_mask(path, files)), None)


def is_mask(path: str, files: Files) -> bool:
    """systemd takes a link to /dev/null and an empty file as a mask."""
    if not files.lexists(path):
        return False
    if files.real_path(path) == MASK_TARGET:
        return True
    try:
        return bool(files.stat(path).st_size == 0)
    except FileNotFoundError:
        return False


def unit_file_state(place: str, unit: str, files: Files, known: str = "") -> str:
    """Returns the state as `systemctl is-enabled` names it. `known` is the state before files were changed."""
    file = files.real_path(place)
    if is_mask(place, files):
        return "masked"
    if file.endswith(UNIT_SUFFIXES) and file.rpartition("/")[2] != place.rpartition("/")[2]:
        return "alias"
    word = known
    if word in ("", "static", "disabled", "indirect") or word.startswith("masked"):
        word = _state_by_install_section(place, files)
    return "enabled" if word in ("disabled", "static") and is_linked(unit, files) else word


def is_linked(unit: str, files: Files) -> bool:
    """Whether another unit wants this unit by a link."""
    return any(
        files.lexists(f"{directory}/{name}/{unit}")
        for directory in UNIT_DIRECTORIES
        if files.exists(directory)
        for name in files.listdir(directory)
        if name.endswith(LINK_SUFFIXES)
    )


def read_settings(unit: str, section: str, files: Files) -> dict[str, str]:
    """Returns the settings of one section of a unit, masks ignored; of several assignments, the last."""
    found: dict[str, str] = {}
    place = find_behind_masks(unit, files)
    for path in (*(() if place is None else (place,)), *_drop_ins(unit, files)):
        found.update(_assignments(path, section, files))
    return found


def _drop_ins(unit: str, files: Files) -> Iterator[str]:
    """The drop-in files of a unit in the order in which systemd reads them."""
    by_name: dict[str, str] = {}
    for directory in UNIT_DIRECTORIES:
        folder = f"{directory}/{unit}.d"
        for name in files.listdir(folder) if files.exists(folder) else ():
            if name.endswith(".conf"):
                by_name.setdefault(name, f"{folder}/{name}")
    return (by_name[name] for name in sorted(by_name))


def _state_by_install_section(place: str, files: Files) -> str:
    keys = _assignments(place, "Install", files).keys()
    if not keys.isdisjoint(INSTALL_KEYS):
        return "disabled"
    return "indirect" if "Also" in keys else "static"


def _assignments(path: str, section: str, files: Files) -> dict[str, str]:
    try:
        content = b"\n" + (files.read(path, LARGEST_UNIT_FILE_BYTES) or b"")
    except OSError:
        # systemd ignores a file that it cannot read.
        return {}
    _, *parts = content.decode("utf-8", "replace").split(f"\n[{section}]")
    lines = (line.partition("=") for part in parts for line in part.partition("\n[")[0].split("\n"))
    return {key.strip(): value.strip() for key, sign, value in lines if sign and key[:1] not in ("#", ";")}

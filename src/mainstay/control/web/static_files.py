"""Static files. The served name contains the digest of the content, so that browsers may keep a file for ever."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str
    # With the digest: `mainstay.0123456789ab.css`.
    served_name: str


@cache
def _static_files() -> dict[str, StaticFile]:
    """By the name in the folder. Imports between scripts name served files, so scripts are read after what they import."""
    found: dict[str, StaticFile] = {}
    entries = {entry.name: entry.read_bytes() for entry in files(__package__).joinpath("static").iterdir()}
    for name in sorted(entries, key=lambda name: (name.endswith(".js"), entries[name].count(b"import "), name)):
        stem, _, kind = name.rpartition(".")
        content = entries[name]
        for other, imported in found.items():
            content = content.replace(f'"./{other}"'.encode(), f'"./{imported.served_name}"'.encode())
        digest = hashlib.sha256(content).hexdigest()[:12]
        found[name] = StaticFile(content, MEDIA_TYPES[kind], f"{stem}.{digest}.{kind}")
    return found


@cache
def files_by_served_name() -> dict[str, StaticFile]:
    return {each.served_name: each for each in _static_files().values()}


def static_url(name: str) -> str:
    return f"/static/{_static_files()[name].served_name}"

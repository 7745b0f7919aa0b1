"""Static files. The served name contains the digest of the content, so that browsers may keep a file for ever."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# A string, or a sign with space around it.
_STRING = r"""("[^"\n]*"|'[^'\n]*'|`[^`\n]*`)"""
SPACE_OF_STYLES = re.compile(rf"{_STRING}|\s*([{{}};,])\s*")
SPACE_OF_SCRIPTS = re.compile(rf"{_STRING}|\s*([{{}}();,=<>?:&|])\s*")


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
        content = _without_comments(entries[name].decode(), kind).encode()
        for other, imported in found.items():
            content = content.replace(f'"./{other}"'.encode(), f'"./{imported.served_name}"'.encode())
        digest = hashlib.sha256(content).hexdigest()[:12]
        found[name] = StaticFile(content, MEDIA_TYPES[kind], f"{stem}.{digest}.{kind}")
    return found


def _without_comments(text: str, kind: str) -> str:
    """Without comments and without space that browsers do not need. Our scripts and styles keep it simple: comments of
    scripts have their own lines, strings have one line, and statements end with a semicolon."""
    if kind == "svg":
        return text
    text = re.sub(
        r"/\*.*?\*/" if kind == "css" else r"^\s*//.*$", "", text, flags=re.DOTALL if kind == "css" else re.M
    )
    space = SPACE_OF_STYLES if kind == "css" else SPACE_OF_SCRIPTS
    lines = (line.strip() for line in space.sub(lambda found: found[1] or found[2], text).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


@cache
def files_by_served_name() -> dict[str, StaticFile]:
    return {each.served_name: each for each in _static_files().values()}


def static_url(name: str) -> str:
    return f"/static/{_static_files()[name].served_name}"

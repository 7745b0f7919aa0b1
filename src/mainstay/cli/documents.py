"""Reads the files that people hand to commands: YAML or JSON, strictly."""

from __future__ import annotations

import sys

from mainstay.cli.main import CommandRefused

MAX_FILE_BYTES = 4 * 1024 * 1024


def read_document(file: str) -> object:
    """A YAML or JSON document, strictly: no key twice, no aliases, names are strings."""
    from mainstay.control.documents import BadDocument, read_json, read_yaml

    text = read_text(file)
    try:
        return read_json(text) if file.endswith(".json") else read_yaml(text)
    except BadDocument as error:
        raise CommandRefused(f"{file} {error}") from None


def read_text(file: str) -> str:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(file, "rb") as source:
                raw = source.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandRefused(f"cannot read {file}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise CommandRefused(f"{file} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CommandRefused(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None

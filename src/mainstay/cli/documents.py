"""Reads the YAML, JSON and text files named in arguments of commands, and secrets, which are never arguments."""

from __future__ import annotations

import sys

from mainstay.cli.main import CommandRefused
from mainstay.foundation import Any

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_SECRET_BYTES = 1024 * 1024
SERVICE_TYPE_KEYS = frozenset({"name", "propertySchema", "lifecycleSchema"})


def read_document(file: str) -> Any:
    """Returns the content of a YAML or JSON file as JSON values. `-` reads YAML from standard input."""
    from mainstay.foundation.documents import read_json, read_yaml
    from mainstay.foundation.faults import DoesNotLoad
    from mainstay.foundation.yaml.document import decode

    name = "stdin" if file == "-" else file
    try:
        text = decode(_read_bytes(file), name)
        return read_json(text, name) if file.endswith(".json") else read_yaml(text, name)
    except DoesNotLoad as refusal:
        raise CommandRefused(str(refusal)) from None


def read_type_document(file: str) -> dict[str, object]:
    document = read_document(file)
    if not isinstance(document, dict):
        raise CommandRefused(
            f"{file} is not a service type: expected an object with {', '.join(sorted(SERVICE_TYPE_KEYS))}"
        )
    unknown = sorted(set(document) - SERVICE_TYPE_KEYS)
    if unknown:
        hint = "" if SERVICE_TYPE_KEYS & set(document) else "; a bare property schema goes below `propertySchema`"
        raise CommandRefused(
            f"{file} has unknown keys: {', '.join(unknown)} (known: {', '.join(sorted(SERVICE_TYPE_KEYS))}){hint}"
        )
    return document


def read_properties_document(file: str) -> dict[str, Any]:
    document = read_document(file)
    if not isinstance(document, dict):
        raise CommandRefused(f"{file} does not contain properties: expected an object")
    return document


def read_text(file: str) -> str:
    try:
        return _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise CommandRefused(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None


def _read_bytes(file: str) -> bytes:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(file, "rb") as source:
                raw = source.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise CommandRefused(f"{file} is a directory; name its files: {file.rstrip('/')}/*.yaml") from None
    except OSError as error:
        raise CommandRefused(f"cannot read {file}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise CommandRefused(f"{file} is larger than {MAX_FILE_BYTES} bytes")
    return raw


def prompt_secret(prompt: str) -> str:
    """Prompts without echo on a terminal, else reads standard input."""
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"{prompt}: ")
        except EOFError:
            raise CommandRefused("no input") from None
    text = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
    if len(text) > MAX_SECRET_BYTES:
        raise CommandRefused(f"standard input is larger than {MAX_SECRET_BYTES} bytes")
    try:
        return without_last_newline(text.decode())
    except UnicodeDecodeError:
        raise CommandRefused("standard input is not UTF-8") from None


def without_last_newline(text: str) -> str:
    """Editors and `echo` add a final newline that is not part of the secret."""
    return text.removesuffix("\n").removesuffix("\r")

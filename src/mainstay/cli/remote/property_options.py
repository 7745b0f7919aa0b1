"""Properties from the command line: `-p name=value`, files and secrets, each typed as the service type's schema says."""

from __future__ import annotations

import sys
from contextlib import suppress
from math import isfinite

from mainstay.cli.documents import read_document, read_text
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import find_service, is_id, print_warning
from mainstay.cli.remote.service_types import conceal_value, find_definition, is_reference
from mainstay.cli.secret_input import ask_secret, without_last_newline

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.remote.service_types import Definition, Members


def add_property_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("properties")
    group.add_argument(
        "-p",
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one property; dotted names nest; - asks for the value without echo, @FILE reads it; "
        "-p @FILE reads many (YAML or JSON)",
    )
    group.add_argument(
        "--properties", metavar="FILE", action="append", default=[], help="many properties (YAML or JSON)"
    )
    group.add_argument(
        "--secret-file",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="one property from a file, without its last newline",
    )


def has_properties(arguments: argparse.Namespace) -> bool:
    return bool(arguments.property or arguments.properties or arguments.secret_file)


def read_properties(client: Client, arguments: argparse.Namespace, members: Members | None) -> dict[str, Any]:
    """All that was given, files first. What does not fit its type goes as text: the server then names all faults."""
    given: dict[str, Any] = {}
    bare = [text for text in arguments.property if text.startswith("@")]
    for file in (*arguments.properties, *(text[1:] for text in bare)):
        document = read_document(file)
        if not isinstance(document, dict):
            raise CommandRefused(f"{file} does not hold properties: expected an object")
        _merge(given, document)
    asked = 0
    for text in arguments.property:
        if text in bare:
            continue
        path, raw = _split(text, "-p", members)
        definition = find_definition(members, path)
        asked += raw == "-"
        if raw == "-" and asked > 1 and not sys.stdin.isatty():
            raise CommandRefused("standard input holds one value, so only one property can be -; use --secret-file")
        name = ".".join(path)
        value = _typed(client, _read_value(name, raw), definition, name)
        if raw[:1] not in ("-", "@") and conceal_value(value, definition) != value:
            print_warning(f"{name} holds a secret, and others see the command line; use -p {name}=- or --secret-file")
        put(given, path, value)
    for text in arguments.secret_file:
        path, file = _split(text, "--secret-file", members)
        definition = find_definition(members, path)
        put(given, path, _typed(client, without_last_newline(read_text(file)), definition, ".".join(path)))
    return given


def _split(text: str, option: str, members: Members | None) -> tuple[list[str], str]:
    name, separator, value = text.partition("=")
    path = [name] if members is not None and name in members else name.split(".")
    if not separator or not all(path):
        raise CommandRefused(f"{option} takes NAME=VALUE, such as cpu=4 or db.port=5432; got {name!r}")
    return path, value


def _read_value(name: str, raw: str) -> str:
    if raw == "-":
        return ask_secret(name)
    if raw.startswith("@@"):
        return raw[1:]
    return read_text(raw[1:]) if raw.startswith("@") else raw


def _typed(client: Client, text: str, definition: Definition | None, name: str) -> Any:
    if definition is None:
        return _guessed(text, name)
    match definition.get("type"):
        case "integer" | "number" as kind:
            return _number(text, whole=kind == "integer")
        case "boolean":
            return {"true": True, "false": False}.get(text.strip().lower(), text)
        case "object" | "array" | "json" | None:
            return _guessed(text, name)
    if is_reference(definition) and text and not is_id(text):
        return find_service(client, text)["id"]
    return text


def _number(text: str, *, whole: bool) -> Any:
    from mainstay.foundation.yaml.scalars import core_value

    found = core_value(text.strip())
    if type(found) is int:
        return found
    return found if isinstance(found, float) and isfinite(found) and (not whole or found.is_integer()) else text


def _guessed(text: str, name: str) -> Any:
    """JSON, or what YAML makes of lists and maps; any other text is itself."""
    from mainstay.foundation.documents import read_json, read_yaml
    from mainstay.foundation.faults import DoesNotLoad

    with suppress(DoesNotLoad):
        return read_json(text, name)
    if text.lstrip()[:1] not in ("[", "{") and "\n" not in text.strip():
        return text
    try:
        return read_yaml(text, name)
    except DoesNotLoad as refusal:
        raise CommandRefused(str(refusal)) from None


def put(given: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        given = given.setdefault(name, {})
        if not isinstance(given, dict):
            raise CommandRefused(f"{'.'.join(path)} is inside {name}, which is also given as a value")
    given[path[-1]] = value


def _merge(given: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            _merge(given[name], value)
        else:
            given[name] = value

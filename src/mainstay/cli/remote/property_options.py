"""Options for properties: `-p name=value`, files and secrets, converted to the types of the service type's schema."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from math import isfinite
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.documents import prompt_secret, read_properties_document, read_text, without_last_newline
from mainstay.cli.main import CommandRefused, add_list_option
from mainstay.cli.remote.connection import find_service, is_id, print_warning
from mainstay.cli.remote.service_types import Definition, Members, find_definition, hide_secret_value, is_reference
from mainstay.foundation.documents import read_json, read_yaml
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml.scalars import core_value


def add_property_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("properties")
    group.add_argument(
        "-p",
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set one property; dotted names nest; VALUE - prompts without echo, @FILE reads a file without its final newline; "
        "-p @FILE sets many (YAML or JSON)",
    )
    add_list_option(group, "--properties", "FILE", "set many properties (YAML or JSON)")
    add_list_option(group, "--secret-file", "NAME=FILE", "set one property from a file, without its final newline")


def has_properties(arguments: argparse.Namespace) -> bool:
    return bool(arguments.property or arguments.properties or arguments.secret_file)


def read_properties(client: Client, arguments: argparse.Namespace, members: Members | None) -> dict[str, Any]:
    """Returns all properties, files first. Values that do not match their type stay text: the server reports all faults."""
    properties: dict[str, Any] = {}
    file_arguments = [text for text in arguments.property if text.startswith("@")]
    for file in (*arguments.properties, *(text[1:] for text in file_arguments)):
        _merge(properties, read_properties_document(file))
    from_stdin = 0
    for text in arguments.property:
        if text in file_arguments:
            continue
        path, raw = _split(text, "-p", members)
        definition = find_definition(members, path)
        from_stdin += raw == "-"
        if raw == "-" and from_stdin > 1 and not sys.stdin.isatty():
            raise CommandRefused("only one property can read standard input (-); use --secret-file for others")
        name = ".".join(path)
        value = _convert(client, _read_value(name, raw), definition, name)
        if raw[:1] not in ("-", "@") and hide_secret_value(value, definition) != value:
            print_warning(
                f"{name} is a secret, and other users can see the command line; use -p {name}=- or --secret-file"
            )
        set_nested(properties, path, value)
    for text in arguments.secret_file:
        path, file = _split(text, "--secret-file", members)
        definition = find_definition(members, path)
        set_nested(
            properties, path, _convert(client, without_last_newline(read_text(file)), definition, ".".join(path))
        )
    return properties


def _split(text: str, option: str, members: Members | None) -> tuple[list[str], str]:
    name, separator, value = text.partition("=")
    path = [name] if members is not None and name in members else name.split(".")
    if not separator or not all(path):
        raise CommandRefused(f"{option} takes NAME=VALUE, such as cpu=4 or db.port=5432; got {name!r}")
    return path, value


def _read_value(name: str, raw: str) -> str:
    if raw == "-":
        value = prompt_secret(name)
        if not value:
            raise CommandRefused(f"{name}: no value was entered; -p {name}= sets an empty text")
        return value
    if raw.startswith("@@"):
        return raw[1:]
    return without_last_newline(read_text(raw[1:])) if raw.startswith("@") else raw


def _convert(client: Client, text: str, definition: Definition | None, name: str) -> Any:
    if definition is None:
        return parse_untyped(text, name)
    kind = definition.get("type")
    if kind in ("integer", "number"):
        return _number(text, whole=kind == "integer")
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind in ("object", "array", "json", None):
        return parse_untyped(text, name)
    if is_reference(definition) and text and not is_id(text):
        return find_service(client, text)["id"]
    return text


def _number(text: str, *, whole: bool) -> Any:
    found = core_value(text.strip())
    if type(found) is int:
        return found
    return found if isinstance(found, float) and isfinite(found) and (not whole or found.is_integer()) else text


def parse_untyped(text: str, name: str) -> Any:
    """Parses JSON, and YAML lists and maps; other text stays text."""
    with suppress(DoesNotLoad):
        return read_json(text, name)
    if text.lstrip()[:1] not in ("[", "{") and "\n" not in text.strip():
        return text
    try:
        return read_yaml(text, name)
    except DoesNotLoad as refusal:
        raise CommandRefused(str(refusal)) from None


def set_nested(properties: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        properties = properties.setdefault(name, {})
        if not isinstance(properties, dict):
            raise CommandRefused(f"{'.'.join(path)} is inside {name}, which also has a value")
    properties[path[-1]] = value


def _merge(target: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = value

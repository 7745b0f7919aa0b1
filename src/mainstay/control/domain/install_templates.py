"""Templates of install commands: text with `{{.name}}` and `{{.a.b}}`, nothing else. Pure.

A template is rendered in one pass, so a value that looks like a placeholder stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import SecretPlace
from mainstay.control.domain.values import Properties

CONFIG_URL, AUTH_TOKEN = "configUrl", "authToken"
RESERVED = (CONFIG_URL, AUTH_TOKEN)
# Upper bound of a rendered template.
MAX_CHARACTERS = 1_000_000
_PLACEHOLDER = re.compile(r"\{\{[ \t]*\.([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)[ \t]*\}\}")
# What a shell reads as plain text, in any place of a command.
_PLAIN_ARGUMENT = re.compile(r"[A-Za-z0-9._:/@%+=,-]*")

TemplatePath = tuple[str, ...]


class RenderedTooLarge(Exception):
    """The rendered text would exceed `MAX_CHARACTERS`."""


def template_faults(
    config_template: str | None, cmd_template: str | None, schema: PropertySchema
) -> Iterator[PathFault]:
    if config_template is None and cmd_template is None:
        return
    for where, template, known in (("configTemplate", config_template, ()), ("cmdTemplate", cmd_template, RESERVED)):
        if template is None:
            yield PathFault(where, "is missing; an install command needs both templates")
        else:
            yield from _faults(template, where, schema, known)
    if cmd_template is not None:
        used = {path for path in _paths(cmd_template) if len(path) == 1}
        for name in RESERVED:
            if (name,) not in used:
                yield PathFault("cmdTemplate", f"must contain {{{{.{name}}}}}")
    for member in schema.members or ():
        if member.name in RESERVED:
            yield PathFault(
                f"configurationSchema.{member.definition_path}", f"{member.name} is reserved for install commands"
            )


def _faults(template: str, where: str, schema: PropertySchema, known: tuple[str, ...]) -> Iterator[PathFault]:
    # As long as the template, so that a place in one is the same place in the other.
    rest = _PLACEHOLDER.sub(lambda placeholder: "." * len(placeholder[0]), template)
    if "{{" in rest:
        found = template[rest.index("{{") :].partition("\n")[0][:40]
        yield PathFault(where, f"only {{{{.name}}}} and {{{{.a.b}}}} are possible, found '{found}'")
    for path in dict.fromkeys(_paths(template)):
        if path[0] in RESERVED:
            if path[0] not in known or len(path) > 1:
                yield PathFault(where, f"{'.'.join(path)} is not available here")
            continue
        exists, declared = _find(schema, path)
        if not exists:
            yield PathFault(where, f"unknown property {'.'.join(path)}")
        elif known and declared is not None and declared.holds_secret:
            yield PathFault(
                where, f"{'.'.join(path)} is or contains a secret, and commands are shown in process lists"
            )


def _find(schema: PropertySchema, path: TemplatePath) -> tuple[bool, PropertyDeclaration | None]:
    """Whether a configuration may have this property, and its declaration; None: it is part of a free-form value."""
    members, declared = schema.members, None
    for name in path:
        if members is None:
            # Free-form: the whole schema, an object without properties, or any JSON.
            is_open = declared is None or declared.type in (PropertyType.OBJECT, PropertyType.JSON)
            return is_open and not (declared is not None and declared.secret), None
        declared = next((member for member in members if member.name == name), None)
        if declared is None:
            return False, None
        members = declared.members
    return True, declared


def _paths(template: str) -> Iterator[TemplatePath]:
    for found in _PLACEHOLDER.finditer(template):
        yield tuple(found[1].split("."))


def uses_secret(template: str, place: SecretPlace) -> bool:
    """Whether the template shows the secret, alone or as part of an object or a list."""
    return any(_is_inside(place.schema_path, path) for path in dict.fromkeys(_paths(template)))


def _is_inside(schema_path: str, path: TemplatePath) -> bool:
    prefix = ""
    for name in path:
        prefix = locate(prefix, name)
    return schema_path == prefix or schema_path.startswith((f"{prefix}.", f"{prefix}["))


def render(template: str, values: Properties) -> str:
    return _render(template, {path: _text(_value(values, path)) for path in _paths(template)})


def render_command(template: str, values: Properties) -> tuple[str, list[PathFault]]:
    """The command, or faults for the values that a shell could read as more than one plain argument."""
    texts = {path: _text(_value(values, path)) for path in _paths(template)}
    faults = [
        PathFault(
            ".".join(path),
            "an install command contains only values of the characters A-Z a-z 0-9 . _ : / @ % + = , -",
        )
        for path, text in texts.items()
        if not _PLAIN_ARGUMENT.fullmatch(text)
    ]
    faults += [
        PathFault(found[1], "begins with '-', which the install command would read as an option")
        for found in _PLACEHOLDER.finditer(template)
        if texts[tuple(found[1].split("."))].startswith("-")
        and not template[: found.start()].rstrip("\"'")[-1:].strip()
    ]
    return ("", faults) if faults else (_render(template, texts), [])


def _render(template: str, texts: Mapping[TemplatePath, str]) -> str:
    if len(template) + sum(len(texts[path]) for path in _paths(template)) > MAX_CHARACTERS:
        raise RenderedTooLarge
    return _PLACEHOLDER.sub(lambda found: texts[tuple(found[1].split("."))], template)


def _value(values: Properties, path: TemplatePath) -> object:
    found: object = values
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

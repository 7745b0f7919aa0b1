"""The kinds of values that properties hold, and how a written value becomes a typed value.

A kind reads a node of a manifest (`read`) or a value that a template produced (`accept`), and describes itself to
editors (`schema`). The resource types declare which property has which kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from mainstay.foundation import Any, Struct
from mainstay.foundation.text import REDACTED, Tainted, shorten
from mainstay.foundation.yaml.scalars import Node, PlainScalar, to_value, with_leaves


class Unfit(ValueError):
    """A value that a property cannot hold. `where` is the path from the property to the wrong part."""

    # The `error_kind` of an event, as in `Failure`.
    kind = "TemplateFailed"

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class ValueKind(Struct):
    """One kind of value. `read` takes a node, `accept` a value that a template produced.

    `escape` protects values that a template puts into a text which has a syntax."""

    name: str
    read: Callable[[Node], Any]
    accept: Callable[[Any], Any]
    schema: Mapping[str, Any]
    is_text: bool = False
    escape: Callable[[str], str] | None = None


def describe(node: object) -> str:
    """Describes a node for a fault."""
    if isinstance(node, PlainScalar):
        return "nothing" if node.value is None else shorten(node.text)
    if isinstance(node, Tainted):
        return REDACTED
    if isinstance(node, str):
        return f"the text {shorten(node)!r}"
    if isinstance(node, dict):
        return "a map"
    if isinstance(node, list):
        return "a list"
    if isinstance(node, bool):
        return "true" if node else "false"
    return "nothing" if node is None else shorten(str(node))


def conceal(value: Any) -> Any:
    """Redacts the secrets in a value that is shown or reported."""
    return with_leaves(value, lambda leaf: REDACTED if isinstance(leaf, Tainted) else leaf, keys=True)


def as_secret(value: Any) -> Any:
    """Marks the texts in a typed value as secret; numbers cannot be marked."""
    if isinstance(value, str):
        return Tainted(value)
    if isinstance(value, dict):
        return {key: as_secret(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(as_secret(child) for child in value)
    return value


def as_plain(value: Any) -> Any:
    """Removes the mark of private texts from a typed value that is shown."""
    if isinstance(value, str):
        return str.__str__(value)
    return tuple(as_plain(child) for child in value) if isinstance(value, tuple) else value


def text_problem(text: str) -> str | None:
    """Returns why a text cannot be a name, argument or variable on a POSIX host."""
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii():
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return "contains a lone surrogate, which is not a character"
    return None


# ---- paths ----
NON_CANONICAL_ENDS = ("/", "/.", "/..")
LONGEST_PATH_BYTES = 4095
LONGEST_NAME_BYTES = 255


def managed_path_problems(path: str) -> Iterator[str]:
    """Yields why a resource cannot manage this path on any host."""
    if path[:1] != "/":
        yield "must be absolute"
    elif ("/." in path or "//" in path or path[-1] == "/") and not _is_canonical(path):
        yield "must be canonical"
    problem = path_problem(path)
    if problem:
        yield problem


def _is_canonical(path: str) -> bool:
    """Whether an absolute path has no redundant part."""
    return path == "/" or not (path.endswith(NON_CANONICAL_ENDS) or "//" in path or "/./" in path or "/../" in path)


def path_problem(path: str, *, may_be_nowhere: bool = False) -> str | None:
    """Returns why no file can have this path on any host."""
    problem = text_problem(path)
    if problem:
        return problem
    if len(path) <= LONGEST_NAME_BYTES and path.isascii():
        return None
    written = path.encode("utf-8", "surrogateescape")
    if len(written) > LONGEST_PATH_BYTES:
        return f"is longer than {LONGEST_PATH_BYTES} bytes"
    if may_be_nowhere or len(written) <= LONGEST_NAME_BYTES:
        return None
    if any(len(name) > LONGEST_NAME_BYTES for name in written.split(b"/")):
        return f"contains a name of more than {LONGEST_NAME_BYTES} bytes"
    return None


def to_text(value: Any) -> str:
    """Converts the value of a template to text: maps and lists become JSON, null becomes empty."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    import json

    return json.dumps(value, ensure_ascii=False, default=_json_value)


def _json_value(value: Any) -> Any:
    if hasattr(value, "keys"):
        return {key: value[key] for key in value}
    if hasattr(value, "__iter__"):
        return list(value)
    # The text of an internal object is its class, and often an address in memory.
    refuse = getattr(value, "problem", None)
    raise TypeError(refuse() if refuse else f"expected a value, got an object of type {value.__class__.__name__}")


# ---- text ----
def read_text(node: Node) -> str | None:
    if node.__class__ is str:
        return node
    if isinstance(node, PlainScalar):
        return None if node.value is None else node.text
    if isinstance(node, str):
        return node
    raise Unfit(f"expected text, got {describe(node)}")


def _accept_text(value: Any) -> str | None:
    return None if value is None else to_text(value)


def _accept_command(value: Any) -> str | tuple[str, ...]:
    """Words stay words; a text is for a shell."""
    if value is None:
        raise Unfit("the template gives null; leave the property out, or give a command")
    return value if isinstance(value, tuple) else to_text(value)


# ---- true or false ----
def _read_boolean(node: Node) -> bool | None:
    value = node.value if isinstance(node, PlainScalar) else node
    return _accept_boolean(value)


# Booleans of YAML 1.1 and quoted booleans, with what to write instead.
MEANT_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def _accept_boolean(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    meant = MEANT_BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    raise Unfit(f"expected true or false, got {describe(value)}" + (f"; write {meant}" if meant else ""))


# ---- permission bits ----
MODE = r"(?:0[oO])?[0-7]+"


def _read_mode(node: Node) -> int | None:
    text = read_text(node)
    return None if text is None else parse_mode(text)


class SpecialMode(int):
    """A mode above 0777, as written: what may have it decides the type of the resource."""

    written: str


@lru_cache(maxsize=512)
def parse_mode(text: str) -> int:
    # Not by `MODE`: compiling the pattern would take longer than reading a small manifest.
    digits = text[2:] if text[:2] in ("0o", "0O") else text
    if not digits or digits.strip("01234567") or len(text) > 20:
        raise Unfit(f'mode "{shorten(text)}" is not a valid octal number')
    mode = int(digits, 8)
    if mode > 0o777:
        mode = SpecialMode(mode)
        mode.written = shorten(text)
    return mode


def mode_problem(mode: int, largest: int) -> str | None:
    """Why a mode is not possible. `largest` has the special bits that are."""
    if not isinstance(mode, SpecialMode) or not mode & ~largest:
        return None
    return f'mode "{mode.written}" exceeds maximum value {largest:04o}'


def _accept_mode(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_mode(value)
    gave = describe(value) if isinstance(value, (bool, list, dict)) else f"the number {describe(value)}"
    raise Unfit(f"mode must be text such as '0644', but the template gave {gave}; quote it where it is defined")


# ---- durations ----
# Compiled on first use; most runs have no duration.
DURATION = r"(?a:(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?)"
LONGEST_DURATION_SECONDS = 366 * 86400.0


def parse_duration(text: str) -> float:
    found = re.fullmatch(DURATION, text) if text and len(text) < 40 else None
    if found is None:
        from mainstay.foundation.numbers import parse_count

        meant = "" if parse_count(text, 0, 9_999_999) is None else f" (did you mean {text}s?)"
        raise Unfit(f'"{shorten(text)}" is not a duration{meant}; write it like 500ms, 30s, 5m, 1h30m or 2d')
    parts = [float(part or 0) for part in found.groups()]
    seconds = parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 + parts[3] + parts[4] / 1000
    if not 0 < seconds <= LONGEST_DURATION_SECONDS:
        raise Unfit(f'duration "{shorten(text)}" must be more than 0 and at most 366d')
    return seconds


# ---- kinds that share how they are read ----
def parsed_kind(
    name: str, parse: Callable[[str], Any], schema: Mapping[str, Any], *, escape: Callable[[str], str] | None = None
) -> ValueKind:
    """A kind that is written as text. With `escape` it stays text, into which a template may put values."""

    def accept(value: Any) -> Any:
        return None if value is None else parse(to_text(value))

    is_text = escape is not None
    return ValueKind(name, lambda node: accept(read_text(node)), accept, schema, is_text=is_text, escape=escape)


def _list_kind(
    name: str, what: str, read: Callable[[Node], Any], accept: Callable[[Any], Any], items: Mapping[str, Any]
) -> ValueKind:
    """A list whose items are read by `read` and accepted by `accept`; `items` is their schema."""

    def accept_list(value: Any) -> tuple[Any, ...] | None:
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return tuple(accept(item) for item in value)
        raise Unfit(f"expected {what}, got {describe(value)}")

    schema = or_template({"type": ["array", "null"], "items": items})
    return ValueKind(name, lambda node: _read_list(node, read), accept_list, schema)


def _one_text(node: Node) -> str:
    text = read_text(node)
    if text is None:
        raise Unfit("expected text, got nothing")
    return text


def _read_list(node: Node, read_item: Callable[[Node], Any]) -> tuple[Any, ...] | None:
    if isinstance(node, PlainScalar) and node.value is None:
        return None
    if not isinstance(node, list):
        # Not a value that may be secret, which is of another class.
        written = node.text if isinstance(node, PlainScalar) else node if type(node) is str else ""
        way_out = f"write [{shorten(written, 40)}]" if written else "begin each item with `- `"
        raise Unfit(f"expected a list, got {describe(node)}; {way_out}")
    return tuple(_read_inside(child, index, read_item) for index, child in enumerate(node))


def _read_inside(node: Node, step: str | int, read: Callable[[Node], Any]) -> Any:
    """Reads a part of a value; its faults name the step that leads to it."""
    try:
        return read(node)
    except Unfit as fault:
        raise Unfit(str(fault), (step, *fault.where)) from None


def _one_exit_code(node: Any) -> int:
    value = node.value if isinstance(node, PlainScalar) else node
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise Unfit(f"expected an exit code from 0 to 255, got {describe(node)}")
    return value


def parse_number(text: str, least: int, most: int) -> int:
    from mainstay.foundation.numbers import parse_count

    number = parse_count(text, least, most)
    if number is None:
        raise Unfit(f"expected a number from {least} to {most}, got {shorten(text)!r}")
    return number


# ---- maps ----
def _read_values(node: Node) -> dict[str, Any] | None:
    return _accept_values(to_value(node))


def _accept_values(value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise Unfit(f"expected a map of values, got {describe(value)}")


def _read_text_map(node: Node) -> dict[str, str] | None:
    if isinstance(node, PlainScalar) and node.value is None:
        return None
    if not isinstance(node, dict):
        raise Unfit(f"expected a map, got {describe(node)}")
    return {key: _read_inside(child, key, _one_text) for key, child in node.items()}


def _accept_text_map(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return {to_text(key): to_text(child) for key, child in value.items()}
    raise Unfit(f"expected a map, got {describe(value)}")


SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
TEMPLATE_SCHEMA = {"type": "string", "pattern": r"\{\{"}


def or_template(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a value that may be a template. Not `anyOf`: validators would not name what is wrong."""
    return {"if": TEMPLATE_SCHEMA, "else": dict(schema)}


TEXT = ValueKind("text", read_text, _accept_text, SCALAR_SCHEMA, is_text=True)
# Text whose words messages may quote one by one. Whether it can be split depends on the provider that runs it.
COMMAND = ValueKind("command", read_text, _accept_command, SCALAR_SCHEMA, is_text=True)
BOOLEAN = ValueKind("true or false", _read_boolean, _accept_boolean, or_template({"type": ["boolean", "null"]}))
MODE_BITS = ValueKind(
    "octal mode",
    _read_mode,
    _accept_mode,
    or_template({"type": ["string", "integer", "null"], "pattern": "^(0[oO])?0?[0-7]{1,4}$"}),
)
DURATION_SECONDS = parsed_kind("duration", parse_duration, {"type": ["string", "null"]})
MOST_TRIES = 1000
TRIES = parsed_kind(
    "number of tries",
    lambda text: parse_number(text, 1, MOST_TRIES),
    or_template({"type": ["integer", "null"], "minimum": 1, "maximum": MOST_TRIES}),
)
TEXTS = _list_kind("list of text", "a list", _one_text, to_text, SCALAR_SCHEMA)
TEXT_MAP = ValueKind(
    "map of text",
    _read_text_map,
    _accept_text_map,
    {"anyOf": [{"type": "object", "additionalProperties": SCALAR_SCHEMA}, {"type": "null"}, TEMPLATE_SCHEMA]},
)
EXIT_CODES = _list_kind(
    "list of exit codes",
    "a list of exit codes",
    _one_exit_code,
    _one_exit_code,
    {"type": "integer", "minimum": 0, "maximum": 255},
)
VALUES = ValueKind(
    "map of values", _read_values, _accept_values, {"anyOf": [{"type": ["object", "null"]}, TEMPLATE_SCHEMA]}
)

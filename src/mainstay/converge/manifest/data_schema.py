"""Checks the data of a manifest against its `data_schema`, a subset of JSON Schema. Loaded by manifests that have one."""

from __future__ import annotations

import re

from mainstay.converge.manifest.scope import NOT_RENDERED
from mainstay.converge.value_kinds import Unfit, describe
from mainstay.foundation import Struct
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import REDACTED, Tainted, shorten
from mainstay.foundation.yaml.scalars import Node, core_value, to_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.converge.linear_search import LinearSearch
    from mainstay.converge.manifest.faults import Faults
    from mainstay.foundation.faults import DocumentPath

    # A path below `data`, and what is wrong there.
    Finding = tuple[DocumentPath, str]

MOST_FINDINGS = 100
# Longer texts are not matched.
LONGEST_MATCHED = 64 * 1024


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


class Schema:
    """The schema of one value. None: not given."""

    types: tuple[str, ...] = ()
    properties: Mapping[str, Schema] = {}
    items: Schema | None = None
    required: tuple[str, ...] = ()
    enum: list[Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: LinearSearch | None = None


# ---- reading ----
class SchemaReader(Struct):
    """Reads schemas and adds their faults to `faults`."""

    _faults: Faults

    def read(self, node: Node, path: DocumentPath) -> Schema:
        schema = Schema()
        if not isinstance(node, dict):
            self._faults.add(path, f"{_shown(path)}: a schema is a map, got {describe(node)}")
            return schema
        for key, child in node.items():
            place = (*path, key)
            reader = READERS.get(key)
            if reader is None:
                self._refuse_keyword(key, place, path)
                continue
            try:
                reader(self, schema, child, place)
            except Unfit as problem:
                self._faults.add(place, f"{_shown(place)}: {problem}, got {describe(child)}")
        return schema

    def _refuse_keyword(self, key: str, place: DocumentPath, path: DocumentPath) -> None:
        close = did_you_mean(key, READERS)
        advice = close or ("; describe values below `properties`" if len(path) == 1 else "")
        self._faults.add(place, f"{_shown(path)}: unknown key {shorten(key)!r}{advice}", at_key=True)

    def _read_type(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        # The type `null` is also a value of YAML.
        given = [_written(each) for each in (node if isinstance(node, list) else [node])]
        for name in given:
            if name not in TYPES:
                known = ", ".join(TYPES)
                self._faults.add(
                    path, f"{_shown(path)}: unknown type {shorten(name)!r}{did_you_mean(name, TYPES)}; known: {known}"
                )
        schema.types = tuple(name for name in given if name in TYPES)

    def _read_properties(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        if not isinstance(node, dict):
            raise Unfit("expected a map of schemas")
        schema.properties = {name: self.read(child, (*path, name)) for name, child in node.items()}

    def _read_items(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        schema.items = self.read(node, path)

    def _read_required(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        if not isinstance(node, list) or any(isinstance(each, (dict, list)) for each in node):
            raise Unfit("expected a list of names")
        schema.required = tuple(_written(each) for each in node)

    def _read_enum(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        if not isinstance(node, list) or not node:
            raise Unfit("expected a list with at least one value")
        schema.enum = to_value(node)

    def _read_minimum(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        value = to_value(node)
        if not _is_number(value):
            raise Unfit("expected a number")
        setattr(schema, str(path[-1]), value)

    def _read_pattern(self, schema: Schema, node: Node, path: DocumentPath) -> None:
        if isinstance(node, (dict, list)):
            raise Unfit("expected a regular expression")
        from mainstay.converge.linear_search import Unsupported, compile_pattern

        try:
            schema.pattern = compile_pattern(_written(node))
        except Unsupported as problem:
            raise Unfit(str(problem)) from None
        except (re.error, RecursionError, OverflowError) as error:
            raise Unfit(f"not a regular expression ({error})") from None


READERS: Mapping[str, Callable[[SchemaReader, Schema, Any, Any], None]] = {
    "type": SchemaReader._read_type,
    "properties": SchemaReader._read_properties,
    "items": SchemaReader._read_items,
    "required": SchemaReader._read_required,
    "enum": SchemaReader._read_enum,
    "minimum": SchemaReader._read_minimum,
    "maximum": SchemaReader._read_minimum,
    "pattern": SchemaReader._read_pattern,
}


def _written(node: Node) -> str:
    """The text of a scalar as written."""
    text = getattr(node, "text", node)
    return text if isinstance(text, str) else describe(node)


# ---- checking ----
def _find_faults(schema: Schema, value: Any) -> Iterator[Finding]:
    """Yields what is wrong in a value; never shows a secret."""
    for count, finding in enumerate(_check(schema, value, ())):
        if count == MOST_FINDINGS:
            yield (
                (),
                f"data has more than {MOST_FINDINGS} values that do not fit `data_schema`; the others are not listed",
            )
            return
        yield finding


def _check(schema: Schema, value: Any, path: DocumentPath) -> Iterator[Finding]:
    # A number that comes from a secret is text.
    if value is NOT_RENDERED:
        return
    candidates = (value, core_value(str.__str__(value))) if isinstance(value, Tainted) else (value,)
    if schema.types and not any(TYPES[name](each) for name in schema.types for each in candidates):
        yield path, f"{_shown_path(path)} must be {_one_of_types(schema.types)}, got {describe(value)}"
        return
    if schema.enum is not None and not any(_same(each, known) for each in candidates for known in schema.enum):
        choices = ", ".join(shorten(_quoted(known)) for known in schema.enum)
        yield path, f"{_shown_path(path)} must be one of {shorten(choices, 200)}, got {describe(value)}"
    if isinstance(value, dict):
        yield from _check_map(schema, value, path)
    elif isinstance(value, list):
        if schema.items is not None:
            for index, child in enumerate(value):
                yield from _check(schema.items, child, (*path, index))
    else:
        yield from _check_scalar(schema, value, candidates[-1], path)


def _check_map(schema: Schema, value: Mapping[str, Any], path: DocumentPath) -> Iterator[Finding]:
    for name in schema.required:
        if name not in value:
            unknown = [key for key in value if key not in schema.properties and not isinstance(key, Tainted)]
            yield (*path, name), f"{_shown_path((*path, name))} is required{did_you_mean(name, unknown)}"
    for name, child in schema.properties.items():
        if name in value:
            yield from _check(child, value[name], (*path, name))


def _check_scalar(schema: Schema, value: Any, number: Any, path: DocumentPath) -> Iterator[Finding]:
    if _is_number(number):
        if schema.minimum is not None and not number >= schema.minimum:
            yield path, f"{_shown_path(path)} must be at least {schema.minimum}, got {describe(value)}"
        if schema.maximum is not None and not number <= schema.maximum:
            yield path, f"{_shown_path(path)} must be at most {schema.maximum}, got {describe(value)}"
    if schema.pattern is not None and isinstance(value, str):
        if len(value) > LONGEST_MATCHED:
            yield path, f"{_shown_path(path)} is longer than {LONGEST_MATCHED // 1024} kB and cannot be matched"
        elif not schema.pattern.matches(value):
            yield path, f"{_shown_path(path)} must match {shorten(schema.pattern.pattern)}, got {describe(value)}"


def _same(value: Any, known: Any) -> bool:
    """Equality of JSON: true is not 1."""
    return bool(value == known) and isinstance(value, bool) == isinstance(known, bool)


def _one_of_types(names: Sequence[str]) -> str:
    return " or ".join(f"{'an' if name[0] in 'aeiou' else 'a'} {name}" if name != "null" else name for name in names)


def _quoted(value: Any) -> str:
    return repr(value) if isinstance(value, str) else describe(value)


def _shown_path(path: DocumentPath) -> str:
    """`data.web.ports.0`."""
    return ".".join(["data", *(REDACTED if isinstance(part, Tainted) else shorten(str(part)) for part in path)])


def _shown(path: DocumentPath) -> str:
    return ".".join(shorten(str(part)) for part in path)


# ---- the data of a manifest ----
class DataCheck(Struct):
    """Reports each value that does not fit, where it comes from: the manifest, or a layer from outside."""

    _faults: Faults
    _sections: Mapping[str, tuple[Node, DocumentPath]]
    # The overrides that were merged, in order.
    _overrides: Sequence[str]
    _layers: Sequence[Mapping[str, Any]]

    def run(self, data: Mapping[str, Any]) -> None:
        # Templates of `data` that failed are reported, and have no value here.
        failed = {place for place, _, _ in self._faults.found}
        schema = SchemaReader(self._faults).read(*self._sections["data_schema"])
        for path, message in _find_faults(schema, data):
            place, origin = self._origin_of(path)
            if place not in failed:
                self._faults.add(place, f"{message} ({origin})" if origin else message)

    def _origin_of(self, path: DocumentPath) -> tuple[DocumentPath, str | None]:
        """Returns the place of a value in the manifest, or of the schema and the name of the layer."""
        outside = [(None, layer) for layer in reversed(self._layers)]
        for length in range(len(path), -1, -1):
            inside = list(self._places())
            # A value comes from the last layer that has it. A missing value belongs to the manifest, if it has its map.
            for place, source in (*outside, *inside) if length == len(path) else (*reversed(inside), *outside):
                if not _contains(source, path[:length]):
                    continue
                if place is not None:
                    return (*place, *path[:length]), None
                if length:
                    return self._sections["data_schema"][1], getattr(source, "origin", "given by the caller")
        return self._sections["data_schema"][1], None

    def _places(self) -> Iterator[tuple[DocumentPath, Any]]:
        if "overrides" in self._sections:
            node, place = self._sections["overrides"]
            for key in reversed(self._overrides):
                yield (*place, key), node[key] if isinstance(node, dict) else None
        if "data" in self._sections:
            node, place = self._sections["data"]
            yield place, node


def _contains(value: Any, path: DocumentPath) -> bool:
    for part in path:
        if not isinstance(value, (dict, list)):
            return False
        try:
            value = value[part]  # type: ignore[index]  # a wrong type of key is not contained
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, dict) or bool(path)

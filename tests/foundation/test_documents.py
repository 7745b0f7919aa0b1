"""One YAML reader: a scalar means the same in manifests, blueprints, service types, orders and property files."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay.agent.blueprint import read_map
from mainstay.agent.client import Client
from mainstay.blueprints.example_orders import read_orders
from mainstay.cli.main import CommandRefused, main
from mainstay.cli.remote.property_options import read_properties
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.operations.blueprints import read_bundle
from mainstay.control.operations.machinery.bounds import exceeds
from mainstay.control.operations.machinery.bundles import NotABundle
from mainstay.control.rulebook import installed_rulebook
from mainstay.converge.run import read_values
from mainstay.foundation.documents import read_json, read_yaml
from mainstay.foundation.faults import DoesNotLoad

# Writes a document with the given YAML value, reads it, and returns the value.
Reader = Callable[[Path, str], Any]
MANIFEST = "resources: [{file: [{/x: {ensure: absent}}]}]\n"
BLUEPRINT = "name: demo\nversion: 1.0.0\nactions: {create: m.yaml, update: m.yaml, delete: m.yaml}\n"


class NotLoaded(Exception):
    """A command reported faults; the text is what it printed."""


def write(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def manifest_data(folder: Path, value: str) -> Any:
    manifest = write(folder / "m.yaml", f"data:\n  x: {value}\nresources: [{{file: [{{/x: {{ensure: absent}}}}]}}]\n")
    return json.loads(command("render", "--json", manifest))["data"]["x"]


def data_file(folder: Path, value: str) -> Any:
    return read_values(write(folder / "data.yaml", f"x: {value}\n"))["x"]


def service_type(folder: Path, value: str) -> Any:
    text = f"propertySchema:\n  p:\n    type: json\n    default: {value}\n"
    drawn = command("type", "draw", "--format", "json-schema", write(folder / "type.yaml", text))
    return json.loads(drawn)["properties"]["p"].get("default")


def pushed_service_type(folder: Path, value: str) -> Any:
    text = f"propertySchema:\n  p:\n    type: json\n    default: {value}\n"
    schema = push({"blueprint.yaml": BLUEPRINT, "service-type.yaml": text}).definition.property_schema
    return schema["p"]["default"]


def example_order(folder: Path, value: str) -> Any:
    write(folder / "orders" / "small.yaml", f"properties:\n  x: {value}\n")
    return read_orders(str(folder))[0].properties["x"]


def property_file(folder: Path, value: str) -> Any:
    file = write(folder / "many.yaml", f"x: {value}\n")
    return given(properties=[file])["x"]


def property_option(folder: Path, value: str) -> Any:
    return given(property=[f"x=first: 0\nx: {value}"])["x"]["x"]


def blueprint(folder: Path, value: str) -> Any:
    return read_map(write(folder / "blueprint.yaml", f"x: {value}\n"))[0]["x"]


def given(**options: list[str]) -> dict[str, Any]:
    arguments = Namespace(**{"property": [], "properties": [], "secret_file": [], **options})
    return read_properties(Client("http://127.0.0.1:1"), arguments, None)


def command(*words: str) -> str:
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    printed.seek(0)
    text = printed.read()
    if code:
        raise NotLoaded(text)
    return text


def push(files: dict[str, str]) -> Any:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in {**files, "m.yaml": MANIFEST}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return read_bundle(packed.getvalue(), installed_rulebook())


READERS: dict[str, Reader] = {
    reader.__name__: reader
    for reader in (
        manifest_data,
        data_file,
        service_type,
        pushed_service_type,
        example_order,
        property_file,
        property_option,
        blueprint,
    )
}
OF_JSON = [name for name in READERS if name not in ("manifest_data", "data_file")]

SCALARS: dict[str, Any] = {
    "yes": "yes",
    "no": "no",
    "on": "on",
    "off": "off",
    "y": "y",
    "true": True,
    "FALSE": False,
    "0644": 644,
    "0o17": 15,
    "0x1F": 31,
    "0b11": "0b11",
    "+12": 12,
    "12:30": "12:30",
    "1:2:3": "1:2:3",
    "1e3": 1000.0,
    ".5": 0.5,
    "1_000": "1_000",
    "1.4.0": "1.4.0",
    "2024-01-01": "2024-01-01",
    "2024-01-01T00:00:00Z": "2024-01-01T00:00:00Z",
    "~": None,
    "null": None,
    "": None,
    "'0644'": "0644",
    '"yes"': "yes",
    '"1e3"': "1e3",
    "'null'": "null",
    "'.inf'": ".inf",
    "!!str 0644": "0644",
    "=": "=",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_scalar_means_the_same_in_every_document(tmp_path: Path, reader: Reader) -> None:
    listed = reader(tmp_path, f"[{', '.join(text or 'null' for text in SCALARS)}]")
    assert dict(zip(SCALARS, listed, strict=True)) == SCALARS
    assert [type(value) for value in listed] == [type(value) for value in SCALARS.values()]


def test_a_rendered_manifest_is_read_with_the_same_values(tmp_path: Path) -> None:
    values = f"[{', '.join(text or 'null' for text in SCALARS)}, '0o17', '0x1F', '.5', '1_000']"
    manifest_data(tmp_path, values)
    rendered = read_yaml(command("render", str(tmp_path / "m.yaml")), "rendered")
    assert rendered["data"]["x"] == [*SCALARS.values(), "0o17", "0x1F", ".5", "1_000"]


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_keys_are_text_as_written(tmp_path: Path, reader: Reader) -> None:
    assert reader(tmp_path, "{yes: 1, 0644: 2, ~: 3}") == {"yes": 1, "0644": 2, "~": 3}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_an_alias_is_the_value_of_its_anchor(tmp_path: Path, reader: Reader) -> None:
    assert reader(tmp_path, "[&a {k: 1}, *a]") == [{"k": 1}, {"k": 1}]


REFUSED = {
    "{k: 1, k: 2}": "duplicate key 'k'",
    "{<<: {k: 1}}": "merge keys (<<) are not supported",
    "1\n---\nx: 2": "a second document begins here",
    "!!int 1": "the tag tag:yaml.org,2002:int is not supported",
    "[" * 70 + "]" * 70: "nested more than 60 levels deep",
    "[&a [" + "1," * 2000 + "], " + "*a, " * 500 + "]": "aliases expand to more than a million nodes",
    "[&a '" + "x" * 20_000 + "', " + "*a, " * 5000 + "]": "aliases expand to more than a million nodes",
    '"\\q"': "found unknown escape character",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_every_document_refuses_the_same_yaml(tmp_path: Path, reader: Reader) -> None:
    for value, message in REFUSED.items():
        assert message in refusal_of(reader, tmp_path, value)


@pytest.mark.parametrize("reader", OF_JSON)
@pytest.mark.parametrize("value", [".inf", "-.INF", ".nan", "1e999"])
def test_numbers_that_json_does_not_have_are_refused_with_their_place(
    tmp_path: Path, reader: str, value: str
) -> None:
    message = refusal_of(READERS[reader], tmp_path, f"[1, {value}]")
    assert "JSON has neither infinity nor NaN" in message
    line, column = message.split(": JSON")[0].split(":")[-2:]
    assert int(line) >= 1 < int(column)


def refusal_of(reader: Reader, folder: Path, value: str) -> str:
    with pytest.raises((DoesNotLoad, NotLoaded, CommandRefused, InvalidDefinition)) as refusal:
        reader(folder, value)
    return str(refusal.value)


def test_a_pushed_document_is_bounded_with_its_aliases_expanded() -> None:
    text = "propertySchema: {}\nname: [&a '" + "x" * 50_000 + "', " + "*a, " * 100 + "]\n"
    with pytest.raises(NotABundle, match="once its aliases are expanded"):
        push({"blueprint.yaml": BLUEPRINT, "service-type.yaml": text})


def test_an_expanded_document_is_measured_without_expanding_it() -> None:
    """As text, this document has more than 500 MB."""
    texts = ["\x01" * 99] * 1200
    assert exceeds({"b": [texts] * 800}, 4 * 1024 * 1024)
    assert not exceeds({"b": texts, "c": [1, None, 2.5]}, 4 * 1024 * 1024)


def test_a_fault_in_an_aliased_value_is_placed_at_the_alias() -> None:
    with pytest.raises(DoesNotLoad) as refusal:
        read_yaml("a: &x {k: .inf}\nb: *x\n", "f")
    assert [fault.place for fault in refusal.value.faults] == ["f:1:11", "f:2:1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "f.json:1:1: not valid JSON: duplicate key 'c'"),
        ('{"a": NaN}', "f.json:1:1: not valid JSON: JSON has neither infinity nor NaN"),
        ('[-1e999]', "f.json:1:1: not valid JSON: JSON has neither infinity nor NaN"),
        ('{"a":\n 1,}', "f.json:2:"),
        ("[" * 70 + "]" * 70, "f.json:1:1: not valid JSON: nested more than 60 levels deep"),
        ("[" * 100_000, "f.json:1:1: not valid JSON: nested more than 60 levels deep"),
    ],
)  # fmt: skip
def test_json_is_read_as_strictly_as_yaml(text: str, message: str) -> None:
    with pytest.raises(DoesNotLoad) as refusal:
        read_json(text, "f.json")
    assert str(refusal.value).startswith(message)


def test_json_keeps_characters_beyond_16_bits() -> None:
    assert read_json('{"a": "\\ud83d\\ude00"}', "f") == {"a": "😀"}

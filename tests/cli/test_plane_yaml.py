"""YAML as exports write it: the one YAML reader returns the same values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mainstay.cli.plane.export import write_yaml
from mainstay.foundation.documents import read_yaml
from torture import count_of

TEXTS = [
    "",
    " ",
    "a",
    "yes",
    "null",
    "~",
    "1",
    "1e3",
    "0x1f",
    "0o7",
    ".inf",
    "-",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "a\nb\n",
    "a\n\nb",
    " a\nb",
    "a\n b\n",
    "a\nb \n",
    "a\n\n",
    "\n",
    "tab\there",
    "\x1b[2J\u202e",
    "ünïcödé",
    "\U0001f600",
    "\u2028",
    "---\nx",
    "'",
    '"',
    "{a}",
    "[a",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    "|",
    ">",
    "?",
    "a,b",
    "\\",
    "\x7f",
    "\x85",
    "\ufeff",
]


def random_value(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return source.choice([None, True, False])
    if kind == 1:
        return source.randrange(-(2**53), 2**53)
    if kind == 2:
        return source.choice([0.5, -1e300, 1e-7, 4.0])
    if kind < 5:
        return "".join(source.choice(TEXTS) for _ in range(source.randrange(3)))
    if kind == 5:
        return [random_value(source, depth + 1) for _ in range(source.randrange(4))]
    return {
        source.choice(TEXTS) + str(number): random_value(source, depth + 1) for number in range(source.randrange(4))
    }


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_back_as_a_key_and_as_a_value(text: str) -> None:
    for document in ({text or "k": text}, {"k": {text: [text, {"k": text, "l": [text]}]}}):
        assert read_yaml(write_yaml(document), "f") == document


@pytest.mark.parametrize("seed", range(count_of(2000)))
def test_any_document_is_read_back(seed: int) -> None:
    source = random.Random(seed)
    document = {"root": random_value(source), "more": random_value(source)}
    written = write_yaml(document)
    assert read_yaml(written, "f") == document, written
    assert "\x1b" not in written


def test_multi_line_text_is_a_block() -> None:
    assert write_yaml({"t": {"text": "one\ntwo\n"}}) == "t:\n  text: |\n    one\n    two\n"

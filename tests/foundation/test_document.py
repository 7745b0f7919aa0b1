"""YAML text to nodes: strict, bounded, and every fault with its place."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml.document import decode, locate, parse
from mainstay.foundation.yaml.scalars import PlainScalar, to_value


def faults(text: str) -> list[str]:
    with pytest.raises(DoesNotLoad) as refusal:
        parse(text, "f")
    return [str(fault) for fault in refusal.value.faults]


def test_scalars_keep_how_they_were_written() -> None:
    node: Any = parse(
        "[0644, '0644', yes, ~, \"\", 1e3, !!str 0644, ! 1, &a 0x10, |\n  0644\n]".replace("|\n  0644\n", "'x'"), "f"
    )
    assert [found.text if isinstance(found, PlainScalar) else found for found in node] == [
        *("0644", "0644", "yes", "~", "", "1e3", "0644", "1", "0x10", "x"),
    ]
    assert [isinstance(found, PlainScalar) for found in node] == [
        *(True, False, False, True, False, True, False, False, True, False),
    ]


def test_block_scalars_keep_their_lines() -> None:
    node: Any = parse("a: |\n  x\n   y\n\nb: |-\n  x\nc: >\n  x\n  y\nd: |+\n  x\n\n", "f")
    assert node == {"a": "x\n y\n", "b": "x", "c": "x y\n", "d": "x\n\n"}


def test_keys_are_text_as_written() -> None:
    assert to_value(parse("{1: a, true: b, ~: c, 0644: d, '<<': e}", "f")) == {
        "1": "a",
        "true": "b",
        "~": "c",
        "0644": "d",
        "<<": "e",
    }


def test_an_alias_is_the_node_of_its_anchor() -> None:
    assert to_value(
        parse("a: &x {k: &y 1}\nb: *x\nc: [*y, *y]\n&z d: 2\ne: *z\n? *z\n: 3\n".replace("? *z\n: 3\n", ""), "f")
    ) == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": [1, 1],
        "d": 2,
        "e": "d",
    }


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfa: 1", "f") == "a: 1"


@pytest.mark.parametrize(
    ("content", "place"),
    [(b"\xff", "f:1:1"), (b"a: 1\nb: \xc3\xa4\xe4x", "f:2:5"), (b"a\r\nb\n\n  \x80", "f:4:3"), (b"ab\xc3", "f:1:3")],
)
def test_invalid_utf_8_is_located_by_characters(content: bytes, place: str) -> None:
    with pytest.raises(DoesNotLoad) as refusal:
        decode(content, "f")
    assert str(refusal.value).startswith(f"{place}: not UTF-8: byte 0x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n\tb: 1\n", "f:2:1: not valid YAML: a tab cannot be used for indentation; use spaces"),
        ("a: @b\n", "f:1:4: not valid YAML: a value cannot begin with @; quote it"),
        ("a: `b`\n", "f:1:4: not valid YAML: a value cannot begin with `; quote it"),
        ("ä: 'x\nb: 1\n", "f:1:4: not valid YAML: the quote that begins here is not closed"),
        (
            "a: b: c\n",
            ("f:1:5: not valid YAML: mapping values are not allowed in this context; "
            "quote a text that contains `: `, or indent the line below its key"),
        ),
        (
            "a: [1,\nb: 2\n",
            ("f:3:1: not valid YAML: did not find expected ',' or ']' (while parsing a flow sequence that begins on line 1); "
            "close the bracket, or quote a text that contains `: `"),
        ),
        (
            "a:\n  b: 1\n c: 2\n",
            ("f:3:2: not valid YAML: did not find expected key (while parsing a block mapping that begins on line 1); "
            "indent the line like its neighbours"),
        ),
        (
            "- a\nb: 1\n",
            ("f:2:1: not valid YAML: did not find expected '-' indicator (while parsing a block collection that begins on line 1); "
            "indent the line like its neighbours, or begin it with `- `"),
        ),
        (
            "a: 1\nb\nc: 2\n",
            ("f:3:1: not valid YAML: could not find expected ':' (while scanning a simple key that begins on line 2); "
            "a line in a map is `key: value`"),
        ),
        ("a: \0", "f:1:4: not valid YAML: the character U+0000 is not allowed here; in double quotes write \\u0000"),
        ("ä\nöb: \x1b[1m", "f:2:5: not valid YAML: the character U+001B is not allowed here; in double quotes write \\u001b"),
        ("%YAML 3.0\n---\na", "f:1:1: not valid YAML: found incompatible YAML document"),
    ],
)  # fmt: skip
def test_a_syntax_fault_has_a_place_and_advice(text: str, expected: str) -> None:
    assert faults(text) == [expected]


def test_faults_before_broken_syntax_are_reported_with_it() -> None:
    found = faults("a: 1\na: 2\nb: !x 1\nc: [\n")
    assert [fault.split(": ")[0] for fault in found[:2]] == ["f:2:1", "f:3:4"]
    assert len(found) == 3


def test_nesting_is_bounded() -> None:
    assert to_value(parse("[" * 60 + "]" * 60, "f"))
    assert faults("[" * 62 + "]" * 62) == ["f:1:62: not valid YAML: nested more than 60 levels deep"]


def test_nesting_by_aliases_is_bounded_too() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [[[[[*a{i - 1}]]]]]\n" for i in range(1, 50))
    assert faults(chain) == ["f:13:16: not valid YAML: nested more than 60 levels deep by aliases"]


def test_an_alias_bomb_is_refused_at_the_alias_that_exceeds_the_bound() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    started = time.monotonic()
    assert faults(bomb) == ["f:7:30: not valid YAML: aliases expand to more than a million nodes"]
    assert time.monotonic() - started < 5


def test_many_small_aliases_are_fine() -> None:
    text = "a: &a {x: 1}\nb: [" + "*a, " * 10_000 + "]\n"
    node: Any = to_value(parse(text, "f"))
    assert len(node["b"]) == 10_000


def test_locate_finds_the_positions_of_keys_and_values() -> None:
    text = "a:\n  - b: 1\n  -   c: {d: 2}\n&k e: *k\n"
    places = locate(text, [("a", 1, "c", "d"), ("a", 0), ("e",), ("nope", "x")])
    assert places[("a", 1, "c", "d")] == ((3, 11), (3, 14))
    assert places[("a", 0)] == ((2, 5), (2, 5))
    assert places[("e",)] == ((4, 1), (4, 7))
    assert ("nope",) not in places
    assert places[()] == ((1, 1), (1, 1))


def test_a_tag_on_a_key_is_refused() -> None:
    with pytest.raises(DoesNotLoad, match="write the key without it"):
        parse("!!python/object:os.system key: value\n", "manifest.yaml")

"""The reader of the plainest YAML returns the same nodes as libyaml, or declines; it reports no faults."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yaml import NodeEvent, YAMLError
from yaml._yaml import CParser

from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml import blocks
from mainstay.foundation.yaml.composer import compose
from mainstay.foundation.yaml.pure_parser import PureParser
from mainstay.foundation.yaml.scalars import PlainScalar
from torture import count_of

ROOT = Path(__file__).parents[2]
# Plain lines, lines that only look plain, and wrong lines.
BODIES = [
    *("a: 1", "b:", "a", "c: |", "d: |-", 'e: "x y"', "'f': 'z'", "# c", "g: h # i", "j: k#l", "m: [1]", "n: {a: b}"),
    *(
        "...",
        "---",
        "o: a:b",
        "p::q: r",
        "s:: t",
        "u : v",
        "<<: a",
        "~: ~",
        "w: - x",
        "x: -y",
        'y: "a\\n"',
        "z: ''''",
    ),
    *("aa: &a b", "bb: *a", "cc: !t d", "? a", ": b", "... a: b", "dd: >", "", "   ", "ee: a  b", "ff: a ", "gg: |+"),
    *("/x/y.z:", "hh: a #", "ii:  j", "jj: $x", "kk: (a) b", "ll: 1: 2", "mm: a:", "nn: 0o7", '"oo"pp: a', "a b: c"),
    *(
        "- k: v",
        "ä: ö",
        "qq: ä",
        'rr: "ä\u00a0"',
        "ss: 'a",
        "tt: a'b\"c",
        "uu: a\tb",
        "vv:\tb",
        "| x",
        "\tq",
        "ww: %a",
    ),
    *("xx: a,b]", "--- a: b", "yy: :a", "zz: a :b", "ab: a: b:c", "k#: v", "k #: v", '"k": |', '- "a"', "- 'b' # c"),
    *("- a: |", "- a:", "- ~", "h: [b, c#d, 1]", "- [a, ~, true]", "h: [b ,c]", "h: [a, b] # c", "h: [a]b", "h: []"),
    *("h: [ a ]", "h: [a, ]", "h: [a: b]", "h: [a,b]", "l: 'a''b': c", 'l: "a": b', "l: {a: b}: c", "l: [&a b, *a]"),
    *(
        "- {a: b, c: d}",
        "pa: {a: b c, d: 'e, f: g', h: \"i: j\"}",
        "pb: { a: 1,b: ~ }",
        "pc: {a: b, a: c}",
        "pd: {a: b }c",
    ),
    *('pe: {a: "b\\n\\"c\\\\n"}', 'pf: {a: "\\u00e4"}', "pg: {a: [b, c], d: []}", "ph: {a: b #c}", "pi: {a: b} # c"),
    *(
        "pj: {a: b:c}",
        "pk: {a:b, c: d}",
        "pl: {a: b,}",
        "pm: {a: -b}",
        "pn: {<<: b}",
        "po: {a: b?, ?c: d}",
        "pp: {a}",
    ),
    *(
        "pq: {a : b}",
        "pr: {'a': b}",
        "ps: {a: b  c}",
        "pt: {a: 'b''c'}",
        "pu: {a: }",
        "pv: {a#b: c#d}",
        "pw: {a: b c: d}",
    ),
    *("px: {a: 1 2, 3: 4.5, ~: .}", "py: {a: ...}", "pz: {a: ---}", 'pa: {a: ""}', "pb: {a: b{c}", "pc: {a: 'b'c}"),
    *(
        "-",
        "- - a",
        "-   a: b",
        "a: \u2028b",
        "a: b\r",
        "a: \x85",
        "a: \x01",
        "!a b: c",
        "a: |2",
        "a: yes",
        "a: .inf",
    ),
]
INDENTS = st.sampled_from(["", "", " ", "  ", "  ", "   ", "    ", "      ", "\t"])
LOOSE_LINES = st.lists(st.builds(lambda indent, body: indent + body, INDENTS, st.sampled_from(BODIES)), max_size=7)


@st.composite
def laid_out(draw: st.DrawFn, indent: int = 0, depth: int = 4) -> list[str]:
    """Lines of a tree, mostly with correct indentation."""
    pad = " " * indent
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return [pad + draw(st.sampled_from(BODIES))]
    lines: list[str] = []
    is_map = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        key = f"{pad}k{draw(st.integers(0, 9))}:"
        form = draw(st.sampled_from(["nested", "literal", "line"])) if is_map else "item"
        if form == "nested":
            lines += [key, *draw(laid_out(indent + draw(st.sampled_from([0, 2, 2, 4, 1])), depth - 1))]
        elif form == "literal":
            body = draw(
                st.lists(st.sampled_from(["x", "  y", "", "z: 1", "- q", "# c", "\tt"]), min_size=1, max_size=3)
            )
            lines += [f"{key} {draw(st.sampled_from(['|', '|-']))}", *(f"{pad}  {line}" for line in body)]
        elif form == "line":
            lines.append(pad + draw(st.sampled_from(BODIES)))
        else:
            first, *others = draw(laid_out(indent + 2, depth - 1))
            lines += [f"{first[:indent]}- {first[indent + 2 :]}", *others]
    return lines


@st.composite
def texts(draw: st.DrawFn) -> str:
    lines = list(draw(st.one_of(laid_out(), laid_out(), LOOSE_LINES)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if lines:
            at = draw(st.integers(0, len(lines) - 1))
            line = lines[at]
            changes = [f" {line}", f"  {line}", line[1:], f"{line} ", "", line.replace("- ", "  ", 1), f"{line} # c"]
            lines[at] = draw(st.sampled_from(changes))
    return "\n".join(lines) + draw(st.sampled_from(["\n", "\n", "\n\n", ""]))


def written(node: Any) -> Any:
    """Converts a node to a value that compares the order of keys too."""
    if isinstance(node, dict):
        return [(key, written(value)) for key, value in node.items()]
    if isinstance(node, list):
        return ["list", *map(written, node)]
    return ("plain", node.text) if isinstance(node, PlainScalar) else node


def check(text: str) -> bool:
    """Returns whether the text was read; if so, the nodes must equal those of libyaml."""
    found = blocks.read(text)
    if found is None:
        return False
    try:
        expected = compose(text, "f")
    except DoesNotLoad as refusal:
        pytest.fail(f"libyaml refuses {text!r}: {refusal}")
    assert written(found) == written(expected), text
    return True


@settings(max_examples=count_of(30_000), deadline=None)
@given(texts())
@example("k: |-\n    y\n  \n    # c\n")
@example("c: |\n    \tq\nn: 1\n")
@example("k: |\n  x\n   \n")
@example("- u : v\n")
@example("... a: b\n")
@example("a:\n- b\n- c:\n  - d\n  e: f\ng:\n")
@pytest.mark.test_all
def test_the_result_equals_that_of_libyaml(text: str) -> None:
    check(text)


def events_of(parser: Any) -> list[Any]:
    found = []
    try:
        while (event := parser.get_event()) is not None:
            # The place of an end is not used.
            mark = event.start_mark if isinstance(event, NodeEvent) else None
            place = (mark.line, mark.column) if mark is not None else None
            found.append((type(event), place, getattr(event, "value", None)))
    except YAMLError:
        return [YAMLError]
    return found


@settings(max_examples=300, deadline=None)
@given(texts())
@example("a: \u00e4\n# \u20ac\nb: \x01\n")
@pytest.mark.test_all
def test_the_parser_in_python_never_reads_another_value_than_libyaml(text: str) -> None:
    """They may differ in what they refuse: PyYAML's own parser refuses tabs between words, for instance."""
    found, expected = events_of(PureParser(text.encode())), events_of(CParser(text.encode()))
    assert found == expected or [YAMLError] in (found, expected)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=" :#-'\"a1[]{},\\\\|.?", max_size=30) | texts().map(lambda text: text.partition("\n")[0]))
@pytest.mark.test_all
def test_older_pythons_read_a_line_as_this_one_does(line: str) -> None:
    for pattern in (blocks.LINE, *blocks.pair_patterns()):
        older = re.compile(blocks.without_possessive(pattern.pattern))
        for match in (older.fullmatch, older.search):
            expected = getattr(pattern, match.__name__)(line)
            found = match(line)
            assert (found and (found.span(), found.groups())) == (expected and (expected.span(), expected.groups()))


@pytest.mark.parametrize("part", [":", " ", "a ", "a:", "a: ", ", a", "[a, ", "{a: b, ", '"', "' ", "- "])
def test_older_pythons_read_a_long_line_in_bounded_time(part: str) -> None:
    started = time.monotonic()
    for pattern in (blocks.LINE, *blocks.pair_patterns()):
        older = re.compile(blocks.without_possessive(pattern.pattern))
        for line in (f"k: {part * 2000}\x01", f"{part * 2000}\x01", f"- {{a: {part * 2000}\x01"):
            older.fullmatch(line)
    assert time.monotonic() - started < 5


PLAIN = {
    "a manifest": "# c\nresources:\n  - file:\n      - /etc/a:\n          ensure: present\n          content: |\n            x\n\n             y\n      - b: 'c'\n",
    "the start of a document": "---\na: 1\n",
    "a list below its key": "a:\n- b\n- c: d\n  e:\n  - f\ng: h\n",
    "nothing below a key": "a:\nb:\n  c:\nd: e\n",
    "comments": "a: b # c\n# d\n\n   # e\nf: # g\n  - h # i\n",
    "colons and number signs in words": "a: b:c\nd#e: f#g\nhttp://x/: y\n",
    "brackets": "a: [b, c]\nd: {e: f, g: [1]}\nh: [{i: j}]\n",
    "maps on one line": "- {a: b c, d: 0644}\n- e: {f: 'g, h: i', j: \"k\\n\\t\\\\\"}\n  l: { m: [n, 1] }\n",
    "escapes": "a: \"\\u00e4\\n\"\nb: 'it''s'\n",
    "text beyond ASCII": 'a: |\n  grüße\nb: "ö"\n# 日本\n',
    "a tab in a literal block": "a: |\n  all:\n  \tmake\n",
    "more than text": "a: 1\nb: ~\nc: true\nd: 0o7\ne: .5\nf: null\n",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_plain_texts_are_read(text: str) -> None:
    assert check(text)


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_the_result_does_not_depend_on_the_piece_length(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in range(len(text) + 2):
        monkeypatch.setattr(blocks, "PIECE_LENGTH", length)
        assert check(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "\n",
            "# only a comment\n",
            "a",
            "a: 1",
            "a\n",
            "'a'\n",
            "[a]\n",
            "a: b\na: c\n",
            "a: b\n  c\n",
            "a: *x\n",
        ),
        *(
            "a: &x b\n",
            "a: !t b\n",
            "a: >\n  b\n",
            "a: |+\n  b\n",
            "a: |\n\n  b\n",
            "a: 'b\n  c'\n",
            "? a\n: b\n",
            "<<: a\n",
        ),
        *(
            "a: b\n---\nc: d\n",
            "a: b\r\n",
            "a: b\x85c: d\n",
            "a:\tb\n",
            "- a\n b: c\n",
            "- - a\n",
            f"{'k' * 600}: a\n",
        ),
        *("a: [b\n", "a: [b]]\n", "  a: b\n", "a: [&x b, *x]\n", "a: " + "[" * 20 + "]" * 20 + "\n", "a: \ud800\n"),
        *('a: "\ud800"\n', "a: |\n  \ud800\n", "# \ud800\na: b\n"),
    ],
)
def test_everything_else_is_left_to_libyaml(text: str) -> None:
    assert blocks.read(text) is None


@pytest.mark.parametrize("depth", [12, 19, 39, 45, 70, 3000])
@pytest.mark.parametrize(("step", "line", "each"), [(1, "k:", 1), (2, "- k:", 2)])
def test_deep_nesting_is_left_to_libyaml(depth: int, step: int, line: str, each: int) -> None:
    text = "".join(f"{' ' * (step * level)}{line}\n" for level in range(depth))
    assert check(text) is (depth * each < blocks.DEEPEST)


@pytest.mark.parametrize("depth", range(20, 45))
@pytest.mark.parametrize(("step", "line"), [(1, "k:"), (2, "- k:")])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}"), ("[a: ", "]")])
def test_brackets_in_deep_nesting_are_within_the_bound(
    depth: int, step: int, line: str, opening: str, closing: str
) -> None:
    levels = depth // step
    lines = [f"{' ' * (step * level)}{line}\n" for level in range(levels)]
    value = opening * blocks.MOST_BRACKETS + "x" + closing * blocks.MOST_BRACKETS
    check(f"{''.join(lines)}{' ' * (step * levels)}k: {value}\n")


def test_example_manifests_are_read() -> None:
    manifests = [*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("examples/blueprints/*/manifests/*.yaml")]
    assert len(manifests) > 8
    for path in manifests:
        assert check(path.read_text()), path


def test_all_yaml_of_the_repository_is_read_as_by_libyaml() -> None:
    folders = [folder for folder in (ROOT / "tests", ROOT / "docs", ROOT / "examples") if folder.is_dir()]
    texts = [path.read_text(errors="replace") for folder in folders for path in folder.rglob("*.yaml")]
    for folder in folders:
        for path in folder.rglob("*.md"):
            texts += re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
    assert sum(map(check, texts)) > len(texts) // 2


def test_the_number_of_parts_passed_to_the_composer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    compose_part = blocks.compose_part

    def counted(text: str) -> Any:
        tried.append(text)
        return compose_part(text)

    monkeypatch.setattr(blocks, "compose_part", counted)
    assert blocks.read("".join(f"- [a, {{b: {number}}}]\n" for number in range(20_000))) is None
    assert len(tried) == blocks.MOST_PARTS

"""Any manifest either runs or has faults with places; it never causes a traceback, a hang or a change."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fork_server import PROGRAM
from loading import cases
from mainstay.converge.apply import Options
from mainstay.converge.manifest.rendering import render_manifest
from mainstay.converge.run import RunRequest, inspect, run
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.text import Tainted

Program = Callable[..., "subprocess.CompletedProcess[str]"]
LONGEST_SECONDS = 20
SEEDS = Path(__file__).parents[2] / "seeds"
FULL = """
data: {name: web, port: 80, list: [a, b], deep: {x: {y: 1}}, secret: "{{ vault.token }}"}
data_schema: {type: object, required: [name], properties: {port: {type: integer, maximum: 99}, name: {pattern: w, enum: [web]}}}
hierarchy: {order: ["os:{{ lookup('facts.os.family') }}", default], merge: deep}
overrides: {default: {port: 81}, "os:debian": {list: [c]}}
fail_on_error: false
pre_message: "before {{ data.name }}"
post_message: "after {{ result('exec#run').outcome }}"
outputs: {a: {b: "{{ data.port + 1 }}"}}
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /nowhere/a: {ensure: present, content: "{{ lookup('data.name') }}\\n", alias: first, tags: [x]}
      - /nowhere/b: {ensure: absent, force: true, control: {if: "data.port == 81", unless: "false"}}
      - /nowhere/c: {ensure: link, target: /x}
      - "/nowhere/{{ each.key }}": {for_each: {d: 1, e: {f: 2}}, ensure: present, content: "{{ lookup('each.value') }}"}
      - "/nowhere/{{ data.name }}": {ensure: directory, source: files, recurse: true, purge: true}
  - exec:
      - run:
          command: echo '{{ data.list | join(" ") }}'
          cwd: /
          environment: [A=1, "B={{ data.port }}"]
          path: /usr/bin:/bin
          returns: [0, 1]
          timeout: 1m30s
          creates: /nowhere/x
          onlyif: test -e /nowhere
          unless: test -e /
          refresh_only: true
          subscribe: [file#first]
          require: ["file#/nowhere/b"]
          logoutput: true
          sensitive: false
          health_checks: [{command: test -e /, name: root, tries: 2, try_sleep: 10ms, timeout: 1s}]
  - exec: {name: flat, provider: shell, command: "true"}
  - archive:
      - /nowhere/app.tgz:
          url: "https://user:{{ vault.token }}@127.0.0.1:1/app.tgz?a={{ data.port }}"
          checksum: sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
          extract_parent: /nowhere/opt
          creates: /nowhere/opt/app
          cleanup: true
          strip: 1
          owner: root
          group: root
          headers: {X-Token: "{{ vault.token }}"}
          username: me
          password: "{{ vault.token }}"
      - /nowhere/gone.zip: {ensure: absent}
  - line:
      - defaults: {path: /nowhere/lines, backup: true}
      - port: {line: "Port {{ data.port }}", match: "^#?Port {{ data.port }}", after: "^#", before: "^(a|b)+", links: follow}
      - block: {block: "{{ data.name }}\\n", comment: "//", validate: "true %"}
      - gone: {ensure: absent, match: "x{1,3}", sensitive: true, backup: false}
  - group:
      - fuzzers: {gid: 61234, system: false}
      - gone-fuzzers: {ensure: absent}
  - user:
      - fuzzer:
          uid: 61234
          group: fuzzers
          groups: [fuzzers, "{{ 'root' | lower }}"]
          membership: exact
          home: "/nowhere/{{ data.name }}/home"
          manage_home: true
          shell: /bin/sh
          comment: "{{ data.name }}"
          password_hash: "{{ vault.hash }}"
          locked: true
      - system-fuzzer: {system: true}
      - gone-fuzzer: {ensure: absent, manage_home: true}
  - apply:
      - child.yaml: {data: {name: "{{ data.name }}", token: "{{ vault.token }}"}, tags: [x], require: [exec#run]}
      - "again {{ each.key }}": {manifest: child.yaml, for_each: [a], data: {name: second}, sensitive: true, control: {if: "true"}}
"""
CHILD = """
data: {name: none, token: none}
data_schema: {properties: {name: {type: string}}}
resources:
  - exec:
      - "child of {{ data.name }}": {command: "echo {{ data.token }}", creates: /, tries: 2, try_sleep: 1ms}
outputs: {name: "{{ data.name }}"}
"""
CORPUS = [
    FULL,
    CHILD,
    *(case["manifest"] for case in cases("manifest/faults")),
    *re.findall(
        r"^```yaml\n(.*?)^```$", (SEEDS / "exec.md").read_text() + (SEEDS / "file.md").read_text(), re.M | re.S
    ),
]
ROOTS = {"vault": {"token": Tainted("s3cret-token"), "hash": Tainted("$6$s3cret-token$x")}}
PIECES = [
    *(
        "{{",
        "}}",
        "{{ ",
        " }}",
        "'",
        '"',
        "\\",
        "#",
        "|",
        ">",
        "&a ",
        "*a",
        "!x ",
        "!!int ",
        "<<: *a",
        "- ",
        ": ",
        ", ",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        "\t",
        "\n",
        "\r\n",
        "\0",
        "\x1b",
        "\x85",
        "\u2028",
        "\ufeff",
        "ä",
        "😀",
        "~",
        "null",
        "true",
    ),
    *("0644", "1e999", "-", "---\n", "...\n", "%YAML 1.2\n", "? ", "$", "${x}", "&&", "name", "ensure", "defaults"),
    *("lookup('data.x')", "{{ 1 / 0 }}", "{{ ''.__class__ }}", "{{ vault.token }}", "{{ vault }}", "{{ facts }}"),
    *("data_schema: ", "required", "properties", "items", "pattern", "minimum", "integer", "object"),
    *("for_each: ", "lookup('each.value.f')", "{{ each.key }}", "[a, b]", "{{ data.list }}"),
    *(
        "{{ [data] * 3 }}",
        "{{ none }}",
        "{{ lookup }}",
        "{{ result('exec#run') }}",
        "{{ file('/nope') }}",
        "{% if %}",
    ),
    *("${ Facts.x }", "${lookup('data.x')}", "{{ nosuch() }}", "{{ data.nope | default(1) }}", "{{ a ? b : c }}"),
    *(
        "{{ result('exec#nope') }}",
        "{{ 1 if x is defined else nosuch }}",
        "{{ facts.network.interfaces.0 }}",
        "9" * 301,
    ),
    *("{{ lookup('each.key') }}", "{{ template('x.jet') }}", "for_each", "data_schema", "mask", "1777"),
]


def lines_of(content: bytes) -> int:
    """Counts lines as YAML does."""
    return len(re.split("\r\n|[\r\n\x85\u2028\u2029]", content.decode("utf-8", "replace")))


def load_bytes(content: bytes, folder: Path) -> list[str]:
    """Loads the content as a file; returns the messages of its faults, each checked for a place in the file."""
    path = folder / "manifest.yaml"
    path.write_bytes(content)
    started = time.process_time()
    try:
        manifest = inspect(RunRequest(str(path), roots=ROOTS)).manifest
    except DoesNotLoad as refusal:
        faults = refusal.faults
    else:
        assert manifest.resources or b"for_each" in content
        json.dumps(render_manifest(manifest))
        return []
    finally:
        assert time.process_time() - started < LONGEST_SECONDS
    lines = lines_of(content)
    for fault in faults:
        assert 0 < len(fault.message) < 2000
        assert "s3cret-token" not in fault.message
        assert fault.line is not None
        assert fault.column is not None
        assert 1 <= fault.line <= lines + 1
        assert fault.column >= 1
    return [fault.message for fault in faults]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "child.yaml").write_text(CHILD)
    return tmp_path


def test_the_corpus_contains_a_manifest_that_loads(folder: Path) -> None:
    assert load_bytes(FULL.encode(), folder) == []


# ---- texts ----
@settings(max_examples=250)
@given(content=st.binary(max_size=200))
@example(b"")
@example(b"\xef\xbb\xbf")
@example(b"\xff\xfe- \0e\0x\0")
@example(b"a: \xed\xa0\x80")
def test_any_bytes_load_or_have_faults(folder: Path, content: bytes) -> None:
    load_bytes(content, folder)


@settings(max_examples=250)
@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30))
def test_any_pieces_of_manifests_load_or_have_faults(folder: Path, pieces: list[str]) -> None:
    load_bytes("".join(pieces).encode("utf-8", "surrogatepass"), folder)


@settings(max_examples=400)
@given(data=st.data())
def test_mutated_manifests_load_or_have_faults(folder: Path, data: st.DataObject) -> None:
    load_bytes(mutated(data, CORPUS).encode("utf-8", "surrogatepass"), folder)


@settings(max_examples=200)
@given(data=st.data())
def test_mutated_manifests_that_another_applies_load_or_have_faults(folder: Path, data: st.DataObject) -> None:
    content = mutated(data, [FULL, CHILD, CHILD, CHILD]).encode("utf-8", "surrogatepass")
    (folder / "mutated.yaml").write_bytes(content)
    parent = "- apply:\n    - a: {manifest: mutated.yaml}\n    - b: {manifest: mutated.yaml, data: {name: b}}\n"
    path = folder / "parent.yaml"
    path.write_text(parent)
    try:
        inspect(RunRequest(str(path), roots=ROOTS))
    except DoesNotLoad as refusal:
        for fault in refusal.faults:
            own = parent.encode() if fault.file.endswith("parent.yaml") else content
            assert 1 <= (fault.line or 0) <= lines_of(own) + 1
            assert "s3cret-token" not in fault.message


def mutated(data: st.DataObject, corpus: list[str]) -> str:
    text = data.draw(st.sampled_from(corpus))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.integers(0, 4))
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        if kind == 0:
            text = text[:at] + data.draw(st.sampled_from(PIECES)) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + data.draw(st.integers(1, 30)) :]
        elif kind == 2:
            lines = text.split("\n")
            line = lines.pop(at % len(lines))
            lines.insert(data.draw(st.integers(0, len(lines))), line)
            text = "\n".join(lines)
        elif kind == 3:
            lines = text.split("\n")
            lines[at % len(lines)] = " " * data.draw(st.integers(0, 8)) + lines[at % len(lines)].lstrip()
            text = "\n".join(lines)
        else:
            length = data.draw(st.integers(1, 60))
            text = text[: at + length] + text[at : at + length] + text[at + length :]
    return text


# ---- values of the wrong kind everywhere ----
SCALARS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        420,
        10**30,
        1.5,
        float("nan"),
        float("inf"),
        "",
        " ",
        "x",
        "0644",
        "/x",
        "file#/x",
        "{{",
    ]
    + [piece for piece in PIECES if "{{ " in piece]
) | st.text(max_size=10)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS.map(str), inner, max_size=3),
    max_leaves=6,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def dumped(tree: Any) -> str:
    text: str = yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
    return text


TREE = yaml.safe_load(FULL)
PLACES = places(TREE)


@settings(max_examples=400)
@given(data=st.data())
@pytest.mark.test_all
def test_a_value_of_any_kind_in_any_place_loads_or_has_faults(folder: Path, data: st.DataObject) -> None:
    tree = TREE
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(PLACES))
        try:
            tree = replaced(tree, path, data.draw(VALUES))
        except (KeyError, IndexError, TypeError):
            continue
    load_bytes(dumped(tree).encode("utf-8", "surrogatepass"), folder)


@settings(max_examples=100)
@given(data=st.data())
def test_a_dry_run_of_a_mutated_manifest_has_no_bug_and_changes_nothing(folder: Path, data: st.DataObject) -> None:
    here = folder / "root"
    here.mkdir(exist_ok=True)
    tree = replaced(TREE, ("fail_on_error",), False)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([place for place in PLACES if place[:1] == ("resources",)]))
        try:
            tree = replaced(tree, path, data.draw(VALUES))
        except (KeyError, IndexError, TypeError):
            continue
    text = dumped(tree).replace("/nowhere", str(here))
    path = folder / "manifest.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        _, report = run(RunRequest(str(path), roots=ROOTS, options=Options(noop=True, differences=True)))
    except DoesNotLoad:
        return
    for event in report.events:
        assert not any("bug in the" in error for error in event.errors), event.errors
    assert "s3cret-token" not in json.dumps(report.as_json())
    assert list(here.iterdir()) == []


# ---- large and deep ----
def bombs() -> dict[str, bytes]:
    line = "a" * 10_000_000
    chain = "".join(f"  a{i}: &a{i} {'[' * 50}*a{i - 1}{']' * 50}\n" for i in range(1, 60))
    wide = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 60))
    maps = "".join(f"  a{i}: &a{i} {{a: *a{i - 1}, b: *a{i - 1}}}\n" for i in range(1, 100))
    noise = random.Random(1).randbytes(1_000_000)
    one = "- exec:\n    - x: {command: "
    return {
        "10,000 open lists": b"[" * 10_000,
        "10,000 open maps": b"{a: " * 10_000,
        "3,000 indented maps": "".join(f"{' ' * i}a:\n" for i in range(3_000)).encode(),
        "10,000 dashes": b"- " * 10_000,
        "10,000 explicit keys": b"? " * 10_000,
        "a deep chain of aliases": f"data:\n  a0: &a0 [x]\n{chain}resources: []\n".encode(),
        "a billion laughs": f"data:\n  a0: &a0 [x, x]\n{wide}resources: []\n".encode(),
        "a billion laughs in maps": f"data:\n  a0: &a0 x\n{maps}resources: []\n".encode(),
        "a 10 MB line": line.encode(),
        "a 10 MB key": f"? {line}\n: 1\n".encode(),
        "a 10 MB name with an unknown key": f"- exec:\n    - ? {line}\n      : {{bogus: 1}}\n".encode(),
        "a 10 MB number": f"- exec:\n    - x: {{returns: [{'1' * 10_000_000}]}}\n".encode(),
        "a 10 MB unclosed quote": f'{one}"{line}'.encode(),
        "a 10 MB command with an unclosed quote": f'{one}"\'{line}"}}\n'.encode(),
        "10 MB of braces": f'{one}"{"{{" * 5_000_000}"}}\n'.encode(),
        "an expression of 1 MB": f'{one}"{{{{ {"1+" * 500_000}1 }}}}"}}\n'.encode(),
        "10,000 brackets in an expression": f'{one}"{{{{ {"(" * 10_000}1{")" * 10_000} }}}}"}}\n'.encode(),
        "a 1 MB name in an expression": f'- exec:\n    - x: {{path: "{{{{ {"a" * 1_000_000} }}}}"}}\n'.encode(),
        "a 1 MB look-up": f"- exec:\n    - x: {{command: \"{{{{ lookup('data.{'a.' * 500_000}') }}}}\"}}\n".encode(),
        "100,000 NULs": b"\0" * 100_000,
        "1 MB of noise": noise,
        "1 MB of latin text": b"- exec:\n    - gr\xfc\xdfe\n" * 50_000,
        "20,000 duplicate keys": f"data: {{{', '.join(['a: 1'] * 20_000)}}}\nresources: []\n".encode(),
        "5,000 faults": f"- exec:\n{''.join(f'    - x{i}: {{comand: 1}}' + chr(10) for i in range(5_000))}".encode(),
        "5,000 unknown references": f"- exec:\n{''.join(f'    - x{i}: {{require: [exec#y{i}]}}' + chr(10) for i in range(5_000))}".encode(),
        "a huge repetition": b"- exec:\n    - x: {path: \"{{ 'x' * 10 ** 12 }}\"}\n",
        "a tower of powers": b'- exec:\n    - x: {path: "{{ 9 ** 9 ** 9 ** 9 }}"}\n',
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", list(BOMBS))
@pytest.mark.test_all
def test_a_document_that_is_too_large_or_too_deep_is_refused_in_time(folder: Path, name: str) -> None:
    assert load_bytes(BOMBS[name], folder)


def test_the_program_refuses_large_documents_with_exit_2_in_little_memory(root: Path) -> None:
    for name in ("10,000 open lists", "a billion laughs", "a 10 MB line", "100,000 NULs", "1 MB of latin text"):
        (root / "bomb.yaml").write_bytes(BOMBS[name])
        words = [str(PROGRAM), "apply", "bomb.yaml"]
        done = subprocess.run(words, preexec_fn=limit_memory, capture_output=True, text=True, cwd=root)
        assert done.returncode == 2, done.stderr[-500:]
        assert re.match(r"bomb\.yaml:\d+:\d+: .+\n1 fault; nothing was touched\.\n\Z", done.stderr), done.stderr[
            -500:
        ]
        assert sorted(path.name for path in root.iterdir()) == ["bomb.yaml"]


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def test_the_program_reports_faults_in_one_document_and_changes_nothing(mainstay: Program, root: Path) -> None:
    for case in cases("manifest/faults")[::9]:
        before = os.stat(root)
        done = mainstay("apply", "--json", "-", stdin=case["manifest"])
        assert (done.returncode, done.stderr) == (2, "")
        assert len(json.loads(done.stdout)["faults"]) == len(case["faults"])
        assert list(root.iterdir()) == []
        assert os.stat(root).st_mtime_ns == before.st_mtime_ns

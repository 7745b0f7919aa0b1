"""`mainstay validate` and `render -v`: warnings of what is most likely not intended, for one or several manifests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstay.cli.main import main
from mainstay.converge.manifest.manifest_warnings import shell_syntax

ONE = "\nresources: [{exec: ['true']}]\n"


@pytest.fixture
def written(root: Path) -> Path:
    return root / "m.yaml"


def validate(path: Path, text: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    """Exit code and lines, without the name of the file."""
    path.write_text(text)
    code = main(["validate", str(path), *options])
    out, err = capsys.readouterr()
    return code, [line.removeprefix(str(path)) for line in (out + err).splitlines()]


def test_missing_sources_and_templates_are_warnings(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.with_name("there.j2").write_text("{{ data.x }}")
    written.with_name("broken.j2").write_text("a\n{% if %}")
    text = """
- file:
    - defaults: {ensure: present, owner: root, group: root, mode: "0644"}
    - /a: {source: nope.conf}
    - /b: {content: "{{ template('nope.j2') }}{{ template('there.j2') }}"}
    - /c: {content: "{{ template('broken.j2') }}"}
    - /d: {source: /a}
    - /e: {source: /does/not/exist}
    - /g: {source: there.j2}
- archive: [/h.tgz: {url: files/nope.tgz, checksum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}]
- exec: ["true"]
- file:
    - /f: {ensure: present, owner: root, group: root, mode: "0644", source: /exec/may/create/it}
"""
    assert validate(written, text, capsys) == (
        0,
        [
            ":4:20: warning: file#/a: source: 'nope.conf' does not exist",
            ":5:21: warning: file#/b: content: 'nope.j2' does not exist",
            ":6:21: warning: file#/c: content: template broken.j2, line 2: Expected an expression, got 'end of statement block'",
            ":8:20: warning: file#/e: source: '/does/not/exist' does not exist",
            ":9:20: warning: file#/g: source: it is copied as it is; to render it write content: \"{{ template('there.j2') }}\"",
            ":10:27: warning: archive#/h.tgz: url: 'files/nope.tgz' does not exist",
            ": valid, 9 resources",
        ],
    )


@pytest.mark.parametrize(
    ("command", "syntax"),
    [
        ("a | b", "a pipe or condition"),
        ("make && make install", "a pipe or condition"),
        ("echo x > /tmp/x", "a redirection"),
        ("cmd 2>/dev/null", "a redirection"),
        ("echo $(date)", "a command substitution"),
        ("echo $HOME", "a variable"),
        ("echo a; echo b", "a sequence of commands"),
        ("sleep 9 &", "a command in the background"),
        ("rm /tmp/*.log", "a file name pattern"),
        ("cd /x", "`cd`"),
        ("LANG=C ls", "a variable before the command"),
        ("sh -c 'a | b > $c'", None),
        ('grep "a|b" file', None),
        (r"find / -name '*.x' -exec rm {} \;", None),
        ("find / -exec rm {} ;", None),
        (r"grep a\|b file", None),
        ("curl https://x/?a=1&b=2", None),
        ("echo {{ a | upper }}", None),
        ("expr 2 * 3", None),
        ("tool --all=*", None),
    ],
)
def test_syntax_of_a_shell_is_found_in_commands_without_one(command: str, syntax: str | None) -> None:
    assert shell_syntax(command) == syntax


def test_other_warnings(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
data: {x: "${ Facts.os }"}
hierarchy: {order: ["role:{{ facts.nope }}", default]}
overrides: {default: {y: 1}, defualt: {y: 2}}
resources:
  - exec: [{a: {command: echo x | tee y}}, {b: {command: echo x | tee y, provider: shell}}]
  - file: [{/a: {ensure: present, owner: root, group: root, mode: "0644", content: "{% if a %}${HOME}"}}]
"""
    assert validate(written, text, capsys) == (
        0,
        [
            ": warning: hierarchy.order: the level 'role:{{ facts.nope }}' is skipped: facts.nope is not defined in {{ facts.nope }}",
            ": warning: override 'defualt' matches no level of hierarchy.order (did you mean 'default'?)",
            ":2:11: warning: ${ … } is text here; for an expression write {{ … }}",
            ":6:26: warning: exec#a: command: a pipe or condition needs a shell; use `provider: shell`",
            ":7:84: warning: file#/a: content: {% is text here; for statements use template('…') with a file",
            ": overrides used: default",
            ": valid, 3 resources",
        ],
    )
    code, lines = validate(written, text, capsys, "--strict")
    assert (code, lines[-1]) == (2, "5 faults; nothing was touched.")


def test_a_setting_that_nothing_looks_up_is_a_warning(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "data: {web: {port: 1}, a: 1}\nresources: [{exec: [{x: {command: \"e {{ lookup('data.web.port') }} {{ data.a }}\"}}]}]\n"
    options = ("--set", "web.prot=1", "--set", "web.port=2", "--set", "a.b=1", "--set", "web=3")
    code, lines = validate(written, text, capsys, *options[:4])
    assert (code, lines) == (
        0,
        [
            ": warning: --set web.prot: nothing looks up data.web.prot (did you mean 'web.port'?)",
            ": valid, 1 resource",
        ],
    )
    written.write_text(text)
    main(["apply", "--noop", str(written), *options[:2]])
    assert "warning: --set web.prot: nothing looks up data.web.prot" in capsys.readouterr().err


def test_a_setting_counts_as_used_where_that_cannot_be_known(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "outputs: {all: '{{ data }}'}" + ONE
    assert validate(written, text, capsys, "--set", "x=1") == (0, [": valid, 1 resource"])


def test_several_manifests_are_checked_at_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = root / "good.yaml", root / "bad.yaml"
    good.write_text("- exec: ['true']\n")
    bad.write_text("- exec: [{a: {comand: x}}]\n")
    assert main(["validate", str(bad), str(good)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{good}: valid, 1 resource\n"
    assert f"{bad}:1:15: exec#a: unknown key 'comand'" in err
    assert main(["validate", "--json", str(bad), str(good)]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert [fault["line"] for fault in first["faults"]] == [1]
    assert second == {"faults": [], "warnings": [], "notes": [], "resources": 1}


def test_render_prints_the_overrides_that_are_used(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_text("overrides: {default: {a: 1}, other: {}}" + ONE)
    assert main(["render", "-v", str(written)]) == 0
    assert capsys.readouterr().err == (
        "mainstay: overrides used: default\nmainstay: override 'other' matches no level of hierarchy.order\n"
    )


def test_a_number_with_too_many_digits_is_not_read_as_text(
    written: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = "9" * 301
    problem = "the number has more than 300 digits; quote it if it is text"
    assert validate(written, f"data: {{a: {number}}}" + ONE, capsys)[1][0] == f":1:11: data: {problem}"
    (root / "d.yaml").write_text(f"a: [1, {number}]\n")
    assert problem in validate(written, ONE, capsys, "--data", str(root / "d.yaml"))[1][0]
    assert main(["validate", str(written), "--set", f"a={number}"]) == 2
    assert f"--set a: {problem}" in capsys.readouterr().err
    text = f"- file: [{{/a: {{ensure: present, owner: root, group: root, mode: '0644', content: {number}}}}}]\n"
    assert validate(written, text, capsys) == (0, [": valid, 1 resource"])

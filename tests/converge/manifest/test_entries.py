"""Resources of a manifest: their forms and defaults, values as written, references, and the two phases of templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from loading import faults_of, load_text
from mainstay.converge.contract import Resource
from mainstay.converge.report import Observer

FILE = "owner: USER, group: GROUP, mode: '0644'"


def given(resource: Resource) -> dict[str, Any]:
    """The given properties, without identity."""
    return {key: value for key, value in vars(resource).items() if key not in ("type", "name", "id", "place")}


# ---- forms ----
def test_defaults_apply_to_their_list_only_and_properties_win(root: Path) -> None:
    manifest = load_text(
        """
- exec:
    - before: {cwd: /own}
    - defaults: {cwd: /shared, tags: [a, b], timeout: 5s}
    - after:
    - own: {tags: [c], timeout: ~}
- exec:
    - other:
""",
        root,
    )
    assert {resource.name: given(resource) for resource in manifest.resources} == {
        "before": {"cwd": "/own", "tags": ("a", "b"), "timeout": 5.0},
        "after": {"cwd": "/shared", "tags": ("a", "b"), "timeout": 5.0},
        "own": {"cwd": "/shared", "tags": ("c",)},
        "other": {},
    }


def test_a_resource_may_be_called_defaults_in_the_flat_form(root: Path) -> None:
    assert load_text("- exec: {name: defaults, command: x}", root).resources[0].id == "exec#defaults"


def test_names_are_templates_and_text_as_written(root: Path) -> None:
    manifest = load_text(
        """
data: {n: 7, name: web, on: true}
resources:
  - exec:
      - "{{ lookup('data.name') }}-{{ lookup('data.n') }}": {}
      - "{{ lookup('data.n') }}": {}
      - "{{ data.on }}": {}
      - 0644: {}
      - yes
      - 1e3:
  - exec: {name: "flat {{ data.name }}"}
  - exec: {name: 0755}
""",
        root,
    )
    names = ["web-7", "7", "true", "0644", "yes", "1e3", "flat web", "0755"]
    assert [resource.name for resource in manifest.resources] == names


def test_two_names_that_render_alike_are_a_duplicate(root: Path) -> None:
    text = 'data: {on: true}\nresources:\n  - exec:\n      - "{{ data.on }}": {}\n      - true: {}\n'
    assert faults_of(text, root) == ["5:9 exec#true: is declared twice; the first is on line 4"]


# ---- values as written ----
@pytest.mark.parametrize(
    ("written", "content"),
    [
        *(("0644", "0644"), ("yes", "yes"), ("1e3", "1e3"), ("true", "true"), ("0x1F", "0x1F"), ("1.10", "1.10")),
        *(
            ('""', ""),
            ("''", ""),
            ('"~"', "~"),
            ("~", None),
            ("null", None),
            ("", None),
            ("2024-01-01", "2024-01-01"),
        ),
        ('"a\\r\\nb\\r\\n"', "a\r\nb\r\n"),
        ("|\n          a\n          b\n", "a\nb\n"),
        ("|-\n          a", "a"),
    ],
)
def test_content_is_taken_as_written(root: Path, written: str, content: str | None) -> None:
    text = f"- file:\n    - /x:\n        ensure: present\n        owner: root\n        group: root\n        mode: 0644\n        content: {written}\n"
    assert given(load_text(text, root).resources[0]).get("content") == content


@pytest.mark.parametrize("written", ["0644", '"0644"', "644", "'644'", "0o644", "0O644", "\"{{ '0644' }}\""])
def test_a_mode_is_octal_however_it_is_written(root: Path, written: str) -> None:
    text = f"- file:\n    - /x: {{ensure: present, owner: root, group: root, mode: {written}}}\n"
    assert given(load_text(text, root).resources[0])["mode"] == 0o644


def test_numeric_owners_are_text(root: Path) -> None:
    resource = load_text("- file:\n    - /x: {ensure: present, owner: 0, group: 007, mode: 0}\n", root).resources[0]
    assert (given(resource)["owner"], given(resource)["group"], given(resource)["mode"]) == ("0", "007", 0)


def test_a_property_can_be_given_under_its_second_name(root: Path) -> None:
    manifest = load_text(
        "- file:\n    - /x: {ensure: present, contents: a, owner: root, group: root, mode: 0644}\n"
        "- exec:\n    - x: {refreshonly: true}\n",
        root,
    )
    assert given(manifest.resources[0])["content"] == "a"
    assert given(manifest.resources[1])["refresh_only"] is True


def test_a_template_gives_a_value_of_the_kind_of_its_property(root: Path) -> None:
    manifest = load_text(
        """
data: {codes: [0, 3], yes: true, wait: 5m, dirs: [/a, /b], tags: [x, 1]}
resources:
  - exec:
      - x:
          returns: "{{ lookup('data.codes') }}"
          refresh_only: "{{ lookup('data.yes') }}"
          timeout: "{{ lookup('data.wait') }}"
          path: "{{ data.dirs | join(':') }}"
          tags: "{{ lookup('data.tags') }}"
          sensitive: "{{ not data.yes }}"
      - y: {returns: ["{{ 1 + 1 }}", 0], tags: ["{{ data.wait }}", z]}
""",
        root,
    )
    assert given(manifest.resources[0]) == {
        "returns": (0, 3),
        "refresh_only": True,
        "timeout": 300.0,
        "path": "/a:/b",
        "tags": ("x", "1"),
        "sensitive": False,
    }
    assert given(manifest.resources[1]) == {"returns": (2, 0), "tags": ("5m", "z")}


def test_health_checks_have_their_defaults(root: Path) -> None:
    manifest = load_text(
        """
data: {port: 80}
resources:
  - exec:
      - x:
          health_checks:
            - {command: "curl localhost:{{ data.port }}"}
            - {command: test -e /x, name: there, tries: 3, try_sleep: 500ms, timeout: 1m}
""",
        root,
    )
    first, second = manifest.resources[0].health_checks
    assert (first.values["command"], first.name, first.tries, first.try_sleep_seconds, first.timeout_seconds) == (
        *(("curl", "localhost:80"), "curl localhost:80", 1, 1.0, None),
    )
    assert (second.name, second.tries, second.try_sleep_seconds, second.timeout_seconds) == ("there", 3, 0.5, 60.0)


# ---- references ----
def test_references_may_use_aliases_and_names_with_a_number_sign(root: Path) -> None:
    manifest = load_text(
        """
- file:
    - "/x#1": {ensure: absent, alias: first}
- exec:
    - a: {alias: "b#c"}
    - d: {require: ["file#/x#1", file#first, exec#b#c], subscribe: [file#first]}
""",
        root,
    )
    last = manifest.resources[-1]
    assert last.require == ("file#/x#1", "file#/x#1", "exec#a")
    assert last.subscribe == ("file#/x#1",)


def test_an_alias_may_be_the_resources_own_name(root: Path) -> None:
    assert load_text("- exec:\n    - a: {alias: a}\n", root).resources[0].alias == "a"


def test_references_may_be_templates(root: Path) -> None:
    text = 'data: {of: a}\nresources:\n  - exec:\n      - a: {}\n      - b: {require: ["exec#{{ data.of }}"]}\n'
    assert load_text(text, root).resources[1].require == ("exec#a",)


# ---- the two phases ----
def test_a_later_resource_reads_what_an_earlier_one_wrote(apply: Callable[..., Applied], root: Path) -> None:
    text = f"""
- file:
    - ROOT/first: {{ensure: present, content: "made", {FILE}}}
- exec:
    - make:
        command: "sh -c 'echo $NAME > ROOT/second; echo out'"
        environment: ["NAME={{{{ file('ROOT/first') }}}}"]
        creates: "ROOT/{{{{ file('ROOT/first') }}}}-not"
- file:
    - ROOT/third:
        ensure: present
        content: "{{{{ file('ROOT/second') }}}}{{{{ result('exec#make').stdout }}}}"
        {FILE.replace(", ", chr(10) + "        ")}
    - ROOT/fourth:
        ensure: present
        source: "{{{{ file('ROOT/second') | trim }}}}.txt"
        {FILE.replace(", ", chr(10) + "        ")}
"""
    (root.parent / "made.txt").write_text("from the source")
    done = apply(text)
    assert done.errors == []
    assert done.outcomes == ["changed", "changed", "changed", "changed"]
    assert (root / "second").read_text() == "made\n"
    assert (root / "third").read_text() == "made\nout\n"
    assert (root / "fourth").read_text() == "from the source"


@pytest.mark.parametrize(
    "field",
    [
        *("command: \"{{ file('ROOT/later') }}\"", "cwd: \"{{ file('ROOT/later') }}\""),
        *("environment: [\"A={{ file('ROOT/later') }}\"]", "creates: \"{{ file('ROOT/later') }}\""),
        *("onlyif: \"{{ file('ROOT/later') }}\"", "unless: \"{{ file('ROOT/later') }}\""),
    ],
)
def test_deferred_properties_of_an_exec_are_rendered_when_it_is_reached(
    apply: Callable[..., Applied], root: Path, field: str
) -> None:
    done = apply(f"- exec:\n    - x:\n        {field}\n")
    assert done.outcomes == ["failed"]
    assert done.errors == [f"file('{root}/later'): {root}/later does not exist"]


@pytest.mark.parametrize("field", ["content", "contents", "source"])
def test_deferred_properties_of_a_file_are_rendered_when_it_is_reached(
    apply: Callable[..., Applied], root: Path, field: str
) -> None:
    done = apply(f"- file:\n    - ROOT/x: {{ensure: present, {field}: \"{{{{ file('ROOT/later') }}}}\", {FILE}}}\n")
    assert done.outcomes == ["failed"]


@pytest.mark.parametrize(
    "why",
    ["control: {if: 'false'}", "control: {unless: '1 == 1'}", "require: [exec#fails]", "tags: [other]"],
)
def test_a_resource_that_is_not_managed_is_never_evaluated(
    apply: Callable[..., Applied], root: Path, why: str
) -> None:
    text = f"""
- exec:
    - fails: {{command: "false", tags: [wanted]}}
    - x:
        command: "{{{{ 1 / 0 }}}}"
        {why}
"""
    done = apply(text, tags=("wanted",) if "tags" in why else ())
    assert done.outcomes == ["failed", "unmet" if "require" in why else "skipped"]


def test_rendered_properties_are_checked_again(apply: Callable[..., Applied], root: Path) -> None:
    text = """
data: {quote: "'", words: rm -r, relative: x, word: FOO, empty: ""}
resources:
  - exec:
      - a: {command: "{{ data.words }} {{ data.quote }}"}
      - b: {command: "true", cwd: "{{ data.relative }}"}
      - c: {command: "true", environment: ["{{ data.word }}"]}
      - d: {command: "{{ data.empty }}"}
      - e: {command: "true", environment: "{{ data.word }}"}
      - f: {command: "true", creates: "{{ data.relative }}"}
"""
    done = apply(text)
    assert done.outcomes == ["failed"] * 6
    assert [error.partition(" (")[0] for error in done.errors] == [
        "command: the first word is a value with blanks; give a list, or write the command out",
        "cwd: 'x' is not an absolute path",
        "environment: 'FOO' is not KEY=value",
        "command: the command is empty",
        "environment: expected a list, got the text 'FOO'",
        "creates: 'x' is not an absolute path",
    ]


def test_an_undefined_value_in_a_deferred_property_names_key_and_line(
    apply: Callable[..., Applied], root: Path
) -> None:
    text = "- exec:\n    - a:\n        command: true {{ facts['no' ~ 'pe'] }}\n"
    assert apply(text).errors == [
        f"command: facts.nope is not defined in {{{{ facts['no' ~ 'pe'] }}}} ({root.parent}/manifest.yaml:3)"
    ]


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        *(
            ("if: true", "changed"),
            ("if: false", "skipped"),
            ("if: 1 == 1", "changed"),
            ("unless: 1 == 1", "skipped"),
        ),
        *(('if: "{{ 1 == 1 }}"', "changed"), ("if: lookup('facts.on')", "changed"), ("unless: facts.on", "skipped")),
        *(("if: 1 == 1, unless: 1 == 1", "skipped"), ("if: 1 == 1, unless: 1 == 2", "changed")),
        *(("if: 1", "DOES NOT LOAD"), ("if: 1 + 1", "failed"), ("if: \"'true'\"", "failed"), ("if: 1 / 0", "failed")),
    ],
)
def test_control_decides_by_booleans_only(
    apply: Callable[..., Applied], root: Path, condition: str, outcome: str
) -> None:
    text = "- exec:\n    - x: {command: 'true', control: {" + condition + "}}\n"
    if outcome == "DOES NOT LOAD":
        assert faults_of(text, root) == ["2:42 exec#x: control.if must be an expression, got 1"]
        return
    assert apply(text, facts_layers=[{"on": True}]).outcomes == [outcome]


def test_control_can_use_the_result_of_an_earlier_resource(apply: Callable[..., Applied]) -> None:
    text = """
- exec:
    - ask: {command: echo ready}
    - go: {command: "true", control: {if: "result('exec#ask').stdout == 'ready\\n'"}}
    - stay: {command: "true", control: {if: "result('exec#go').changed and result('exec#ask').exit_code == 1"}}
"""
    assert apply(text).outcomes == ["changed", "changed", "skipped"]


def test_content_that_a_template_gives_as_null_is_an_error(apply: Callable[..., Applied], root: Path) -> None:
    (root / "x").write_text("old")
    text = "- file:\n    - ROOT/x: {ensure: present, KEY: '{{ none }}', " + FILE + "}\n"
    for key in ("content", "contents"):
        done = apply(text.replace("KEY", key))
        assert done.outcomes == ["failed"]
        assert "content: the template gives null; for an empty text write ''" in done.errors[0]
    assert (root / "x").read_text() == "old"


def test_result_names_an_earlier_resource(apply: Callable[..., Applied]) -> None:
    text = "- exec:\n    - a: {command: \"echo {{ result('exec#' ~ 'b').stdout }}\"}\n    - b: {command: 'true'}\n"
    done = apply(text)
    assert done.outcomes == ["failed", "changed"]
    assert "result('exec#b'): no earlier resource has this name" in done.errors[0]


def test_messages_and_outputs_are_templates(apply: Callable[..., Applied], root: Path) -> None:
    text = """
data: {name: web}
pre_message: "about to set up {{ data.name }}"
post_message: "{{ result('exec#x').stdout }} done"
outputs: {list: ["{{ result('exec#x').exit_code }}", plain], output: "{{ result('exec#x').stdout | trim }}"}
resources:
  - exec: [{x: {command: echo hi}}]
"""
    messages: list[str] = []

    class Listener(Observer):
        def message(self, text: str) -> None:
            messages.append(text)

    done = apply(text, observer=Listener())
    assert done.report.outputs == {"list": [0, "plain"], "output": "hi"}
    assert messages == ["about to set up web", "hi\n done"]


def test_a_failed_run_has_no_post_message_and_no_outputs(apply: Callable[..., Applied], root: Path) -> None:
    text = "post_message: never\noutputs: {a: 1}\nresources:\n  - exec: [{x: {command: 'false'}}]\n"
    messages: list[str] = []

    class Listener(Observer):
        def message(self, text: str) -> None:
            messages.append(text)

    assert apply(text, observer=Listener()).report.outputs is None
    assert messages == []

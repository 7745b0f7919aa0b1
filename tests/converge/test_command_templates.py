"""The template of a command is split before it is rendered: a value is never more than one argument."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from loading import faults_of, load_text
from mainstay.converge.command_words import join_words, split_words
from mainstay.converge.manifest.command_templates import render_words
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.manifest_warnings import shell_warnings
from mainstay.converge.manifest.rendering import render_manifest
from mainstay.converge.manifest.scope import TemplateScope, Unresolved
from mainstay.converge.value_kinds import Unfit
from mainstay.foundation.text import Tainted
from torture import count_of

INJECTION = 'a" --superuser "b'
NASTY = [
    'a" --superuser "b',
    "it's",
    "a b",
    "",
    " ",
    "\\",
    "x\ny",
    "$(id)",
    "{{ 1 }}",
    "}}",
    "--",
    "a;b",
    "'",
    '"',
    "%",
]


def scope_of(**data: Any) -> TemplateScope:
    return TemplateScope({"data": lambda: data})


def words_of(template: str, **data: Any) -> list[str]:
    return list(render_words(Template(template), scope_of(**data)))


# ---- examples ----
@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("useradd {{ data.x }}", ["useradd", INJECTION]),
        ('useradd "{{ data.x }}"', ["useradd", INJECTION]),
        ("useradd '{{ data.x }}'", ["useradd", INJECTION]),
        ("useradd --name={{ data.x }} b", ["useradd", f"--name={INJECTION}", "b"]),
        ("run {{ 'a  b' }} {{ \"it's\" }}", ["run", "a  b", "it's"]),
        ("run {{ '}}' }}'{{ \"'\" }}'", ["run", "}}'"]),
        ("run {{ {'a': {'b': 'c d'}}['a']['b'] }}x", ["run", "c dx"]),
        ("run {{ data.list }}", ["run", "p", "q r", ""]),
        ('run "{{ data.list }}"', ["run", "p q r "]),
        ("run --all={{ data.list }}", ["run", "--all=p q r "]),
        ("run {{ data.list | join(',') }}", ["run", "p,q r,"]),
        ("run {{ data.none }} x", ["run", "x"]),
        ('run "{{ data.none }}" x', ["run", "", "x"]),
        ("run {{ '' }} {{ 1 }}{{ true }}", ["run", "", "1true"]),
        ("{{ data.list }}", ["p", "q r", ""]),
        ("{{ ['/opt/my program', data.x] }} z", ["/opt/my program", INJECTION, "z"]),
        ("'/opt/my program' {{ data.x }}", ["/opt/my program", INJECTION]),
        ("run \\{{ data.list }}", ["run", "p q r "]),
        ('run "\\{{ data.x }}"', ["run", f"\\{INJECTION}"]),
        ("run {{ data.map }}", ["run", '{"k": "v w"}']),
    ],
)
def test_a_template_gives_these_words(template: str, words: list[str]) -> None:
    assert words_of(template, x=INJECTION, list=["p", "q r", ""], none=[], map={"k": "v w"}) == words


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("run {{ none }}", "an expression gives null"),
        ("run 'x{{ none }}'", "an expression gives null"),
        ("run {{ [1, none] }}", "an expression gives null"),
        ("{{ data.line }}", "give a list, or write the command out"),
        ("'{{ data.line }}' x", "give a list, or write the command out"),
        ("/opt/{{ data.line }}", "give a list, or write the command out"),
        ("\"{{ ['a', 'b'] }}\"", "give a list, or write the command out"),
        ("{{ '' }}", "the command is empty"),
        ("{{ [] }}", "the command is empty"),
        ("{{ [''] }} x", "the command is empty"),
        ("run {{ 'a\\0b' }}", "contains a NUL character"),
    ],
)
def test_a_value_that_cannot_be_an_argument_is_refused(template: str, message: str) -> None:
    with pytest.raises(Unfit, match=re.escape(message)):
        words_of(template, line="rm -rf /")


def test_only_the_words_that_carry_a_secret_are_tainted() -> None:
    words = words_of("run {{ data.key }} -p{{ data.key }} {{ [1, data.key] }} {{ data.x }}", key=Tainted("s"), x="y")
    assert [isinstance(word, Tainted) for word in words] == [False, True, True, True, True, False]
    assert words == ["run", "s", "-ps", "1", "s", "y"]


# ---- random templates, compared with a plain model ----
# Each expression with its value as the model knows it.
EXPRESSIONS: list[tuple[str, Any]] = [
    ("lookup('data.v0')", lambda data: data["v0"]),
    (' lookup("data.v1") ', lambda data: data["v1"]),
    ("data.v0", lambda data: data["v0"]),
    ("data['v1']", lambda data: data["v1"]),
    ("'}}'", lambda data: "}}"),
    ('"it\'s }} "', lambda data: "it's }} "),
    ("{'a': {'b': '\\''}}['a']['b']", lambda data: "'"),
    ("[data.v0, ' \" ']", lambda data: [data["v0"], ' " ']),
    ("\n 'x' ", lambda data: "x"),
]
TOKEN = re.compile(r"""([ \t\n]+)|'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^ \t\n'"\\])""", re.DOTALL)
ALPHABET = ["a", "b", "-", "=", " ", " ", "\t", "\n", "'", '"', "\\", "$", "`", "#", "{", "}", "%"]
FIRST_PLACEHOLDER = 0xE000


class ModelRefuses(Exception):
    pass


def model(characters: str, values: list[Any]) -> list[str]:
    """Splits with one regular expression; the private character U+E000 + n is the n-th expression."""
    words: list[list[tuple[str, bool]]] = [[]]
    is_open = [False]
    at = 0
    while at < len(characters):
        found = TOKEN.match(characters, at)
        if found is None:
            raise ModelRefuses
        at = found.end()
        blank, single, double, escaped, plain = found.groups()
        if blank is not None:
            words.append([])
            is_open.append(False)
            continue
        if escaped == "\n":
            continue
        is_open[-1] = True
        if double is not None:
            double = re.sub(r"""\\([$`"\\\n])""", lambda match: match[1].strip("\n"), double)
        quoted = next((text for text in (single, double, escaped) if text is not None), None)
        words[-1] += [(plain, False)] if quoted is None else [("", True), *((each, True) for each in quoted)]
    kept = [word for word, is_word in zip(words, is_open, strict=True) if is_word]
    if not kept or not any(text for text, _ in kept[0]):
        raise ModelRefuses
    return model_arguments(kept, values)


def model_arguments(words: list[list[tuple[str, bool]]], values: list[Any]) -> list[str]:
    arguments: list[str] = []
    for index, word in enumerate(words):
        if len(word) == 1 and not word[0][1] and ord(word[0][0]) >= FIRST_PLACEHOLDER:
            value = values[ord(word[0][0]) - FIRST_PLACEHOLDER]
            if isinstance(value, list):
                arguments += [model_text(item) for item in value]
                continue
        argument = ""
        for text, _ in word:
            if not text or ord(text) < FIRST_PLACEHOLDER:
                argument += text
                continue
            value_text = model_text(values[ord(text) - FIRST_PLACEHOLDER], joined=True)
            if index == 0 and re.search(r"\s", value_text):
                raise ModelRefuses
            argument += value_text
        arguments.append(argument)
    if not arguments or not arguments[0]:
        raise ModelRefuses
    return arguments


def model_text(value: Any, *, joined: bool = False) -> str:
    if value is None:
        raise ModelRefuses
    if isinstance(value, list) and joined:
        return " ".join(model_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def random_value(chance: random.Random) -> Any:
    kind = chance.random()
    if kind < 0.7:
        return chance.choice(NASTY) + chance.choice(NASTY)
    if kind < 0.9:
        return [chance.choice(NASTY) for _ in range(chance.randrange(4))]
    return chance.choice([None, 7, True, {"k": "v w"}])


def random_template(chance: random.Random) -> tuple[str, str, list[Any]]:
    """A template, the same with one private character for each expression, and the values of the expressions."""
    text, characters = "", ""
    values: list[Any] = []
    if chance.random() < 0.8:
        text = characters = "run "
    for _ in range(chance.randrange(1, 12)):
        if chance.random() < 0.35:
            source, value_of = chance.choice(EXPRESSIONS)
            text += f"{{{{{source}}}}}" if source[0] != "{" else f"{{{{ {source} }}}}"
            characters += chr(FIRST_PLACEHOLDER + len(values))
            values.append(value_of)
        else:
            character = chance.choice(ALPHABET)
            if character == "{" and text.endswith("{"):
                continue
            text += character
            characters += character
    # Braces that touch an expression would belong to it.
    if re.search(r"\{[\ue000-\uefff]", characters):
        return random_template(chance)
    return text, characters, values


def arguments_or_none(template: Template, data: dict[str, Any]) -> list[str] | None:
    try:
        return list(render_words(template, scope_of(**data)))
    except (Unfit, Unresolved):
        return None


def test_random_templates_give_the_arguments_of_a_plain_model() -> None:
    """Each template is rendered with several values; only lists may change how many arguments it gives."""
    chance = random.Random(20_261_116)
    rendered = refused = 0
    while rendered < count_of(500_000):
        text, characters, value_functions = random_template(chance)
        template = Template(text)
        counts = set()
        for _ in range(10):
            data = {"v0": random_value(chance), "v1": random_value(chance)}
            values = [value_of(data) for value_of in value_functions]
            found = arguments_or_none(template, data)
            try:
                expected: list[str] | None = model(characters, values)
            except ModelRefuses:
                expected = None
            assert found == expected, (text, data)
            rendered += 1
            refused += found is None
            if found is not None and not any(isinstance(value, list) for value in values):
                counts.add(len(found))
        assert len(counts) <= 1, text
    assert refused < rendered * 0.9


def test_joined_words_are_split_into_the_same_words() -> None:
    chance = random.Random(7)
    for _ in range(count_of(100_000)):
        words = ["run", *(chance.choice(NASTY) + chance.choice(NASTY) for _ in range(chance.randrange(5)))]
        assert split_words(join_words(words)) == words


# ---- in manifests ----
def test_a_value_is_one_argument_of_the_command_its_guards_and_checks(root: Path, apply: Any) -> None:
    done = apply(
        """
data: {x: 'a" --superuser "b', flags: [-n, "{{ 'two words' }}"]}
resources:
  - exec:
      - "sh -c 'echo $#: $1' - {{ data.x }}": {logoutput: true}
      - command:
          command: sh -c 'echo "$#:$1:$2:$3"' - {{ data.flags }} "{{ data.flags }}"
          onlyif: sh -c '[ $# = 1 ]' - {{ data.x }}
          unless: sh -c '[ $# != 1 ]' - "{{ data.x }}"
          health_checks:
            - command: sh -c '[ "$#" = 1 ]' - {{ data.x }}
  - file:
      - ROOT/checked:
          ensure: present
          owner: USER
          group: GROUP
          mode: "0600"
          content: x
          validate: sh -c '[ $# = 2 ] && test -f "$1" && [ "$2" = "100%%" ]' - % {{ '100%' }}
"""
    )
    assert done.errors == []
    assert [event.state.stdout for event in done.report.events[:2]] == [
        '1: a" --superuser "b\n',
        "3:-n:two words:-n two words\n",
    ]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ('command: "run \'{{ data.x }}"', "command: the quote ' is never closed"),
        ('onlyif: "\'{{ data.x }}"', "onlyif: the quote ' is never closed"),
        ("command: \"'' {{ data.x }}\"", "command: the command is empty"),
        ('health_checks: [{command: "\'{{ data.x }}"}]', "command: the quote ' is never closed"),
        ("health_checks: [{command: \"{{ 'a b' }}\"}]", "give a list, or write the command out"),
        ("health_checks: [{command: 'a {{ none }}'}]", "an expression gives null"),
    ],
)
def test_a_template_that_cannot_be_split_is_a_fault_at_load(properties: str, message: str, root: Path) -> None:
    faults = faults_of(f"data: {{x: y}}\nresources:\n  - exec:\n      - name:\n          {properties}\n", root)
    assert len(faults) == 1
    assert message in faults[0]


def test_a_name_with_a_value_of_blanks_as_its_program_is_a_fault(root: Path) -> None:
    faults = faults_of("data: {x: rm -rf /}\nresources:\n  - exec:\n      - '{{ data.x }}':\n", root)
    assert len(faults) == 1
    assert "give a list, or write the command out" in faults[0]


def test_a_null_command_is_refused_and_the_name_does_not_run(root: Path, apply: Any) -> None:
    for provider in ("posix", "shell"):
        done = apply(
            f"""
- exec:
    - touch ROOT/ran:
        provider: {provider}
        command: "{{{{ none }}}}"
"""
        )
        assert "null" in done.errors[0]
        assert not (root / "ran").exists()


def test_a_rendered_manifest_gives_the_same_words(root: Path) -> None:
    text = """
data: {x: 'a" --superuser "b'}
resources:
  - exec:
      - "true {{ data.x }} {{ '{{' }}": {}
"""
    first = load_text(text, root)
    assert vars(first.resources[0])["command"] == ("true", INJECTION, "{{")
    second = load_text(json.dumps(render_manifest(first)), root)
    assert words_of((second.resources[0].deferred or {})["command"].text) == ["true", INJECTION, "{{"]


def test_validate_warns_about_values_that_a_shell_reads_as_code(root: Path) -> None:
    text = """
data: {x: y}
resources:
  - exec:
      - "echo {{ data.x }}": {provider: shell}
      - plain: {provider: shell, command: "echo {{ lookup('data.x') }} {{ data.x | quote }}"}
      - branch: {provider: shell, command: "echo {{ 'a' if data.x else data.x | quote }}", onlyif: "test {{ data.x | upper }}"}
      - half: {provider: shell, command: "echo {{ data.x if data.x else data.x | quote }}"}
      - quoted: {provider: shell, command: "echo {{ data.x | quote }} {{ 'a' ~ (data.x | quote) }}", cwd: "/{{ data.x }}"}
      - hidden: {provider: shell, command: "echo {{ data.x }}", sensitive: true}
      - posix: {command: "echo {{ data.x }}"}
"""
    assert [warning.partition(" as code")[0] for warning in shell_warnings(load_text(text, root))] == [
        "exec#echo y: name: the shell reads the value of {{ data.x }}",
        "exec#plain: command: the shell reads the value of {{ lookup('data.x') }}",
        "exec#branch: onlyif: the shell reads the value of {{ data.x | upper }}",
        "exec#half: command: the shell reads the value of {{ data.x if data.x else data.x | quote }}",
        "exec#hidden: command: the shell reads the value of an expression",
    ]


def test_validate_shows_the_warnings(mainstay: Any, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text("- exec:\n    - x: {provider: shell, command: \"echo {{ lookup('facts.hostname') }}\"}\n")
    done = mainstay("validate", manifest)
    assert done.returncode == 0
    assert (
        "warning: exec#x: command: the shell reads the value of {{ lookup('facts.hostname') }} as code" in done.stdout
    )
    assert len(json.loads(mainstay("validate", "--json", manifest).stdout)["warnings"]) == 1


def test_the_arguments_of_a_shell_command_are_quoted_by_the_filter(root: Path, apply: Any) -> None:
    done = apply(
        """
data: {x: "it's $(touch ROOT/ran) `id` \\\\", list: [a b, "$HOME", ""]}
resources:
  - exec:
      - go:
          provider: shell
          command: printf '<%s>' {{ data.x | quote }} {{ data.list | quote }}
"""
    )
    assert done.errors == []
    assert done.report.events[0].state.stdout == f"<it's $(touch {root}/ran) `id` \\><a b><$HOME><>"
    assert not (root / "ran").exists()

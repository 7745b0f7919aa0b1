"""`blueprint check` reports each fault with its file and line, and nothing for a valid blueprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blueprint_findings import findings_of, make
from mainstay.agent.blueprint import ACTION_KEYS, KEYS, TYPE_KEYS, read_blueprint
from mainstay.blueprints.example_orders import KEYS as ORDER_KEYS
from mainstay.blueprints.scaffold import files_of


def test_a_new_blueprint_has_no_findings(tmp_path: Path) -> None:
    assert findings_of(make(tmp_path)) == ([], [])


PRESENT, TYPE, DEFINITION = "manifests/present.yaml", "service-type.yaml", "blueprint.yaml"
GREETING = "lookup('properties.greeting')"
KEY = "\"{{ lookup('properties.key') }}\""
FAULTS: dict[str, tuple[tuple[str, str, str], str]] = {
    "an unknown key": ((DEFINITION, "drift:", "drfit:"), "blueprint.yaml:12:1: unknown key 'drfit' (did you mean"),
    "a bad version": ((DEFINITION, "0.1.0", "one"), "blueprint.yaml:3:10: version must be a version such as"),
    "a missing manifest": (
        (DEFINITION, "manifests/absent.yaml", "manifests/gone.yaml"),
        "blueprint.yaml:8:22: there is no manifests/gone.yaml in the blueprint",
    ),
    "an action that the lifecycle lacks": (
        (DEFINITION, "actions:\n", "actions:\n  upgrade: {manifest: manifests/present.yaml}\n"),
        "blueprint.yaml:5:3: the lifecycle has no action upgrade; it has: create, update, delete (did you mean 'update'",
    ),
    "an action without a manifest": (
        (DEFINITION, "  delete: {manifest: manifests/absent.yaml}\n", ""),
        "blueprint.yaml:4:1: the lifecycle's action delete has no manifest",
    ),
    "a state that the lifecycle lacks": (
        (DEFINITION, "  Running:", "  Runing:"),
        "blueprint.yaml:11:3: the lifecycle has no state Runing; it has: New, Running, Failed, Deleted (did you mean",
    ),
    "a bad type of a property": (
        (TYPE, "type: string", "type: strng"),
        "service-type.yaml:4:11: greeting.type: unknown type 'strng' (did you mean 'string'?)",
    ),
    "a transition to an unknown state": (
        (TYPE, "{from: New, to: Running}", "{from: New, to: Runing}"),
        "service-type.yaml:22:27: lifecycleSchema.actions[0].transitions[0].to: state 'Runing' is not in states",
    ),
    "a duplicate key": ((TYPE, "lifecycleSchema:", "propertySchema:"), "service-type.yaml:17:1: "),
    "an undeclared property": (
        (PRESENT, "properties.key'", "properties.kee'"),
        "manifests/present.yaml:17:20: properties.kee: there is no such property (did you mean 'key'?)",
    ),
    "an undeclared property in a template": (
        ("files/greeting.j2", "properties.greeting", "properties.gretting"),
        "files/greeting.j2:1: properties.gretting: there is no such property (did you mean 'greeting'?)",
    ),
    "an undeclared property as an attribute": (
        (PRESENT, KEY, '"{{ properties.keys }}"'),
        "manifests/present.yaml:17:20: properties.keys: there is no such property (did you mean 'key'?)",
    ),
    "an undeclared property in a control": (
        (
            PRESENT,
            "          content: " + KEY,
            "          content: x\n          control: {if: lookup('properties.on')}",
        ),
        "manifests/present.yaml:18:25: properties.on: there is no such property",
    ),
    "a control that is a text": (
        (
            PRESENT,
            "          content: " + KEY,
            "          content: x\n          control: {if: lookup('service.name')}",
        ),
        "manifests/present.yaml:18:25: file#/srv/demo-00000000-0000-4000-8000-000000000000/key: control.if must be",
    ),
    "an undeclared property in a block": (
        (PRESENT, "content: " + KEY, "content: |\n            one\n            {{ lookup('properties.two') }}"),
        "manifests/present.yaml:19:1: properties.two: there is no such property",
    ),
    "a property below a string": (
        (PRESENT, "properties.key'", "properties.greeting.loud'"),
        "manifests/present.yaml:17:20: properties.greeting.loud: properties.greeting is a string and has no properties",
    ),
    "an unknown name of a service": (
        (PRESENT, "lookup('service.id')", "lookup('service.uuid')"),
        "manifests/present.yaml:3:9: service.uuid: there is no such name",
    ),
    "an unknown name of an instance": (
        (PRESENT, KEY, "\"{{ lookup('instance.unit') }}\""),
        "manifests/present.yaml:17:20: instance.unit: no manifest sets it in outputs.instance_data",
    ),
    "a manifest that does not load": (
        (PRESENT, "ensure: directory", "ensure: folder"),
        "manifests/present.yaml:9:19: file#/srv/demo-",
    ),
    "a template that does not parse": ((PRESENT, KEY, '"{{ 1 + }}"'), "manifests/present.yaml:17:20: "),
    "a secret that every user can read": (
        (PRESENT, 'mode: "0600"', 'mode: "0644"'),
        "manifests/present.yaml:15:9: file#",
    ),
    "an undeclared output": (
        (PRESENT, "properties: {path:", "properties: {place:"),
        "manifests/present.yaml:21:16: outputs.properties.place: there is no such property",
    ),
    "an output that the agent may not set": (
        (PRESENT, "properties: {path:", "properties: {greeting:"),
        "manifests/present.yaml:21:16: outputs.properties.greeting: the agent may not set it",
    ),
    "an output with a secret": (
        (PRESENT, "{path: \"{{ lookup('data.home') }}\"}", "{path: \"{{ lookup('properties.key') }}\"}"),
        "manifests/present.yaml:21:16: outputs.properties.path carries a secret",
    ),
    "an unknown output": (
        (PRESENT, "  properties: {path:", "  propertys: {path:"),
        "manifests/present.yaml:21:3: outputs: unknown key 'propertys' (did you mean 'properties'?)",
    ),
    "instance data with a secret": (
        (PRESENT, "outputs:\n", "outputs:\n  instance_data: {key: \"{{ lookup('properties.key') }}\"}\n"),
        "manifests/present.yaml:21:18",
    ),
    "an order with an invalid property": (
        ("orders/small.yaml", "key: not-a-real-key", "key: 5"),
        "orders/small.yaml:3:8: key: expected string, got ",
    ),
    "an order with an unknown key": (
        ("orders/small.yaml", "change:", "changes:"),
        "orders/small.yaml:4:1: unknown key 'changes' (did you mean 'change'?)",
    ),
}
WARNINGS: dict[str, tuple[tuple[str, str, str], str]] = {
    "an optional property": (
        (TYPE, "    required: true\n    default: hello\n", ""),
        "files/greeting.j2:1: warning: properties.greeting may be absent (it is optional and has no default)",
    ),
    "an optional property that an update may clear": (
        (TYPE, "    required: true\n    default: hello\n", "    default: hello\n"),
        "files/greeting.j2:1: warning: properties.greeting may be absent (it is optional, so an update may clear it)",
    ),
    "a property that only the agent sets": (
        (PRESENT, KEY, "\"{{ lookup('properties.path') }}\""),
        "manifests/present.yaml:17:20: warning: properties.path may be absent (only the agent sets it)",
    ),
    "a secret that the group can read": (
        (PRESENT, 'mode: "0600"', 'mode: "0640"'),
        "manifests/present.yaml:",
    ),
    "a secret in a command": (
        (
            PRESENT,
            "outputs:",
            "  - exec:\n      - use:\n          command: use {{ lookup('properties.key') }}\n\noutputs:",
        ),
        "manifests/present.yaml:22:20: warning: exec#use: command carries a secret",
    ),
    "a secret in an environment": (
        (
            PRESENT,
            "outputs:",
            "  - exec:\n      - use:\n          environment: [\"KEY={{ lookup('properties.key') }}\"]\n\noutputs:",
        ),
        "manifests/present.yaml:22:24: warning: exec#use: environment carries a secret",
    ),
    "a secret in a property that is not hidden": (
        (
            PRESENT,
            "outputs:",
            "  - exec:\n      - use:\n          cwd: /srv/{{ lookup('properties.key') }}\n\noutputs:",
        ),
        "manifests/present.yaml:22:16: warning: exec#use: cwd carries a secret, but is neither a secret nor a private",
    ),
    "a secret in a command that validates a file": (
        (PRESENT, KEY, f"{KEY}\n          validate: check {{{{ lookup('properties.key') }}}} %"),
        "manifests/present.yaml:18:21: warning: file#/srv/demo-00000000-0000-4000-8000-000000000000/key: validate carries a secret",
    ),
    "a timeout that the lifecycle cuts short": (
        (DEFINITION, "timeout: 1m", "timeout: 10m"),
        "blueprint.yaml:5:55: warning: create may take 600s here, but its job times out after 300s",
    ),
    "a short-lived secret": (
        (TYPE, "{type: persistent}", "{type: ephemeral}"),
        "manifests/present.yaml:17:20: warning: properties.key may be absent (a short-lived secret is gone after its job)",
    ),
}


@pytest.mark.parametrize(("change", "expected"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_reported_with_its_line(tmp_path: Path, change: tuple[str, str, str], expected: str) -> None:
    faults, _ = findings_of(make(tmp_path, change))
    assert [line for line in faults if line.startswith(expected)], "\n".join(faults)
    assert len(faults) == len(set(faults))


@pytest.mark.parametrize(("change", "expected"), WARNINGS.values(), ids=WARNINGS.keys())
def test_a_probable_mistake_is_a_warning(tmp_path: Path, change: tuple[str, str, str], expected: str) -> None:
    faults, warnings = findings_of(make(tmp_path, change))
    assert faults == []
    assert [line for line in warnings if line.startswith(expected)], "\n".join(warnings)


def with_exec(folder: Path, properties: dict[str, Any], *changes: tuple[str, str, str]) -> Path:
    resource = f"  - exec:\n      - say: {json.dumps(properties)}\n\noutputs:"
    return make(folder, (PRESENT, "outputs:", resource), *changes)


def with_pattern(pattern: str) -> tuple[str, str, str]:
    rule = json.dumps({"type": "pattern", "pattern": pattern})
    return TYPE, "    default: hello\n", f"    default: hello\n    validators: [{rule}]\n"


def in_a_shell(command: str, **others: str) -> dict[str, Any]:
    return {"provider": "shell", "command": command, **others}


RUN_BY_A_SHELL: dict[str, dict[str, Any]] = {
    "as it is": in_a_shell(f"echo {{{{ {GREETING} }}}}"),
    "another filter": in_a_shell(f"echo {{{{ {GREETING} | upper }}}}"),
    "a filter after quote": in_a_shell(f"echo {{{{ {GREETING} | quote | replace('a', '') }}}}"),
    "the filter line": in_a_shell(f"echo {{{{ {GREETING} | line }}}}"),
    "one branch": in_a_shell(f"echo {{{{ 'a' if data.home else {GREETING} }}}}"),
    "joined": in_a_shell(f"echo {{{{ 'a' ~ {GREETING} }}}}"),
    "quoted inside single quotes": in_a_shell(f"echo '{{{{ {GREETING} | quote }}}}'"),
    "quoted inside double quotes": in_a_shell(f'echo "{{{{ {GREETING} | quote }}}}"'),
    "quoted inside backquotes": in_a_shell(f"echo `ls {{{{ {GREETING} | quote }}}}`"),
    "quoted in a comment": in_a_shell(f"ls # {{{{ {GREETING} | quote }}}}"),
    "quoted in a here-document": in_a_shell(f"cat <<E\n{{{{ {GREETING} | quote }}}}\nE"),
    "in onlyif": in_a_shell("ls", onlyif=f"test {{{{ {GREETING} }}}}"),
    "in unless": in_a_shell("ls", unless=f"test {{{{ {GREETING} }}}}"),
    "the name of the service": in_a_shell("echo {{ lookup('service.name') }}"),
    "the parameters of the job": in_a_shell("echo {{ lookup('job.params.greeting') }}"),
    "as an object": in_a_shell("echo {{ properties['greeting'] }}"),
    "with all properties": in_a_shell("echo {{ properties }}"),
    "through a template": in_a_shell("{{ template('../files/greeting.j2') }}"),
    "in an argument of sh -c": {"command": f"sh -c 'echo {{{{ {GREETING} }}}}'"},
    "as the argument of sh -c": {"command": f"sh -c {{{{ {GREETING} }}}}"},
    "in an argument of bash -ec": {"command": f"/usr/bin/env bash -ec 'echo {{{{ {GREETING} }}}}'"},
    "in an argument of su -c": {"command": f"su - app -c 'echo {{{{ {GREETING} }}}}'"},
    "with options after c": {"command": f"bash -ce 'echo {{{{ {GREETING} }}}}'"},
    "with options between c and the script": {"command": f"bash -c -e -o nounset 'echo {{{{ {GREETING} }}}}'"},
    "after the end of the options": {"command": f"bash -c -- 'echo {{{{ {GREETING} }}}}'"},
    "in --command=": {"command": f"su app --command='echo {{{{ {GREETING} }}}}'"},
    "in the word of -c": {"command": f"su app '-cecho {{{{ {GREETING} }}}}'"},
    "in an argument of fish": {"command": f"fish -c 'echo {{{{ {GREETING} }}}}'"},
    "in an argument of flock -c": {"command": f"flock lock -c 'echo {{{{ {GREETING} }}}}'"},
    "in an argument of ssh": {"command": f"ssh host echo {{{{ {GREETING} }}}}"},
    "in a list of arguments": {"command": f"{{{{ ['/bin/sh', '-c', {GREETING}] }}}}"},
    "in a list of the last arguments": {"command": f"sh {{{{ ['-c', {GREETING}] }}}}"},
    "quoted after a backslash": in_a_shell(f"echo \\{{{{ {GREETING} | quote }}}}"),
    "quoted as the script of another shell": in_a_shell(f"cd / && sudo sh -ec {{{{ {GREETING} | quote }}}}"),
    "quoted and evaluated": in_a_shell(f"eval ls {{{{ {GREETING} | quote }}}}"),
    "in place of a number": in_a_shell(f"head -c {{{{ 'x' | int(default={GREETING}) }}}} x"),
    "by a computed path": in_a_shell("echo {{ lookup('properties.' ~ 'greeting') }}"),
    "in a guard with sh -c": {"command": "ls", "onlyif": f"sh -c 'test {{{{ {GREETING} }}}}'"},
    "in a health check": {"command": "ls", "health_checks": [{"command": f"sh -c 'test {{{{ {GREETING} }}}}'"}]},
}


@pytest.mark.parametrize("properties", RUN_BY_A_SHELL.values(), ids=RUN_BY_A_SHELL.keys())
def test_free_text_that_a_shell_would_run_is_a_fault(tmp_path: Path, properties: dict[str, Any]) -> None:
    faults, _ = findings_of(with_exec(tmp_path, properties))
    assert faults
    assert all("is free text of the order, and a shell would run it here" in fault for fault in faults)
    assert faults[0].startswith("manifests/present.yaml:21:")


def test_free_text_is_found_behind_data_and_in_the_name_of_a_command(tmp_path: Path) -> None:
    data = (PRESENT, "data:\n", f'data:\n  text: {{deep: ["{{{{ {GREETING} }}}}"]}}\n')
    command = in_a_shell("echo {{ lookup('data.text.deep.0') }}")
    faults, _ = findings_of(with_exec(tmp_path / "data", command, data))
    assert len(faults) == 1
    assert "data.text.deep.0 is free text" in faults[0]
    name = f'  - exec:\n      - "echo {{{{ {GREETING} }}}}": {{provider: shell}}\n\noutputs:'
    faults, _ = findings_of(make(tmp_path / "name", (PRESENT, "outputs:", name)))
    assert len(faults) == 1
    assert "properties.greeting is free text" in faults[0]


NOT_RUN_BY_A_SHELL: dict[str, dict[str, Any]] = {
    "quoted": in_a_shell(f"echo {{{{ {GREETING} | quote }}}} 'x' \\' $(ls {{{{ {GREETING} | quote }}}})"),
    "a quoted branch": in_a_shell(f"echo {{{{ ({GREETING} | quote) if data.home else 'b' }}}}"),
    "only compared": in_a_shell(f"echo {{{{ 'a' if {GREETING} == 'x' else 'b' }}}}"),
    "a number": in_a_shell(f"head -c {{{{ {GREETING} | length }}}} x"),
    "the id of the service": in_a_shell("echo {{ lookup('service.id') }}"),
    "one argument": {"command": f"echo {{{{ {GREETING} }}}} '{{{{ {GREETING} }}}}'"},
    "an argument after the script": {"command": f"sh -c 'echo \"$1\"' - {{{{ {GREETING} }}}}"},
    "an argument after the script of another shell": in_a_shell(
        f"sh -c 'echo \"$1\"' - {{{{ {GREETING} | quote }}}}; eval ls; ls {{{{ {GREETING} | quote }}}}"
    ),
    "an argument of a shell without a script": {"command": f"bash run.sh -c {{{{ {GREETING} | quote }}}}"},
    "a list without a shell": {"command": f"{{{{ ['echo', '-c', {GREETING}] }}}}"},
    "quoted in a script": {"command": f"sh -c 'echo {{{{ {GREETING} | quote }}}}'"},
}


@pytest.mark.parametrize("properties", NOT_RUN_BY_A_SHELL.values(), ids=NOT_RUN_BY_A_SHELL.keys())
def test_free_text_that_no_shell_reads_as_code_is_valid(tmp_path: Path, properties: dict[str, Any]) -> None:
    assert findings_of(with_exec(tmp_path, properties)) == ([], [])


def test_the_output_of_a_command_may_be_free_text(tmp_path: Path) -> None:
    for name, count in (("result('exec#say').stdout", 1), ("result('exec#say').stdout | quote", 0)):
        second = {"provider": "shell", "command": f"echo {{{{ {name} }}}}"}
        entries = f'  - exec:\n      - say: {{command: "true"}}\n      - second: {json.dumps(second)}\n\noutputs:'
        faults, _ = findings_of(make(tmp_path / str(count), (PRESENT, "outputs:", entries)))
        assert len(faults) == count
        assert all("result may contain free text of the order" in fault for fault in faults)


def test_a_text_with_a_pattern_of_plain_characters_may_go_to_a_shell(tmp_path: Path) -> None:
    command = in_a_shell(f"echo {{{{ {GREETING} }}}}")
    assert findings_of(with_exec(tmp_path / "plain", command, with_pattern("^[a-z]+$"))) == ([], [])
    faults, _ = findings_of(with_exec(tmp_path / "any", command, with_pattern("^.*$")))
    assert len(faults) == 1
    assert "properties.greeting is free text" in faults[0]


# ---- lines of files ----
LINES = (PRESENT, "content: \"{{ template('../files/greeting.j2') }}\"")


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (f"a={{{{ {GREETING} }}}}", 1),
        (f"a={{{{ {GREETING} | upper }}}}", 1),
        (f"a={{{{ {GREETING} | default('x') }}}} b={{{{ properties.greeting }}}}", 1),
        (f"a={{{{ {GREETING} | line }}}}", 0),
        (f"a={{{{ {GREETING} | quote }}}} {{{{ {GREETING} | tojson }}}}", 0),
        (f"{{{{ {GREETING} }}}}", 0),
        ("a={{ lookup('service.name') }}", 0),
        ("a={{ lookup('properties.path', '') }}", 0),
    ],
)
def test_free_text_that_may_add_lines_to_a_file_is_a_warning(tmp_path: Path, content: str, count: int) -> None:
    faults, warnings = findings_of(make(tmp_path, (*LINES, f"content: {json.dumps(content)}")))
    assert faults == []
    assert len(warnings) == count
    assert all(
        "properties.greeting is free text of the order and may contain line breaks" in each for each in warnings
    )


def test_lines_are_found_in_templates_with_loops_and_assignments(tmp_path: Path) -> None:
    text = (
        "{% set x = properties.greeting %}{{ x }}\n{% for y in [properties.greeting] %}\n{{ y }}\n{{ y | line }}"
        "{% endfor %}\n{% with z = properties['greeting'] %}{{ z }}{% endwith %}"
    )
    (faults, warnings) = findings_of(make(tmp_path, ("files/greeting.j2", f"{{{{ {GREETING} | line }}}}", text)))
    assert faults == []
    assert [warning.partition(": warning")[0] for warning in warnings] == [
        "files/greeting.j2:1",
        "files/greeting.j2:2",
        "files/greeting.j2:5",
    ]


@pytest.mark.parametrize(
    ("pattern", "count"), [("^[^[:cntrl:]]*$", 1), ("^[ -~]*$", 0), ("^.*$", 1), (r"^[^\x00-\x1f]*$", 1)]
)
def test_a_pattern_without_control_characters_makes_text_one_line(tmp_path: Path, pattern: str, count: int) -> None:
    content = (*LINES, f'content: "a={{{{ {GREETING} }}}}"')
    assert len(findings_of(make(tmp_path, content, with_pattern(pattern)))[1]) == count


def test_a_lookup_with_a_default_is_valid(tmp_path: Path) -> None:
    change = ("files/greeting.j2", GREETING, "lookup('properties.greeting', 'hi')")
    assert findings_of(make(tmp_path, change, (TYPE, "    required: true\n    default: hello\n", ""))) == ([], [])


def test_a_secret_through_data_is_still_a_secret(tmp_path: Path) -> None:
    faults, _ = findings_of(
        make(
            tmp_path,
            (PRESENT, KEY, '"key={{ lookup(\'data.key\') }}"\n          mode: "0644"'),
            (PRESENT, "data:\n", "data:\n  key: \"{{ lookup('properties.key') }}\"\n"),
        )
    )
    assert len(faults) == 1
    assert "it contains a secret and every user can read it (0644)" in faults[0]


def test_without_a_schema_any_property_is_valid(tmp_path: Path) -> None:

    folder = make(tmp_path / "b", (TYPE, files_of("demo")[TYPE].partition("lifecycleSchema:")[0], ""))

    assert findings_of(folder) == ([], [])


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    faults, _ = findings_of(
        make(
            tmp_path,
            (DEFINITION, "  Running:", "  Runing:"),
            (PRESENT, "properties.key'", "properties.kee'"),
            ("orders/small.yaml", "key: not-a-real-key", "key: 5"),
        )
    )
    assert [line.split(":")[0] for line in faults] == [DEFINITION, PRESENT, "orders/small.yaml"]


def test_a_blueprint_without_orders_is_a_warning(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "orders/small.yaml").unlink()
    assert findings_of(folder) == (
        [],
        ["orders: warning: there is no example order, so `blueprint test` has nothing to test"],
    )


def test_missing_files_are_faults(tmp_path: Path) -> None:
    faults, _ = findings_of(tmp_path)
    assert sorted(line.split(":")[0] for line in faults) == ["blueprint.yaml", "service-type.yaml"]


def test_upgrades_is_read(tmp_path: Path) -> None:
    found: Any = read_blueprint(str(make(tmp_path)))
    assert [name for name, entry in found.actions.items() if entry.upgrades] == ["update"]


def test_the_old_name_of_upgrades_works_with_a_warning(tmp_path: Path) -> None:
    folder = make(tmp_path, (DEFINITION, "upgrades: true", "moves: true"))
    found: Any = read_blueprint(str(folder))
    assert [name for name, entry in found.actions.items() if entry.upgrades] == ["update"]
    faults, warnings = findings_of(folder)
    assert not faults
    assert [line.partition(": ")[2] for line in warnings] == [
        "warning: `moves` is the old name of `upgrades`; rename the key"
    ]


def test_the_old_and_the_new_name_of_upgrades_together_are_a_fault(tmp_path: Path) -> None:
    faults, _ = findings_of(make(tmp_path, (DEFINITION, "upgrades: true", "upgrades: true, moves: true")))
    assert [line.partition(": ")[2] for line in faults] == ["`moves` is the old name of `upgrades`; remove it"]


def test_the_reference_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "blueprint.md").read_text()
    for key in (*KEYS, *ACTION_KEYS, *TYPE_KEYS, *ORDER_KEYS):
        assert f"`{key}`" in page, key

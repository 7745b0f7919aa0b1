"""A canary in any property that a type declares secret or private appears nowhere.

Samples are listed by type and by kind; a missing sample fails a test that names what to add.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from applying import Applied, fill_in
from mainstay.agent.job_documents import failure_message, report_document
from mainstay.converge import health_checks, providers, resources
from mainstay.converge.contract import ResourceType
from mainstay.converge.resources.user import HASH_NAME
from mainstay.foundation.text import REDACTED
from own_accounts import own_accounts

ACCOUNT_TYPE = Path(__file__).with_name("account_type")
# The account type and the probe are found like all types and kinds, in the registry folders. Each command runs in a
# process of its own, forked from one that has imported the program: new interpreters would take most of the time.
PROGRAM = """
import ctypes, json, os, sys
from importlib import import_module
from mainstay.cli.main import program
from mainstay.converge import health_checks, providers, resources
for package in (health_checks, resources, providers):
    package.__path__.append(sys.argv[1] + "/" + package.__name__.rpartition(".")[2])
for name in ("apply", "history", "render", "status", "validate"):
    import_module("mainstay.cli.commands." + name)
import_module("mainstay.converge.run")
while line := sys.stdin.readline():
    words, output, errors, directory, environment, namespace = json.loads(line)
    child = os.fork()
    if child == 0:
        if os.readlink(namespace) != os.readlink("/proc/self/ns/mnt"):
            assert ctypes.CDLL(None).setns(os.open(namespace, os.O_RDONLY), 0x20000) == 0
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        for path, descriptor in (("/dev/null", 0), (output, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
        sys.argv[1:] = words
        sys.exit(program())
    os.waitpid(child, 0)
    print("done", flush=True)
"""
SHORT = "Kq9Zp-canary"
# Longer than messages quote.
LONG = "".join(f"{number:04x}Wx" for number in range(200))
PIECES = (SHORT, repr(SHORT), SHORT[::-1], LONG[:24], LONG[-24:])

# Type → names of its samples, and the properties they need beside the property with the canary.
SAMPLES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "account": (
        tuple(f"ROOT/account{number}" for number in range(30)),
        {},
    ),
    # Its manifest is written by `put_child`.
    "apply": (tuple(f"child{number}" for number in range(30)), {"manifest": "ROOT/../child.yaml"}),
    # What they create exists, so that nothing is downloaded.
    "archive": (
        tuple(f"ROOT/archive{number}" for number in range(30)),
        {"url": "https://127.0.0.1:1/x", "extract_parent": "/", "creates": "/etc", "username": "user"},
    ),
    "exec": (
        tuple(f"go{number}" for number in range(30)),
        {"command": "sh -c 'env; env | rev; exit 1'", "logoutput": True, "timeout": "20s"},
    ),
    "file": (
        tuple(f"ROOT/file{number}" for number in range(30)),
        {"ensure": "present", "content": "x", "owner": "USER", "group": "GROUP", "mode": "0600"},
    ),
    "group": (("root", "daemon", "sudo", "www-data", "users", "nogroup"), {}),
    "user": (tuple(f"canary{number}" for number in range(30)), {}),
    "line": (tuple(f"line{number}" for number in range(30)), {"path": "ROOT/lines", "line": "x"}),
    # Neither changes the host: the packages are installed already, and the units do not exist.
    "package": (("bash", "coreutils", "grep", "sed", "tar", "gzip", "findutils", "diffutils"), {}),
    "service": (tuple(f"mainstay-canary{number}" for number in range(30)), {"ensure": "stopped"}),
}
# Properties whose values have no line breaks.
ONE_LINE = ("line", "username", "password")
# Property → properties of the samples that it excludes.
INSTEAD = {"contents": ("content",), "block": ("line",)}
# Kind of health check → a value of the property of its name, for checks with a canary in another property.
CHECKS: dict[str, Any] = {}
# Kind of value → values with which a manifest loads, and values with which it does not.
COMMANDS = [
    "echo CANARY",
    "/nonexistent/CANARY",
    "sh -c 'echo CANARY; echo CANARY >&2; echo CANARY | rev; exit 1'",
    "sh -c 'echo CANARY; kill -9 $$'",
]
LOADS: dict[str, list[Any]] = {
    "text": ["CANARY", "two\nCANARY\nlines\n", "{{ 'CANARY' }}"],
    "command": COMMANDS,
    "pattern": ["CANARY", "^(CANARY)?$", "{{ 'CANARY' }}"],
    "list of text": [["NAME=CANARY"], ["NAME={{ 'CANARY' }}"]],
    "map of text": [{"X-Name": "CANARY"}, {"X-Name": "{{ 'CANARY' }}"}],
    HASH_NAME: ["$6$CANARY", "{{ '$6$x$' ~ 'CANARY' }}"],
    "map of values": [{"word": "CANARY"}, {"word": "{{ 'CANARY' }}"}, {"deep": {"word": ["CANARY"]}}],
}
DOES_NOT_LOAD: dict[str, list[Any]] = {
    "text": [{"CANARY": "x"}, ["CANARY"], "{{ 'CANARY' ~ }}", "a {{ 'CANARY"],
    "command": [{"x": "CANARY"}, ["CANARY"], "{{ 'CANARY' ~ }}", "a {{ 'CANARY"],
    "pattern": [{"CANARY": "x"}, ["CANARY"], "{{ 'CANARY' ~ }}", "(CANARY", "(CANARY+)+", "(CANARY)\\1"],
    "map of values": ["CANARY", ["CANARY"], {"word": "{{ 'CANARY' ~ }}"}, {"bad": "CANARY"}],
    "list of text": ["CANARY", {"x": "CANARY"}, [["CANARY"]], "{{ 'CANARY' ~ }}"],
    "map of text": ["CANARY", ["CANARY"], {"X-Name": ["CANARY"]}, {"X-Name": "CANARY\n"}, "{{ 'CANARY' ~ }}"],
    HASH_NAME: ["CANARY", "$6$ CANARY", "$6$x:CANARY", ["CANARY"], "{{ 'CANARY' }}", "{{ 'CANARY' ~ nope }}"],
}


@pytest.fixture(autouse=True)
def _own_accounts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Real users and groups, but not those of the machine."""
    case = getattr(request.node, "callspec", None)
    if case is None or case.params.get("type_name") not in ("group", "user"):
        yield
        return
    with own_accounts():
        yield


@pytest.fixture(autouse=True)
def _account_type(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the account type and the probe to this process, as PROGRAM does to its own."""
    monkeypatch.setattr(health_checks, "__path__", [*health_checks.__path__, str(ACCOUNT_TYPE / "health_checks")])
    monkeypatch.setattr(resources, "__path__", [*resources.__path__, str(ACCOUNT_TYPE / "resources")])
    monkeypatch.setattr(providers, "__path__", [*providers.__path__, str(ACCOUNT_TYPE / "providers")])
    yield
    for name in [name for name in sys.modules if name.startswith("mainstay.converge") and "account" in name]:
        if name.rpartition(".")[2] in ("account", "imitation"):
            del sys.modules[name]
    sys.modules.pop("mainstay.converge.health_checks.probe", None)


def found_types() -> list[ResourceType]:
    return [found for name in resources.names() if (found := resources.find(name)) is not None]


def account_properties() -> Iterator[tuple[str, str, str]]:
    """Listed here, because the account type and the probe are not in the registry while tests are collected."""
    yield from (("exec", f"health_checks.probe.{name}", "text") for name in ("password", "note"))
    yield ("exec", "health_checks.probe.pins", "list of text")
    yield from (("account", name, "text") for name in ("password_hash", "token", "note"))
    yield ("account", "pins", "list of text")


def hidden() -> list[Any]:
    """(type, property, kind): every hidden property, and the health checks that every type has."""
    found = [*account_properties()]
    for resource_type in found_types():
        found += [
            (resource_type.name, name, entry.kind.name)
            for name, entry in resource_type.properties.items()
            if entry.secret or entry.private
        ]
        found.append((resource_type.name, "health_checks.command.command", "command"))
    found += [
        ("exec", f"health_checks.{kind.name}.{name}", entry.kind.name)
        for kind in health_checks.kinds().values()
        for name, entry in kind.properties.items()
        if (entry.secret or entry.private) and (kind.name, name) != ("command", "command")
    ]
    return [pytest.param(*each, id=f"{each[0]}.{each[1]}") for each in found]


def loading_values(name: str, kind: str) -> list[Any]:
    """Values with which a manifest loads."""
    return [value for value in LOADS[kind] if name not in ONE_LINE or "\n" not in value]


def manifest_of(type_name: str, name: str, values: list[Any], *, sensitive: bool) -> str:
    """A resource for each value and each canary; JSON is YAML."""
    names, given = SAMPLES[type_name]
    entries: list[dict[str, Any]] = []
    filled = [json.loads(json.dumps(value).replace("CANARY", canary)) for canary in (SHORT, LONG) for value in values]
    for resource_name, value in zip(names, filled, strict=False):
        properties = {**given, **given_property(name, value, len(entries))}
        for other in INSTEAD.get(name, ()):
            del properties[other]
        if sensitive:
            properties["sensitive"] = True
        if type_name == "apply" and isinstance(properties.get("data", {}), dict):
            properties["data"] = {**properties.get("data", {}), "number": len(entries)}
        if type_name == "account":
            properties["way"] = ("", "fail", "crash", "fade")[len(entries) % 4]
        entries.append({resource_name: properties})
    return json.dumps([{type_name: entries}])


def given_property(name: str, value: Any, number: int) -> dict[str, Any]:
    """The property with its value. `health_checks.KIND.PROPERTY`: a check of that kind, whose main property is needed."""
    if not name.startswith("health_checks."):
        return {name: value}
    _, kind, own = name.split(".")
    if kind != "probe":
        return {"health_checks": [{kind: CHECKS.get(kind), own: value}]}
    # The probe is reached, whatever the sample does.
    how = ("good", "bad", "fail", "crash")[number % 4]
    return {"health_checks": [{"probe": how, own: value}], "command": "true"}


def needs_sensitive(type_name: str, name: str) -> bool:
    found = resources.find(type_name)
    assert found is not None
    if name.startswith("health_checks."):
        _, kind, own = name.split(".")
        return not health_checks.kinds()[kind].properties[own].secret
    return not found.properties[name].secret


class Program:
    """Runs commands in the directory, environment and mount namespace of the test, and returns what they print."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ACCOUNT_TYPE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, root: Path, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        output, errors = root.parent / "output", root.parent / "errors"
        namespace = f"/proc/{os.getpid()}/ns/mnt"
        request = [words, str(output), str(errors), str(root), dict(os.environ), namespace]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        assert "Traceback" not in errors.read_text(), errors.read_text()
        return output.read_text() + errors.read_text()

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def forking_program() -> Iterator[Program]:
    found = Program()
    yield found
    found.close()


@pytest.fixture
def program(root: Path, forking_program: Program, _own_accounts: None) -> Callable[..., str]:
    """After the accounts: it sees the same files as the test."""
    return partial(forking_program.run, root)


def everything_kept() -> str:
    state = Path(os.environ["MAINSTAY_STATE_DIR"])
    return "\n".join(
        f"{path}\n{path.read_bytes().decode('utf-8', 'backslashreplace') if path.is_file() else ''}"
        for path in state.rglob("*")
    )


def leaks(shown: str) -> list[str]:
    return [piece for piece in PIECES if piece in shown]


def write(root: Path, text: str) -> str:
    path = root.parent / "manifest.yaml"
    path.write_text(fill_in(text, root))
    put_child(root)
    return str(path)


def put_child(root: Path) -> None:
    """A manifest that shows its data wherever it can. It must have other names whenever it is applied."""
    (root.parent / "child.yaml").write_text(fill_in(CHILD, root))


CHILD = """
data: {number: 0, word: "{{ 'none' }}", deep: {}, bad: 0640}
data_schema: {properties: {bad: {type: integer}}}
pre_message: "before {{ data.word }} {{ data.deep }}"
post_message: "after {{ data.word }}"
outputs: {word: "{{ data.word }}"}
resources:
  - file:
      - "ROOT/child-{{ data.number }}":
          {ensure: present, content: "{{ data.word }} {{ data.deep }}\\n", owner: USER, group: GROUP, mode: "0640"}
  - exec:
      - "show {{ data.number }}": {command: "sh -c 'echo $0; echo $0 | rev; exit 1' {{ data.word }}", logoutput: true}
      - "other {{ data.number }}": {command: "true {{ data.word ~ (1 / 0) }}"}
      - "check {{ data.number }}": {creates: /, health_checks: [{command: "false {{ lookup('data.word') }}"}]}
"""


def put_accounts(root: Path) -> None:
    """Old values on the host are as secret as new ones."""
    (root / "lines").write_text(f"old {LONG}\nold {SHORT}\n")
    for number in range(0, 30, 2):
        (root / f"account{number}").write_text(f"old {LONG}")


# ---- what a type must declare ----
def test_a_second_name_of_a_property_hides_as_much() -> None:
    for resource_type in found_types():
        for name, entry in resource_type.properties.items():
            if entry.alias_of is not None:
                named = resource_type.properties[entry.alias_of]
                assert (entry.secret, entry.private) == (named.secret, named.private), f"{resource_type.name}.{name}"


def test_every_type_and_kind_has_samples() -> None:
    for resource_type in found_types():
        assert resource_type.name in SAMPLES, f"add names and required properties of {resource_type.name} to SAMPLES"
    for type_name, name, kind in (parameter.values for parameter in hidden()):
        assert kind in LOADS, f"add values of {type_name}.{name}, a {kind}, to LOADS and DOES_NOT_LOAD"
        _, _, check = name.partition("health_checks.")
        check_kind, _, own = check.partition(".")
        assert check_kind in ("", "probe", own) or check_kind in CHECKS, f"add a value of {check_kind} to CHECKS"


# ---- the canary ----
@pytest.mark.parametrize(("type_name", "name", "kind"), hidden())
def test_a_hidden_value_appears_nowhere(
    type_name: str, name: str, kind: str, root: Path, program: Callable[..., str]
) -> None:
    values = loading_values(name, kind)
    if kind == "text" and name in ("token", "content", "contents"):
        values += ["{{ 'CANARY' ~ file('none') }}", "refused CANARY"]
    sensitive = needs_sensitive(type_name, name)
    manifest = write(root, manifest_of(type_name, name, values, sensitive=sensitive))
    report = root.parent / "report.json"
    sample = SAMPLES[type_name][0][0].replace("ROOT", str(root))
    shown = ""
    for words in (
        ("render", manifest),
        ("render", manifest, "--json"),
        ("validate", manifest),
        ("apply", manifest, "--noop", "--diff", "-v"),
        ("apply", manifest, "--noop", "--diff", "--json"),
        ("apply", manifest, "--diff", "-v", "--report", str(report)),
        ("apply", manifest, "--diff", "--json"),
        ("status", type_name, sample),
        ("status", type_name, sample, "--json"),
        ("status", type_name, sample, "--yaml"),
        ("history",),
    ):
        if words[0] == "apply":
            put_accounts(root)
        text = program(*words)
        assert leaks(text) == [], (words, text)
        shown += text
    assert REDACTED in shown
    for kept in json.loads(program("history", "--json")):
        shown = program("history", "show", kept["run_id"])
        assert leaks(shown) == [], shown
    assert leaks(report.read_text() + everything_kept()) == []


@pytest.mark.parametrize(("type_name", "name", "kind"), hidden())
def test_a_fault_does_not_show_a_hidden_value(
    type_name: str, name: str, kind: str, root: Path, program: Callable[..., str]
) -> None:
    values = [*DOES_NOT_LOAD[kind]]
    if (type_name, name) in (("account", "password_hash"), ("account", "note")):
        values += ["refused CANARY", "{{ 'CANARY' ~ nope }}"]
    if kind == "command" and not name.startswith("health_checks."):
        values.append("tool 'CANARY")
    manifest = write(root, manifest_of(type_name, name, values, sensitive=needs_sensitive(type_name, name)))
    for words in (("validate",), ("apply", "--json")):
        text = program(*words, manifest)
        assert "fault" in text
        assert leaks(text) == [], text
    assert leaks(everything_kept()) == []


@pytest.mark.parametrize(("type_name", "name", "kind"), hidden())
def test_the_server_receives_no_hidden_value(
    type_name: str, name: str, kind: str, apply: Callable[..., Applied], root: Path
) -> None:
    text = manifest_of(type_name, name, loading_values(name, kind), sensitive=needs_sensitive(type_name, name))
    put_accounts(root)
    put_child(root)
    done = apply(text, differences=True)
    received = json.dumps(report_document(done.as_json(), str(root)))
    if done.report.failed:
        received += failure_message(done.report, str(root))
    assert leaks(received) == [], received
    assert leaks(repr([vars(event.resource) for event in done.report.events if not event.resource.sensitive])) == []


def test_without_sensitive_a_private_value_is_shown(root: Path, program: Callable[..., str]) -> None:
    """Proves that the canaries above are hidden by the declaration."""
    for type_name, name, kind in (parameter.values for parameter in hidden()):
        if needs_sensitive(type_name, name) and type_name == "account":
            text = manifest_of(type_name, name, LOADS[kind], sensitive=False)
            shown = program("apply", write(root, text), "--json") + program("render", write(root, text))
            assert leaks(shown) != [], (type_name, name)


def test_the_output_of_a_resource_with_a_secret_is_redacted_in_later_resources(
    apply: Callable[..., Applied], root: Path
) -> None:
    text = """
    - account:
        - ROOT/account: {password_hash: Kq9Zp-canary}
    - exec:
        - go: {command: "sh -c 'echo $0; exit 1' '{{ result(\\"account#ROOT/account\\").stdout }}'", logoutput: true}
    """
    done = apply(text)
    assert done.outcomes == ["changed", "failed"]
    assert leaks(json.dumps(done.as_json()) + everything_kept()) == []
    assert (root / "account").read_text() == SHORT


def test_render_hides_data_that_a_secret_property_uses(root: Path, program: Callable[..., str]) -> None:
    text = f"""
    data: {{hash: {SHORT}, plain: shown}}
    resources: [account: [ROOT/account: {{password_hash: "{{{{ data.hash }}}}"}}]]
    """
    shown = program("render", write(root, text))
    assert f"hash: '{REDACTED}'\n  plain: shown\n" in shown
    assert leaks(shown) == []


def test_a_secret_property_is_write_only_in_the_schema(program: Callable[..., str]) -> None:
    schema = json.loads(program("schema", "manifest"))
    properties = schema["$defs"]["account"]["properties"]
    assert properties["password_hash"]["writeOnly"] is True
    assert properties["note"]["description"] == "a remark; private: hidden when `sensitive` is true"

"""Mistakes in service types, orders, agents, pools and plane files: each answer names the thing, the place and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seed_text
from command_line import Shell
from control_plane import Server
from mainstay.cli.main import main
from scenario import Scenario, unique

LIFECYCLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
STRING = {"type": "string"}
# What is written → what `mainstay type check` prints.
PROPERTIES: list[tuple[Any, str]] = [
    ({**STRING, "enum": ["a"]}, "p.enum: unknown key; write `validators: [{type: enum, values: [small, large]}]`"),
    ({**STRING, "minLength": 8}, "p.minLength: unknown key; write `validators: [{type: minLength, value: …}]`"),
    (
        {**STRING, "pattern": "a"},
        "p.pattern: unknown key; write `validators: [{type: pattern, pattern: '^[a-z]+$'}]`",
    ),
    ({**STRING, "sensitive": True}, "p.sensitive: unknown key; write `secret: {type: persistent}` or"),
    ({**STRING, "optional": True}, "p.optional: unknown key; write nothing: a property may be left out unless"),
    ({**STRING, "requierd": True}, "p.requierd: unknown key (did you mean 'required'?)"),
    ({**STRING, "colour": 1}, "p.colour: unknown key; known keys: authorizers, default, "),
    (
        {**STRING, "secret": True},
        "p.secret: expected object, got boolean; write `secret: {type: persistent}` or `secret: {type: ephemeral}`",
    ),
    ("string", "p: expected object, got string; write `p: {type: string}`"),
    ({"type": "int"}, "p.type: unknown type 'int' (did you mean 'integer'?)"),
    ({"type": "text"}, "p.type: unknown type 'text'; there are array, boolean, "),
    ({**STRING, "required": "yes"}, "p.required: expected boolean, got string; write `required: true`, or leave it"),
    (
        {**STRING, "validators": {"type": "enum"}},
        "p.validators: expected array, got object; write `validators: [{type: minLength, value: 8}]`",
    ),
    (
        {**STRING, "validators": [{"enum": ["a"]}]},
        "p.validators[0].type: validator must have a type; write `validators: [{type: minLength, value: 8}]`",
    ),
    (
        {**STRING, "validators": [{"type": "regex"}]},
        "p.validators[0].type: unknown validator 'regex'; there are enum,",
    ),
    ({"type": "array", "items": "string"}, "p.items: expected object, got string; write `items: {type: string}`"),
    (
        {**STRING, "generator": "pool"},
        "p.generator: expected object, got string; write `generator: {type: pool, config: {poolType: NAME}}`",
    ),
    ({**STRING, "generator": {"type": "pol"}}, "p.generator.type: unknown generator 'pol' (did you mean 'pool'?)"),
    (
        {**STRING, "authorizers": ["user"]},
        "p.authorizers[0]: expected object, got string; write `authorizers: [{type: actor, config: {actors: [user]}}]`",
    ),
]
LIFECYCLES: list[tuple[Any, str]] = [
    ({**LIFECYCLE, "states": ["New"]}, "states[0]: expected object, got string; write `states: [{name: New}, "),
    ({**LIFECYCLE, "initialState": "Nw"}, "initialState: state 'Nw' is not in states (did you mean 'New'?)"),
    (
        {**LIFECYCLE, "terminalStates": ["X"]},
        "terminalStates[0]: state 'X' is not in states; there are New, Stopped,",
    ),
    ({**LIFECYCLE, "state": []}, "state: unknown key (did you mean 'states'?)"),
    (
        {**LIFECYCLE, "actions": [{"name": "create"}]},
        "actions[0].transitions: transitions is required; write `transitions: [{from: New, to: Started}]`",
    ),
]


@pytest.mark.parametrize(("definition", "message"), PROPERTIES, ids=[message for _, message in PROPERTIES])
def test_a_mistake_in_a_property_names_the_way_out(
    definition: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "type.json"
    file.write_text(json.dumps({"propertySchema": {"p": definition}}), encoding="utf-8")
    assert main(["type", "check", str(file)]) == 1
    assert capsys.readouterr().out.startswith(message)


@pytest.mark.parametrize(("lifecycle", "message"), LIFECYCLES, ids=[message for _, message in LIFECYCLES])
def test_a_mistake_in_a_lifecycle_names_the_way_out(
    lifecycle: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "type.json"
    file.write_text(json.dumps({"lifecycleSchema": lifecycle}), encoding="utf-8")
    assert main(["type", "check", str(file)]) == 1
    assert f"lifecycleSchema.{message}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def plane(server: Server) -> Scenario:
    return Scenario(server.admin)


@pytest.fixture(scope="module")
def kind(plane: Scenario) -> str:
    size = {"type": "string", "validators": [{"type": "enum", "values": ["small", "large"]}]}
    return str(plane.service_type({"size": size}, LIFECYCLE)["name"])


@pytest.fixture(scope="module")
def agent(plane: Scenario) -> str:
    return str(plane.admin.get(f"/agents/{plane.agent_id}")["name"])


def words(text: str, **names: str) -> list[str]:
    return text.format(**names).split()


# Command → what it prints. KIND, HOST and OFF are a type, its agent and a disabled one.
COMMANDS = [
    ("order {kind} x -p sise=small", "  sise: unknown property (did you mean 'size'?)"),
    ("order {kind} x -p size=huge", "  size: value is not in allowed enum values: small | large"),
    ("order nosuch x", "there is no service type 'nosuch'"),
    ("order {kind} x --agent nosuch", "there is no agent 'nosuch'; available: "),
    ("order {kind} x --tag moon", "`mainstay types {kind}` lists the agents that serve it"),
    ("do {service} fly", "unknown action 'fly'; the lifecycle has: create, start, stop"),
    ("do {service} stop", "action 'stop' cannot be performed in state 'New'; it starts from: Started"),
    ("do nosuch stop", "there is no service 'nosuch'; available: {service}"),
    ("participants add x", "`mainstay login` shows the account in use."),
    ("tokens create x --admin", "only an admin may create a token of role admin"),
]
OF_PROVIDERS = [
    ("pools add p --type port --agent {host} --value 20-10", "--value 20-10: the range ends before it begins; write"),
    ("pools add p --type port --agent {host} --value 1-9999", "is not a range of 1 to 1000 values; add it in parts"),
    ("pools add p --type port --agent {host} --value 10.0.0.1/33", "is not a network such as 10.0.0.0/24"),
    ("pools add p --type port --agent nosuch --value 7", "there is no agent 'nosuch'; available: "),
    ("pools remove nosuch", "there is no pool 'nosuch'"),
    ("agents change {host} --add-tag plane:gold", "tags that begin with 'plane:', such as plane:gold"),
    ("agents change nosuch --add-tag x", "there is no agent 'nosuch'; available: "),
]
OF_ADMINS = [
    (
        "order {kind} x",
        "as an admin you must name the customer: --for PARTICIPANT; `mainstay participants` lists them",
    ),
    ("order {kind} x --for {customer} --agent {off}", "agent {off} is disabled: `mainstay agents enable {off}`"),
    ("agents add x", "name the service types of the agent: --serves TYPE; `mainstay types` lists them"),
    ("agents add x --provider {customer} --serves nosuch", "there is no service type 'nosuch'; available: "),
]


def test_a_mistake_on_the_command_line_names_the_way_out(
    shell: Shell, plane: Scenario, kind: str, agent: str
) -> None:
    off = plane.new_agent()["name"]
    shell.run(plane.admin, "agents", "disable", off)
    service = plane.order(plane.service_type(None, LIFECYCLE))["name"]
    ended = plane.order(plane.service_type(None, LIFECYCLE), name=unique("ended"))
    plane.complete(ended)
    plane.do(ended, "delete", expect=200)
    plane.complete(ended)
    names = {"kind": kind, "host": agent, "off": off, "service": service, "customer": plane.consumer_id}
    wrong = []
    for caller, table in ((plane.consumer, COMMANDS), (plane.provider, OF_PROVIDERS), (plane.admin, OF_ADMINS)):
        for command, message in table:
            done = shell.run(caller, *words(command, **names), code=2)
            if message.format(**names) not in done.stderr or ended["name"] in done.stderr:
                wrong.append(f"{command}\n{done.stderr}")
    assert not wrong, "\n".join(wrong)


PLANE_FILES = [
    ("participant: {shop: {}}\n", ":1:1: there is no kind 'participant' (did you mean 'participants'?)"),
    ("participants: {shop: {nmae: x}}\n", ":1:23: participant has no 'nmae' (did you mean 'name'?)"),
    ("participants: [shop]\n", ":1:1: must be a map by participant"),
    (
        "participants: {shop: {}}\norders:\n  shop:\n    default: {web: {type: nosuch}}\n",
        ":4:21: there is no service type 'nosuch'",
    ),
]


@pytest.mark.parametrize(("text", "message"), PLANE_FILES, ids=[text for text, _ in PLANE_FILES])
def test_a_mistake_in_a_plane_file_names_the_place(
    text: str, message: str, shell: Shell, plane: Scenario, tmp_path: Path
) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text(text, encoding="utf-8")
    done = shell.run(plane.admin, "plane", "plan", str(file), code=1)
    assert f"{file}:" in done.stderr
    assert message in done.stderr


def test_a_directory_of_plane_files_is_answered_with_their_names(
    shell: Shell, plane: Scenario, tmp_path: Path
) -> None:
    done = shell.run(plane.admin, "plane", "plan", str(tmp_path), code=1)
    assert f"{tmp_path} is a directory; name its files: {tmp_path}/*.yaml" in done.stderr

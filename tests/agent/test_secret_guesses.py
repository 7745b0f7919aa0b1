"""A plan with a guess for a secret shows the same for a right and a wrong guess. Real server, real agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import GROUP, USER
from bridge import Bridge, wait_until, write_blueprint
from control_plane import Client, Reply

PIN, WRONG = "4711", ("4712", "0000", "47110")
KEY = "kept-key-value"
SECRET = {"type": "string", "secret": {"type": "persistent"}}
SCHEMA = {
    "text": {"type": "string", "default": "one"},
    "hasPin": {"type": "boolean", "default": True},
    "place": {"type": "string", "default": "moved"},
    "pin": SECRET,
    "key": SECRET,
    "users": {"type": "array", "items": {"type": "object", "properties": {"pin": SECRET}}},
    "lock": {"type": "object", "properties": {"pin": SECRET}},
}
FILES = """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/plain: {content: "{{ lookup('properties.text') }}"}
    - ROOT/kept: {content: "{{ lookup('properties.key', '') }}"}
"""
# Each part compares a secret with the host in its own way.
PARTS = {
    "content": """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/pin: {content: "{{ lookup('properties.pin', '') }}"}
    - ROOT/lines: {content: "user=app\\npin={{ lookup('properties.pin', '') }}\\nend\\n"}
    - ROOT/attribute: {content: "{{ properties.pin | upper }}", mode: "0640"}
- exec: [{"touch ROOT/restarted": {refresh_only: true, subscribe: ["file#ROOT/pin"]}}]
""",
    "data": """
- file:
    - ROOT/data: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "{{ lookup('data.line') }}"}
""",
    "copies": """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/first: {content: "{{ lookup('properties.pin', '') }}"}
    - ROOT/second: {source: ROOT/first}
    - ROOT/third: {content: "again {{ file('ROOT/first') }}"}
    - ROOT/directory: {ensure: directory, mode: "0700"}
    - ROOT/directory/pin: {source: ROOT/first}
    - ROOT/tree: {ensure: directory, recurse: true, source: ROOT/directory, mode: "0700"}
""",
    "link": """
- file:
    - ROOT/link: {ensure: link, target: "/nowhere/{{ lookup('properties.pin', '') }}"}
""",
    "mode": """
- file:
    - ROOT/mode: {ensure: present, owner: USER, group: GROUP, content: "x", mode: "{{ '0600' if lookup('properties.pin', '') == 'PIN' else '0640' }}"}
""",
    "guards": """
- file: [{ROOT/pin: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "{{ lookup('properties.pin', '') }}"}}]
- exec:
    - guard: {command: "touch ROOT/guarded", unless: "grep -qxF -e '{{ lookup('properties.pin', '') }}' ROOT/pin"}
    - variable:
        provider: shell
        command: touch ROOT/set
        environment: ["PIN={{ lookup('properties.pin', '') }}"]
        onlyif: 'test "$PIN" != "$(cat ROOT/pin)"'
    - creates: {command: "touch ROOT/made-{{ lookup('properties.pin', '') }}", creates: "ROOT/made-{{ lookup('properties.pin', '') }}"}
    - program: {command: "{{ lookup('properties.pin', '') }} x", control: {if: "false"}}
""",
    "command": """
- exec:
    - always: {command: "true {{ lookup('properties.pin', '') }}"}
    - variable: {command: "true", environment: ["PIN={{ lookup('properties.pin', '') }}"]}
""",
    "control": """
- file: [{ROOT/pin: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "{{ lookup('properties.pin', '') }}"}}]
- exec:
    - if: {command: "true", control: {if: "file('ROOT/seen') != lookup('properties.pin', '')"}}
    - unless: {command: "true", control: {unless: "file('ROOT/seen') == lookup('properties.pin', '')"}}
""",
    "health check": """
- file:
    - ROOT/checked:
        ensure: present
        owner: USER
        group: GROUP
        mode: "0600"
        content: x
        health_checks: [{command: "grep -qxF -e '{{ lookup('properties.pin', '') }}' ROOT/seen"}]
""",
}
DATA = "data: {line: \"pin: {{ lookup('properties.pin', '') }}\"}\n"


class Vault:
    """A service whose consumer guesses its PIN."""

    def __init__(self, bridge: Bridge, root: Path, parts: str, *, data: str = "", **properties: Any) -> None:
        self.bridge = bridge
        self.root = root
        kind = bridge.service_type(SCHEMA)
        folder = bridge.folder / "blueprint"
        text = f"{data}resources:\n{FILES}{parts}"
        for name, value in (("ROOT", str(root)), ("USER", USER), ("GROUP", GROUP), ("'PIN'", f"'{PIN}'")):
            text = text.replace(name, value)
        write_blueprint(
            folder, type_name=kind["name"], property_schema=SCHEMA, manifests={"create": text, "update": text}
        )
        # What a manifest reads on the host, in the control part.
        (root / "seen").write_text(PIN)
        bridge.start_agent("--blueprint", str(folder), "--root", str(root))
        self.service = bridge.scenario.order(kind, {"pin": PIN, "key": KEY, **properties})
        bridge.wait_for(self.service, "Stopped")

    def ask(self, properties: Any, client: Client | None = None, **more: Any) -> Reply:
        client = client or self.bridge.scenario.consumer
        body = {"properties": properties, **more}
        plan = "" if more else "?plan=true"
        return client.call("PATCH", f"/api/v1/services/{self.service['id']}{plan}", body)

    def plan(self, properties: Any, client: Client | None = None) -> Any:
        reply = self.ask(properties, client)
        assert reply.status == 200, reply.body
        return reply.body


def answer(plan: Any) -> str:
    """The whole answer, without the values that differ between any two plans."""
    shown = json.loads(json.dumps(plan))
    for name in ("planDigest", "expiresAt"):
        del shown[name]
    for part in (shown["host"]["summary"], *shown["host"]["events"]):
        del part["duration_seconds"]
    return json.dumps(shown, sort_keys=True)


def outcomes(plan: Any) -> dict[str, str]:
    return {Path(event["name"]).name: event["outcome"] for event in plan["host"]["events"]}


def host_digest(plan: Any) -> str:
    return str(plan["planDigest"]).rpartition(".")[2]


@pytest.mark.parametrize("part", PARTS)
def test_a_plan_shows_the_same_for_a_right_and_a_wrong_guess(bridge: Bridge, root: Path, part: str) -> None:
    vault = Vault(bridge, root, PARTS[part], data=DATA if part == "data" else "")
    scenario = bridge.scenario
    for client in (scenario.consumer, scenario.admin):
        right = answer(vault.plan({"pin": PIN}, client))
        for guess in WRONG[:2]:
            assert answer(vault.plan({"pin": guess}, client)) == right
    found = outcomes(vault.plan({"pin": PIN}))
    assert (found["plain"], found["kept"]) == ("stable", "stable")


def test_a_plan_of_an_action_shows_the_same_for_a_right_and_a_wrong_guess(bridge: Bridge, root: Path) -> None:
    vault = Vault(bridge, root, PARTS["content"])
    path = f"/api/v1/services/{vault.service['id']}/update?plan=true"
    answers = set()
    for guess in (PIN, *WRONG):
        plan = bridge.scenario.consumer.call("POST", path, {"properties": {"pin": guess}}, expect=200).body
        assert outcomes(plan)["restarted"] == "refreshed"
        answers.add(answer(plan))
    assert len(answers) == 1


def test_a_plan_shows_the_same_for_guesses_of_nested_and_listed_secrets(bridge: Bridge, root: Path) -> None:
    manifest = """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/lock: {content: "{{ properties.lock.pin }}"}
    - ROOT/users: {content: "{{ properties.users | map(attribute='pin') | join(',') }}"}
"""
    users = [{"pin": PIN}, {"pin": "0815"}]
    vault = Vault(bridge, root, manifest, lock={"pin": PIN}, users=users)
    kept = bridge.scenario.service(vault.service["id"])["properties"]["users"]
    asked: list[Callable[[str], Any]] = [
        lambda guess: {"lock": {"pin": guess}},
        lambda guess: {"users": [{"pin": guess}, kept[1]]},
        lambda guess: {"users": [kept[0], {"pin": guess}]},
    ]
    for ask in asked:
        answers = {answer(vault.plan(ask(guess))) for guess in (PIN, "0815", "0816")}
        assert len(answers) == 1


def test_secrets_that_change_places_are_not_compared(bridge: Bridge, root: Path) -> None:
    manifest = """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/first: {content: "{{ properties.users[0].pin }}"}
"""
    answers = set()
    vault = Vault(bridge, root, manifest, users=[{"pin": PIN}, {"pin": PIN}, {"pin": "0815"}])
    users = bridge.scenario.service(vault.service["id"])["properties"]["users"]
    for first in (users[1], users[2]):
        answers.add(answer(vault.plan({"users": [first, users[0]]})).replace(first["pin"], ""))
    assert len(answers) == 1


def test_the_digest_of_a_plan_does_not_confirm_a_guess(bridge: Bridge, root: Path) -> None:
    vault = Vault(bridge, root, PARTS["command"])
    assert host_digest(vault.plan({"text": "two"})) == host_digest(vault.plan({"text": "two"}))
    assert host_digest(vault.plan({"text": "two", "pin": PIN})) != host_digest(vault.plan({"text": "two"}))
    assert host_digest(vault.plan({"key": KEY, "pin": PIN})) != host_digest(vault.plan({"key": KEY}))
    assert host_digest(vault.plan({"key": KEY, "pin": PIN})) != host_digest(vault.plan({"pin": PIN}))


def test_clearing_a_secret_does_not_compare_what_replaces_it(bridge: Bridge, root: Path) -> None:
    manifest = """
- file:
    - defaults: {ensure: present, owner: USER, group: GROUP, mode: "0600"}
    - ROOT/pin: {content: "{{ lookup('properties.pin', lookup('properties.text')) }}"}
    - ROOT/lock: {content: "{{ properties.lock.pin | default(properties.text) }}"}
"""
    vault = Vault(bridge, root, manifest, lock={"pin": PIN})
    answers = set()
    for guess in (PIN, "0815"):
        plan = vault.plan({"pin": None, "lock": {"pin": None}, "text": guess})
        assert outcomes(plan)["pin"] == outcomes(plan)["lock"] == "changed"
        answers.add(answer(plan).replace(guess, "****"))
    assert len(answers) == 1


def test_plain_content_is_not_compared_with_a_file_that_holds_a_secret(bridge: Bridge, root: Path) -> None:
    content = "{{ lookup('properties.pin') if lookup('properties.hasPin') else lookup('properties.text') }}"
    manifest = f"""
- file:
    - defaults: {{ensure: present, owner: USER, group: GROUP, mode: "0600"}}
    - ROOT/pin: {{content: "{content}"}}
    - ROOT/lines: {{content: "user=app\\npin={content}\\nend\\n"}}
"""
    vault = Vault(bridge, root, manifest)
    scenario = bridge.scenario
    for client in (scenario.consumer, scenario.admin):
        answers = set()
        for guess in (PIN, "0815"):
            plan = vault.plan({"hasPin": False, "text": guess}, client)
            assert outcomes(plan)["pin"] == outcomes(plan)["lines"] == "changed"
            answers.add(answer(plan).replace(guess, "****"))
        assert len(answers) == 1


def test_plain_values_are_shown_even_if_they_contain_a_secret(bridge: Bridge, root: Path) -> None:
    """If they were redacted, a consumer could find the PIN by one plan with all PINs as plain text."""
    manifest = """
- file:
    - ROOT/upper: {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "a {{ lookup('properties.text') | upper }}"}
- exec:
    - create: {command: "true", creates: "ROOT/made-{{ lookup('properties.text') }}"}
    - missing: {command: "ROOT/{{ lookup('properties.text') }}"}
    - both: {command: "true {{ lookup('properties.pin') }}", creates: "ROOT/both-{{ lookup('properties.text') }}"}
"""
    (root / "true").symlink_to("/bin/true")
    vault = Vault(bridge, root, manifest, text="true")
    for client in (bridge.scenario.consumer, bridge.admin):
        plan = vault.plan({"text": f"4710\n{PIN}"}, client)
        found = {Path(event["name"]).name: event for event in plan["host"]["events"]}
        for name in ("plain", "upper"):
            assert f"+{PIN}" in found[name]["diff"]
        answers = {answer(vault.plan({"text": guess}, client)).replace(guess, "****") for guess in (PIN, "0815")}
        assert len(answers) == 1
        assert "made-****" in answers.pop()


def test_faults_show_plain_values_even_if_they_contain_a_secret(bridge: Bridge, root: Path) -> None:
    manifest = """
- exec: [{"true": {timeout: "{{ lookup('properties.text') }}"}}]
"""
    vault = Vault(bridge, root, manifest, text="10s")
    replies = [vault.ask({"text": f"x{guess}"}) for guess in (PIN, "0815")]
    assert [reply.status for reply in replies] == [409, 409]
    assert f"x{PIN}" in replies[0].body["error"]
    assert replies[0].body["error"].replace(PIN, "0815") == replies[1].body["error"]


def test_a_kept_secret_is_not_compared_with_a_file_that_holds_none(bridge: Bridge, root: Path) -> None:
    manifest = """
- file:
    - "ROOT/{{ lookup('properties.place') }}": {ensure: present, owner: USER, group: GROUP, mode: "0600", content: "{{ lookup('properties.pin') }}"}
"""
    vault = Vault(bridge, root, manifest)
    assert outcomes(vault.plan({"text": "two"}))["moved"] == "stable"
    answers = set()
    for guess in (PIN, "0815"):
        (root / "known").write_text(guess)
        (root / "known").chmod(0o600)
        plan = vault.plan({"place": "known"}, bridge.admin)
        for event in plan["host"]["events"]:
            event["state"].pop("mtime")
        answers.add(answer(plan))
    assert len(answers) == 1


def test_a_plan_of_a_new_service_does_not_confirm_the_secret_of_another(bridge: Bridge, root: Path) -> None:
    vault = Vault(bridge, root, PARTS["content"])
    scenario = bridge.scenario
    order = {
        "serviceTypeId": vault.service["serviceTypeId"],
        "name": "same path",
        "groupId": scenario.group_id,
        "agentId": scenario.agent_id,
    }
    answers = set()
    for guess in (PIN, "0815"):
        body = {**order, "properties": {"pin": guess, "key": KEY}}
        answers.add(answer(scenario.consumer.call("POST", "/api/v1/services?plan=true", body, expect=200).body))
    assert len(answers) == 1


@pytest.mark.parametrize("guess", [PIN, "0815"])
def test_a_planned_change_of_a_secret_is_executed_as_planned(bridge: Bridge, root: Path, guess: str) -> None:
    parts = "".join(PARTS[part] for part in ("content", "copies", "health check", "command"))
    vault = Vault(bridge, root, parts)
    # The health check passes with each PIN.
    (root / "seen").write_text(f"{PIN}\n0815\n")
    digest = vault.plan({"pin": guess})["planDigest"]
    refused = vault.ask({"pin": "other"}, planDigest=digest)
    assert (refused.status, refused.body["changed"]) == (409, "inputs")
    (root / "pin").write_text("edited")
    refused = vault.ask({"pin": guess}, planDigest=digest)
    assert (refused.status, refused.body["changed"]) == (409, "host")
    (root / "pin").write_text(PIN)
    done = vault.ask({"pin": guess}, planDigest=digest)
    assert done.status == 200, done.body

    def finished() -> bool:
        return all(each["status"] not in ("Pending", "Processing") for each in bridge.scenario.jobs(vault.service))

    wait_until(finished, "the update is finished", bridge.logs)
    job = bridge.scenario.jobs(vault.service)[-1]
    assert (job["action"], job["status"]) == ("update", "Completed"), job["errorMessage"]
    assert (root / "pin").read_text() == guess

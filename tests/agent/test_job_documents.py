"""Translation of jobs to manifest data and of reports to request bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applying import apply_text
from mainstay.agent import job_documents
from mainstay.agent.blueprint import find_secrets, schema_members
from mainstay.converge.manifest.scope import holds_secret
from mainstay.converge.report import Report
from mainstay.foundation.text import KeptSecret, Tainted

SCHEMA = {
    "plain": {"type": "string"},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "database": {"type": "object", "properties": {"pin": {"type": "integer", "secret": {"type": "ephemeral"}}}},
    "users": {
        "type": "array",
        "items": {"type": "object", "properties": {"key": {"type": "string", "secret": {"type": "persistent"}}}},
    },
}
PATHS = frozenset(find_secrets(SCHEMA))


def test_secrets_are_found_at_every_level_of_the_schema() -> None:
    assert {("password",), ("database", "pin"), ("users", "[]", "key")} == PATHS
    assert schema_members({"properties": SCHEMA, "validators": []}) == SCHEMA
    assert schema_members(SCHEMA) == SCHEMA
    # A property named `properties` does not make the root a wrapper.
    assert schema_members({"properties": {"type": "string"}}) == {"properties": {"type": "string"}}
    assert schema_members(None) == {}


def test_only_references_at_paths_of_secrets_are_replaced() -> None:
    """A consumer may write any text into a plain property, even a reference to a secret of another consumer."""
    properties = {
        "plain": "vault://others",
        "password": "vault://a",
        "database": {"pin": "vault://b"},
        "users": [{"key": "vault://c"}, {"key": "vault://d", "name": "vault://e"}],
    }
    assert sorted(reference for _, reference in job_documents.secret_references(properties, PATHS)) == [
        "vault://a",
        "vault://b",
        "vault://c",
        "vault://d",
    ]
    opened = {"vault://a": "secret", "vault://b": 1234, "vault://c": "x", "vault://d": "y", "vault://others": "no"}
    found = job_documents.insert_secrets(properties, PATHS, opened)
    assert found["plain"] == "vault://others"
    assert not holds_secret(found["plain"])
    assert found["database"]["pin"] == "1234"
    assert found["users"] == [{"key": "x"}, {"key": "y", "name": "vault://e"}]
    for secret in (found["password"], found["database"]["pin"], found["users"][0]["key"]):
        assert isinstance(secret, Tainted)


@pytest.mark.parametrize(
    ("after", "new"),
    [
        ({"password": "vault://a", "users": [{"key": "vault://b"}, {"key": "vault://c"}]}, set()),
        ({"password": "vault://x", "users": [{"key": "vault://b"}, {"key": "vault://c"}]}, {("password",)}),
        ({"users": [{"key": "vault://b"}, {"key": "vault://x"}]}, {("password",), ("users", "1", "key")}),
        (
            {"password": "vault://a", "users": [{"key": "vault://c"}, {"key": "vault://b"}]},
            {("users", "0", "key"), ("users", "1", "key")},
        ),
        ({"password": "vault://a", "plain": "vault://x"}, {("users", "0", "key"), ("users", "1", "key")}),
    ],
)
def test_given_cleared_and_moved_secrets_are_new(after: dict[str, Any], new: set[tuple[str, ...]]) -> None:
    before = {"password": "vault://a", "users": [{"key": "vault://b"}, {"key": "vault://c"}]}
    job = {"action": "update", "params": after, "service": {"properties": before}}
    assert job_documents.new_secrets(job, PATHS) == new
    opened = {f"vault://{name}": name for name in "abcx"}
    found = job_documents.insert_secrets(after, PATHS, opened, new)
    for place, reference in job_documents.secret_references(after, PATHS):
        value: Any = found
        for part in place:
            value = value[int(part) if part.isdigit() else part]
        assert isinstance(value, KeptSecret) == (place not in new), reference


def test_all_secrets_of_a_new_service_are_new_and_none_of_an_action_without_properties() -> None:
    properties = {"password": "vault://a"}
    job = {"action": "create", "params": properties, "service": {"properties": properties}}
    assert job_documents.new_secrets(job, PATHS) == {("password",)}
    assert job_documents.new_secrets({**job, "action": "start", "params": None}, PATHS) == set()


def report_with(outputs: dict[str, Any]) -> Report:
    report = Report("run", "manifest", noop=False)
    report.outputs = outputs
    return report


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ({"property": {}}, "outputs: unknown key 'property'; there are properties, instance_id, instance_data"),
        ({"properties": []}, "outputs.properties must be a map"),
        ({"properties": {"plain": Tainted("x")}}, "outputs.properties.plain carries a secret; declare that property"),
        ({"properties": {"users": [{"name": Tainted("x")}]}}, r"outputs.properties.users.\[\].name carries a secret"),
        ({"properties": {"plain": {Tainted("x"): 1}}}, "outputs.properties.plain carries a secret in a name"),
        ({"instance_data": {"a": {Tainted("x"): 1}}}, "outputs.instance_data carries a secret"),
        ({"instance_id": Tainted("x")}, "outputs.instance_id carries a secret"),
        ({"instance_data": {"a": [Tainted("x")]}}, "outputs.instance_data carries a secret"),
    ],
)
def test_invalid_outputs_are_refused_by_name(outputs: dict[str, Any], problem: str) -> None:
    with pytest.raises(job_documents.BadOutputs, match=problem):
        job_documents.completion_body(report_with(outputs), PATHS)


def test_a_secret_output_needs_a_secret_property() -> None:
    body = job_documents.completion_body(
        report_with({"properties": {"password": Tainted("x")}, "instance_id": 7}), PATHS
    )
    assert body == {"properties": {"password": "x"}, "agentInstanceId": "7", "agentInstanceData": None}
    assert holds_secret(body)


def test_a_failure_message_starts_with_a_short_stable_line(root: Path) -> None:
    manifest = """
- exec:
    - register: {command: sh -c 'echo detail $$; exit 3'}
    - after: {command: "true", require: ["exec#register"]}
"""
    first, second = (
        job_documents.failure_message(apply_text(manifest, root).report, str(root.parent)).split("\n")
        for _ in range(2)
    )
    assert first[0] == second[0] == "exec#register: exit code is 3, expected 0"
    assert any(line.startswith("  | detail") for line in first)
    assert "exec#after unmet: requires exec#register" in first
    assert first[-1] == "1 failed, 1 unmet of 2 resources"


def test_a_failure_message_keeps_its_first_line_and_its_end(root: Path) -> None:
    script = "sh -c 'for number in $(seq 1 30); do printf %0600d $number; echo; done; echo the cause; exit 3'"
    manifest = f"""
- exec:
    - first: {{command: "{script}"}}
    - second: {{command: "{script}"}}
"""
    message = job_documents.failure_message(apply_text(manifest, root).report, str(root.parent))
    lines = message.split("\n")
    assert lines[:2] == ["exec#first: exit code is 3, expected 0", "…"]
    assert lines[-2:] == ["  | the cause", "2 failed, 0 unmet of 2 resources"]
    assert len(message) <= job_documents.LONGEST_MESSAGE
    # The first line is not repeated.
    assert message.count("exec#first") == 1


def test_a_report_keeps_the_end_of_output_and_the_beginning_of_diffs() -> None:
    output, diff = "noise\n" * 9000 + "the cause", "+new\n" + "+more\n" * 9000
    event = {"outcome": "failed", "output": output, "diff": diff, "errors": [output]}
    kept = job_documents.report_document({"manifest": "", "events": [event], "outputs": None}, "/cache")["events"][0]
    assert kept["output"].endswith("\nthe cause")
    assert kept["errors"][0].endswith("\nthe cause")
    assert kept["diff"].startswith("+new\n")
    assert all(len(text) <= job_documents.LONGEST_DETAIL + 50 for text in (kept["output"], kept["diff"]))


def test_a_failure_message_has_paths_inside_the_blueprint(root: Path) -> None:
    manifest = """
- file:
    - ROOT/a: {ensure: present, content: "{{ template('files/none.j2') }}", owner: USER, group: GROUP, mode: "0600"}
"""
    message = job_documents.failure_message(apply_text(manifest, root).report, str(root.parent))
    assert str(root.parent) not in message
    assert "files/none.j2" in message.split("\n")[0]


def test_a_large_report_drops_stable_events_before_changed_ones() -> None:
    stable = {"outcome": "stable", "diff": None, "output": "x" * 15_000}
    changed = {"outcome": "changed", "diff": "y" * 100_000, "output": None}
    document = {"manifest": "/cache/manifests/a.yaml", "events": [stable] * 100 + [changed], "outputs": None}
    kept = job_documents.report_document(document, "/cache")
    assert kept["manifest"] == "manifests/a.yaml"
    assert kept["shortened"] is True
    assert [event["outcome"] for event in kept["events"]] == ["changed"]
    assert kept["events"][0]["diff"].endswith("[… 80000 more characters]")


@given(st.recursive(st.text(st.characters()) | st.floats() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_any_output_of_a_host_becomes_valid_json(value: Any) -> None:
    import json

    text = json.dumps(job_documents.json_safe(value), allow_nan=False, ensure_ascii=False)
    assert "\0" not in text
    text.encode()

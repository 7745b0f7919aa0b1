"""The reference pages: their examples behave as described, and the table lists all rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

import property_requests
from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.report import report_lifecycle
from mainstay.control.domain.lifecycle.transitions import after_failure, success_path
from mainstay.control.domain.properties.report import report_properties
from mainstay.control.rulebook import installed_rulebook, rule_descriptions

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SCHEMA_PAGE = (REFERENCE / "property-schema.md").read_text(encoding="utf-8")
LIFECYCLE_PAGE = (REFERENCE / "lifecycle.md").read_text(encoding="utf-8")


def example(page: str, kind: str, name: str) -> Any:
    (text,) = re.findall(rf"```(?:yaml|json) {kind}={name}\n(.*?)```", page, re.DOTALL)
    return yaml.safe_load(text)


def test_the_schemas_of_the_page_report_the_faults_of_the_page() -> None:
    schemas = {name: example(SCHEMA_PAGE, "type", name)["propertySchema"] for name in ("vm", "wrapped")}
    for schema in schemas.values():
        assert property_requests.schema_faults(schema) == {}
    found = property_requests.faults(schemas["vm"], example(SCHEMA_PAGE, "order", "vm"))
    assert [{"path": path, "message": message} for path, message in found.items()] == example(
        SCHEMA_PAGE, "faults", "vm"
    )


def test_the_lifecycle_of_the_page_moves_as_described() -> None:
    lifecycle = parse_lifecycle(example(LIFECYCLE_PAGE, "type", "vm")["lifecycleSchema"])
    assert success_path(lifecycle, "start", "Stopped") == ("Stopped", "Starting", "Started")
    assert after_failure(lifecycle, "start", "Starting", "quota was exceeded") == "Stopped"
    assert after_failure(lifecycle, "start", "Starting", "boom") == "Failed"
    assert {finding.code for finding in report_lifecycle(lifecycle)} == {"no-error-path"}


def test_every_code_of_a_report_is_documented() -> None:
    source = Path(__file__).parents[3] / "src" / "mainstay" / "control" / "domain"
    text = "".join((source / name).read_text() for name in ("lifecycle/report.py", "properties/report.py"))
    codes = set(re.findall(r'Finding\(\s*"([a-z-]+)"', text))
    assert codes == set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", LIFECYCLE_PAGE.partition("## Warnings")[2]))


def test_the_table_lists_all_rules() -> None:
    written = SCHEMA_PAGE.partition("<!-- rules:begin -->\n")[2].partition("<!-- rules:end -->")[0]
    rows = [f"| {kind} | `{name}` | {text} |" for kind, name, text in rule_descriptions(installed_rulebook())]
    assert written.splitlines() == ["| kind | name | what it asks |", "| --- | --- | --- |", *rows]


def test_the_report_finds_unsettable_properties_unreachable_states_and_open_secrets() -> None:
    def actors(*names: str) -> dict[str, Any]:
        return {"authorizers": [{"type": "actor", "config": {"actors": list(names)}}]}

    document = {
        "never": {"type": "string", **actors("system")},
        "made": {"type": "string", **actors("system"), "generator": {"type": "uuid"}},
        "fixed": {"type": "string", **actors("system"), "default": "x"},
        "o": {"type": "object", **actors("agent"), "properties": {"u": {"type": "string", **actors("user")}}},
        "s": {"type": "string", "updatable": "statuses", "updatableIn": ["Stopped", "Lost"]},
        "k": {"type": "string", "secret": {"type": "persistent"}, "default": "changeme"},
    }
    found = report_properties(property_requests.schema_of(document), frozenset({"New", "Stopped"}))
    assert [(finding.code, finding.subject) for finding in found] == [
        ("unsettable-property", "property never"),
        ("unsettable-property", "property o.u"),
        ("unreachable-allowed-state", "property s"),
        ("open-secret", "property k"),
    ]

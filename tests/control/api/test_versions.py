"""Versions: a change or an action brings a service to a version of its blueprint; alone, that is a change."""

from __future__ import annotations

from typing import Any

import pytest

from blueprint_samples import LIFECYCLE, blueprint, push, serve_type
from scenario import Scenario, unique


@pytest.fixture
def versions(scenario: Scenario) -> list[Any]:
    """Three versions of one blueprint, oldest first."""
    name = unique("web")
    pushed = [push(scenario.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0", "2.0.0")]
    serve_type(scenario, pushed[-1])
    return pushed


@pytest.fixture
def service(scenario: Scenario, versions: list[Any]) -> Any:
    """On the latest version."""
    return scenario.complete(scenario.order(versions[-1]["serviceType"], {"size": 1}))


def change(scenario: Scenario, service: Any, version: str, **more: Any) -> Any:
    return scenario.consumer.patch(f"/services/{service['id']}", {"blueprintVersion": version}, **more)


def test_a_version_alone_is_an_update(scenario: Scenario, versions: list[Any], service: Any) -> None:
    waiting = change(scenario, service, "1.1.0")
    assert waiting["activeJob"]["action"] == "update"
    assert waiting["blueprintDigest"] == versions[2]["digest"]
    job = scenario.next_job_seen(service)
    assert (job["blueprintDigest"], job["params"]) == (versions[1]["digest"], {"size": 1})
    assert scenario.complete(service)["blueprintDigest"] == versions[1]["digest"]


def test_latest_is_the_current_version(scenario: Scenario, versions: list[Any], service: Any) -> None:
    change(scenario, service, "1.0.0")
    assert scenario.complete(service)["blueprintDigest"] == versions[0]["digest"]
    change(scenario, service, "latest")
    assert scenario.complete(service)["blueprintDigest"] == versions[2]["digest"]


def test_the_version_that_a_service_has_is_no_change(scenario: Scenario, service: Any) -> None:
    for version in ("latest", "2.0.0"):
        assert change(scenario, service, version).get("activeJob") is None


def test_a_failed_update_keeps_the_version(scenario: Scenario, versions: list[Any], service: Any) -> None:
    change(scenario, service, "1.0.0")
    assert scenario.fail(service, "no")["blueprintDigest"] == versions[2]["digest"]


def test_an_action_brings_a_service_to_a_version(scenario: Scenario, versions: list[Any], service: Any) -> None:
    scenario.do(service, "start", {"blueprintVersion": "1.1.0"})
    after = scenario.complete(service)
    assert (after["status"], after["blueprintDigest"]) == ("Started", versions[1]["digest"])


def test_an_action_repeated_with_a_version_is_another_request(scenario: Scenario, service: Any) -> None:
    scenario.do(service, "start")
    scenario.do(service, "start")
    refused = scenario.do(service, "start", {"blueprintVersion": "1.0.0"}, expect=409)
    assert refused["code"] == "active_job"


def test_an_unknown_version_is_refused_with_the_known_ones(scenario: Scenario, service: Any) -> None:
    refused = change(scenario, service, "3.0.0", expect=400)
    assert refused["code"] == "unknown_version"
    assert "no blueprint version 3.0.0; it has: 2.0.0, 1.1.0, 1.0.0" in refused["error"]


def test_a_version_of_another_type_is_unknown(scenario: Scenario, service: Any) -> None:
    push(scenario.admin, blueprint(unique("other"), "9.0.0"))
    assert change(scenario, service, "9.0.0", expect=400)["code"] == "unknown_version"


def test_a_type_without_a_blueprint_has_no_versions(scenario: Scenario) -> None:
    plain = scenario.complete(scenario.order(scenario.service_type(lifecycle_schema=LIFECYCLE)))
    assert change(scenario, plain, "latest", expect=400)["code"] == "no_blueprint"


def test_a_dry_run_shows_the_new_version_and_changes_nothing(scenario: Scenario, service: Any) -> None:
    forecast = change(scenario, service, "1.1.0", query={"dryRun": "true"})
    assert forecast["blueprintVersion"] == "1.1.0"
    assert scenario.service(service["id"])["version"] == service["version"]
    assert "blueprintVersion" not in change(scenario, service, "2.0.0", query={"dryRun": "true"})

"""Units on a real systemd: the actual state, the calls of systemctl, and the resulting state."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from system.conftest import Done, ManagedHost

FOLDER = Path(__file__).parents[1] / "cases" / "service"
UNITS: dict[str, str] = yaml.safe_load((FOLDER / "units.yaml").read_text())
CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{file}{number}", case)
    for file in ("idempotency", "subscribe", "states", "kinds", "independent", "mask")
    for number, case in enumerate(yaml.safe_load((FOLDER / f"{file}.yaml").read_text()))
]


def manifest_of(name: str, case: dict[str, Any]) -> str:
    properties = dict(case["wanted"])
    resources: list[dict[str, Any]] = []
    if case.get("triggered"):
        trigger = f"/etc/{name}.conf"
        file = {"ensure": "present", "content": "new", "owner": "root", "group": "root", "mode": "0644"}
        resources.append({"file": [{trigger: file}]})
        properties["subscribe"] = [f"file#{trigger}"]
    resources.append({"service": [{name: properties}]})
    return yaml.safe_dump(resources, sort_keys=False)


def fill_in(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [fill_in(item, name) for item in value]
    return value.replace("NAME", name) if isinstance(value, str) else value


def collapse(commands: list[str]) -> list[str]:
    """The number of queries until a unit has settled varies."""
    return [command for command, _ in groupby(commands)]


class CaseRun:
    """The runs of one case: a dry run, a real run, and a second run if the first changed something."""

    def __init__(self, host: ManagedHost, name: str, case: dict[str, Any]) -> None:
        path = f"/home/{name}.yaml"
        manifest = manifest_of(name, case)
        given = fill_in(case.get("given", ":"), name)
        if "unit" in case:
            host.unit(name, UNITS[case["unit"]])
            given = f"systemctl daemon-reload; {given}"
        host.shell(given)
        self.forecast = host.apply(manifest, "--noop", path=path)
        if "--no-block" in given:
            # The pending start may have finished meanwhile.
            host.shell(f"systemctl stop {name} || true; {given}")
        self.done = host.apply(manifest, path=path)
        self.second = None if case["outcome"] in ("failed", "stable") else host.apply(manifest, path=path)


@pytest.fixture(scope="module")
def case_runs(shared_host: ManagedHost) -> Iterator[dict[str, Future[CaseRun]]]:
    """All cases, several in parallel on one host: most of the time they wait for a unit to settle."""
    with ThreadPoolExecutor(max_workers=6) as pool:
        yield {name: pool.submit(CaseRun, shared_host, name, case) for name, case in CASES}
        pool.shutdown(cancel_futures=True)


def check_errors(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    for error, beginning in zip(found, expected, strict=True):
        assert error.startswith(beginning)


def check_forecast(forecast: Done, name: str, case: dict[str, Any]) -> None:
    """A dry run forecasts outcome, errors and whether something changes, unless only a run can know."""
    event = forecast.events[f"service#{name}"]
    assert event["noop_message"] == case.get("noop_message"), event
    assert event["outcome"] == case.get("forecast", case["outcome"]), event
    assert event["changed"] == ("noop_message" in case), event
    assert forecast.changing == []
    if event["outcome"] == "failed" == case["outcome"]:
        check_errors(event["errors"], fill_in(case.get("forecast_errors", case["errors"]), name))
        assert event["error_kind"] == case.get("kind", event["error_kind"])


@pytest.mark.parametrize(("name", "case"), [pytest.param(*pair, id=pair[1]["case"]) for pair in CASES])
def test_a_unit_reaches_its_state_with_exactly_these_commands(
    case_runs: dict[str, Future[CaseRun]], shared_host: ManagedHost, name: str, case: dict[str, Any]
) -> None:
    case_run = case_runs[name].result()
    identity = f"service#{name}"
    check_forecast(case_run.forecast, name, case)

    event = case_run.done.events[identity]
    assert event["outcome"] == case["outcome"], event
    assert collapse(case_run.done.commands) == fill_in(case["commands"], name)
    changed = case.get("changed", case["outcome"] in ("changed", "refreshed"))
    assert changed in (event["changed"], "either"), event
    check_errors(event["errors"], fill_in(case.get("errors", []), name))
    assert event["error_kind"] == case.get("kind", event["error_kind"])
    assert (event["error_kind"] is None) == (event["outcome"] != "failed")
    assert event["warnings"] == fill_in(case.get("warnings", []), name)
    assert case.get("output", "") in (event["output"] or "")
    for key, value in case.get("state", {}).items():
        assert event["state"][key] == value, (key, event["state"])
    assert event["duration_seconds"] < case.get("within_seconds", 90)
    shared_host.shell(fill_in(case.get("holds", ":"), name))
    if case_run.second is not None:
        assert case_run.second.outcomes[identity] == "stable"
        assert case_run.second.changing == []

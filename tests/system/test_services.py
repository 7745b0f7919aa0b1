"""Units on a real systemd: what is found, what is asked of systemctl, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from system.conftest import ManagedHost

FOLDER = Path(__file__).parents[1] / "cases" / "service"
UNITS: dict[str, str] = yaml.safe_load((FOLDER / "units.yaml").read_text())
CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{file}{number}", case)
    for file in ("idempotency", "subscribe", "states", "kinds")
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
    """How often one has to look until a unit has settled is not fixed."""
    return [command for command, _ in groupby(commands)]


class Played:
    """A case that was played through: foreseen, done, and where that changed something done again."""

    def __init__(self, host: ManagedHost, name: str, case: dict[str, Any]) -> None:
        path = f"/home/{name}.yaml"
        manifest = manifest_of(name, case)
        given = fill_in(case.get("given", ":"), name)
        if "unit" in case:
            host.unit(name, UNITS[case["unit"]])
            given = f"systemctl daemon-reload; {given}"
        host.shell(given)
        self.foreseen = host.apply(manifest, "--noop", path=path)
        if "--no-block" in given:
            # What was under way may have arrived meanwhile.
            host.shell(f"systemctl stop {name} || true; {given}")
        self.done = host.apply(manifest, path=path)
        self.again = None if case["outcome"] in ("failed", "stable") else host.apply(manifest, path=path)


@pytest.fixture(scope="module")
def played(shared_host: ManagedHost) -> Iterator[dict[str, Future[Played]]]:
    """All cases, several at a time on one host: most of their time is waiting whether a unit lasts."""
    with ThreadPoolExecutor(max_workers=6) as pool:
        yield {name: pool.submit(Played, shared_host, name, case) for name, case in CASES}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("name", "case"), [pytest.param(*pair, id=pair[1]["case"]) for pair in CASES])
def test_a_unit_is_brought_to_its_state_by_exactly_these_commands(
    played: dict[str, Future[Played]], shared_host: ManagedHost, name: str, case: dict[str, Any]
) -> None:
    play = played[name].result()
    identity = f"service#{name}"
    assert play.foreseen.events[identity]["noop_message"] == case.get("noop_message")
    assert play.foreseen.changing == []

    event = play.done.events[identity]
    assert event["outcome"] == case["outcome"], event
    assert collapse(play.done.commands) == fill_in(case["commands"], name)
    changed = case.get("changed", case["outcome"] in ("changed", "refreshed"))
    assert changed in (event["changed"], "either"), event
    expected_errors = fill_in(case.get("errors", []), name)
    assert len(event["errors"]) == len(expected_errors), event["errors"]
    for found, expected in zip(event["errors"], expected_errors, strict=True):
        assert found.startswith(expected)
    assert event["warnings"] == fill_in(case.get("warnings", []), name)
    assert case.get("output", "") in (event["output"] or "")
    for key, value in case.get("state", {}).items():
        assert event["state"][key] == value, (key, event["state"])
    assert event["duration_seconds"] < case.get("within_seconds", 90)
    shared_host.shell(fill_in(case.get("holds", ":"), name))
    if play.again is not None:
        assert play.again.outcomes[identity] == "stable"
        assert play.again.changing == []

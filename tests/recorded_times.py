"""Where the time of the tests goes: a pytest plugin that records it, and the table of docs/reference/test-times.md.

With TEST_TIMES=<directory>, `scripts/test` and `scripts/test-all` write their times there; `scripts/test-times` does it
all. Seconds are those of a worker; the tests run in two of them."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fork_server

HOSTS = {"shared_host", "new_host", "new_hosts", "fleet"}
SHARED_SERVERS = {"server", "embedded", "bridge", "lab"}
SLOWEST = 25


class TestTime(NamedTuple):
    name: str
    cause: str
    seconds: float


_recorded: dict[str, TestTime] = {}


_started_before: dict[str, int] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        started = {name: count - _started_before.get(name, 0) for name, count in fork_server.started.items()}
        _started_before.update(fork_server.started)
        report.user_properties.append(("cause", _cause_of(item, started)))
    return report


def _cause_of(item: pytest.Item, started: dict[str, int]) -> str:
    fixtures = set(getattr(item, "fixturenames", ()))
    folder = item.nodeid.split("/")[1]
    if "browser" in fixtures:
        return "a browser"
    if fixtures & HOSTS or folder in ("system", "packaging"):
        return "hosts with systemd, packages"
    if started.get("server") or started.get("agent"):
        return "servers or agents of its own"
    if fixtures & SHARED_SERVERS:
        return "a shared server"
    return "commands" if any(started.values()) else "in process"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = _recorded.get(report.nodeid)
    seconds = report.duration + (before.seconds if before else 0)
    cause = dict(report.user_properties).get("cause", before.cause if before else "in process")
    _recorded[report.nodeid] = TestTime(report.nodeid, str(cause), round(seconds, 3))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        tier = "test-all" if session.config.option.markexpr == "test_all" else "test"
        (Path(os.environ["TEST_TIMES"]) / f"{tier}.json").write_text(json.dumps(list(_recorded.values())))


def describe(tiers: dict[str, list[TestTime]]) -> str:
    lines = [
        "# Times of the tests",
        "",
        "`scripts/test-times` writes this page. Seconds are those of two workers on two cores, alone on the machine;",
        "collecting the tests and installing their parts are not in them.",
        "",
        *_table("Tier", tiers),
    ]
    everything = [(tier, test) for tier, tests in tiers.items() for test in tests]
    for title, key in (("Cause", lambda test: test.cause), ("Folder", _folder_of)):
        for tier in tiers:
            lines += [f"## `{tier}` by {title.lower()}", "", *_table(title, _grouped(tiers[tier], key))]
    lines += [f"## The {SLOWEST} slowest tests", "", "| seconds | tier | test |", "|---:|---|---|"]
    slowest = sorted(everything, key=lambda each: -each[1].seconds)[:SLOWEST]
    lines += [f"| {test.seconds:.1f} | `{tier}` | `{test.name}` |" for tier, test in slowest]
    return "\n".join(lines) + "\n"


def _folder_of(test: TestTime) -> str:
    parts = test.name.partition("::")[0].split("/")
    return "/".join(parts[: min(3, len(parts) - 1)])


def _grouped(tests: Iterable[TestTime], key: Callable[[TestTime], str]) -> dict[str, list[TestTime]]:
    found: dict[str, list[TestTime]] = defaultdict(list)
    for test in tests:
        found[key(test)].append(test)
    return dict(sorted(found.items(), key=lambda each: -sum(test.seconds for test in each[1])))


def _table(title: str, groups: dict[str, list[TestTime]]) -> list[str]:
    rows = [
        f"| `{name}` | {len(tests):,} | {sum(test.seconds for test in tests):,.0f} |"
        for name, tests in groups.items()
    ]
    return [f"| {title.lower()} | tests | seconds |", "|---|---:|---:|", *rows, ""]


def _read(path: Path) -> list[TestTime]:
    rows: list[Any] = json.loads(path.read_text())
    return [TestTime(*row) for row in rows]


if __name__ == "__main__":
    page = Path(__file__).parent.parent / "docs" / "reference" / "test-times.md"
    page.write_text(
        describe({f"make {tier}": _read(Path(sys.argv[1], f"{tier}.json")) for tier in ("test", "test-all")})
    )

"""What every test may use: a scratch root with its own state directory, and two ways to apply a manifest in it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from applying import Applied, apply_text
from fork_server import run_program

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")

# A suite that is started in the background has it ignored, and so would have every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# With this set, a missing flush would go unnoticed.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of failing")
    parser.addoption("--update-screenshots", action="store_true", help="write the pictures of pages in docs/pictures")


def pytest_configure(config: pytest.Config) -> None:
    if "TEST_TIMES" in os.environ:
        import recorded_times

        config.pluginmanager.register(recorded_times)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import a file of another tier."""
    if config.option.markexpr != "not test_all" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.test_all" in collection_path.read_text() or None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One table of what was skipped and why, instead of a line per test."""
    reasons = Counter(
        str(each.longrepr[2]).removeprefix("Skipped: ") for each in terminalreporter.getreports("skipped")
    )
    if not reasons:
        return
    terminalreporter.section("not run here")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:>6}  {reason}")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees or leaves anything in the directories of the user who runs it."""
    monkeypatch.setenv("MAINSTAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MAINSTAY_CONFIG_DIR", str(tmp_path / "configuration"))
    monkeypatch.setenv("NO_COLOR", "1")
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a test's manifests do their work."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def apply(root: Path) -> Callable[..., Applied]:
    """Applies a manifest text in this process; `ROOT`, `USER` and `GROUP` in it are filled in."""

    def apply_here(text: str, **options: Any) -> Applied:
        return apply_text(text, root, **options)

    return apply_here


@pytest.fixture
def mainstay(root: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the program as a user would, in a process of its own."""

    def run(
        *arguments: str | Path, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_program(arguments, stdin=stdin, environment=env, directory=cwd or root)

    return run

"""`mainstay ensure`: one resource from options, with references to earlier calls, conditions, checks and secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from own_accounts import entry, own_accounts

Run = Callable[..., subprocess.CompletedProcess[str]]
HASH = "$6$salt$" + "x" * 86


@pytest.fixture
def ensure(mainstay: Run) -> Callable[..., dict[str, Any]]:
    """Returns the event of one call."""

    def run(*words: str | Path, **options: Any) -> dict[str, Any]:
        done = mainstay("ensure", *words, "--json", **options)
        document = json.loads(done.stdout)
        assert "events" in document, document
        event: dict[str, Any] = document["events"][0]
        return event

    return run


def write(path: Path, content: str) -> tuple[str, ...]:
    user, group = str(os.getuid()), str(os.getgid())
    given = ("--ensure", "present", "--content", content, "--owner", user, "--group", group, "--mode", "0600")
    return ("file", str(path), *given)


Ensure = Callable[..., dict[str, Any]]


# ---- references ----
def test_a_subscriber_is_refreshed_once_after_each_change_of_an_earlier_call(ensure: Ensure, root: Path) -> None:
    command = ("exec", f"sh -c 'echo x >> {root}/ran'", "--refresh-only", "--subscribe", f"file#{root}/x")
    assert ensure(*write(root / "x", "1"))["outcome"] == "changed"
    assert [ensure(*command)["outcome"] for _ in range(2)] == ["refreshed", "stable"]
    assert ensure(*write(root / "x", "1"))["outcome"] == "stable"
    assert ensure(*command)["outcome"] == "stable"
    for content in "23":
        ensure(*write(root / "x", content))
    assert ensure(*command, "--noop")["outcome"] == "refreshed"
    assert [ensure(*command)["outcome"] for _ in range(2)] == ["refreshed", "stable"]
    assert (root / "ran").read_text() == "x\nx\n"


def test_each_subscriber_has_its_own_refresh(ensure: Ensure, root: Path) -> None:
    ensure(*write(root / "x", "1"))
    for name in ("a", "b"):
        words = ("exec", f"touch {root}/{name}", "--refresh-only", "--subscribe", f"file#{root}/x")
        assert ensure(*words)["outcome"] == "refreshed"


def test_a_failed_refresh_is_owed_until_it_succeeds(ensure: Ensure, root: Path) -> None:
    words = ("exec", f"test -e {root}/ready", "--refresh-only", "--subscribe", f"file#{root}/x")
    ensure(*write(root / "x", "1"))
    assert ensure(*words)["outcome"] == "failed"
    (root / "ready").touch()
    assert [ensure(*words)["outcome"] for _ in range(2)] == ["refreshed", "stable"]


KILLED = """
import os, signal
rename = os.rename
def killed(old, new, **options):
    rename(old, new, **options)
    if options:
        os.kill(os.getpid(), signal.SIGKILL)
os.rename = killed
from mainstay.cli.main import program
program()
"""


def test_a_refresh_survives_a_kill_after_the_change(ensure: Ensure, root: Path) -> None:
    words = ("exec", f"touch {root}/ran", "--refresh-only", "--subscribe", f"file#{root}/x")
    ensure(*write(root / "x", "1"))
    ensure(*words)
    done = subprocess.run([sys.executable, "-c", KILLED, "ensure", *write(root / "x", "2")], capture_output=True)
    assert (done.returncode, (root / "x").read_text()) == (-signal.SIGKILL, "2")
    assert ensure(*write(root / "x", "2"))["outcome"] == "stable"
    assert [ensure(*words)["outcome"] for _ in range(2)] == ["refreshed", "stable"]


def test_a_change_that_was_not_made_refreshes_nothing(ensure: Ensure, root: Path) -> None:
    words = ("exec", f"touch {root}/ran", "--refresh-only", "--subscribe", f"file#{root}/x")
    ensure(*write(root / "x", "1"))
    ensure(*words)
    assert ensure(*write(root / "x", "2"), "--validate", "false")["outcome"] == "failed"
    assert ensure(*words)["outcome"] == "stable"


def test_a_dry_run_is_no_earlier_call(mainstay: Run, ensure: Ensure, root: Path) -> None:
    ensure(*write(root / "x", "1"), "--noop")
    done = mainstay("ensure", "exec", "true", "--require", f"file#{root}/x")
    assert done.returncode == 2
    assert "exec#true: require: `mainstay ensure file /" in done.stderr
    assert "` has not run on this host; run it before" in done.stderr


def test_a_required_resource_must_not_have_failed(ensure: Ensure, root: Path) -> None:
    words = ("exec", "true", "--require", f"file#{root}/none/x")
    assert ensure(*write(root / "none" / "x", "1"))["outcome"] == "failed"
    assert (ensure(*words)["outcome"], ensure(*words)["unmet"]) == ("unmet", [f"file#{root}/none/x"])
    (root / "none").mkdir()
    assert ensure(*write(root / "none" / "x", "1"))["outcome"] == "changed"
    assert ensure(*words)["outcome"] == "changed"


# ---- conditions and checks ----
def test_conditions_decide_whether_the_resource_is_applied(ensure: Ensure, root: Path) -> None:
    assert ensure(*write(root / "x", "1"), "--if", "1 > 2")["reason"] == "control.if is false"
    assert ensure(*write(root / "x", "1"), "--unless", "1 < 2")["reason"] == "control.unless is true"
    assert ensure(*write(root / "x", "1"), "--if", "1 < 2", "--unless", "1 > 2")["outcome"] == "changed"


def test_the_guard_of_an_exec_is_no_condition(ensure: Ensure) -> None:
    assert ensure("exec", "true", "--unless", "false")["outcome"] == "changed"
    assert ensure("exec", "true", "--control-unless", "1 < 2")["outcome"] == "skipped"


def test_health_checks_must_succeed(ensure: Ensure, root: Path) -> None:
    checks = ("--health-check", f"test -e {root}/x", "--health-check", f"test -e {root}/y")
    event = ensure(*write(root / "x", "1"), *checks)
    assert event["outcome"] == "failed"
    assert f"test -e {root}/y" in event["errors"][0]


# ---- secrets ----
@pytest.fixture
def _accounts() -> Iterator[None]:
    with own_accounts():
        yield


@pytest.mark.usefixtures("_accounts")
def test_a_secret_comes_from_a_file_or_from_standard_input(ensure: Ensure, root: Path) -> None:
    (root / "hash").write_text(f"{HASH}\n")
    assert ensure("user", "app", "--password-hash-file", root / "hash")["outcome"] == "changed"
    assert f":{HASH}:" in (entry("shadow", "app") or "")
    assert ensure("user", "app", "--password-hash-file", "-", stdin=f"{HASH}\n")["outcome"] == "stable"


@pytest.mark.parametrize("form", [["--password-hash", HASH], [f"--password-hash={HASH}"], ["--password-hash"]])
def test_a_secret_in_an_argument_is_refused_with_the_way_out(form: list[str], mainstay: Run) -> None:
    done = mainstay("ensure", "user", "app", *form)
    assert done.returncode == 2
    assert "use --password-hash-file FILE, or --password-hash-file - for standard input" in done.stderr
    assert HASH not in done.stdout + done.stderr


def test_a_secret_file_that_cannot_be_read_is_named(mainstay: Run, root: Path) -> None:
    done = mainstay("ensure", "user", "app", "--password-hash-file", root / "none")
    assert (done.returncode, done.stderr) == (
        2,
        f"mainstay: --password-hash-file {root}/none: No such file or directory\n",
    )


def test_the_text_of_a_secret_is_no_template(mainstay: Run) -> None:
    done = mainstay("ensure", "user", "app", "--noop", "--password-hash-file", "-", stdin="$6${{ 1 + 1 }}")
    assert "password_hash: expected a crypt(3) hash" in done.stderr


def test_help_offers_the_file_and_hides_the_argument(mainstay: Run) -> None:
    shown = mainstay("ensure", "user", "--help").stdout
    assert "--password-hash-file FILE" in shown
    assert "--password-hash " not in shown

"""The group type on real account databases, with the real tools, in a mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from applying import Applied, apply_text
from isolation import as_plain_user, open_folder
from mainstay.converge.host import account_tools
from own_accounts import databases, entry, own_accounts, userdb_group

Apply = Callable[..., Applied]
# Holds the lock of lckpwdf(3) for some seconds.
HOLD_LOCK = """
import fcntl, sys, time
file = open("/etc/.pwd.lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def _accounts() -> Iterator[None]:
    with own_accounts():
        yield


def group(name: str, **properties: object) -> str:
    given = ", ".join(f"{key}: {value}" for key, value in properties.items())
    return f"- group:\n    - {name}: {{{given}}}\n"


def test_a_group_is_created_changed_and_removed(apply: Apply) -> None:
    assert apply(group("app")).outcomes == ["changed"]
    assert entry("group", "app") == "app:x:51000:"
    assert entry("gshadow", "app") == "app:!::"
    assert apply(group("app")).outcomes == ["stable"]
    done = apply(group("app", gid=1500))
    assert done.outcomes == ["changed"]
    assert done.report.events[0].reason == "gid is 51000, expected 1500"
    assert "`find / -xdev -gid 51000`" in done.report.events[0].warnings[0]
    assert entry("group", "app") == "app:x:1500:"
    assert apply(group("app", ensure="absent")).outcomes == ["changed"]
    assert entry("group", "app") is None
    assert apply(group("app", ensure="absent")).outcomes == ["stable"]


def test_a_dry_run_changes_nothing_and_is_exact(apply: Apply) -> None:
    text = group("app") + group("late", system="true") + group("sudo", gid=1700) + group("users", ensure="absent")
    before = databases()
    forecast = apply(text, noop=True)
    assert databases() == before
    assert forecast.messages == [
        "Would have created the group",
        "Would have created the group",
        "Would have changed the gid to 1700",
        "Would have removed the group",
    ]
    done = apply(text)
    for expected, found in zip(forecast.report.events, done.report.events, strict=True):
        for key in ("outcome", "reason", "errors", "warnings"):
            assert getattr(expected, key) == getattr(found, key)
    assert entry("group", "late") == "late:x:489:"
    assert set(apply(text).outcomes) == {"stable"}


# ---- later resources of a dry run ----
def file(path: Path, **properties: object) -> str:
    given = ", ".join(f"{key}: {value}" for key, value in properties.items())
    return f"- file:\n    - {path}: {{ensure: present, owner: root, mode: '0640', {given}}}\n"


def test_a_dry_run_carries_groups_forward(apply: Apply, root: Path) -> None:
    (root / "kept").write_text("")
    (root / "kept").chmod(0o640)
    os.chown(root / "kept", 0, 51000)
    text = group("app") + file(root / "new", group="app") + file(root / "kept", group="app")
    text += group("sudo", ensure="absent") + file(root / "late", group="sudo")
    forecast, done = apply(text, noop=True), apply(text)
    assert forecast.outcomes == done.outcomes == ["changed", "changed", "stable", "changed", "failed"]
    assert forecast.errors == done.errors == ["group 'sudo' does not exist"]
    assert (root / "new").stat().st_gid == 51000


def test_a_dry_run_knows_freed_and_taken_numbers(apply: Apply) -> None:
    text = group("sudo", gid=500) + group("next", gid=27) + group("again", gid=500) + group("users", ensure="absent")
    text += group("other", gid=100)
    forecast, done = apply(text, noop=True), apply(text)
    assert forecast.outcomes == done.outcomes == ["changed", "changed", "failed", "changed", "changed"]
    assert forecast.errors == done.errors == ["gid 500 belongs to group sudo; choose another number"]


def test_a_changed_group_is_a_trigger(apply: Apply, root: Path) -> None:
    text = group("app") + "- exec:\n    - touch ROOT/x: {refresh_only: true, subscribe: ['group#app']}\n"
    assert apply(text, noop=True).outcomes == ["changed", "refreshed"]
    assert apply(text).outcomes == ["changed", "refreshed"]
    assert apply(text).outcomes == ["stable", "stable"]


# ---- refusals ----
def test_a_primary_group_is_not_removed(apply: Apply) -> None:
    done = apply(group("daemon", ensure="absent"))
    assert done.errors == [
        "group daemon is the primary group of daemon; remove these users before, or give them another `group`"
    ]
    assert entry("group", "daemon") is not None


def test_a_group_of_another_source_is_not_local(apply: Apply) -> None:
    userdb_group("remote", 4711)
    for ensure in ("present", "absent"):
        done = apply(group("remote", ensure=ensure))
        assert done.errors == ["group remote is not local (systemd); manage it there"]
    done = apply(group("app", gid=4711))
    assert done.errors == ["gid 4711 belongs to group remote; choose another number"]


def test_a_plain_user_changes_nothing(apply: Apply) -> None:
    with open_folder() as folder:
        environ = {"MAINSTAY_STATE_DIR": str(folder / "state")}

        def act() -> list[list[str]]:
            return [
                apply_text(group("app"), folder / "root", noop=noop, environ=environ).errors for noop in (True, False)
            ]

        assert as_plain_user(act) == [["only root changes users and groups; run as root"]] * 2


# ---- locks ----
def test_a_lock_of_a_killed_tool_is_replaced(apply: Apply) -> None:
    Path("/etc/group.lock").write_text("4194304")
    assert apply(group("app")).outcomes == ["changed"]


def test_the_run_waits_for_another_tool(apply: Apply) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, "1"], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert apply(group("app")).outcomes == ["changed"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("junk", "the lock /etc/gshadow.lock names no process; if no tool such as vipw is running, remove it"),
        ("PID", "the lock /etc/gshadow.lock belongs to process PID"),
    ],
)
def test_a_lock_that_stays_is_named(
    apply: Apply, monkeypatch: pytest.MonkeyPatch, content: str, problem: str
) -> None:
    monkeypatch.setattr(account_tools, "LOCK_WAIT_SECONDS", 0.5)
    own = str(os.getpid())
    Path("/etc/gshadow.lock").write_text(content.replace("PID", own))
    done = apply(group("app"))
    (error,) = done.errors
    assert problem.replace("PID", own) in error
    assert done.as_json()["events"][0]["error_kind"] == "Timeout"
    assert entry("group", "app") is None


def test_the_holder_of_the_kernel_lock_is_named(apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_tools, "LOCK_WAIT_SECONDS", 0.5)
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, "600"], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (error,) = apply(group("app")).errors
        holder.kill()
    assert f"/etc/.pwd.lock is locked by process {holder.pid} (python" in error

"""No refresh is ever lost: it is owed from before the trigger changes until the subscriber has refreshed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied, fill_in
from fork_server import PROGRAM
from isolation import in_own_mounts
from mainstay.converge.history import Ledger
from mainstay.converge.host.state import StateDirectory

Apply = Callable[..., Applied]
TRIGGER = '- file:\n    - ROOT/x: {ensure: present, content: "CONTENT", owner: USER, group: GROUP, mode: "0644"}\n'
SUBSCRIBER = "- exec:\n    - subscriber: {PROPERTIES refresh_only: true, subscribe: [file#ROOT/x]}\n"
FAILING = SUBSCRIBER.replace("PROPERTIES", "command: 'false',")
WORKING = SUBSCRIBER.replace("PROPERTIES", "command: sh -c 'echo refreshed >> ROOT/refreshed',")


def owed() -> list[object]:
    """The owed refreshes in the state directory."""
    found = []
    for path in Path(os.environ["MAINSTAY_STATE_DIR"]).glob("manifests/*/owed"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def refresh_count(root: Path) -> int:
    return len((root / "refreshed").read_text().split()) if (root / "refreshed").exists() else 0


def test_a_failed_subscriber_stays_owed_until_it_works(apply: Apply, root: Path) -> None:
    assert apply(TRIGGER + FAILING).outcomes == ["changed", "failed"]
    assert owed() == [["owe", f"file#{root}/x", ["exec#subscriber"]]]
    assert apply(TRIGGER + FAILING).outcomes == ["stable", "failed"]
    assert apply(TRIGGER + WORKING).outcomes == ["stable", "refreshed"]
    assert refresh_count(root) == 1
    assert owed() == []
    assert apply(TRIGGER + WORKING).outcomes == ["stable", "stable"]


def test_a_dry_run_reports_an_owed_refresh_and_keeps_it_owed(apply: Apply, root: Path) -> None:
    apply(TRIGGER + FAILING)
    before = owed()
    forecast = apply(TRIGGER + WORKING, noop=True)
    assert forecast.outcomes == ["stable", "refreshed"]
    assert forecast.messages == [None, "Would have executed via subscribe"]
    assert owed() == before
    assert apply(TRIGGER + WORKING).outcomes == ["stable", "refreshed"]


def test_several_triggers_are_one_refresh(apply: Apply, root: Path) -> None:
    text = (
        "- file:\n    - defaults: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
        "    - ROOT/a: {}\n    - ROOT/b: {}\n    - ROOT/c: {}\n"
        "- exec:\n    - subscriber:\n        command: sh -c 'echo refreshed >> ROOT/refreshed'\n"
        "        subscribe: [file#ROOT/a, file#ROOT/b, file#ROOT/c]\n        creates: ROOT/refreshed\n"
    )
    assert apply(text).outcomes == ["changed", "changed", "changed", "refreshed"]
    assert refresh_count(root) == 1
    assert owed() == []


def test_one_trigger_owes_a_refresh_to_every_subscriber(apply: Apply, root: Path) -> None:
    text = TRIGGER + (
        "- exec:\n    - defaults: {refresh_only: true, subscribe: [file#ROOT/x]}\n"
        "    - one: {command: 'false'}\n    - two: {command: 'true'}\n    - three: {command: 'false'}\n"
    )
    assert apply(text).outcomes == ["changed", "failed", "refreshed", "failed"]
    assert apply(text).outcomes == ["stable", "failed", "stable", "failed"]


def test_an_owed_refresh_is_dropped_with_its_subscription(apply: Apply, root: Path) -> None:
    apply(TRIGGER + FAILING)
    assert apply(
        TRIGGER + "- exec:\n    - subscriber: {command: touch ROOT/refreshed, refresh_only: true}\n"
    ).outcomes == [
        "stable",
        "stable",
    ]
    assert owed() == []
    assert apply(TRIGGER + WORKING).outcomes == ["stable", "stable"]


def test_owed_refreshes_belong_to_one_manifest(apply: Apply, root: Path) -> None:
    apply(TRIGGER + FAILING)
    assert apply(TRIGGER + WORKING, name="other.yaml").outcomes == ["stable", "stable"]
    assert apply(TRIGGER + WORKING, name="other.yaml", identity=str(root.parent / "manifest.yaml")).outcomes == [
        "stable",
        "refreshed",
    ]


@pytest.mark.parametrize(
    ("properties", "options", "outcome"),
    [
        ("control: {if: 'false'},", {}, "skipped"),
        ("tags: [other],", {"tags": ("run",)}, "skipped"),
        ("require: [exec#fails],", {}, "unmet"),
    ],
)
def test_a_skipped_or_unmet_subscriber_stays_owed(
    properties: str, options: dict[str, tuple[str, ...]], outcome: str, apply: Apply, root: Path
) -> None:
    before = "- exec:\n    - fails: {command: 'false'}\n"
    trigger = TRIGGER.replace("{ensure", "{tags: [run], ensure")
    done = apply(before + trigger + WORKING.replace("{command", f"{{{properties} command"), **options)
    assert done.outcomes[1:] == ["changed", outcome]
    assert refresh_count(root) == 0
    assert apply(before + trigger + WORKING).outcomes[1:] == ["stable", "refreshed"]


def test_a_subscriber_that_was_not_reached_stays_owed(apply: Apply, root: Path) -> None:
    resources = TRIGGER + "- exec:\n    - fails: {command: COMMAND}\n" + WORKING
    text = "fail_on_error: true\nresources:\n" + "".join(f"  {line}\n" for line in resources.splitlines())
    assert apply(text.replace("COMMAND", "'false'")).outcomes == ["changed", "failed", "skipped"]
    assert apply(text.replace("COMMAND", "'true'")).outcomes == ["stable", "changed", "refreshed"]


def test_a_trigger_that_fails_without_a_change_triggers_no_refresh(apply: Apply, root: Path) -> None:
    (root / "x").write_text("old")
    refusing = TRIGGER.replace("{ensure", "{validate: 'false', ensure")
    assert apply(refusing + WORKING).outcomes == ["failed", "stable"]
    assert owed() == []
    assert apply(TRIGGER.replace("CONTENT", "old") + WORKING).outcomes == ["stable", "stable"]


def test_an_owed_refresh_stays_owed_when_the_trigger_fails_without_a_change(apply: Apply, root: Path) -> None:
    assert apply(TRIGGER + FAILING).outcomes == ["changed", "failed"]
    refusing = TRIGGER.replace("CONTENT", "other").replace("{ensure", "{validate: 'false', ensure")
    assert apply(refusing + WORKING).outcomes == ["failed", "refreshed"]


def test_a_trigger_that_changed_before_it_failed_still_triggers(apply: Apply, root: Path) -> None:
    """The health check fails after the file was changed."""
    trigger = TRIGGER.replace("{ensure", "{health_checks: [{command: 'false'}], ensure")
    done = apply(trigger + WORKING)
    assert done.outcomes == ["failed", "refreshed"]
    assert done.report.events[0].changed is True


def test_a_tree_that_fails_without_a_change_triggers_no_refresh(root: Path) -> None:
    for folder in ("from", "to", "to/extra", "to/extra/inner"):
        (root / folder).mkdir()
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(
        fill_in(
            "- file:\n    - ROOT/to: {ensure: directory, source: ROOT/from, recurse: true, purge: true,"
            ' owner: USER, group: GROUP, mode: "0755"}\n'
            "- exec:\n    - subscriber: {command: touch ROOT/refreshed, refresh_only: true, subscribe: [file#ROOT/to]}\n",
            root,
        )
    )
    done = in_own_mounts(f'mount -t tmpfs tmpfs {root}/to/extra/inner\n"$MAINSTAY" apply {manifest} --json || true')
    assert [event["outcome"] for event in json.loads(done.stdout)["events"]] == ["failed", "stable"]
    assert owed() == []


def test_a_run_killed_between_trigger_and_subscriber_refreshes_next_time(root: Path) -> None:
    manifest = root.parent / "manifest.yaml"
    slow = "- exec:\n    - slow: {command: sh -c 'echo $$ > ROOT/pid; exec sleep 60'}\n"
    manifest.write_text(fill_in(TRIGGER + slow + WORKING, root))
    process = subprocess.Popen([PROGRAM, "apply", manifest], stdout=subprocess.DEVNULL)
    while not (root / "pid").exists() or not (root / "pid").read_text():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert refresh_count(root) == 0
    assert owed() == [["owe", f"file#{root}/x", ["exec#subscriber"]]]
    os.kill(int((root / "pid").read_text()), signal.SIGKILL)
    manifest.write_text(fill_in(TRIGGER + "- exec:\n    - slow: {command: 'true'}\n" + WORKING, root))
    done = subprocess.run([PROGRAM, "apply", manifest, "--json"], capture_output=True, check=True)
    assert [event["outcome"] for event in json.loads(done.stdout)["events"]] == ["stable", "changed", "refreshed"]
    assert refresh_count(root) == 1


def test_only_resources_with_subscribers_write_to_the_ledger(apply: Apply, root: Path) -> None:
    apply(TRIGGER)
    assert not list(Path(os.environ["MAINSTAY_STATE_DIR"]).glob("manifests/*/owed"))


# ---- the ledger itself ----
def test_an_incomplete_line_does_not_damage_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "owed"
    path.write_text('["owe", "file#a", ["exec#x"]]\n["owe", "file#b", ["ex')
    subscriptions = {"exec#x": ["file#a"], "exec#y": ["file#c"]}
    first = Ledger(str(path))
    first.load(subscriptions)
    first.owe("file#c")
    killed = Ledger(str(path))
    killed.load(subscriptions)
    assert killed.owed == {"exec#x": {"file#a"}, "exec#y": {"file#c"}}


def test_an_empty_ledger_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "owed"
    ledger = Ledger(str(path))
    ledger.load({"exec#x": ["file#a"]})
    ledger.owe("file#a")
    assert path.exists()
    ledger.pay("exec#x")
    ledger.close(StateDirectory(str(tmp_path)))
    assert not path.exists()

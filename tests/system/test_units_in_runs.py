"""Units with other resources on a real systemd: unit files, owed refreshes, dry runs, many units."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from system.conftest import ENVIRONMENT, PROGRAM, ManagedHost

pytestmark = pytest.mark.test_all

CASES = Path(__file__).parents[1] / "cases" / "service"
UNITS: dict[str, str] = yaml.safe_load((CASES / "units.yaml").read_text())


def file(path: str, content: str) -> str:
    attributes = {"ensure": "present", "content": content, "owner": "root", "group": "root", "mode": "0644"}
    return yaml.safe_dump([{"file": [{path: attributes}]}])


def unit_file(name: str, kind: str) -> str:
    return file(f"/etc/systemd/system/{name}.service", UNITS[kind].replace("NAME", name))


def service(name: str, **properties: object) -> str:
    return yaml.safe_dump([{"service": [{name: properties}]}])


def command(line: str, **properties: object) -> str:
    return yaml.safe_dump([{"exec": [{line: properties}]}])


def starts(host: ManagedHost, name: str) -> int:
    return len(host.machine.read(f"/run/{name}.starts").splitlines())


# ---- unit files ----
def test_a_unit_whose_file_is_written_in_the_same_run_is_forecast_and_started(new_host: ManagedHost) -> None:
    manifest = unit_file("fresh", "simple") + service("fresh", enable=True) + unit_file("bare", "static")
    manifest += service("bare", enable=True)
    before = new_host.snapshot()
    forecast = new_host.apply(manifest, "--noop")
    assert [event["noop_message"] for event in forecast.document["events"]] == [
        "Would have created the file",
        "Would have started, would have enabled",
        "Would have created the file",
        "Would have started",
    ]
    assert forecast.changing == []
    assert new_host.snapshot() == before

    done = new_host.apply(manifest)
    assert set(done.outcomes.values()) == {"changed"}
    # Once before the first change, and again after the second unit file.
    assert done.changing == [
        "daemon-reload --system",
        "start --system fresh",
        "enable --system fresh",
        "daemon-reload --system",
        "start --system bare",
    ]
    again = new_host.apply(manifest)
    assert set(again.outcomes.values()) == {"stable"}
    assert again.commands == ["show"]


def test_a_dry_run_forecasts_units_whose_files_would_change_or_be_removed(shared_host: ManagedHost) -> None:
    host = shared_host
    unit_directory = "/etc/systemd/system"
    host.unit("goes", UNITS["simple"], unit_directory)
    host.unit("becomes", UNITS["static"], unit_directory)
    host.unit("linked", UNITS["simple"])
    host.shell("systemctl daemon-reload")
    manifest = yaml.safe_dump([{"file": [{f"{unit_directory}/goes.service": {"ensure": "absent"}}]}])
    manifest += unit_file("becomes", "simple")
    links = f"{unit_directory}/multi-user.target.wants"
    manifest += yaml.safe_dump(
        [
            {"file": [{links: {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}}]},
            {
                "file": [
                    {
                        f"{links}/linked.service": {
                            "ensure": "link",
                            "target": "/usr/local/lib/systemd/system/linked.service",
                        }
                    }
                ]
            },
        ]
    )
    manifest += service("goes", ensure="stopped") + service("becomes", enable=True) + service("linked", enable=True)
    forecast = host.apply(manifest, "--noop")
    assert forecast.events["service#goes"]["warnings"] == ["service not found: goes; there is nothing to stop"]
    assert forecast.events["service#becomes"]["noop_message"] == "Would have started, would have enabled"
    assert forecast.events["service#linked"]["noop_message"] == "Would have started"
    done = host.apply(manifest)
    assert done.events["service#goes"]["outcome"] == "stable"
    assert "enable --system becomes" in done.changing
    assert "enable --system linked" not in done.changing
    assert done.exit_code == 0


def test_a_forecast_reads_unit_files_and_not_the_loaded_units_of_systemd(shared_host: ManagedHost) -> None:
    host = shared_host
    unit_directory = "/etc/systemd/system"
    links = f"{unit_directory}/multi-user.target.wants"
    host.unit("gains", UNITS["static"], unit_directory)
    host.unit("wanted", UNITS["simple"])
    host.unit("edited", UNITS["static"])
    host.unit("unmasked", UNITS["simple"])
    host.shell(
        f"systemctl daemon-reload; systemctl start gains wanted edited; mkdir -p {links};"
        " systemctl enable unmasked; systemctl mask unmasked; systemctl show unmasked >/dev/null"
    )
    manifest = unit_file("gains", "simple") + service("gains", enable=True)
    link = {"ensure": "link", "target": "/usr/local/lib/systemd/system/wanted.service"}
    manifest += yaml.safe_dump([{"file": [{f"{links}/wanted.service": link}]}]) + service("wanted", enable=True)
    manifest += yaml.safe_dump([{"file": [{f"{unit_directory}/unmasked.service": {"ensure": "absent"}}]}])
    manifest += service("unmasked", enable=True)
    # This one is changed outside the run.
    host.unit("edited", UNITS["simple"])
    manifest += service("edited", enable=True)
    forecast = host.apply(manifest, "--noop")
    done = host.apply(manifest)
    for name, message in (
        ("gains", "Would have enabled"),
        ("wanted", None),
        ("unmasked", "Would have started"),
        ("edited", "Would have enabled"),
    ):
        assert forecast.events[f"service#{name}"]["noop_message"] == message
        assert done.outcomes[f"service#{name}"] == ("changed" if message else "stable")
    assert [command for command in done.changing if not command.startswith("daemon-reload")] == [
        "enable --system gains",
        "start --system unmasked",
        "enable --system edited",
    ]
    assert set(host.apply(manifest).outcomes.values()) == {"stable"}


def test_a_dry_run_forecasts_existing_and_planned_links(shared_host: ManagedHost) -> None:
    host = shared_host
    unit_directory = "/etc/systemd/system"
    host.unit("returns", UNITS["simple"], unit_directory)
    host.unit("proper", UNITS["simple"])
    # Its file is removed, the link that enabled it stays.
    host.shell(
        f"systemctl daemon-reload; systemctl enable returns; rm {unit_directory}/returns.service; systemctl daemon-reload"
    )
    link = {"ensure": "link", "target": "/usr/local/lib/systemd/system/proper.service"}
    manifest = unit_file("returns", "simple") + service("returns", enable=True)
    manifest += yaml.safe_dump([{"file": [{f"{unit_directory}/by-another-name.service": link}]}])
    manifest += service("by-another-name", enable=True)
    forecast = host.apply(manifest, "--noop")
    assert forecast.events["service#returns"]["noop_message"] == "Would have started"
    assert forecast.events["service#by-another-name"]["noop_message"] == "Would have started"
    done = host.apply(manifest)
    assert [command for command in done.changing if not command.startswith("daemon-reload")] == [
        "start --system returns",
        "start --system by-another-name",
    ]


def test_systemd_is_reloaded_once_and_again_only_for_units_whose_files_changed(shared_host: ManagedHost) -> None:
    host = shared_host
    for name in ("unit1", "unit2", "unit3"):
        host.unit(name, UNITS["simple"])
    host.shell(
        "systemctl daemon-reload; systemctl start unit3; sed -i s/infinity/1000000/ /usr/local/lib/systemd/system/unit3.service"
    )
    done = host.apply(
        service("unit1") + service("unit2") + file("/etc/unrelated.conf", "x") + service("unit3", enable=True)
    )
    assert done.changing == [
        "daemon-reload --system",
        "start --system unit1",
        "start --system unit2",
        "enable --system unit3",
    ]
    host.shell("sed -i s/1000000/1000001/ /usr/local/lib/systemd/system/unit2.service; systemctl stop unit1")
    done = host.apply(service("unit1") + command("true", refresh_only=False) + service("unit2", enable=True))
    # The file of unit2 was changed outside the run; the reload before the start of unit1 covers it too.
    assert done.changing == ["daemon-reload --system", "start --system unit1", "enable --system unit2"]
    done = host.apply(
        service("unit1", enable=True)
        + command("sed -i s/1000001/1000002/ /usr/local/lib/systemd/system/unit2.service")
        + service("unit2", enable=False)
    )
    assert done.changing == [
        "daemon-reload --system",
        "enable --system unit1",
        "daemon-reload --system",
        "disable --system unit2",
    ]


# ---- refreshes ----
def test_three_subscriptions_restart_a_unit_once(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("thrice", UNITS["counting"])
    paths = [f"/etc/thrice{number}.conf" for number in range(3)]
    subscribed = service("thrice", subscribe=[f"file#{path}" for path in paths])

    def manifest(content: str) -> str:
        return "".join(file(path, content) for path in paths) + subscribed

    assert host.apply(manifest("one")).outcomes["service#thrice"] == "changed"
    assert starts(host, "thrice") == 1
    done = host.apply(manifest("two"))
    assert list(done.outcomes.values()) == ["changed", "changed", "changed", "refreshed"]
    assert done.changing == ["daemon-reload --system", "restart --system thrice"]
    assert starts(host, "thrice") == 2
    assert host.apply(manifest("two")).outcomes["service#thrice"] == "stable"
    assert starts(host, "thrice") == 2


def test_a_restart_owed_by_a_killed_run_happens_in_the_next_run(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("owed", UNITS["counting"])
    path = "/home/owed.yaml"
    killer = command("/bin/sh -c 'touch /run/owed.killed; kill -9 $PPID'", creates="/run/owed.killed")

    def manifest(content: str) -> str:
        return file("/etc/owed.conf", content) + killer + service("owed", subscribe=["file#/etc/owed.conf"])

    host.shell("touch /run/owed.killed")
    host.apply(manifest("one"), path=path)
    host.shell("rm /run/owed.killed")
    host.machine.write(path, manifest("two"))
    killed = host.machine.run(str(PROGRAM), "apply", path, environment=ENVIRONMENT)
    assert killed.returncode == 137
    assert host.machine.read("/etc/owed.conf") == "two"
    assert starts(host, "owed") == 1

    forecast = host.apply(manifest("two"), "--noop", path=path)
    assert forecast.events["service#owed"]["noop_message"] == "Would have restarted via subscribe"
    done = host.apply(manifest("two"), path=path)
    assert list(done.outcomes.values()) == ["stable", "stable", "refreshed"]
    assert starts(host, "owed") == 2
    assert list(host.apply(manifest("two"), path=path).outcomes.values()) == ["stable", "stable", "stable"]


def test_a_refresh_is_not_repeated_if_enabling_failed(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("stuck", UNITS["cannot-be-enabled"])
    path = "/home/stuck.yaml"

    def manifest(content: str) -> str:
        return file("/etc/stuck.conf", content) + service("stuck", enable=True, subscribe=["file#/etc/stuck.conf"])

    host.shell("systemctl daemon-reload; systemctl start stuck")
    for _ in range(2):
        done = host.apply(manifest("two"), path=path)
        assert done.outcomes["service#stuck"] == "failed"
        assert done.events["service#stuck"]["errors"] == [
            'systemctl enable --system stuck failed (exit 1): Failed to enable unit: "bad" is not a valid unit name.'
        ]
    assert starts(host, "stuck") == 2


def test_a_run_killed_before_the_mask_is_completed_by_the_next_run(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("banned", UNITS["simple"])
    host.shell("systemctl daemon-reload; systemctl enable --now banned")
    path = "/home/banned.yaml"
    manifest = service("banned", ensure="stopped", enable=False, mask=True)
    host.machine.write(path, manifest)
    # `systemctl mask` kills the run that called it, and does nothing else.
    host.machine.write(
        "/run/killer/systemctl",
        '#!/bin/sh\n[ "$1" != mask ] || kill -9 $PPID $$\nexec /usr/bin/systemctl "$@"\n',
        mode=0o755,
    )
    environment = {**ENVIRONMENT, "PATH": "/run/killer:/usr/bin:/bin"}
    killed = host.machine.run(str(PROGRAM), "apply", path, environment=environment)
    assert killed.returncode == 137

    forecast = host.apply(manifest, "--noop", path=path)
    assert forecast.events["service#banned"]["noop_message"] == "Would have masked"
    done = host.apply(manifest, path=path)
    assert done.outcomes == {"service#banned": "changed"}
    assert done.changing == ["daemon-reload --system", "mask --system banned"]
    assert host.apply(manifest, path=path).outcomes == {"service#banned": "stable"}


def test_subscribers_of_a_unit_run_although_its_enable_cannot_be_reached(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("half-done", UNITS["static"])
    host.shell("systemctl daemon-reload; systemctl start half-done")
    manifest = service("half-done", ensure="stopped", enable=False)
    manifest += command("/bin/touch /run/half-done.seen", refresh_only=True, subscribe=["service#half-done"])
    outcomes = {"service#half-done": "failed", "exec#/bin/touch /run/half-done.seen": "refreshed"}
    assert host.apply(manifest, "--noop", path="/home/half-done.yaml").outcomes == outcomes
    assert host.apply(manifest, path="/home/half-done.yaml").outcomes == outcomes
    host.shell("test -e /run/half-done.seen")


def test_a_dry_run_forecasts_a_certain_failure_by_the_files_of_the_run(shared_host: ManagedHost) -> None:
    host = shared_host
    directory = "/etc/systemd/system"
    host.unit("was-good", UNITS["simple"], directory)
    host.unit("was-oneshot", UNITS["oneshot"], directory)
    host.unit("was-bad", UNITS["bad-setting"], directory)
    host.unit("gets-drop-in", UNITS["oneshot"], directory)
    host.shell("systemctl daemon-reload")
    folder = {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}
    manifest = unit_file("was-good", "oneshot") + service("was-good")
    manifest += unit_file("was-oneshot", "oneshot-remains") + service("was-oneshot")
    manifest += unit_file("was-bad", "simple") + service("was-bad")
    manifest += yaml.safe_dump([{"file": [{f"{directory}/gets-drop-in.service.d": folder}]}])
    manifest += file(f"{directory}/gets-drop-in.service.d/remain.conf", "[Service]\nRemainAfterExit=on\n")
    manifest += service("gets-drop-in")
    forecast = host.apply(manifest, "--noop")
    done = host.apply(manifest)
    for name, outcome in (
        ("was-good", "failed"),
        ("was-oneshot", "changed"),
        ("was-bad", "changed"),
        ("gets-drop-in", "changed"),
    ):
        assert forecast.outcomes[f"service#{name}"] == done.outcomes[f"service#{name}"] == outcome, name
    assert forecast.events["service#was-good"]["errors"] == done.events["service#was-good"]["errors"]


def test_a_stopped_run_does_not_wait_for_a_slow_start(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("endless", UNITS["simple"].replace("[Service]", "[Service]\nType=notify\nTimeoutStartSec=120"))
    host.machine.write("/home/endless.yaml", service("endless") + service("never-reached"))
    output = host.shell(
        f"MAINSTAY_STATE_DIR=/var/lib/mainstay {PROGRAM} apply /home/endless.yaml & pid=$!;"
        " until systemctl is-active endless | grep -q ^activating; do sleep 0.1; done;"
        " kill -TERM $pid; code=0; wait $pid || code=$?; echo code $code; systemctl stop endless"
    )
    assert output.splitlines()[-1] == "code 143"
    assert "interrupted while its command was running" in output
    assert "skipped   service#never-reached" in output


# ---- unknown until applied ----
def test_a_unit_created_by_a_command_is_unknown_until_applied(shared_host: ManagedHost) -> None:
    host = shared_host
    text = UNITS["simple"].replace("\n", "\\n")
    script = f"printf '{text}' >/etc/systemd/system/created.service"
    maker = yaml.safe_dump(
        [
            {
                "exec": [
                    {
                        "make": {
                            "command": script,
                            "provider": "shell",
                            "creates": "/etc/systemd/system/created.service",
                        }
                    }
                ]
            }
        ]
    )
    alone = host.apply(service("created"), "--noop")
    assert alone.events["service#created"]["errors"] == ["service not found: created"]
    for wanted in (service("created"), service("created", ensure="stopped")):
        forecast = host.apply(maker + wanted, "--noop")
        event = forecast.events["service#created"]
        assert event["outcome"] == "changed"
        assert event["noop_message"] == "Unknown until applied: service not found: created"
        assert forecast.changing == []
    assert host.apply(maker + service("created")).outcomes["service#created"] == "changed"


# ---- many ----
def test_a_hundred_stable_units_need_one_query(shared_host: ManagedHost) -> None:
    host = shared_host
    host.machine.write("/usr/local/lib/systemd/system/many@.service", UNITS["simple"])
    host.shell(
        "cd /usr/local/lib/systemd/system; for n in $(seq 100); do cp many@.service many$n.service; done;"
        " systemctl daemon-reload; systemctl enable --now $(seq -f many%g 100) 2>/dev/null"
    )
    manifest = "".join(
        (file(f"/etc/many{number}.conf", "x") if number % 10 == 0 else "") + service(f"many{number}", enable=True)
        for number in range(1, 101)
    )
    host.apply(manifest)
    done = host.apply(manifest)
    assert set(done.outcomes.values()) == {"stable"}
    assert done.commands == ["show"]
    host.shell("systemctl stop $(seq -f many%g 100)")


def test_read_ahead_states_are_dropped_after_a_command(shared_host: ManagedHost) -> None:
    host = shared_host
    for name in ("first", "second"):
        host.unit(name, UNITS["simple"])
    host.shell("systemctl daemon-reload; systemctl start first second")
    done = host.apply(service("first") + command("systemctl stop second") + service("second"))
    assert done.outcomes["service#second"] == "changed"
    assert done.commands == [
        "show",
        "stop second",
        "show",
        "daemon-reload --system",
        "start --system second",
        "show",
        "show",
    ]


def test_the_default_and_the_named_provider_are_the_same(shared_host: ManagedHost) -> None:
    host = shared_host
    for name in ("named1", "named2"):
        host.unit(name, UNITS["simple"])
    done = host.apply(service("named1") + service("named2", provider="systemd"))
    assert done.changing == ["daemon-reload --system", "start --system named1", "start --system named2"]
    assert done.commands[-1] == "show"


# ---- other systemds ----
def test_output_of_other_systemd_versions_is_understood_or_refused(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("foreign", UNITS["simple"])
    host.shell("systemctl daemon-reload")
    # Older versions report a missing unit file on stderr only; newer versions may have unknown states.
    for edit, answer, errors in (
        ("s/^UnitFileState=.*/UnitFileState=/", "exit 1", ["service not found: foreign"]),
        ("s/^UnitFileState=.*/UnitFileState=/", "echo not-found; exit 4", ["service not found: foreign"]),
        (
            "s/^UnitFileState=.*/UnitFileState=/",
            "echo odd",
            ['invalid systemctl is-enabled output: "odd" for foreign'],
        ),
        ("s/^ActiveState=.*/ActiveState=odd/", ":", ['invalid systemctl is-active output: "odd" for foreign']),
        ("d", ":", ["systemctl show failed for foreign (exit 0): "]),
    ):
        script = f'#!/bin/sh\ncase $1 in is-enabled) {answer};; *) /usr/bin/systemctl "$@" | sed "{edit}";; esac\n'
        host.machine.write("/opt/foreign/systemctl", script, mode=0o755)
        done = host.mainstay(
            "apply",
            "/home/foreign.yaml",
            "--json",
            setup="cat >/home/foreign.yaml; PATH=/opt/foreign:$PATH",
            stdin=service("foreign"),
        )
        assert done.events["service#foreign"]["errors"] == errors


# ---- in parallel ----
def test_changing_calls_wait_for_another_run(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("waits", UNITS["simple"])
    holder = host.machine.popen("flock", "/run/mainstay-systemctl.lock", "sh", "-c", "echo held; sleep 2")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    started = time.monotonic()
    done = host.apply(service("waits"))
    assert time.monotonic() - started > 2
    assert done.outcomes == {"service#waits": "changed"}
    holder.communicate()


def test_parallel_hosts_do_not_see_each_other(new_hosts: Callable[..., ManagedHost]) -> None:
    with ThreadPoolExecutor() as pool:
        hosts = list(pool.map(new_hosts, ("left", "right")))
        manifests = [
            unit_file(f"only-{host.machine.name}", "simple") + service(f"only-{host.machine.name}") for host in hosts
        ]
        outcomes = [done.outcomes for done in pool.map(ManagedHost.apply, hosts, manifests)]
    for host, found in zip(hosts, outcomes, strict=True):
        assert set(found.values()) == {"changed"}
        units = host.shell("systemctl list-units --plain --no-legend 'only-*'")
        assert [line.split()[0] for line in units.splitlines()] == [f"only-{host.machine.name}.service"]


# ---- units that die ----
def test_units_that_die_later_in_the_run_make_their_events_failed(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("lasts", UNITS["simple"])
    host.unit("dies", UNITS["dies-later"])
    host.unit("loops", UNITS["tries-again-later"])
    manifest = service("lasts") + service("dies") + service("loops") + command("touch /run/dies.end /run/loops.end")
    done = host.apply(manifest)
    assert list(done.outcomes.values()) == ["changed", "failed", "failed", "changed"]
    # Queries: one before and one after each start, and one for all three at the end of the run.
    assert done.commands.count("show") == 3 + 3 + 1
    dead, looping = done.events["service#dies"], done.events["service#loops"]
    assert dead["errors"] == ["service did not stay running: it is failed (failed) after its start"]
    assert looping["errors"] == ["service did not stay running: it is activating (auto-restart) after its start"]
    assert "lost my way" in dead["output"]
    assert dead["changed"] is True
    assert dead["state"]["active_state"] == "failed"
    assert done.exit_code == 1

    host.shell("rm /run/dies.end /run/loops.end; systemctl stop loops")
    shown = host.machine.run(str(PROGRAM), "apply", "/home/manifest.yaml", environment=ENVIRONMENT).stdout
    lines = [line.split()[:2] for line in shown.splitlines() if "service#dies" in line]
    assert lines == [["changed", "service#dies"], ["failed", "service#dies"]]
    assert "lost my way" in shown


def test_the_journal_of_a_sensitive_unit_is_not_shown(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("hushed", UNITS["dies-later"].replace("lost my way", "hidden journal line"))
    done = host.apply(service("hushed", sensitive=True) + command("touch /run/hushed.end"))
    assert done.events["service#hushed"]["outcome"] == "failed"
    assert done.events["service#hushed"]["output"] == "[redacted]"
    assert "hidden journal line" not in host.shell("cat /var/lib/mainstay/history/*")

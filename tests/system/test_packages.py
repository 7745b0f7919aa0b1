"""Packages on a real host: installed, pinned, upgraded and removed by apt, from a repository inside the host."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml

from required_parts import need_program
from system.conftest import Done, ManagedHost, boot, need_systemd

pytestmark = pytest.mark.test_all

INSTALL = "apt-get --quiet --yes --option=Dpkg::Options::=--force-confdef --option=Dpkg::Options::=--force-confold"
UPDATE = "apt-get --quiet update"
# Creates tiny 1.0 and 2.0, other 1.0, and fragile 1.0, whose first installation kills dpkg.
REPOSITORY = r"""
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/* /etc/apt/apt.conf.d/*
mkdir -p /srv/repository /var/lib/apt/lists/partial
echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list.d/local.list
cd /srv/repository
package() {
  rm -rf /tmp/build; mkdir -p /tmp/build/DEBIAN /tmp/build/etc
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: test <test@example.org>\nDescription: tiny\n' \
    $1 $2 >/tmp/build/DEBIAN/control
  echo "settings of $1 $2" >/tmp/build/etc/$1.conf
  echo /etc/$1.conf >/tmp/build/DEBIAN/conffiles
  printf '#!/bin/sh\n%s\n' "$3" >/tmp/build/DEBIAN/postinst; chmod 755 /tmp/build/DEBIAN/postinst
  dpkg-deb --build /tmp/build $1_$2.deb >/dev/null
  {
    cat /tmp/build/DEBIAN/control
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $1_$2.deb $(stat -c %s $1_$2.deb) $(sha256sum <$1_$2.deb | cut -d' ' -f1)
  } >>Packages
}
package tiny 1.0
package tiny 2.0
package other 1.0
package fragile 1.0 '[ -e /var/lib/fragile ] || { touch /var/lib/fragile; kill -9 $PPID; sleep 1; }'
"""


@pytest.fixture(scope="module")
def host() -> Iterator[ManagedHost]:
    need_systemd()
    need_program("apt-get")
    need_program("dpkg-deb")
    with boot("packages") as machine:
        managed = ManagedHost(machine)
        managed.shell(REPOSITORY)
        yield managed


def packages(**wanted: str) -> str:
    return yaml.safe_dump(
        [{"package": [{name: {"ensure": ensure}} for name, ensure in wanted.items()]}], sort_keys=False
    )


def installed(host: ManagedHost) -> dict[str, str]:
    shown = host.shell(
        "dpkg-query --show --showformat='${Package} ${db:Status-Abbrev}${Version}\\n' tiny other fragile 2>/dev/null || true"
    )
    words = [line.split() for line in shown.splitlines()]
    return {line[0]: line[2] for line in words if line[1] == "ii"}


def messages(done: Done) -> list[str | None]:
    return [event["noop_message"] for event in done.document["events"]]


@pytest.fixture
def clean(host: ManagedHost) -> ManagedHost:
    """A host without the test packages, and with fresh package lists."""
    host.shell("dpkg --purge tiny other fragile >/dev/null 2>&1; apt-get --quiet update >/dev/null")
    return host


def test_missing_lists_are_fetched_once_and_not_in_a_dry_run(host: ManagedHost) -> None:
    manifest = packages(tiny="present", other="present")
    before = host.snapshot()
    foreseen = host.apply(manifest, "--noop")
    assert messages(foreseen) == [f"Unknown until applied: apt has no package {name}" for name in ("tiny", "other")]
    assert foreseen.commands == []
    assert host.snapshot() == before
    done = host.apply(manifest)
    assert done.commands == [UPDATE, f"{INSTALL} install tiny other"]
    assert installed(host) == {"tiny": "2.0", "other": "1.0"}


def test_a_package_is_installed_pinned_upgraded_and_removed_as_forecast(clean: ManagedHost) -> None:
    steps = [
        ("1.0", "Would have installed version 1.0", f"{INSTALL} --allow-downgrades install tiny=1.0", "1.0"),
        ("present", None, None, "1.0"),
        ("latest", "Would have changed version 1.0 to 2.0", f"{INSTALL} install tiny", "2.0"),
        ("1.0", "Would have changed version 2.0 to 1.0", f"{INSTALL} --allow-downgrades install tiny=1.0", "1.0"),
        ("absent", "Would have removed", f"{INSTALL} remove tiny", None),
        ("latest", "Would have installed version 2.0", f"{INSTALL} install tiny", "2.0"),
    ]
    for ensure, message, command, version in steps:
        manifest = packages(tiny=ensure)
        foreseen = clean.apply(manifest, "--noop")
        assert messages(foreseen) == [message]
        assert foreseen.commands == []
        done = clean.apply(manifest)
        assert done.commands == ([command] if command else [])
        assert done.outcomes == {"package#tiny": "changed" if command else "stable"}
        assert installed(clean).get("tiny") == version
        assert done.events["package#tiny"]["state"]["version"] == version
        again = clean.apply(manifest)
        assert again.outcomes == {"package#tiny": "stable"}
        assert again.commands == []


def test_a_dry_run_fails_for_an_unknown_package_that_no_earlier_step_might_bring(clean: ManagedHost) -> None:
    def forecast(manifest: str) -> dict[str, str]:
        return clean.apply(manifest, "--noop").outcomes

    done = clean.apply(packages(nosuch="present"), "--noop")
    assert done.exit_code == 1
    assert done.events["package#nosuch"]["errors"] == ["apt has no package nosuch"]
    # A removal brings nothing, a service of the unknown package is missing too.
    clean.apply(packages(tiny="present"))
    service = "- service:\n    - nosuch: {}\n"
    assert forecast(packages(tiny="absent", nosuch="present") + service) == {
        "package#tiny": "changed",
        "package#nosuch": "failed",
        "service#nosuch": "failed",
    }
    command = "- exec:\n    - /bin/true: {}\n"
    assert forecast(command + packages(nosuch="present"))["package#nosuch"] == "changed"
    attributes = "ensure: present, content: '', owner: root, group: root, mode: '0644'"
    source = f"- file:\n    - /etc/apt/sources.list.d/other.list: {{{attributes}}}\n"
    assert forecast(source + packages(nosuch="present"))["package#nosuch"] == "changed"


def test_neighbouring_packages_share_one_transaction_and_have_their_own_events(clean: ManagedHost) -> None:
    done = clean.apply(packages(tiny="1.0", other="present"))
    assert done.commands == [f"{INSTALL} --allow-downgrades install tiny=1.0 other"]
    assert done.outcomes == {"package#tiny": "changed", "package#other": "changed"}
    assert [event["reason"] for event in done.document["events"]] == [
        "package is absent, expected 1.0",
        "package is absent, expected present",
    ]
    done = clean.apply(packages(tiny="absent", other="absent"))
    assert done.commands == [f"{INSTALL} remove tiny other"]
    assert installed(clean) == {}


def test_a_failing_package_does_not_affect_its_neighbours(clean: ManagedHost) -> None:
    done = clean.apply(packages(tiny="present", nosuch="present", other="present"))
    assert list(done.outcomes.values()) == ["changed", "failed", "changed"]
    assert done.events["package#nosuch"]["errors"] == ["apt has no package nosuch"]
    done = clean.apply(packages(tiny="9.9"))
    assert done.events["package#tiny"]["errors"] == ["apt has no package tiny in version 9.9"]
    clean.shell("apt-mark hold other >/dev/null")
    done = clean.apply(packages(tiny="absent", other="absent"))
    clean.shell("apt-mark unhold other >/dev/null")
    assert done.outcomes == {"package#tiny": "changed", "package#other": "failed"}
    assert "held packages" in done.events["package#other"]["errors"][0].lower()


def test_edited_configuration_files_are_kept(clean: ManagedHost) -> None:
    clean.apply(packages(tiny="1.0"))
    clean.machine.write("/etc/tiny.conf", "mine\n")
    assert clean.apply(packages(tiny="2.0")).exit_code == 0
    assert clean.machine.read("/etc/tiny.conf") == "mine\n"


def test_lists_older_than_a_day_are_fetched_again(clean: ManagedHost) -> None:
    manifest = packages(tiny="latest", other="latest")
    clean.apply(manifest)
    assert clean.apply(manifest).commands == []
    clean.shell("touch -d '25 hours ago' /var/lib/apt/lists/partial /var/lib/apt/lists; rm -rf /var/lib/apt/periodic")
    assert clean.apply(manifest, "--noop").commands == []
    assert clean.apply(manifest).commands == [UPDATE]
    assert clean.apply(manifest).commands == []


def test_lists_that_cannot_be_fetched_are_a_warning_and_the_old_ones_are_used(clean: ManagedHost) -> None:
    lost = "/etc/apt/sources.list.d/lost.list"
    clean.machine.write(lost, "deb [trusted=yes] file:/srv/nowhere ./\n")
    clean.shell("touch -d '25 hours ago' /var/lib/apt/lists/partial /var/lib/apt/lists; rm -rf /var/lib/apt/periodic")
    done = clean.apply(packages(tiny="present"))
    clean.shell(f"rm {lost}")
    assert done.outcomes == {"package#tiny": "changed"}
    (warning,) = done.events["package#tiny"]["warnings"]
    assert warning.startswith("the package lists could not be refreshed: E: ")
    assert "\n" not in warning


def test_an_interrupted_dpkg_is_repaired(clean: ManagedHost) -> None:
    clean.shell("rm -f /var/lib/fragile")
    broken = clean.apply(packages(fragile="present"))
    assert broken.outcomes == {"package#fragile": "failed"}
    assert clean.shell("ls /var/lib/dpkg/updates").split() != []
    assert messages(clean.apply(packages(fragile="present"), "--noop")) == ["Would have repaired"]
    done = clean.apply(packages(other="present"))
    assert done.commands == [
        "dpkg --force-confdef --force-confold --configure --pending",
        f"{INSTALL} install other",
    ]
    assert installed(clean) == {"other": "1.0", "fragile": "1.0"}


def test_a_package_of_an_interrupted_transaction_is_a_change(clean: ManagedHost) -> None:
    clean.shell("rm -f /var/lib/fragile")
    notified = {"command": "true", "refresh_only": True, "subscribe": ["package#fragile"]}
    done = clean.apply(
        packages(tiny="present", fragile="present") + yaml.safe_dump([{"exec": [{"notified": notified}]}])
    )
    assert installed(clean) == {"tiny": "2.0", "fragile": "1.0"}
    assert list(done.outcomes.values()) == ["changed", "changed", "refreshed"]
    assert done.events["package#fragile"]["reason"] == "package is absent, expected present"


def test_a_run_waits_for_the_lock_of_another_package_manager(clean: ManagedHost) -> None:
    holding = (
        "import fcntl, time; lock = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(lock, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(2)"
    )
    holder = clean.machine.popen("python3", "-c", holding)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    started = time.monotonic()
    done = clean.apply(packages(tiny="present"))
    assert done.outcomes == {"package#tiny": "changed"}
    assert time.monotonic() - started > 1.5
    assert len(done.commands) > 1
    holder.communicate()


def test_a_service_subscribes_to_its_package_and_is_unknown_before_it_is_installed(clean: ManagedHost) -> None:
    unit = "[Service]\nExecStart=/bin/sleep infinity\n"
    service = {"ensure": "running", "subscribe": ["package#tiny", "package#other"]}
    manifest = packages(tiny="latest", other="present") + yaml.safe_dump([{"service": [{"daemon": service}]}])
    foreseen = clean.apply(manifest, "--noop")
    assert messages(foreseen)[2] == "Unknown until applied: service not found: daemon"
    clean.unit("daemon", unit)
    clean.shell("systemctl daemon-reload; systemctl start daemon")
    foreseen = clean.apply(manifest, "--noop")
    assert messages(foreseen)[2] == "Would have restarted via subscribe"
    done = clean.apply(manifest)
    assert list(done.outcomes.values()) == ["changed", "changed", "refreshed"]
    assert done.commands.count("restart --system daemon") == 1
    assert list(clean.apply(manifest).outcomes.values()) == ["stable", "stable", "stable"]


def test_an_unreadable_package_database_is_a_failure(clean: ManagedHost) -> None:
    clean.apply(packages(tiny="1.0"))
    clean.shell("cp /var/lib/dpkg/status /home/status; echo garbage >>/var/lib/dpkg/status")
    try:
        for options in (("--noop",), ()):
            done = clean.apply(packages(tiny="absent"), *options)
            assert done.outcomes == {"package#tiny": "failed"}
            (error,) = done.events["package#tiny"]["errors"]
            assert error.startswith("the package database cannot be read: dpkg-query failed (exit 2): ")
            assert done.commands == []
    finally:
        clean.shell("cp /home/status /var/lib/dpkg/status")


def test_a_name_is_never_a_pattern_or_an_option(clean: ManagedHost) -> None:
    for name in ("tin.", "ti.y"):
        foreseen = clean.apply(packages(**{name: "present"}), "--noop")
        assert foreseen.events[f"package#{name}"]["errors"] == [f"apt has no package {name}"]
        done = clean.apply(packages(**{name: "latest"}))
        assert done.events[f"package#{name}"]["errors"] == [f"apt has no package {name}"]
        assert done.commands == [UPDATE]
    for suffix in ("+", "-"):
        # apt would install or remove `tiny`.
        refused = clean.apply(packages(**{f"tiny{suffix}": "present"}))
        assert refused.exit_code == 2
        assert "as an instruction" in refused.document["faults"][0]["message"]
    assert installed(clean) == {}


def test_a_held_package_is_not_changed_and_a_dry_run_forecasts_it(clean: ManagedHost) -> None:
    clean.apply(packages(tiny="1.0"))
    clean.shell("apt-mark hold tiny >/dev/null")
    for ensure, reason in (
        ("latest", "version is 1.0, expected 2.0"),
        ("2.0", "version is 1.0, expected 2.0"),
        ("absent", "package is present, expected absent"),
    ):
        for options in (("--noop",), ()):
            done = clean.apply(packages(tiny=ensure), *options)
            assert done.events["package#tiny"]["errors"] == [
                f"{reason}, but held packages are not changed; `apt-mark unhold tiny` releases it"
            ]
            assert done.commands == []
    assert clean.apply(packages(tiny="present")).outcomes == {"package#tiny": "stable"}
    clean.shell("apt-mark unhold tiny >/dev/null")


def test_latest_follows_the_apt_preferences_of_the_host(clean: ManagedHost) -> None:
    clean.apply(packages(tiny="2.0"))
    clean.machine.write("/etc/apt/preferences.d/tiny", "Package: tiny\nPin: version 1.0\nPin-Priority: 1001\n")
    try:
        foreseen = clean.apply(packages(tiny="latest"), "--noop")
        assert messages(foreseen) == ["Would have changed version 2.0 to 1.0"]
        assert clean.apply(packages(tiny="latest")).outcomes == {"package#tiny": "changed"}
        assert installed(clean) == {"tiny": "1.0"}
        assert clean.apply(packages(tiny="latest")).outcomes == {"package#tiny": "stable"}
    finally:
        clean.shell("rm /etc/apt/preferences.d/tiny")

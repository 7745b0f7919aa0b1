"""Every YAML block of the seed documents about units, unchanged, on a real host."""

from __future__ import annotations

import yaml

from converge.test_seeds import blocks
from system.conftest import ManagedHost

SERVICE, SYSTEMD = blocks("service"), blocks("systemd")
UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


def test_every_example_of_the_seeds_is_covered() -> None:
    assert list(SERVICE) == ["Enable Property", "Subscribe Behavior"]
    assert list(SYSTEMD) == ["Subscribe and Refresh"]


def test_enable_can_be_absent_true_or_false(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("myapp", UNIT)
    host.shell("systemctl daemon-reload")
    found = []
    for entry in yaml.safe_load(SERVICE["Enable Property"]):
        done = host.apply(yaml.safe_dump([entry]))
        state = done.events["service#myapp"]["state"]
        changing = [command for command in done.changing if command != "daemon-reload --system"]
        found.append((changing, state["running"], state["enabled"]))
    assert found == [
        (["start --system myapp"], True, False),
        (["enable --system myapp"], True, True),
        (["stop --system myapp", "disable --system myapp"], False, False),
    ]


def test_a_subscription_must_name_a_resource_of_the_manifest(shared_host: ManagedHost) -> None:
    done = shared_host.apply(SERVICE["Subscribe Behavior"])
    assert done.exit_code == 2
    assert [fault["message"] for fault in done.document["faults"]] == [
        "service#httpd: subscribe: there is no file#/etc/httpd/conf/httpd.conf in this manifest",
        "service#httpd: subscribe: there is no package#httpd in this manifest (did you mean 'service#httpd'?)",
    ]


def test_a_changed_file_restarts_its_unit(shared_host: ManagedHost) -> None:
    host = shared_host
    host.unit("myapp", UNIT)
    host.shell("mkdir -p /etc/myapp; rm -f /etc/myapp/config.yaml; systemctl daemon-reload; systemctl stop myapp")
    example = SYSTEMD["Subscribe and Refresh"]
    first = host.apply(example)
    assert first.changing == ["daemon-reload --system", "start --system myapp", "enable --system myapp"]
    assert set(host.apply(example).outcomes.values()) == {"stable"}
    host.shell("echo other >/etc/myapp/config.yaml")
    assert host.apply(example).changing == ["daemon-reload --system", "restart --system myapp"]

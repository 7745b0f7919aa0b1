"""Users and groups on a host with a real systemd: a unit runs as a new user, and entries of its state are stable."""

from __future__ import annotations

from system.conftest import PROGRAM, ManagedHost

UNIT = "[Service]\nUser=shop\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
MANIFEST = """
- group:
    - shop: {system: true}
- user:
    - shop: {system: true, home: /srv/shop, manage_home: true, shell: /usr/sbin/nologin}
- file:
    - /srv/shop/data: {ensure: directory, owner: shop, group: shop, mode: "0700"}
- service:
    - shop: {ensure: running, enable: true, subscribe: ["user#shop"]}
"""


def test_a_unit_runs_as_a_user_of_the_same_run(shared_host: ManagedHost) -> None:
    shared_host.unit("shop", UNIT)
    before = shared_host.snapshot()
    forecast = shared_host.apply(MANIFEST, "--noop", path="/home/accounts.yaml")
    assert shared_host.snapshot() == before
    done = shared_host.apply(MANIFEST, path="/home/accounts.yaml")
    assert done.exit_code == 0, done.document
    assert set(forecast.outcomes.values()) == set(done.outcomes.values()) == {"changed"}
    assert shared_host.shell("ps -o user= -C sleep | sort -u").split() == ["shop"]
    again = shared_host.apply(MANIFEST, path="/home/accounts.yaml")
    assert set(again.outcomes.values()) == {"stable"}

    refused = shared_host.apply("- user:\n    - shop: {ensure: absent, manage_home: true}\n")
    (error,) = refused.events["user#shop"]["errors"]
    assert error.startswith("user shop has running processes; stop them before: ")
    assert error.endswith(" (sleep)")

    for words in ("service shop", "user shop", "group shop", "file /srv/shop/data"):
        entry = shared_host.shell(f"{PROGRAM} status {words} --yaml")
        assert set(shared_host.apply(entry).outcomes.values()) == {"stable"}, entry
    assert "enable: true" in shared_host.shell(f"{PROGRAM} status service shop --yaml")
    stopped = "- service:\n    - shop: {ensure: stopped, enable: false}\n- user:\n    - shop: {ensure: absent}\n"
    assert set(shared_host.apply(stopped).outcomes.values()) == {"changed"}

"""Inventories: what they mean, and what is refused before a host is contacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstay.foundation.faults import DoesNotLoad
from mainstay.push.inventory import inventory_of_names
from mainstay.push.inventory_file import read_inventory

SAMPLE = """
hosts:
  web1: {python: /opt/python3.12, data: {port: 1}}
  web2:
  pusher@10.0.0.7:
groups:
  old: {hosts: [web1, web2], data: {port: 2, a: old}}
  new: {hosts: [web1], data: {port: 3, a: new}}
  empty:
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
)


def read(tmp_path: Path, text: str, name: str = "hosts.yaml") -> list[str]:
    """The faults of an inventory."""
    place = tmp_path / name
    place.write_text(text)
    try:
        read_inventory(str(place))
    except DoesNotLoad as refusal:
        return [str(fault).removeprefix(f"{tmp_path}/") for fault in refusal.faults]
    return []


def test_layers_are_groups_in_inventory_order_then_the_host(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(SAMPLE)
    found = read_inventory(str(tmp_path / "hosts.yaml"))
    assert list(found.hosts) == ["web1", "web2", "pusher@10.0.0.7"]
    assert found.hosts["web1"].python == "/opt/python3.12"
    assert [origin for origin, _ in found.hosts["web1"].layers] == ["group old", "group new", "host web1"]
    assert [values["port"] for _, values in found.hosts["web1"].layers] == [2, 3, 1]
    assert found.hosts["pusher@10.0.0.7"].layers == []
    assert found.groups == {"old": {"web1", "web2"}, "new": {"web1"}, "empty": frozenset()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts: {-oProxyCommand=x: }", "'-oProxyCommand=x' is no name of a host"),
        ('hosts: {"web1\\nweb2": }', "is no name of a host"),
        ('hosts: {"web1 -v": }', "is no name of a host"),
        ('hosts: {"a;reboot": }', "is no name of a host"),
        ('hosts: {"root@-x": }', "is no name of a host"),
        ("hosts: {w1: {pyton: x}}", "unknown key 'pyton' (did you mean 'python'?)"),
        ("hosts: {w1: {python: 'python3 -c x'}}", "python is the path or name of a program"),
        ("hosts: {w1: {python: '-x'}}", "python is the path or name of a program"),
        ("hosts: {w1: {data: [1]}}", "data is a map of values"),
        ("hosts: {w1: [1]}", "expected a map with data, python"),
        ("hosts: [w1]", "hosts is a map: write each name as a key"),
        ("hosts: {web1: }\ngroups: {g: {hosts: [web2]}}", "'web2' is not below `hosts` (did you mean 'web1'?)"),
        ("hosts: {web1: }\ngroups: {web1: }", "'web1' is also the name of a host"),
        ("hosts: {web1: }\ngroups: {'a b': }", "'a b' is no name of a group"),
        ("hosts: {}", "it has no hosts"),
        ("[]", "an inventory is a map"),
        ("host: {web1: }", "unknown key 'host' (did you mean 'hosts'?)"),
        ("hosts: {web1: , web1: }", "duplicate"),
        (f"hosts: {{web1: }}\n{BOMB}", "alias"),
        (f"hosts: {{{'x' * 300}: }}", "is no name of a host"),
    ],
)
def test_what_is_wrong_is_a_fault_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    faults = read(tmp_path, text)
    assert any(message in fault for fault in faults), faults
    assert all(fault.startswith("hosts.yaml:") for fault in faults)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    faults = read(tmp_path, "hosts:\n  -x:\n  web1: {pyton: 1}\ngroups:\n  g: {hosts: [web9]}\n")
    assert [fault.partition(": ")[0] for fault in faults] == ["hosts.yaml:2:3", "hosts.yaml:3:10", "hosts.yaml:5:15"]


def test_a_program_prints_the_inventory_as_json(tmp_path: Path) -> None:
    program = tmp_path / "inventory"

    def output(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    output(f"echo '{json.dumps({'hosts': {'web1': {'data': {'a': 1}}}})}'")
    assert list(read_inventory(str(program)).hosts) == ["web1"]
    for script, message in (
        ('echo \'{"hosts": {"-x": null}}\'', "'-x' is no name of a host"),
        ("echo 'hosts: {}'", "not valid JSON"),
        ("exit 7", "failed with exit code 7"),
        ("head -c 20000000 /dev/zero", "is larger than 16 MB"),
    ):
        output(script)
        with pytest.raises(DoesNotLoad, match=message):
            read_inventory(str(program))
    program.write_text("hosts: {web1: }\n")
    with pytest.raises(DoesNotLoad, match="remove its x bit"):
        read_inventory(str(program))


@pytest.mark.parametrize("name", ["-oProxyCommand=touch /tmp/x", "", "a b", "web1\n", "a/../b", "x`id`", "$(id)"])
def test_a_host_of_the_command_line_is_checked_as_well(name: str) -> None:
    with pytest.raises(DoesNotLoad, match="is no name of a host"):
        inventory_of_names([name])


def test_names_that_ssh_knows_are_accepted() -> None:
    names = ["web1", "root@web1.example.com", "10.0.0.1", "fe80::1%eth0", "ssh://root@web1:2222", "_srv"]
    assert list(inventory_of_names(names).hosts) == names


def test_the_example_loads() -> None:
    example = Path(__file__).parents[2] / "examples" / "many-hosts" / "inventory.yaml"
    assert list(read_inventory(str(example)).hosts) == ["web1", "web2", "web3", "staging1"]

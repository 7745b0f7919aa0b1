"""Facts: built-in and custom facts, and their precedence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import GROUP, USER, Applied
from loading import faults_of, load_text
from mainstay.converge.host.facts import (
    built_in,
    custom_files,
    fqdn,
    os_family,
    platform_version,
    read_small,
    virtualization,
)
from mainstay.foundation.faults import DoesNotLoad

Program = Callable[..., "subprocess.CompletedProcess[str]"]


def facts_d(root: Path) -> Path:
    folder = root.parent / "configuration" / "facts.d"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# ---- built-in facts ----
def test_every_documented_fact_exists() -> None:
    facts = built_in()
    system = os.uname()
    assert facts["hostname"] == system.nodename.partition(".")[0]
    assert facts["fqdn"].partition(".")[0] == facts["hostname"] or facts["fqdn"] == socket.gethostname()
    assert set(facts["os"]) == {"name", "family", "version", "id"}
    assert facts["kernel"] == {"release": system.release, "arch": system.machine}
    assert facts["cpu"] == {"count": len(os.sched_getaffinity(0))}
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert abs(facts["memory"]["total_bytes"] - int(total.split()[1]) * 1024) < 64 * 1024 * 1024
    assert set(facts["network"]) == {"interfaces", "default_ipv4", "default_ipv6"}
    assert set(facts["network"]["interfaces"]) == {name for _, name in socket.if_nameindex()}
    assert facts["virtualization"]
    assert facts["user"] == {"name": USER, "group": GROUP}
    assert facts["host"]["info"] == {
        "hostname": system.nodename,
        "os": "linux",
        "platform": facts["os"]["id"],
        "platformFamily": facts["os"]["family"],
        "platformVersion": platform_version(facts["os"]["id"], facts["os"]["version"], read_small),
        "kernelVersion": system.release,
        "kernelArch": system.machine,
        **dict(zip(VIRTUALIZATION, virtualization(read_small, os.path.exists), strict=True)),
    }


VIRTUALIZATION = ("virtualizationSystem", "virtualizationRole")


@pytest.mark.parametrize(
    ("name", "version", "files", "expected"),
    [
        ("debian", "12", {"/etc/debian_version": "12.11\n"}, "12.11"),
        ("debian", "", {"/etc/debian_version": "trixie/sid\n"}, "trixie/sid"),
        ("ubuntu", "24.04", {"/etc/debian_version": "trixie/sid\n"}, "24.04"),
        ("rocky", "9", {"/etc/redhat-release": "Rocky Linux release 9.3 (Blue Onyx)\n"}, "9.3"),
        ("alpine", "3", {"/etc/alpine-release": "3.20.1\n"}, "3.20.1"),
        ("arch", "", {}, ""),
    ],
)
def test_the_version_of_a_platform_has_its_minor_number(
    name: str, version: str, files: dict[str, str], expected: str
) -> None:
    assert platform_version(name, version, files.get) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("", "")),
        ({"/proc/modules": "kvm_intel 1 0\nkvm 2 1 kvm_intel\n"}, ("kvm", "host")),
        ({"/proc/cpuinfo": "model name: QEMU Virtual CPU version 2.5+\n"}, ("kvm", "guest")),
        ({"/proc/self/cgroup": "0::/docker/abc\n", "/proc/modules": "kvm 1\n"}, ("docker", "guest")),
        ({"/.dockerenv": ""}, ("docker", "guest")),
        ({"/proc/1/environ": "container=lxc\0A=1"}, ("lxc", "guest")),
        ({"/proc/xen": "", "/proc/xen/capabilities": "control_d\n"}, ("xen", "host")),
        ({"/proc/modules": "vboxguest 1 0\n"}, ("vbox", "guest")),
    ],
)
def test_virtualization_is_read_from_files(files: dict[str, str], expected: tuple[str, str]) -> None:
    assert virtualization(files.get, files.__contains__) == expected


def test_an_interface_is_found_by_name_and_by_number(root: Path) -> None:
    first = min(socket.if_nameindex())[1]
    text = """
data:
  plain: "{{ lookup('facts.network.interfaces.0.name') }}"
  object: "{{ facts.network.interfaces[0].name }}"
  named: "{{ lookup('facts.network.interfaces.FIRST.name') }}"
  none: "{{ lookup('facts.network.interfaces.999', 'none') }}"
resources: [{exec: ['true']}]
"""
    layer = {"network": {"interfaces": {"extra0": {"name": "extra0"}}}}
    for layers in ([], [layer]):
        data = load_text(text.replace("FIRST", first), root, facts_layers=layers).data
        assert data == {"plain": first, "object": first, "named": first, "none": "none"}


def test_facts_are_plain_values() -> None:
    facts = built_in()
    assert json.loads(json.dumps(facts)) == facts


def test_the_loopback_interface_has_its_address() -> None:
    interfaces = built_in()["network"]["interfaces"]
    assert interfaces["lo"]["ipv4"] in ("127.0.0.1", None)
    assert interfaces["lo"]["mtu"] > 0


@pytest.mark.parametrize(
    ("name", "like", "family"),
    [
        *(("debian", "", "debian"), ("ubuntu", "debian", "debian"), ("linuxmint", "ubuntu debian", "debian")),
        *(("rhel", "fedora", "rhel"), ("rocky", "rhel centos fedora", "rhel"), ("fedora", "", "rhel")),
        *(("opensuse-leap", "suse opensuse", "suse"), ("sles", "suse", "suse"), ("arch", "", "arch")),
        *(("alpine", "", "alpine"), ("nixos", "", "nixos"), ("custom", "unheard of", "custom")),
    ],
)
def test_the_family_of_an_operating_system_is_derived(name: str, like: str, family: str) -> None:
    assert os_family(name, like) == family


def test_a_host_name_with_a_domain_is_the_whole_name() -> None:
    assert fqdn("ada.example.org") == "ada.example.org"


def test_an_unreadable_file_gives_no_fact() -> None:
    assert read_small("/proc/nope") is None


# ---- custom facts ----
def test_files_of_facts_d_are_read_in_the_order_of_their_names(root: Path) -> None:
    folder = facts_d(root)
    for name in ("20.yaml", "10.json", "30.yml", "readme.txt", "40.yaml.bak"):
        (folder / name).write_text("{}")
    found = custom_files(str(root.parent / "configuration"))
    assert [Path(path).name for path in found] == ["10.json", "20.yaml", "30.yml"]
    assert custom_files(str(root.parent / "nowhere")) == []


MANIFEST = """
data:
  seen: "{{ lookup('facts.site') }} {{ lookup('facts.os.family') }} {{ lookup('facts.only', '-') }}"
resources: [{exec: ["true"]}]
"""


def test_custom_facts_win_over_built_in_facts_and_the_later_wins(root: Path) -> None:
    folder = facts_d(root)
    (folder / "a.json").write_text('{"site": "first", "os": {"family": "odd"}, "only": "\\ud83d\\ude00"}')
    (folder / "b.yaml").write_text("site: second\n")
    assert load_text(MANIFEST, root).data["seen"] == "second odd 😀"
    layers = [{"site": "third"}, {"site": "fourth"}]
    assert load_text(MANIFEST, root, facts_layers=layers).data["seen"] == "fourth odd 😀"


def test_values_of_custom_facts_follow_the_core_schema(root: Path) -> None:
    (facts_d(root) / "a.yaml").write_text("a: {yes: yes, n: 010, t: true, z: ~, l: [1, {b: c}]}\n")
    text = "data: {a: \"{{ facts.a }}\"}\nresources: [{exec: ['true']}]\n"
    assert load_text(text, root).data["a"] == {"yes": "yes", "n": 10, "t": True, "z": None, "l": [1, {"b": "c"}]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.yaml",
            "a: [",
            "a.yaml:2:1: not valid YAML: did not find expected node content (while parsing a flow node)",
        ),
        ("a.yaml", "a: 1\na: 2\n", "a.yaml:2:1: duplicate key 'a'; the map already contains it"),
        ("a.yaml", "[a]", "a.yaml:1:1: expected a map of values, got a list"),
        ("a.json", '{"a": 1,}', "a.json:1:9: not valid JSON: "),
        ("a.json", "[" * 100_000, "a.json:1:1: not valid JSON: "),
        ("a.json", '"x"', "a.json:1:1: expected a map of values, got the text 'x'"),
        ("a.yml", "a: \x07", "a.yml:1:4: not valid YAML: the character U+0007 is not allowed here"),
    ],
)
def test_a_manifest_that_uses_facts_does_not_load_with_broken_facts(
    root: Path, name: str, content: str, message: str
) -> None:
    folder = facts_d(root)
    (folder / name).write_text(content)
    for text in (MANIFEST, MANIFEST.replace("lookup('facts.site')", "facts.site | upper")):
        with pytest.raises(DoesNotLoad) as refused:
            load_text(text, root)
        assert str(refused.value).startswith(f"{folder}/{message}")


def test_an_empty_file_gives_no_facts(root: Path) -> None:
    (facts_d(root) / "a.yaml").write_text("# later\n")
    (facts_d(root) / "b.yaml").write_text("site: here\n")
    assert load_text(MANIFEST.replace("facts.os.family", "facts.site"), root).data["seen"] == "here here -"


# ---- lazy reading: a broken facts file matters only if a fact is used ----
BROKEN = "a: ["


@pytest.mark.parametrize(
    "text",
    [
        "- exec: ['true']\n",
        "data: {a: 1, b: \"{{ environ.HOME | upper }}\"}\nresources: [{exec: ['true']}]\n",
        "hierarchy: {order: [a, b], merge: deep}\noverrides: {a: {}}\nresources: [{exec: ['true']}]\n",
        "- exec: [{x: {command: \"echo {{ 1 + 1 }}\", control: {if: \"'a' == 'a'\"}}}]\n",
        "- exec: [{x: {command: \"echo {{ facts.hostname }}\", control: {if: 'false'}}}]\n",
    ],
    ids=["plain", "data", "hierarchy", "templates", "skipped"],
)
def test_a_manifest_that_uses_no_fact_gathers_none(apply: Callable[..., Applied], root: Path, text: str) -> None:
    (facts_d(root) / "a.yaml").write_text(BROKEN)
    assert apply(text).errors == []


def test_broken_facts_in_a_condition_fail_only_that_resource(apply: Callable[..., Applied], root: Path) -> None:
    (facts_d(root) / "a.yaml").write_text(BROKEN)
    text = """
- exec:
    - asked: {command: "true", control: {if: "facts.a == 1"}}
    - fine: {command: "true"}
"""
    done = apply(text)
    assert done.outcomes == ["failed", "changed"]
    assert len(done.errors) == 1
    assert all("facts.d/a.yaml:2:1: not valid YAML" in error for error in done.errors)


def test_a_run_without_facts_does_not_import_them(root: Path) -> None:
    script = (
        "import sys\n"
        "from mainstay.cli.main import main\n"
        "code = main(['apply', '-'])\n"
        "print(code, 'mainstay.converge.host.facts' in sys.modules, 'jinja2' in sys.modules, 'socket' in sys.modules)\n"
    )

    for manifest, expected in (
        ("- exec: ['true']\n", "0 False False False"),
        ("- exec: [{x: {command: \"true {{ lookup('facts.cpu.count') }}\"}}]\n", "0 True False True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script], input=manifest, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.splitlines()[-1] == expected, done.stderr


# ---- the command line ----
def test_facts_of_the_command_line_win_over_files_and_the_later_wins(mainstay: Program, root: Path) -> None:
    (facts_d(root) / "a.yaml").write_text("site: directory\ndeep: {a: 1, b: 1}\n")
    (root / "facts.yaml").write_text("site: file\ndeep: {b: 2}\n")
    text = '- exec: [{x: {command: "echo {{ facts.site }} {{ facts.deep }} {{ facts.n + 1 }}", logoutput: true}}]\n'
    for options, expected in (
        (["--fact", "n=1"], 'directory {"a": 1, "b": 1} 2'),
        (["--facts", "facts.yaml", "--fact", "n=1"], 'file {"a": 1, "b": 2} 2'),
        (
            ["--fact", "site=option", "--fact", "deep.b=3", "--facts", "facts.yaml", "--fact", "n=0x0f"],
            'option {"a": 1, "b": 3} 16',
        ),
        (["--fact", "site=one", "--fact", "site=two", "--fact", "n=7"], 'two {"a": 1, "b": 1} 8'),
    ):
        done = mainstay("apply", "-", *options, stdin=text)
        assert done.returncode == 0, done.stderr
        assert f"| {expected}\n" in done.stdout


def test_an_unknown_fact_is_reported_with_a_suggestion(root: Path) -> None:
    text = "- exec: [{x: {path: \"/{{ lookup('facts.os.famly') }}\"}}]\n"
    assert faults_of(text, root) == [
        "1:21 exec#x: path: facts.os.famly is not defined (did you mean facts.os.family?)"
    ]

"""Every YAML block of the seeds of the file and exec types, unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import GROUP, USER, Applied
from loading import faults_of, load_text, resource_of
from mainstay.converge.contract import Resource

SEEDS = Path(__file__).parents[1] / "seeds"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> dict[str, str]:
    """Heading → the YAML block below it. No heading of the seeds has two."""
    found = {}
    text = (SEEDS / f"{document}.md").read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        heading = re.findall(r"^#+ (.+)$", text[: match.start()], re.MULTILINE)[-1]
        assert heading not in found
        found[heading] = match[1]
    return found


EXEC = blocks("exec")
FILE = blocks("file")


def test_every_example_of_the_seeds_is_covered() -> None:
    assert list(EXEC) == [
        "Creates Property",
        "Guard Commands (OnlyIf / Unless)",
        "Refresh Only Property",
        "Subscribe Behavior",
        "Exit Code Validation",
        "Command vs Name",
        "Environment and Path",
    ]
    assert list(FILE) == ["Content Sources"]


def only(text: str, root: Path, identity: str) -> Resource:
    return resource_of(load_text(text, root), identity)


# ---- exec ----
def test_creates_skips_the_command_once_its_file_exists(apply: Callable[..., Applied], root: Path) -> None:
    example = EXEC["Creates Property"]
    wanted = only(example, root, "exec#extract-archive")
    assert vars(wanted)["command"] == "tar xzf /tmp/app.tar.gz -C /opt"
    assert vars(wanted)["creates"] == "/opt/app/bin/app"

    here = example.replace("/opt", str(root))
    assert apply(here, noop=True).messages == ["Would have executed"]
    (root / "app" / "bin").mkdir(parents=True)
    (root / "app" / "bin" / "app").touch()
    assert apply(here, noop=True).outcomes == ["stable"]


def test_guards_decide_whether_the_command_runs(apply: Callable[..., Applied], root: Path) -> None:
    example = EXEC["Guard Commands (OnlyIf / Unless)"]
    assert [resource.id for resource in load_text(example, root).resources] == [
        "exec#install-app",
        "exec#configure-firewall",
    ]

    flag = root / "flag"
    rules = root / "rules"
    here = (
        example.replace("/tmp/app-package.tar.gz", str(flag))
        .replace("/usr/local/bin/install-app.sh", f"touch {root}/installed")
        .replace("/usr/sbin/iptables -C INPUT -p tcp --dport 8080 -j ACCEPT", f"test -e {rules}")
        .replace("/usr/sbin/iptables -A INPUT -p tcp --dport 8080 -j ACCEPT", f"touch {rules}")
    )
    # Guards run in a dry run too, so it reports exactly what the run then does.
    assert apply(here, noop=True).outcomes == ["stable", "changed"]
    assert apply(here).outcomes == ["stable", "changed"]
    flag.touch()
    assert apply(here, noop=True).outcomes == ["changed", "stable"]
    assert apply(here).outcomes == ["changed", "stable"]
    assert (root / "installed").exists()


def test_refresh_only_needs_its_file_in_the_manifest(root: Path) -> None:
    assert faults_of(EXEC["Refresh Only Property"], root) == [
        "6:13 exec#reload-nginx: subscribe: there is no file#/etc/nginx/nginx.conf in this manifest"
    ]


def test_refresh_only_runs_only_when_its_file_changes(apply: Callable[..., Applied], root: Path) -> None:
    conf = root / "nginx.conf"
    here = f"""
- file:
    - {conf}: {{ensure: present, content: "worker_processes 1;", owner: USER, group: GROUP, mode: "0644"}}
""" + EXEC["Refresh Only Property"].replace("/etc/nginx/nginx.conf", str(conf)).replace(
        "systemctl reload nginx", f"touch {root}/reloaded"
    )
    assert apply(here, noop=True).messages == ["Would have created the file", "Would have executed via subscribe"]
    assert apply(here).outcomes == ["changed", "refreshed"]
    assert (root / "reloaded").exists()
    (root / "reloaded").unlink()
    assert apply(here).outcomes == ["stable", "stable"]
    assert not (root / "reloaded").exists()


def test_the_subscribe_example_lacks_required_attributes(root: Path) -> None:
    assert faults_of(EXEC["Subscribe Behavior"], root) == [
        "2:7 file#/etc/app/config.yaml: owner, group, mode are required"
    ]


def test_a_refresh_runs_in_spite_of_creates_and_onlyif(apply: Callable[..., Applied], root: Path) -> None:
    here = (
        EXEC["Subscribe Behavior"]
        .replace(
            "ensure: present", f'ensure: present\n        owner: {USER}\n        group: {GROUP}\n        mode: "0644"'
        )
        .replace("/etc/app/config.yaml", f"{root}/config.yaml")
        .replace("systemctl reload app", f"touch {root}/reloaded")
        .replace("refresh_only: true", f"refresh_only: true\n        creates: {root}\n        onlyif: 'false'")
    )
    assert apply(here).outcomes == ["changed", "refreshed"]
    assert (root / "config.yaml").read_text() == "..."
    assert (root / "reloaded").exists()
    assert apply(here).outcomes == ["stable", "stable"]


@pytest.mark.parametrize(("code", "outcome"), [(0, "changed"), (1, "changed"), (2, "changed"), (3, "failed")])
def test_returns_lists_the_exit_codes_of_success(
    apply: Callable[..., Applied], root: Path, code: int, outcome: str
) -> None:
    example = EXEC["Exit Code Validation"]
    assert vars(only(example, root, "exec#check-status"))["returns"] == (0, 1, 2)
    health = root / "check-health"
    health.write_text(f"#!/bin/sh\nexit {code}\n")
    health.chmod(0o755)
    assert apply(example.replace("/usr/local/bin/check-health", str(health))).outcomes == [outcome]


def test_the_name_is_the_command_when_none_is_given(root: Path) -> None:
    by_name, by_command = load_text(EXEC["Command vs Name"], root).resources
    command = "/usr/bin/myapp --config /etc/myapp.conf"
    assert by_name.id == f"exec#{command}"
    assert by_command.id == "exec#run-myapp"
    for resource in (by_name, by_command):
        assert vars(type(resource))["command_line"].fget(resource) == command


def test_both_forms_of_a_command_run_it(apply: Callable[..., Applied], root: Path) -> None:
    here = EXEC["Command vs Name"].replace("/usr/bin/myapp --config /etc/myapp.conf", "/bin/sh -c 'echo ran'")
    done = apply(here)
    assert done.outcomes == ["changed", "changed"]
    assert [event.output for event in done.report.events] == ["ran\n", "ran\n"]


def test_environment_path_and_cwd_reach_the_command(apply: Callable[..., Applied], root: Path) -> None:
    example = EXEC["Environment and Path"]
    wanted = vars(only(example, root, "exec#build-app"))
    assert wanted["cwd"] == "/opt/app"
    assert wanted["environment"] == ("CC=gcc", "CFLAGS=-O2")
    assert wanted["path"] == "/usr/local/bin:/usr/bin:/bin"

    # `make` exists only in a directory of `path`.
    tools = root / "tools"
    tools.mkdir()
    (tools / "make").write_text('#!/bin/sh\necho "$1 $CC $CFLAGS $PWD $PATH $MAINSTAY_STATE_DIR"\n')
    (tools / "make").chmod(0o755)
    here = example.replace("/opt/app", str(root)).replace("/usr/local/bin", str(tools))
    done = apply(here)
    assert done.outcomes == ["changed"]
    state = root.parent / "state"
    assert done.report.events[0].output == f"build gcc -O2 {root} {tools}:/usr/bin:/bin {state}\n"


# ---- file ----
def test_content_and_source_examples_load_as_written(root: Path) -> None:
    motd, config = load_text(FILE["Content Sources"], root).resources
    assert (motd.id, vars(motd)["mode"]) == ("file#/etc/motd", 0o644)
    assert motd.deferred is not None
    assert motd.deferred["content"].text == "Welcome to {{ lookup('facts.hostname') }}\nManaged by CCM\n"
    assert vars(config)["source"] == "files/config.yaml"
    assert (vars(config)["owner"], vars(config)["group"], vars(config)["mode"]) == ("app", "app", 0o640)


def test_content_is_rendered_and_source_is_relative_to_the_manifest(
    apply: Callable[..., Applied], root: Path
) -> None:
    here = (
        FILE["Content Sources"]
        .replace("/etc/app", str(root))
        .replace("/etc", str(root))
        .replace("owner: root", f"owner: {USER}")
        .replace("owner: app", f"owner: {USER}")
        .replace("group: root", f"group: {GROUP}")
        .replace("group: app", f"group: {GROUP}")
    )
    files = root.parent / "files"
    files.mkdir()
    (files / "config.yaml").write_text("port: 80\n")
    facts = [{"hostname": "ada"}]
    forecast = apply(here, noop=True, facts_layers=facts)
    assert forecast.messages == ["Would have created the file", "Would have created the file"]
    assert list(root.iterdir()) == []
    assert apply(here, facts_layers=facts).outcomes == ["changed", "changed"]
    assert (root / "motd").read_text() == "Welcome to ada\nManaged by CCM\n"
    assert (root / "config.yaml").read_text() == "port: 80\n"
    assert (root / "config.yaml").stat().st_mode & 0o7777 == 0o640
    assert apply(here, facts_layers=facts).outcomes == ["stable", "stable"]


def test_a_missing_attribute_in_the_file_examples_is_named(root: Path) -> None:
    without_mode = FILE["Content Sources"].replace('        mode: "0640"\n', "").replace("        group: root\n", "")
    assert faults_of(without_mode, root) == [
        "3:7 file#/etc/motd: group is required",
        "13:7 file#/etc/app/config.yaml: mode is required",
    ]

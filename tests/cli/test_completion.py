"""Completion: the candidates for the words typed so far, and a real shell that uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from command_line import Shell, on_terminal
from control_plane import Server
from fork_server import PROGRAM
from scenario import Scenario, unique

SCHEMA = {
    "cpu": {"type": "integer"},
    "size": {"type": "string", "validators": [{"type": "enum", "values": ["small", "large"]}]},
    "db": {"type": "object", "properties": {"host": {"type": "string"}}},
    "url": {"type": "string", "source": "agent"},
}


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    return scenario.service_type(SCHEMA, name=unique("web"))


def candidates(shell: Shell, scenario: Scenario, *words: str) -> list[str]:
    done = shell.run(scenario.consumer, "completion", "--words", *words)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_commands_options_and_choices_are_completed(shell: Shell, scenario: Scenario) -> None:
    assert candidates(shell, scenario, "wa") == ["watch"]
    assert candidates(shell, scenario, "order", "--d") == ["--dry-run"]
    assert candidates(shell, scenario, "orphans", "--")[-3:] == ["--ca-file", "--insecure", "--json"]
    assert candidates(shell, scenario, "jobs", "") == ["show", "cancel"]
    assert candidates(shell, scenario, "jobs", "--status", "F") == ["Failed"]
    assert candidates(shell, scenario, "type", "ch") == ["check"]
    assert candidates(shell, scenario, "nonsense", "") == []
    # The shell completes files.
    assert candidates(shell, scenario, "blueprint", "check", "one", "") == []
    assert candidates(shell, scenario, "status", "file", "/etc/hosts", "--j") == ["--json"]
    assert candidates(shell, scenario, "status", "") == [
        "archive",
        "exec",
        "file",
        "group",
        "package",
        "service",
        "user",
    ]
    assert "line" not in candidates(shell, scenario, "ensure", "")
    assert candidates(shell, scenario, "status", "us") == ["user"]
    assert "order" in candidates(shell, scenario)
    # Options that are not in the help are not offered.
    assert "--shown-as" not in candidates(shell, scenario, "blueprint", "test", "--")
    # Words are not interpreted, wherever they are.
    assert "--noop" in candidates(shell, scenario, "apply", "--")
    assert candidates(shell, scenario, "apply", "--", "x", "--no") == ["--noop"]


def test_names_of_types_services_actions_and_properties_are_completed(
    shell: Shell, scenario: Scenario, kind: Any
) -> None:
    service = scenario.complete(scenario.order(kind, name=unique("shop")))
    name, type_name = service["name"], kind["name"]
    assert candidates(shell, scenario, "order", type_name[:-2]) == [type_name]
    assert candidates(shell, scenario, "do", "sho") == [name]
    assert candidates(shell, scenario, "do", name, "") == ["start", "update", "delete"]
    assert candidates(shell, scenario, "do", name, "update", "-p", "") == ["cpu=", "size=", "db=", "db.host="]
    assert candidates(shell, scenario, "order", type_name, "x", "-p", "size=s") == ["size=small"]
    # bash splits a word at `=`.
    assert candidates(shell, scenario, "order", type_name, "x", "-p", "size", "=") == ["small", "large"]
    assert candidates(shell, scenario, "order", type_name, "x", "-p", "size", "=", "l") == ["large"]
    assert candidates(shell, scenario, "services", "--type", type_name[:-1]) == [type_name]


def test_a_name_with_shell_syntax_is_not_completed(
    server: Server, shell: Shell, scenario: Scenario, kind: Any
) -> None:
    for name in ("shop;reboot", "shop$(reboot)", "shop reboot", "shop`x`", "shop'", "shop-2"):
        scenario.order(kind, name=name)
    server.store_name("services", scenario.order(kind)["id"], "shop\x1b[2J")
    assert candidates(shell, scenario, "do", "shop") == ["shop-2"]


def test_without_a_server_nothing_is_printed(shell: Shell, scenario: Scenario) -> None:
    done = shell.run(scenario.consumer, "completion", "--words", "do", "s", code=1, url="http://127.0.0.1:9")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_script_has_valid_syntax(shell: Shell, scenario: Scenario, name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(shell.run(scenario.consumer, "completion", name).stdout)
    assert "completion --words" in script.read_text()
    if shutil.which(name) is not None:
        subprocess.run([name, "-n", str(script)], check=True)


def test_bash_completes_commands_and_names(shell: Shell, scenario: Scenario, kind: Any) -> None:
    service = scenario.complete(scenario.order(kind, name=unique("shop")))
    environment = {
        **shell.environment(scenario.consumer.token),
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "PS1": "ready> ",
    }
    with on_terminal(["bash", "--norc", "-i"], environment) as terminal:
        terminal.type("source <(mainstay completion bash); echo sour''ced\n")
        terminal.wait_for("\rsourced\r\n")
        terminal.type("mainstay apply --no\t")
        terminal.wait_for("mainstay apply --noop ")
        # Several candidates are listed, and the typed words stay.
        terminal.type("\x15mainstay apply --\t\t")
        terminal.wait_for("--detailed-exitcodes")
        terminal.wait_for("mainstay apply --")
        terminal.type("\x15mainstay server ba\t--data-\t")
        terminal.wait_for("mainstay server backup --data-dir ")
        terminal.type("\x15mainstay agents gr\t")
        terminal.wait_for("mainstay agents grant ")
        terminal.type("\x15mainstay show shop-\t")
        terminal.wait_for(f"mainstay show {service['name']} ")
        terminal.type("\nmainstay order " + kind["name"][:-1] + "\t" + "x -p siz\tsm\t--no-such\n")
        terminal.wait_for(f"{kind['name']} x -p size=small --no-such")
        terminal.type("exit\n")
        terminal.finish()

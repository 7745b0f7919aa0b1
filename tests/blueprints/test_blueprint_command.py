"""`mainstay blueprint new|check|push|pull` as subprocesses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bridge import Bridge
from fork_server import run_program
from scenario import unique


def blueprint(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    return run_program(["blueprint", *words], environment={**kept, **environment})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "new"
    assert blueprint("new", unique("demo"), "--dir", str(folder)).returncode == 0
    return folder


def test_a_new_blueprint_passes_its_check(directory: Path) -> None:
    done = blueprint("check", str(directory))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" 0.1.0 is valid\n")
    document = json.loads(blueprint("check", str(directory), "--json").stdout)
    assert (document["version"], document["faults"], document["warnings"]) == ("0.1.0", [], [])


def test_new_refuses_a_directory_with_files_and_an_invalid_name(directory: Path) -> None:
    assert blueprint("new", "demo", "--dir", str(directory)).returncode == 2
    assert blueprint("new", "no/name", "--dir", str(directory / "x")).returncode == 2
    assert not (directory / "x").exists()


def test_faults_are_shown_and_counted(directory: Path) -> None:
    definition = directory / "blueprint.yaml"
    definition.write_text(definition.read_text().replace("drift: report", "drift: mend"))
    done = blueprint("check", str(directory))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{definition}:12:8: drift must be report or repair",
        f"{directory}: 1 fault",
    ]
    (fault,) = json.loads(blueprint("check", str(directory), "--json").stdout)["faults"]
    assert (fault["line"], fault["column"]) == (12, 8)
    assert blueprint("check", str(directory / "nowhere")).returncode == 2


def test_several_blueprints_are_checked_although_one_of_them_fails(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert blueprint("new", "other", "--dir", str(other)).returncode == 0
    both = blueprint("check", str(directory), str(other))
    assert (both.returncode, both.stderr) == (0, "")
    assert [line.partition(": ")[0] for line in both.stdout.splitlines()] == [str(directory), str(other)]
    definition = directory / "blueprint.yaml"
    definition.write_text(definition.read_text().replace("drift: report", "drift: mend"))
    done = blueprint("check", str(directory), str(other))
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [f"{directory}: 1 fault", f"{other}: other 0.1.0 is valid"]
    words = ("check", str(tmp_path / "nowhere"), str(directory), str(other))
    refused = blueprint(*words)
    assert (refused.returncode, refused.stdout) == (2, done.stdout)
    assert "nowhere is not a directory" in refused.stderr
    missing, faulty, fine = json.loads(blueprint(*words, "--json").stdout)
    assert missing["error"].endswith("is not a directory; a blueprint is a directory")
    assert len(faulty["faults"]) == 1
    assert fine == json.loads(blueprint("check", str(other), "--json").stdout)


def test_a_pulled_blueprint_equals_the_pushed_one(bridge: Bridge, directory: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{bridge.admin.token}\n")
    where = ("--server", bridge.server.url, "--token-file", str(token))
    shown = blueprint("push", str(directory), "--dry-run", *where)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Would push " in shown.stdout
    pushed = json.loads(blueprint("push", str(directory), "--json", *where).stdout)
    assert pushed["created"] is True
    login = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    assert "already exists and is the current version" in blueprint("push", str(directory), **login).stdout
    by_name = f"{pushed['name']}@0.1.0"
    for number, what in enumerate((pushed["digest"], pushed["name"], by_name)):
        target = tmp_path / f"pulled-{number}"
        done = blueprint("pull", what, str(target), **login)
        assert (done.returncode, done.stderr) == (0, "")
        names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
        assert names == sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
        assert all((directory / name).read_bytes() == (target / name).read_bytes() for name in names)
    # Packing is reproducible.
    again = json.loads(blueprint("push", str(tmp_path / "pulled-0"), "--json", *where).stdout)
    assert again == {**pushed, "created": False}


def test_push_refuses_what_check_refuses_and_sends_nothing(bridge: Bridge, directory: Path) -> None:
    here = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    manifest = directory / "manifests/present.yaml"
    command = "echo {{ lookup('properties.greeting') }}"
    resource = f'  - exec:\n      - say: {{provider: shell, command: "{command}"}}\n\noutputs:'
    manifest.write_text(manifest.read_text().replace("outputs:", resource))
    checked = blueprint("check", str(directory))
    for options in ((), ("--force",), ("--dry-run",)):
        refused = blueprint("push", str(directory), *options, **here)
        assert refused.returncode == checked.returncode == 1
        assert "properties.greeting is free text of the order, and a shell would run it here" in refused.stderr
    as_json = blueprint("push", str(directory), "--json", **here)
    assert (
        json.loads(as_json.stdout)["faults"]
        == json.loads(blueprint("check", str(directory), "--json").stdout)["faults"]
    )
    name = json.loads(blueprint("check", str(directory), "--json").stdout)["name"]
    assert bridge.admin.get(f"/blueprints?name={name}")["items"] == []


def test_a_push_that_makes_a_property_secret_reports_the_sealed_values(bridge: Bridge, directory: Path) -> None:
    here = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    pushed = json.loads(blueprint("push", str(directory), "--json", **here).stdout)
    scenario = bridge.scenario
    known = bridge.admin.get(f"/agent-types/{scenario.agent_type_id}")["serviceTypeIds"]
    kinds = {"serviceTypeIds": [*known, pushed["serviceType"]["id"]]}
    bridge.admin.patch(f"/agent-types/{scenario.agent_type_id}", kinds)
    scenario.complete(scenario.order(pushed["serviceType"], {"greeting": "hi", "key": "a-key"}))
    for file, old, new in (
        ("blueprint.yaml", "0.1.0", "0.2.0"),
        ("service-type.yaml", "required: true\n    default: hello", "secret: {type: persistent}"),
    ):
        (directory / file).write_text((directory / file).read_text().replace(old, new))
    forecast = blueprint("push", str(directory), "--dry-run", **here)
    assert "\nWould seal 1 plain value of living services.\n" in forecast.stdout
    assert forecast.stdout.endswith("\nWithout --force the server refuses this push.\n")
    assert blueprint("push", str(directory), **here).returncode == 2
    done = blueprint("push", str(directory), "--force", **here)
    assert "\nSealed 1 plain value of living services.\n" in done.stdout
    assert "--force" not in done.stdout


def test_changed_content_of_a_version_needs_force_and_a_missing_blueprint_is_named(
    bridge: Bridge, directory: Path, tmp_path: Path
) -> None:
    here = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    assert blueprint("push", str(directory), **here).returncode == 0
    (directory / "files/greeting.j2").write_text("another\n")
    refused = blueprint("push", str(directory), **here)
    assert refused.returncode == 2
    assert "exists with other content" in refused.stderr
    assert blueprint("push", str(directory), "--force", **here).returncode == 0
    missing = blueprint("pull", "nothing@9.9.9", str(tmp_path / "none"), **here)
    assert (missing.returncode, missing.stderr) == (2, "mainstay: there is no blueprint nothing@9.9.9\n")
    assert not (tmp_path / "none").exists()


def test_push_needs_a_server_and_a_token(directory: Path, tmp_path: Path) -> None:
    without_login = {"MAINSTAY_CONFIG_DIR": str(tmp_path)}
    assert "not logged in" in blueprint("push", str(directory), **without_login).stderr
    to_other_server = ("push", str(directory), "--server", "http://127.0.0.1:1")
    assert "no token for http://127.0.0.1:1" in blueprint(*to_other_server, **without_login).stderr
    unreachable = blueprint(*to_other_server, **without_login, MAINSTAY_TOKEN="x")
    assert unreachable.returncode == 1
    assert "cannot be reached" in unreachable.stderr


def test_a_stored_token_is_sent_only_to_its_server(bridge: Bridge, directory: Path, tmp_path: Path) -> None:
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"url": bridge.server.url, "token": bridge.admin.token}))
    kept = {"MAINSTAY_CONFIG_DIR": str(tmp_path)}
    assert blueprint("push", str(directory), **kept).returncode == 0
    assert blueprint("push", str(directory), "--server", bridge.server.url, **kept).returncode == 0
    assert (
        "no token for http://127.0.0.1:1"
        in blueprint("push", str(directory), "--server", "http://127.0.0.1:1", **kept).stderr
    )

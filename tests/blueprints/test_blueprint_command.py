"""`mainstay blueprint new|check|push|pull` as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bridge import PROGRAM, Bridge
from scenario import unique


def blueprint(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    return subprocess.run(
        [PROGRAM, "blueprint", *words], capture_output=True, text=True, timeout=60, env={**kept, **environment}
    )


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert blueprint("new", unique("demo"), "--dir", str(folder)).returncode == 0
    return folder


def test_a_new_one_is_made_and_passes_its_check(made: Path) -> None:
    done = blueprint("check", str(made))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" 0.1.0 is fine\n")
    document = json.loads(blueprint("check", str(made), "--json").stdout)
    assert (document["version"], document["faults"], document["warnings"]) == ("0.1.0", [], [])


def test_nothing_is_made_over_something(made: Path) -> None:
    assert blueprint("new", "demo", "--dir", str(made)).returncode == 2
    assert blueprint("new", "no/name", "--dir", str(made / "x")).returncode == 2
    assert not (made / "x").exists()


def test_faults_are_told_and_counted(made: Path) -> None:
    definition = made / "blueprint.yaml"
    definition.write_text(definition.read_text().replace("drift: report", "drift: mend"))
    done = blueprint("check", str(made))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{definition}:12:8: drift must be report or repair",
        f"{made}: 1 fault",
    ]
    (fault,) = json.loads(blueprint("check", str(made), "--json").stdout)["faults"]
    assert (fault["line"], fault["column"]) == (12, 8)
    assert blueprint("check", str(made / "nowhere")).returncode == 2


def test_several_blueprints_are_checked_although_one_of_them_fails(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert blueprint("new", "other", "--dir", str(other)).returncode == 0
    both = blueprint("check", str(made), str(other))
    assert (both.returncode, both.stderr) == (0, "")
    assert [line.partition(": ")[0] for line in both.stdout.splitlines()] == [str(made), str(other)]
    definition = made / "blueprint.yaml"
    definition.write_text(definition.read_text().replace("drift: report", "drift: mend"))
    done = blueprint("check", str(made), str(other))
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [f"{made}: 1 fault", f"{other}: other 0.1.0 is fine"]
    words = ("check", str(tmp_path / "nowhere"), str(made), str(other))
    refused = blueprint(*words)
    assert (refused.returncode, refused.stdout) == (2, done.stdout)
    assert "nowhere is not a directory" in refused.stderr
    missing, faulty, fine = json.loads(blueprint(*words, "--json").stdout)
    assert missing["error"].endswith("is not a directory; a blueprint is one")
    assert len(faulty["faults"]) == 1
    assert fine == json.loads(blueprint("check", str(other), "--json").stdout)


def test_pushed_and_pulled_it_is_the_same(bridge: Bridge, made: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{bridge.admin.token}\n")
    where = ("--server", bridge.server.url, "--token-file", str(token))
    told = blueprint("push", str(made), "--dry-run", *where)
    assert (told.returncode, told.stderr) == (0, "")
    assert "would be pushed" in told.stdout
    pushed = json.loads(blueprint("push", str(made), "--json", *where).stdout)
    assert pushed["created"] is True
    as_environment = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    assert "was there already" in blueprint("push", str(made), **as_environment).stdout
    by_name = f"{pushed['name']}@0.1.0"
    for number, what in enumerate((pushed["digest"], pushed["name"], by_name)):
        target = tmp_path / f"pulled-{number}"
        done = blueprint("pull", what, str(target), **as_environment)
        assert (done.returncode, done.stderr) == (0, "")
        names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
        assert names == sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
        assert all((made / name).read_bytes() == (target / name).read_bytes() for name in names)
    # Packed again, it is the same bundle.
    again = json.loads(blueprint("push", str(tmp_path / "pulled-0"), "--json", *where).stdout)
    assert again == {**pushed, "created": False}


def test_a_changed_version_needs_force_and_a_missing_one_is_named(bridge: Bridge, made: Path, tmp_path: Path) -> None:
    here = {"MAINSTAY_URL": bridge.server.url, "MAINSTAY_TOKEN": str(bridge.admin.token)}
    assert blueprint("push", str(made), **here).returncode == 0
    (made / "files/greeting.j2").write_text("another\n")
    refused = blueprint("push", str(made), **here)
    assert refused.returncode == 2
    assert "is here with other content" in refused.stderr
    assert blueprint("push", str(made), "--force", **here).returncode == 0
    missing = blueprint("pull", "nothing@9.9.9", str(tmp_path / "none"), **here)
    assert (missing.returncode, missing.stderr) == (2, "mainstay: there is no blueprint nothing@9.9.9\n")
    assert not (tmp_path / "none").exists()


def test_who_and_where_must_be_known(made: Path, tmp_path: Path) -> None:
    nobody = {"MAINSTAY_CONFIG_DIR": str(tmp_path)}
    assert "no login" in blueprint("push", str(made), **nobody).stderr
    away = ("push", str(made), "--server", "http://127.0.0.1:1")
    assert "no token for http://127.0.0.1:1" in blueprint(*away, **nobody).stderr
    unreachable = blueprint(*away, **nobody, MAINSTAY_TOKEN="x")
    assert unreachable.returncode == 1
    assert "cannot be reached" in unreachable.stderr


def test_a_kept_token_goes_only_to_its_server(bridge: Bridge, made: Path, tmp_path: Path) -> None:
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"url": bridge.server.url, "token": bridge.admin.token}))
    kept = {"MAINSTAY_CONFIG_DIR": str(tmp_path)}
    assert blueprint("push", str(made), **kept).returncode == 0
    assert blueprint("push", str(made), "--server", bridge.server.url, **kept).returncode == 0
    assert (
        "no token for http://127.0.0.1:1"
        in blueprint("push", str(made), "--server", "http://127.0.0.1:1", **kept).stderr
    )

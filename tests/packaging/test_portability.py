"""The half that runs on hosts works on every Python from 3.9 on: checked by its sources, and by running it."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import mainstay
from applying import GROUP, USER
from interpreters import need_python
from program_files import ProgramRunner
from required_parts import need_program
from torture import IS_TORTURE

pytestmark = pytest.mark.test_all

VERSIONS = ["3.9", "3.10", "3.12", "3.13"] if IS_TORTURE else ["3.9", "3.13"]
CHECKER = Path(__file__).with_name("portability.py")
TOO_NEW = {
    "match": "match x:\n    case 1: pass\n",
    "an import": "from datetime import UTC\n",
    "an attribute": "import os\nos.splice(0, 1, 2)\n",
    "a parameter": "import os\nos.path.realpath('x', strict=True)\n",
    "a parameter of a type": "def f():\n    import subprocess\n    subprocess.Popen([], process_group=0)\n",
    "zip's strict": "zip(a, b, strict=True)\n",
}
MANIFEST = """\
data:
  names: [a, b]
  port: 8080
data_schema:
  properties:
    port: {type: integer, minimum: 1}
resources:
  - file:
      - ROOT/tree:
          ensure: directory
          owner: USER
          group: GROUP
          mode: "0755"
      - ROOT/tree/{{ each.value }}:
          for_each: "{{ data.names }}"
          ensure: present
          content: "{{ each.value | upper }} {{ lookup('data.port') }} {{ [3, 1] | sort | join(',') }}"
          owner: USER
          group: GROUP
          mode: "0640"
      - ROOT/tree/template:
          ensure: present
          content: "{{ template('template.j2') }}"
          owner: USER
          group: GROUP
          mode: "0600"
      - ROOT/tree/link:
          ensure: link
          target: a
          owner: USER
          group: GROUP
  - line:
      - port:
          path: ROOT/settings
          line: "port = {{ data.port }}"
          match: "^port ="
  - archive:
      - ROOT/files.tar.gz:
          url: files.tar.gz
          extract_parent: ROOT/tree
          creates: ROOT/tree/folder
          owner: USER
          group: GROUP
  - exec:
      - greet:
          command: sh -c 'echo hello; echo there >ROOT/greeted'
          creates: ROOT/greeted
          subscribe: ["file#ROOT/tree/a"]
      - slow:
          command: sleep 30
          timeout: 200ms
          unless: test -e ROOT/never
  - user:
      - root:
          ensure: present
  - group:
      - root:
          ensure: present
  - package:
      - bash:
          ensure: present
"""


@pytest.fixture(scope="module")
def sources(program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sources")
    with ZipFile(program) as archive:
        archive.extractall(folder)
    return [folder / "mainstay_program_cache.py", *(folder / "mainstay").rglob("*.py")]


def offences(version: str, paths: list[Path]) -> list[str]:
    done = subprocess.run(
        [need_python(version), "-I", CHECKER, *paths], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_that_the_sources_use_exists(version: str, sources: list[Path]) -> None:
    assert len(sources) > 100
    assert offences(version, sources) == []


def test_the_check_finds_what_is_too_new(tmp_path: Path) -> None:
    paths = []
    for number, text in enumerate(TOO_NEW.values()):
        paths.append(tmp_path / f"{number}.py")
        paths[-1].write_text(text)
    found = offences("3.9", paths)
    assert sorted({line.partition(":")[0] for line in found}) == list(map(str, paths)), found


def test_every_python_applies_a_manifest_as_this_one_does(
    runner_of: Callable[[str], ProgramRunner], root: Path
) -> None:
    (root / "template.j2").write_text("{% for name in data.names %}{{ name }};{% endfor %}\n")
    with tarfile.open(root / "files.tar.gz", "w:gz") as archive:
        archive.add(root / "template.j2", "folder/file")
    (root / "manifest.yaml").write_text(
        MANIFEST.replace("ROOT", f"{root}/made").replace("USER", USER).replace("GROUP", GROUP)
    )
    expected = run_three_times(runner_of(sys.executable), root)
    assert [event["outcome"] for event in expected[1]["events"]].count("changed") > 5
    for version in VERSIONS:
        for found, wanted in zip(run_three_times(runner_of(need_python(version)), root), expected, strict=True):
            for event, same in zip(found.pop("events"), wanted["events"], strict=True):
                assert event == same, version
            assert found == {key: value for key, value in wanted.items() if key != "events"}


def run_three_times(run: ProgramRunner, root: Path) -> list[Any]:
    """The reports of a dry run, a run and a second run in a fresh directory, without what differs by nature."""
    subprocess.run(["rm", "-rf", root / "made"], check=True)
    (root / "made").mkdir()
    (root / "made" / "settings").write_text("port = 1\n")
    reports = []
    for option in ("--noop", "--diff", "--diff"):
        done = run("apply", root / "manifest.yaml", "--json", option)
        assert done.stderr == ""
        reports.append(without_times(json.loads(done.stdout)))
    return reports


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        changing = ("run_id", "duration_seconds", "mtime", "started_at", "finished_at")
        return {key: without_times(each) for key, each in value.items() if key not in changing}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("command", "needed"), [("agent", "3.10"), ("server", "3.11"), ("services", "3.11")])
def test_a_command_that_needs_a_newer_python_gives_one_clear_line(command: str, needed: str) -> None:
    python = need_python("3.9")
    done = run_from_sources(python, command, "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"mainstay: the command {command} needs Python {needed} or newer, and {python} is Python 3.9\n"
    )


def test_the_list_of_commands_needs_no_packages() -> None:
    done = run_from_sources(need_python("3.9"), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  server        run the control plane\n" in done.stdout


def test_a_python_that_cannot_be_downloaded_for_the_tests_is_named(tmp_path: Path) -> None:
    """With nothing but the few programs that the script needs, and a mirror that does not exist."""
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "sh"):
        (tmp_path / "bin" / name).symlink_to(need_program(name))
    done = subprocess.run(
        [Path(__file__).parents[2] / "scripts" / "install-test-parts", "pythons"],
        env={
            "HOME": str(tmp_path),
            "PATH": str(tmp_path / "bin"),
            "UV_PYTHON_INSTALL_MIRROR": f"file://{tmp_path}/none",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert f"{tmp_path}/none" in done.stderr, "the reason is missing"
    assert "Not installed: python3.9" in done.stderr
    assert "set UV_PYTHON_INSTALL_MIRROR to a mirror, or put python3.9" in done.stderr


def run_from_sources(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    folder = str(Path(mainstay.__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {folder!r}); from mainstay.cli.main import program; program()"
    return subprocess.run([python, "-Ic", program, *words], capture_output=True, text=True, timeout=60)

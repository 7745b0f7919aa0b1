"""The program file runs with nothing but Python, unpacks itself once, and starts from its cache from then on."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from applying import GROUP, USER
from interpreters import need_python
from mainstay.converge.host.throw_away_host import SystemdHost, is_visible_in_host
from mainstay.packaging.program_cache import digest_of as program_digest
from mainstay.packaging.program_file import build_program_file
from program_files import ProgramRunner
from system.conftest import need_systemd
from system.test_packages import REPOSITORY
from test_docs import BLOCK, PAGES, ROOT
from torture import IS_TORTURE

pytestmark = pytest.mark.test_all

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"] if IS_TORTURE else ["3.9", "3.13"]
# Manifests of the guides that cannot be applied as they are, each with the reason.
NOT_APPLIED = {
    "README/site.yaml": "installs nginx, which needs a network",
    "hosts/coming-from/web.yaml": "installs nginx, which needs a network",
    "hosts/coming-from/motd.yaml": "checks the configuration of a running sshd",
    "hosts/lines-and-archives/lines.yaml": "changes a file that a command of the page creates",
    "hosts/trials-and-schedules/log.yaml": "shows a manifest that is never stable",
    "hosts/tutorial/site.yaml": "has a command that runs every time",
    "hosts/tutorial/wrong.yaml": "shows faults",
    "offering/tutorial/page/manifests/removed.yaml": "is applied by an agent, with a service",
    "offering/tutorial/page/manifests/running.yaml": "is applied by an agent, with a service",
}
PACKAGES_AND_UNITS = """\
data: {version: "1.0"}
resources:
  - package:
      - tiny: {ensure: "{{ lookup('data.version') }}"}
  - service:
      - systemd-journald: {ensure: running}
  - apply:
"""


def test_the_same_sources_give_the_same_bytes(program: Path) -> None:
    assert build_program_file() == program.read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_with_nothing_but_python(
    version: str, program: Path, runner_of: Callable[[str], ProgramRunner], root: Path
) -> None:
    manifest = root / "manifest.yaml"
    manifest.write_text(
        f"- file:\n    - {root}/x:\n        ensure: present\n        content: \"{{{{ 'a' | upper }}}}\"\n"
        f"        owner: {USER}\n        group: {GROUP}\n        mode: '0644'\n"
    )
    run = runner_of(need_python(version))
    first = run("apply", manifest)
    assert (first.returncode, first.stderr) == (0, "")
    assert "1 changed" in first.stdout
    assert (root / "x").read_text() == "A"
    assert os.listdir(run.cache) == [program_digest(program.read_bytes())]
    assert "1 stable" in run("apply", manifest).stdout
    refused = run("services")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "in this program file, which contains the commands of hosts" in refused.stderr
    # Its name resembles that of a command in the file.
    assert "no command 'order' in this program file" in run("order", "x", "y").stderr
    assert "(did you mean 'services'?)" in run("servces").stderr
    assert "more than this program file contains" in run("schema", "blueprint").stderr


def test_on_a_host_it_applies_the_manifests_of_the_docs_with_the_oldest_and_the_newest_python(
    program: Path, tmp_path: Path
) -> None:
    need_systemd()
    names = write_manifests(tmp_path / "docs")
    assert len(names) > 10
    oldest, newest = need_python("3.9"), need_python("3.13")
    needed = [
        tmp_path / "docs",
        program.parent,
        *(Path(os.path.realpath(each)).parents[1] for each in (oldest, newest)),
    ]
    binds = [path for path in needed if not is_visible_in_host(path)]
    with SystemdHost("program", read_only_binds=binds) as host:
        host.shell(REPOSITORY)

        def apply(python: str, *options: str) -> str:
            words = (python, "-I", str(program), "apply", str(tmp_path / "docs" / "all.yaml"), *options)
            done = host.run(*words)
            assert (done.returncode, done.stderr) == (0, ""), done
            return done.stdout

        first = apply(oldest)
        assert [name for name in names if f"changed   apply#{name}" not in first] == []
        assert "changed   package#tiny" in first
        assert host.shell("systemctl is-active hello; dpkg-query -W -f='${Version}' tiny") == "active\n1.0"
        # The newest Python finds the host as the oldest left it.
        assert re.search(r"^Run: \d+ stable in ", apply(newest), re.MULTILINE)
        assert "package#tiny" in apply(newest, "--set", "version='2.0'")
        assert host.shell("dpkg-query -W -f='${Version}' tiny") == "2.0"


def write_manifests(folder: Path) -> list[str]:
    """Writes the example manifests and those of the guides, and one that applies them all. Returns their names."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    names = [f"examples/{name}/manifest.yaml" for name in ("many-hosts", "sites", "stack", "website")]
    for page in PAGES:
        page_name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/guide/")
        for language, block in BLOCK.findall(page.read_text()):
            named = re.match(r"# file: (\S+)\n", block)
            if named is None or language != "yaml":
                continue
            place = folder / page_name / named[1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block)
            if re.search(r"^resources:", block, re.MULTILINE):
                names.append(f"{page_name}/{named[1]}")
    assert set(names) >= NOT_APPLIED.keys(), "remove what the guides no longer contain"
    names = [name for name in dict.fromkeys(names) if name not in NOT_APPLIED]
    (folder / "all.yaml").write_text(PACKAGES_AND_UNITS + "".join(f"      - {name}:\n" for name in names))
    return names


def test_modules_of_pythonpath_and_of_the_user_site_are_not_run(program: Path, tmp_path: Path) -> None:
    """Root runs the file with the environment of a user."""
    site = tmp_path / "home" / ".local" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    for place in (tmp_path / "path", site):
        place.mkdir(parents=True)
        # The interpreter imports others before it starts the file.
        for name in ("_sha2", "_sha256", "yaml", "jinja2", "mainstay"):
            (place / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write(__file__ + '\\n')\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    # The interpreter itself: one of a virtual environment has no user site.
    python = os.path.realpath(sys.executable)
    for added in ({"PYTHONPATH": str(tmp_path / "path")}, {}):
        done = subprocess.run(
            [python, program, "facts", "hostname"],
            capture_output=True,
            text=True,
            env=environment | added,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()


def test_an_old_python_gives_one_clear_line(program: Path) -> None:
    pretend = "import runpy, sys; sys.version_info = (3, 8, 18); runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", pretend, program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mainstay: Python 3.9 or newer is needed, and {sys.executable} is Python 3.8\n"
    main = ZipFile(program).read("__main__.py").decode()
    assert not re.search(r"\bf[\"']|: \w+ =|->", main), "an old Python could not compile it"


def test_from_its_cache_it_starts_within_one_and_a_half_times_the_installed_program(
    runner_of: Callable[[str], ProgramRunner],
) -> None:
    run = runner_of(sys.executable)
    # A start is the subject: other tests fork the program from a process that has it loaded.
    command = [str(Path(sys.executable).with_name("mainstay")), "facts"]
    installed, from_file, launcher = [], [], []
    # The least of several runs. On a loaded machine it takes more of them until one is undisturbed.
    for number in range(60):
        installed.append(seconds_of(lambda: subprocess.run(command, capture_output=True, text=True, timeout=60)))
        from_file.append(seconds_of(lambda: run("facts")))
        launcher.append(seconds_of(lambda: run.launch("true")))
        ratio = (min(from_file) - min(launcher)) / min(installed)
        if number >= 4 and ratio < 1.5:
            break
    assert ratio < 1.5


def seconds_of(act: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    """The processor time of child processes, which other load on the machine changes least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert act().returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

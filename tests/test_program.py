"""The installed command as a process: output, exit codes, closed streams."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from applying import fill_in
from mainstay.cli.views.run_display import RunDisplay

PROJECT = Path(__file__).resolve().parent.parent

PROGRAM = "import sys; sys.argv[0] = 'mainstay'; from mainstay.cli.main import program; {}; program()"


def run_program(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM.format(before), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_all_output_is_written_before_the_process_exits() -> None:
    done = run_program("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mainstay ")


def test_the_exit_code_is_that_of_the_command(tmp_path: Path) -> None:
    done = run_program("validate", str(tmp_path / "missing.yaml"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_an_address_in_use_is_named_with_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_program("server", "--data-dir", str(tmp_path), "--port", str(port))
    assert done.returncode == 2
    message = (
        f"mainstay: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --host or --port\n"
    )
    assert done.stderr == message


def test_exit_handlers_are_called() -> None:
    done = run_program("--version", before="import atexit; atexit.register(print, 'called')")
    assert done.stdout.endswith("called\n")


def test_threads_finish_before_the_process_exits() -> None:
    late = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()"
    assert run_program("--version", before=late).stdout.endswith("late\n")


MANIFEST = """
- file:
    - defaults: {{ensure: present, owner: "{uid}", group: "{gid}", mode: "0644"}}
    - {root}/é first: {{content: a}}
    - {root}/second: {{content: b}}
"""


def run_shell(line: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell. `$M` is the program, `$F` a manifest with two files below `root`."""
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(MANIFEST.format(root=root, uid=os.geteuid(), gid=os.getegid()))
    line = line.replace("$M", shlex.quote(str(Path(sys.executable).with_name("mainstay"))))
    return subprocess.run(
        ["/bin/bash", "-c", line], env={**os.environ, "F": str(manifest)}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$M apply $F >&-", 0),
        ("$M apply $F 2>&-", 0),
        ("$M apply $F <&- >&- 2>&-", 0),
        ("$M apply -v $F >/dev/full", 1),
        ("$M apply --json $F >/dev/full", 1),
        ("$M apply -v $F | true; exit ${PIPESTATUS[0]}", 141),
        ("PYTHONIOENCODING=ascii $M apply -v $F", 0),
    ],
)
def test_a_run_completes_even_if_its_output_cannot_be_written(root: Path, line: str, code: int) -> None:
    done = run_shell(line, root)
    assert "Traceback" not in done.stderr
    assert done.returncode == code
    assert sum(path.is_file() for path in root.iterdir()) == 2


def test_a_closed_standard_input_is_an_empty_manifest(root: Path) -> None:
    done = run_shell("$M apply - <&-", root)
    assert done.returncode == 2
    assert "empty document" in done.stderr


def test_a_report_does_not_replace_a_named_pipe(root: Path) -> None:
    pipe = root.parent / "pipe"
    os.mkfifo(pipe)
    done = run_shell(f"cat {pipe} & $M apply $F --report {pipe} > /dev/null; wait", root)
    assert done.returncode == 0
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert '"run_id"' in done.stdout


@pytest.mark.parametrize("words", ["apply - < $F", "apply manifest.yaml", "ensure file /x --ensure absent --noop"])
def test_a_deleted_current_directory_is_reported(root: Path, words: str) -> None:
    done = run_shell(f"cd {root}; rmdir {root}; $M {words}", root)
    assert done.returncode == 2
    assert "the current directory cannot be used" in done.stderr


def test_an_absolute_manifest_path_works_in_a_deleted_directory(root: Path) -> None:
    done = run_shell(f"mkdir {root}/gone; cd {root}/gone; rmdir {root}/gone; $M apply $F", root)
    assert done.returncode == 0


@pytest.mark.parametrize("words", ["status file {}", "status file {}x", "validate {}", "restore {}"])
def test_names_cannot_control_the_terminal(root: Path, words: str) -> None:
    path = root / "\x1b[2Jname"
    path.symlink_to("\x1b[31mtarget")
    done = run_shell(f"$M {words.format(shlex.quote(str(path)))}", root)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b" in done.stdout + done.stderr


def test_infinity_and_nan_are_text_in_json(root: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "numbers.yaml"
    manifest.write_text("data: {a: [.inf, -.inf, .nan]}\nresources: [{file: [{/x: {ensure: absent}}]}]\n")
    done = run_shell(f"$M render --json {manifest}", root)
    found = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found["data"] == {"a": [".inf", "-.inf", ".nan"]}


def test_missing_server_packages_are_reported_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "re2.py").write_text("raise ModuleNotFoundError('No module named re2', name='re2')")
    (tmp_path / "type.yaml").write_text("name: x")
    done = run_program("type", "check", str(tmp_path / "type.yaml"), before=f"sys.path.insert(0, {str(tmp_path)!r})")
    assert done.returncode == 2
    assert (
        done.stderr
        == "mainstay: the server packages are not installed (re2 is missing): pip install 'mainstay-plane[server]'\n"
    )


def test_finished_resources_are_shown_before_a_command_runs(root: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "looking.yaml"
    manifest.write_text(
        fill_in(
            "- exec:\n    - first: {command: 'true'}\n"
            "- file:\n    - ROOT/x: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0600'}\n"
            f"- exec:\n    - look: {{command: cp {tmp_path}/output ROOT/seen}}\n",
            root,
        )
    )
    done = run_shell(f"$M apply {manifest} > {tmp_path}/output", root)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in (root / "seen").read_text().splitlines()] == ["exec#first", f"file#{root}/x"]


def test_output_of_a_command_is_shown_while_the_command_runs(root: Path, tmp_path: Path) -> None:
    """The command waits until its last line appears, which follows the line before too quickly for a separate flush."""
    manifest = tmp_path / "waiting.yaml"
    command = f"echo one; echo two; until grep -q two {tmp_path}/output; do sleep 0.05; done"
    manifest.write_text(
        f"- exec:\n    - wait: {{provider: shell, command: '{command}', logoutput: true, timeout: 20s}}\n"
    )
    done = run_shell(f"$M apply {manifest} > {tmp_path}/output", root)
    assert done.returncode == 0, (tmp_path / "output").read_text()


def test_a_message_is_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    RunDisplay(verbose=False).message("This takes a while")
    assert capsys.readouterr().out == "This takes a while\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("nginx", "--enable", "false"), "--no-enable"),
        (("nginx", "--enable=false"), "--no-enable"),
        (("--enable", "true", "nginx"), "--enable"),
    ],
)
def test_a_value_after_a_switch_is_answered_with_the_correct_switch(words: tuple[str, ...], hint: str) -> None:
    done = run_program("ensure", "service", *words)
    assert done.returncode == 2
    assert f"a switch takes no value, use {hint}\n" in done.stderr


def test_the_wheel_has_its_own_name_and_installs_the_command(tmp_path: Path) -> None:
    """`mainstay` on package indexes is another project, so no document may tell users to install it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [
        *pip,
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(tmp_path),
    ]
    subprocess.run([*build, str(PROJECT)], check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("mainstay_plane-")
    target = tmp_path / "installed"
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    done = subprocess.run(
        [sys.executable, target / "bin" / "mainstay", "--version"],
        env={"PYTHONPATH": str(target)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("mainstay ")
    for document in (PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")):
        assert "pip install mainstay" not in document.read_text().replace("pip install mainstay-plane", "")

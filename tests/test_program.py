"""The installed command as a process: how it ends."""

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

PROGRAM = "import sys; sys.argv[0] = 'mainstay'; from mainstay.cli.main import program; {}; program()"


def run_program(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM.format(before), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_everything_said_is_out_before_the_process_ends() -> None:
    done = run_program("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mainstay ")


def test_the_exit_code_is_the_commands_own(tmp_path: Path) -> None:
    done = run_program("validate", str(tmp_path / "missing.yaml"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_an_address_that_is_taken_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_program("server", "--data-dir", str(tmp_path), "--port", str(port))
    assert done.returncode == 2
    told = (
        f"mainstay: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --host or --port\n"
    )
    assert done.stderr == told


def test_what_waits_for_the_end_is_called() -> None:
    done = run_program("--version", before="import atexit; atexit.register(print, 'called')")
    assert done.stdout.endswith("called\n")


def test_threads_finish_what_they_do() -> None:
    late = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()"
    assert run_program("--version", before=late).stdout.endswith("late\n")


MANIFEST = """
- file:
    - defaults: {{ensure: present, owner: "{uid}", group: "{gid}", mode: "0644"}}
    - {root}/é first: {{content: a}}
    - {root}/second: {{content: b}}
"""


def run_shell(line: str, root: Path) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `$M` is the program and `$F` a manifest of two files below `root`."""
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(MANIFEST.format(root=root, uid=os.geteuid(), gid=os.getegid()))
    names = {"M": str(Path(sys.executable).with_name("mainstay")), "F": str(manifest)}
    return subprocess.run(
        ["/bin/bash", "-c", line], env={**os.environ, **names}, capture_output=True, text=True, timeout=60
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
def test_a_run_goes_to_its_end_whatever_becomes_of_its_output(root: Path, line: str, code: int) -> None:
    done = run_shell(line, root)
    assert "Traceback" not in done.stderr
    assert done.returncode == code
    assert sum(path.is_file() for path in root.iterdir()) == 2


def test_a_closed_standard_input_is_an_empty_manifest(root: Path) -> None:
    done = run_shell("$M apply - <&-", root)
    assert done.returncode == 2
    assert "empty document" in done.stderr


def test_a_report_does_not_take_the_place_of_a_pipe(root: Path) -> None:
    pipe = root.parent / "pipe"
    os.mkfifo(pipe)
    done = run_shell(f"cat {pipe} & $M apply $F --report {pipe} > /dev/null; wait", root)
    assert done.returncode == 0
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert '"run_id"' in done.stdout


@pytest.mark.parametrize("words", ["apply - < $F", "apply manifest.yaml", "ensure file /x --ensure absent --noop"])
def test_a_current_directory_that_is_gone_is_said(root: Path, words: str) -> None:
    done = run_shell(f"cd {root}; rmdir {root}; $M {words}", root)
    assert done.returncode == 2
    assert "the current directory cannot be used" in done.stderr


def test_a_manifest_is_found_from_a_directory_that_is_gone(root: Path) -> None:
    done = run_shell(f"mkdir {root}/gone; cd {root}/gone; rmdir {root}/gone; $M apply $F", root)
    assert done.returncode == 0


@pytest.mark.parametrize("words", ["status file {}", "status file {}x", "validate {}", "restore {}"])
def test_names_cannot_steer_the_terminal(root: Path, words: str) -> None:
    path = root / "\x1b[2Jname"
    path.symlink_to("\x1b[31mtarget")
    done = run_shell(f"$M {words.format(shlex.quote(str(path)))}", root)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b" in done.stdout + done.stderr


def test_numbers_that_json_does_not_know_are_text(root: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "numbers.yaml"
    manifest.write_text("data: {a: [.inf, -.inf, .nan]}\nresources: [{file: [{/x: {ensure: absent}}]}]\n")
    done = run_shell(f"$M render --json {manifest}", root)
    found = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found["data"] == {"a": [".inf", "-.inf", ".nan"]}


def test_a_host_without_the_servers_parts_says_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "re2.py").write_text("raise ModuleNotFoundError('No module named re2', name='re2')")
    (tmp_path / "type.yaml").write_text("name: x")
    done = run_program("type", "check", str(tmp_path / "type.yaml"), before=f"sys.path.insert(0, {str(tmp_path)!r})")
    assert done.returncode == 2
    assert done.stderr == "mainstay: the server's parts are not installed (re2): pip install 'mainstay[server]'\n"


def test_what_was_done_is_shown_before_a_command_is_waited_for(root: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "looking.yaml"
    manifest.write_text(
        fill_in(
            "- exec:\n    - first: {command: 'true'}\n"
            "- file:\n    - ROOT/x: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0600'}\n"
            f"- exec:\n    - look: {{command: cp {tmp_path}/said ROOT/seen}}\n",
            root,
        )
    )
    done = run_shell(f"$M apply {manifest} > {tmp_path}/said", root)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in (root / "seen").read_text().splitlines()] == ["exec#first", f"file#{root}/x"]


def test_what_a_command_said_is_shown_while_it_is_silent(root: Path, tmp_path: Path) -> None:
    """It waits for its own last line, which follows the one before too quickly to be written by itself."""
    manifest = tmp_path / "waiting.yaml"
    command = f"echo one; echo two; until grep -q two {tmp_path}/said; do sleep 0.05; done"
    manifest.write_text(
        f"- exec:\n    - wait: {{provider: shell, command: '{command}', logoutput: true, timeout: 20s}}\n"
    )
    done = run_shell(f"$M apply {manifest} > {tmp_path}/said", root)
    assert done.returncode == 0, (tmp_path / "said").read_text()


def test_a_message_is_shown_before_the_work_it_announces(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_a_value_after_a_switch_is_answered_with_the_right_switch(words: tuple[str, ...], hint: str) -> None:
    done = run_program("ensure", "service", *words)
    assert done.returncode == 2
    assert f"a switch takes no value, write {hint}\n" in done.stderr

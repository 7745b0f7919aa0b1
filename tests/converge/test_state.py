"""If the state directory is damaged, full, read-only or missing, no refresh is lost and runs continue."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import GROUP, USER, Applied
from fork_server import PROGRAM
from mainstay.converge.host.state import Unusable
from required_parts import need_root

MANIFEST = """
- file:
    - ROOT/trigger: {ensure: present, content: "CONTENT", owner: USER, group: GROUP, mode: "0644"}
- exec:
    - subscriber:
        provider: shell
        command: COMMAND
        refresh_only: true
        subscribe: ["file#ROOT/trigger"]
"""


def manifest(content: str, command: str = "echo x >> ROOT/ran") -> str:
    return MANIFEST.replace("CONTENT", content).replace("COMMAND", command)


def only_folder(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "state" / "manifests").iterdir()
    return folder


@pytest.mark.parametrize("damage", ["garbage\n", "null\n", '["owe"]\n', '["owe","a",5]\n', "\0\0\0\0\n", "\0\n{\n"])
def test_a_damaged_ledger_owes_every_refresh(
    apply: Callable[..., Applied], root: Path, tmp_path: Path, damage: str
) -> None:
    assert apply(manifest("a", "false")).outcomes == ["changed", "failed"]
    (only_folder(tmp_path) / "owed").write_text(damage)
    assert apply(manifest("a")).outcomes == ["stable", "refreshed"]
    assert apply(manifest("a")).outcomes == ["stable", "stable"]


@pytest.mark.parametrize("damage", ["garbage\n", "null\n", "[1, 2]\n", '["x"]\n', "\0\0\n"])
def test_a_damaged_journal_does_not_prevent_a_run(apply: Callable[..., Applied], tmp_path: Path, damage: str) -> None:
    apply(manifest("a"))
    (only_folder(tmp_path) / "journal").write_text(damage)
    assert apply(manifest("a")).outcomes == ["stable", "stable"]


def test_a_replaced_temporary_file_does_not_prevent_a_run(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    apply(manifest("a"))
    (root / ".mainstay-X-1").mkdir()
    (root / ".mainstay-X-2").touch()
    (only_folder(tmp_path) / "journal").write_text(f'["X", "{root}"]\n')
    assert apply(manifest("a")).outcomes == ["stable", "stable"]
    assert not (root / ".mainstay-X-2").exists()


@pytest.mark.parametrize("damage", [b"{", b"[]", b"{}", b"\xff\xfe"])
def test_a_damaged_report_does_not_hide_others(
    mainstay: Callable[..., subprocess.CompletedProcess[str]],
    apply: Callable[..., Applied],
    tmp_path: Path,
    damage: bytes,
) -> None:
    run_id = apply(manifest("a")).report.run_id
    (tmp_path / "state/history/20990101T000000000000Z-abcdef.json").write_bytes(damage)
    done = mainstay("history")
    assert (done.returncode, run_id in done.stdout) == (0, True)
    done = mainstay("history", "show", "2099")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_state_directory_of_a_newer_program_is_refused_before_any_change(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    apply(manifest("a"))
    number = tmp_path / "state" / "format"
    assert number.read_text() == "1\n"
    for newer in ("2\n", "10\n", "x\n"):
        number.write_text(newer)
        before = state_of(tmp_path / "state")
        with pytest.raises(Unusable, match=r"newer mainstay.*knows 1; install the newer version"):
            apply(manifest("b"))
        assert (root / "trigger").read_text() == "a"
        assert state_of(tmp_path / "state") == before
    for lost in ("", "\0\0", "1\n"):
        number.write_text(lost)
        assert apply(manifest("a")).outcomes == ["stable", "stable"]
        assert number.read_text() == "1\n"
    number.unlink()
    assert apply(manifest("a")).outcomes == ["stable", "stable"]
    assert number.read_text() == "1\n"


def state_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_state_directory_that_is_removed_during_a_run_loses_no_refresh(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    text = manifest("a", f"rm -rf {tmp_path}/state; false")
    assert apply(text).outcomes == ["changed", "failed"]
    assert apply(manifest("a")).outcomes == ["stable", "refreshed"]


def test_a_state_directory_that_is_a_file_is_refused(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    applied = apply(manifest("a", f"rm -rf {state}; touch {state}; false"))
    assert applied.outcomes == ["changed", "failed"]
    assert any("may not know of owed refreshes" in warning for warning in applied.report.warnings)
    assert any("could not be stored" in warning for warning in applied.report.warnings)


def in_small_disk(script: str, root: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script whose state directory `$S` is a file system of 64 kB."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root")
    path = tmp_path / "manifest.yaml"
    path.write_text(manifest("a").replace("ROOT", str(root)).replace("USER", USER).replace("GROUP", GROUP))
    names = {"F": str(path), "S": str(tmp_path / "state")}
    script = script.replace("$M", shlex.quote(str(PROGRAM)))
    line = f"mkdir $S && mount -t tmpfs -o size=64k none $S || exit 77; {script}"
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", line],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip("mounting is not allowed here")
    return done


def test_a_read_only_state_directory_is_refused_before_any_change(root: Path, tmp_path: Path) -> None:
    script = f"$M apply $F > /dev/null; mount -o remount,ro none $S; rm {root}/trigger; $M apply $F"
    done = in_small_disk(script, root, tmp_path)
    assert done.returncode == 2
    assert "Read-only file system" in done.stderr
    assert not (root / "trigger").exists()


def test_a_full_state_directory_changes_nothing_that_owes_a_refresh(root: Path, tmp_path: Path) -> None:
    """The owed refresh cannot be recorded, so the trigger is not changed; with free space both happen."""
    script = (
        f"$M apply $F > /dev/null; rm -f {root}/trigger {root}/ran; "
        "dd if=/dev/zero of=$S/fill bs=1k 2> /dev/null; $M apply $F; "
        f"test -e {root}/trigger || echo untouched; rm $S/fill; $M apply $F"
    )
    done = in_small_disk(script, root, tmp_path)
    assert "Traceback" not in done.stderr
    assert "untouched" in done.stdout
    assert done.returncode == 0
    assert (root / "ran").read_text() == "x\n"


def test_a_line_that_does_not_fit_on_the_disk_damages_no_other_line(tmp_path: Path) -> None:
    import resource

    from mainstay.converge.host.state import AppendOnly

    file = AppendOnly(str(tmp_path / "lines"))
    file.append("first", durable=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append("second", durable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.append("third", durable=True)
    assert file.lines() == ["first", "third"]


@pytest.mark.parametrize("kind", ["owner", "mode", "group", "link", "common", "hard link"])
def test_a_state_directory_that_other_users_can_change_is_refused(kind: str, tmp_path: Path) -> None:
    """Another user could place a link there, and the run would empty or overwrite what it leads to."""
    need_root()
    state, other = tmp_path / "state", tmp_path / "other"
    other.mkdir()
    if kind == "link":
        state.symlink_to(other)
        os.chown(state, 65534, 65534, follow_symlinks=False)
    else:
        state.mkdir()
        os.chown(state, 65534 if kind == "owner" else 0, 65534)
        state.chmod({"mode": 0o757, "group": 0o775, "common": 0o1777, "hard link": 0o1777}.get(kind, 0o755))
        (tmp_path / "victim").touch()
        if kind == "hard link":
            os.link(tmp_path / "victim", state / "systemctl.lock")
        else:
            (state / "manifests").mkdir()
            os.chown(state / "manifests", 65534, 65534)
    (tmp_path / "m.yaml").write_text(f"- file:\n    - {tmp_path}/new: {{ensure: link, target: x}}\n")
    done = subprocess.run(
        [PROGRAM, "apply", tmp_path / "m.yaml"],
        env={**os.environ, "MAINSTAY_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"the state directory {state} cannot be used" in done.stderr
    assert "MAINSTAY_STATE_DIR" in done.stderr
    assert not os.path.lexists(tmp_path / "new")
    assert list(other.iterdir()) == []


def test_an_open_state_directory_without_entries_of_others_becomes_private(
    apply: Callable[..., Applied], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state").chmod(0o1777)
    assert apply("- exec:\n    - 'true': {}\n").outcomes == ["changed"]
    assert (tmp_path / "state").stat().st_mode & 0o7777 == 0o700

"""Where manifests are read from, and what their relative sources are relative to."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import GROUP, USER
from mainstay.converge.run import RunRequest, load
from mainstay.foundation.faults import DoesNotLoad

Program = Callable[..., "subprocess.CompletedProcess[str]"]
MANIFEST = (
    "- file:\n"
    f"    - OUT: {{ensure: present, source: in.txt, owner: {USER}, group: {GROUP}, mode: '0644'}}\n"
    f"    - OUT2: {{ensure: present, content: \"{{{{ file('in.txt') }}}}\", owner: {USER}, group: {GROUP}, mode: '0644'}}\n"
    f"    - OUT3: {{ensure: present, content: \"{{{{ template('in.txt') }}}}\", owner: {USER}, group: {GROUP}, mode: '0644'}}\n"
)


def outputs(root: Path) -> list[str]:
    return [path.read_text() for path in sorted(root.glob("out*"))]


def manifest(root: Path) -> str:
    return MANIFEST.replace("OUT", f"{root}/out")


def test_sources_are_relative_to_the_manifest_in_any_current_directory(mainstay: Program, root: Path) -> None:
    site = root.parent / "site"
    site.mkdir()
    (site / "in.txt").write_text("beside")
    (site / "m.yaml").write_text(manifest(root))
    (root / "in.txt").write_text("current")
    done = mainstay("apply", "../site/m.yaml")
    assert done.returncode == 0, done.stderr
    assert outputs(root) == ["beside", "beside", "beside"]


def test_sources_are_relative_to_the_target_of_a_link(mainstay: Program, root: Path) -> None:
    site = root.parent / "site"
    site.mkdir()
    (site / "in.txt").write_text("beside")
    (site / "m.yaml").write_text(manifest(root))
    (root.parent / "link.yaml").symlink_to(site / "m.yaml")
    assert mainstay("apply", root.parent / "link.yaml").returncode == 0
    assert outputs(root) == ["beside", "beside", "beside"]


def test_sources_are_relative_to_the_current_directory_for_standard_input(mainstay: Program, root: Path) -> None:
    (root / "in.txt").write_text("current")
    done = mainstay("apply", "-", stdin=manifest(root))
    assert done.returncode == 0, done.stderr
    assert outputs(root) == ["current", "current", "current"]


def test_absolute_sources_stay_absolute(mainstay: Program, root: Path) -> None:
    (root.parent / "in.txt").write_text("absolute")
    text = manifest(root).replace("in.txt", f"{root.parent}/in.txt")
    assert mainstay("apply", "-", stdin=text).returncode == 0
    assert outputs(root) == ["absolute", "absolute", "absolute"]


def test_a_fault_in_standard_input_is_placed_in_stdin(mainstay: Program) -> None:
    done = mainstay("apply", "-", stdin="- fil: []\n")
    assert done.returncode == 2
    assert done.stderr.startswith("stdin:1:3: unknown resource type 'fil' (did you mean 'file'?)")


def test_a_manifest_can_be_read_from_a_pipe_of_the_shell(mainstay: Program, root: Path) -> None:
    pipe = root.parent / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"echo '- exec: [\"true\"]' > {pipe}"])
    assert mainstay("apply", pipe).returncode == 0
    assert writer.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope.yaml", "cannot be read: No such file or directory"),
        ("folder", "cannot be read: it is a directory; name the file in it"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("a\0b", "cannot be read: embedded null byte"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_a_fault(root: Path, name: str, message: str) -> None:
    (root.parent / "folder").mkdir()
    (root.parent / "loop").symlink_to(root.parent / "loop")
    with pytest.raises(DoesNotLoad) as refused:
        load(RunRequest(f"{root.parent}/{name}"))
    assert str(refused.value) == f"{root.parent}/{name}: {message}"


def test_an_unreadable_manifest_is_one_json_document(mainstay: Program, root: Path) -> None:
    done = mainstay("apply", "--json", "nope.yaml")
    assert done.returncode == 2
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "faults": [
            {
                "file": "nope.yaml",
                "line": None,
                "column": None,
                "message": "cannot be read: No such file or directory",
            }
        ]
    }


def test_a_byte_order_mark_and_crlf_line_ends_are_accepted(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_bytes(b"\xef\xbb\xbf- exec:\r\n    - 'true':\r\n")
    done = mainstay("apply", "m.yaml", "--noop")
    assert (done.returncode, done.stderr) == (0, "")

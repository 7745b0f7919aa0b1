"""A dry run has the outcomes of the following run, also with unusual paths."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied
from fork_server import PROGRAM
from mainstay.foundation.faults import DoesNotLoad

FILES = """
- file:
    - defaults: {owner: USER, group: GROUP, mode: "0755"}
    - ROOT/first: {ensure: present, content: x}
"""


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ("    - ROOT/b: {ensure: present, source: ROOT/missing/../source}", "failed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/source/../source}", "failed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/source/}", "failed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/source/.}", "failed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/slashed}", "failed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/directory/../source}", "changed"),
        ("    - ROOT/b: {ensure: present, source: ROOT/directory/link/../source}", "changed"),
        ("- exec:\n    - 'true': {creates: ROOT/first/}", "changed"),
        ("- exec:\n    - 'true': {creates: ROOT/directory/}", "stable"),
        ("- exec:\n    - ROOT/script:", "failed"),
    ],
)
def test_the_outcomes_of_a_dry_run_are_those_of_the_run(
    apply: Callable[..., Applied], root: Path, more: str, outcome: str
) -> None:
    (root / "source").write_text("text")
    (root / "slashed").symlink_to("source/")
    (root / "other").mkdir()
    (root / "directory").mkdir()
    (root / "directory" / "link").symlink_to("../other")
    (root / "script").write_text("#!/no/such/interpreter\n")
    (root / "script").chmod(0o755)
    dry = apply(FILES + more, noop=True).outcomes
    assert dry == apply(FILES + more).outcomes == ["changed", outcome]


def test_links_in_a_directory_that_would_be_removed_are_not_followed(
    apply: Callable[..., Applied], root: Path
) -> None:
    (root / "other").mkdir()
    (root / "tree").mkdir()
    (root / "tree" / "link").symlink_to("../other")
    text = """
    - file:
        - defaults: {owner: USER, group: GROUP, mode: "0755"}
        - ROOT/tree: {ensure: absent, force: true}
        - ROOT/tree/link/a: {ensure: present, content: x}
        - ROOT/tree/link: {ensure: directory}
        - ROOT/tree/link/b: {ensure: present, content: x}
    """
    dry = apply(text, noop=True).outcomes
    assert dry == apply(text).outcomes == ["changed", "failed", "changed", "changed"]
    assert not any((root / "other").iterdir())


@pytest.mark.parametrize(
    "entry",
    [
        f"file: [{{/tmp/{'n' * 256}: {{ensure: absent}}}}]",
        "file: [{'/tmp/{{ \"\\ud800\" }}': {ensure: absent}}]",
        f"file: [{{/tmp/link: {{ensure: link, target: {'t/' * 2100}}}}}]",
        'file: [{/tmp/link: {ensure: link, target: "a\\0b"}}]',
        'exec: [{"true": {environment: ["A=b\\0c"]}}]',
        'exec: [{"true": {environment: ["=b=c"]}}]',
        'exec: [{"true": {cwd: "/a\\0c"}}]',
        'exec: [{"true": {creates: "/a\\0c"}}]',
        'exec: [{a: {provider: shell, command: "echo \\0"}}]',
    ],
)
def test_impossible_paths_and_texts_are_refused_at_load(apply: Callable[..., Applied], entry: str) -> None:
    with pytest.raises(DoesNotLoad):
        apply(f"- {entry}\n")


@pytest.mark.parametrize("properties", ["command: 'echo {{ \"\\ud800\" }}'", "environment: ['A={{ \"\\ud800\" }}']"])
def test_impossible_rendered_texts_fail_in_a_dry_run_too(apply: Callable[..., Applied], properties: str) -> None:
    applied = apply(f'- exec: [{{"true": {{{properties}}}}}]\n', noop=True)
    assert applied.outcomes == ["failed"]
    assert "lone surrogate" in applied.errors[0]


def test_the_cost_of_a_dry_run_grows_linearly_with_its_changes(apply: Callable[..., Applied], root: Path) -> None:
    """Eight times the work takes far less than the 64 times of quadratic growth."""

    def seconds(count: int) -> float:
        lines = "".join(f"    - ROOT/{number}: {{ensure: directory}}\n" for number in range(count))
        began = time.process_time()
        apply(f'- file:\n    - defaults: {{owner: USER, group: GROUP, mode: "0755"}}\n{lines}', noop=True)
        return time.process_time() - began

    seconds(10)
    assert seconds(4000) < 24 * seconds(500)
    assert not os.listdir(root)


def test_attributes_on_a_read_only_disk_fail_in_a_dry_run_too(root: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root")
    manifest = root.parent / "manifest.yaml"
    manifest.write_text(f'- file: [{{{root}/a: {{ensure: present, owner: "0", group: "0", mode: "0644"}}}}]\n')
    line = (
        "mount -t tmpfs none $R && touch $R/a && chmod 600 $R/a && mount -o remount,ro none $R || exit 77; "
        "$M apply --noop $F; test $? = 1 && $M apply $F"
    )
    names = {"F": str(manifest), "R": str(root)}
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", line.replace("$M", shlex.quote(str(PROGRAM)))],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 1
    assert "its file system is read-only" in done.stdout
    assert f"error: Read-only file system: {root}/a\n" in done.stdout


def test_a_dry_run_reports_the_checksum_of_a_file_whose_directory_would_be_removed(
    apply: Callable[..., Applied], root: Path
) -> None:
    (root / "directory").mkdir()
    (root / "directory" / "file").write_text("x")
    text = """
    - file:
        - ROOT/directory/file: {ensure: present, owner: USER, group: GROUP, mode: "0644"}
        - ROOT/directory: {ensure: absent, force: true}
    """
    applied = apply(text, noop=True)
    assert applied.outcomes == ["stable", "changed"]
    assert applied.as_json()["events"][0]["state"]["checksum"] is not None

"""The content of a file that held a secret is never shown again, whatever later runs write there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from applying import Applied, fill_in
from mainstay.converge.host.secret_files import SecretFiles
from mainstay.foundation.text import without_removed_lines

SECRET = "hunter2-correct-horse"
DEFAULTS = 'defaults: {owner: USER, group: GROUP, mode: "0600", ensure: present}'


def plain(properties: str, path: str = "ROOT/key") -> str:
    return f"- file: [{{{DEFAULTS}}}, {{{path}: {{{properties}}}}}]"


def sensitive(properties: str = f'content: "user\\nold={SECRET}\\n"', path: str = "ROOT/key") -> str:
    return plain(f"{properties}, sensitive: true", path)


def everything_shown(applied: Applied, state: Path) -> str:
    """The report, and all files that runs stored."""
    kept = [path.read_text() for path in state.rglob("*") if path.is_file()]
    return json.dumps(applied.as_json()) + "".join(kept)


@pytest.mark.parametrize("noop", [False, True], ids=["run", "noop"])
@pytest.mark.parametrize(
    "change",
    [
        'content: "user\\nnew\\n"',
        'content: "user\\nnew\\n", backup: true',
        "source: plain",
        "ensure: absent",
        "ensure: absent, backup: true",
    ],
)
def test_a_later_version_that_no_longer_writes_the_secret_does_not_show_it(
    apply: Callable[..., Applied], root: Path, tmp_path: Path, change: str, noop: bool
) -> None:
    (tmp_path / "plain").write_text("user\nnew\n")
    apply(sensitive())
    applied = apply(plain(change), differences=True, noop=noop)
    assert applied.outcomes == ["changed"], applied.errors
    assert SECRET not in everything_shown(applied, tmp_path / "state")
    diff = applied.report.events[0].diff or ""
    assert "-[redacted]" in diff
    assert ("+new" in diff) == ("absent" not in change)
    if noop:
        state = applied.as_json()["events"][0]["state"]
        assert state["checksum"] == "[redacted]"


def test_another_manifest_does_not_show_the_secret(apply: Callable[..., Applied], root: Path, tmp_path: Path) -> None:
    apply(sensitive(), name="first.yaml")
    applied = apply(plain("content: new"), name="second.yaml", differences=True)
    assert applied.outcomes == ["changed"]
    assert SECRET not in everything_shown(applied, tmp_path / "state")


@pytest.mark.parametrize("path", ["ROOT/link/key", "ROOT/alias"])
def test_another_name_of_the_file_does_not_show_the_secret(
    apply: Callable[..., Applied], root: Path, tmp_path: Path, path: str
) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    (root / "alias").symlink_to("real/key")
    apply(sensitive(path="ROOT/real/key"))
    applied = apply(plain("content: new, links: follow", path), differences=True)
    assert applied.outcomes == ["changed"], applied.errors
    assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_the_name_behind_a_link_does_not_show_the_secret(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    (root / "key").write_text("before")
    (root / "alias").symlink_to("key")
    apply(sensitive(f'content: "{SECRET}", links: follow', "ROOT/alias"))
    assert (root / "key").read_text() == SECRET
    applied = apply(plain("content: new"), differences=True)
    assert applied.outcomes == ["changed"], applied.errors
    assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_a_secret_file_that_an_older_release_wrote_is_remembered_once_it_is_found_stable(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    (root / "key").write_text(f"user\nold={SECRET}\n")
    (root / "key").chmod(0o600)
    assert apply(sensitive()).outcomes == ["stable"]
    applied = apply(plain("content: new"), differences=True)
    assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_a_file_of_a_secret_tree_is_not_shown(apply: Callable[..., Applied], root: Path, tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "key").write_text(SECRET)
    tree = sensitive('ensure: directory, source: tree, recurse: true, mode: "0700"', "ROOT/copy")
    one = plain("content: plain", "ROOT/copy/below/key")
    apply(tree)
    applied = apply(one, differences=True)
    assert applied.outcomes == ["changed"], applied.errors
    assert SECRET not in everything_shown(applied, tmp_path / "state")
    # The tree brings the secret back, although the file held none in between.
    assert apply(tree).outcomes == ["changed"]
    assert SECRET not in everything_shown(apply(one, differences=True), tmp_path / "state")


def test_a_file_that_held_a_secret_is_shown_again_after_plain_content(apply: Callable[..., Applied]) -> None:
    apply(sensitive())
    apply(plain("content: first"))
    applied = apply(plain("content: second"), differences=True)
    assert "-first" in (applied.report.events[0].diff or "")


def test_attributes_of_a_secret_file_do_not_end_its_protection(apply: Callable[..., Applied], tmp_path: Path) -> None:
    apply(sensitive())
    attributes = apply(plain('mode: "0640"'), differences=True)
    assert attributes.outcomes == ["changed"]
    assert attributes.as_json()["events"][0]["state"]["checksum"] == "[redacted]"
    applied = apply(plain("content: new"), differences=True)
    assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_an_expression_that_reads_a_file_with_an_old_secret_is_redacted(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    apply(sensitive())
    applied = apply(plain("content: \"copy {{ file('ROOT/key') }}\"", "ROOT/copy"), differences=True)
    assert SECRET in (root / "copy").read_text()
    assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_a_run_that_is_killed_after_it_wrote_a_secret_is_remembered(
    mainstay: Callable[..., subprocess.CompletedProcess[str]], root: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.yaml"
    killed = "- exec: [{die: {command: 'kill -9 $PPID', provider: shell}}]"
    manifest.write_text(fill_in(f"{sensitive()}\n{killed}\n", root))
    mainstay("apply", manifest)
    assert SECRET in (root / "key").read_text()
    manifest.write_text(fill_in(plain("content: new"), root))
    done = mainstay("apply", "--diff", manifest)
    assert done.returncode == 0, done.stderr
    assert "+new" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not [path for path in kept if SECRET in path.read_text(errors="replace")]


def test_the_memory_of_secret_files_is_private_and_forgets_files_that_are_gone(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    apply(sensitive())
    memory = tmp_path / "state" / "secret-files"
    assert memory.stat().st_mode & 0o777 == 0o600
    long_ago = [["secret", str(root / "key"), 1], *(["secret", f"/gone/{number}", 1] for number in range(253))]
    memory.write_text("".join(f"{json.dumps(line)}\n" for line in long_ago))
    apply(sensitive(path="ROOT/new"))
    apply(sensitive(path="ROOT/newer"))
    assert [json.loads(line)[1] for line in memory.read_text().splitlines()] == [
        str(root / name) for name in ("key", "new", "newer")
    ]
    for name in ("key", "new", "newer"):
        applied = apply(plain("content: new", f"ROOT/{name}"), differences=True)
        assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_concurrent_runs_lose_no_secret_file_also_while_the_memory_is_rewritten(tmp_path: Path) -> None:
    memory = str(tmp_path / "secret-files")

    def record(runner: int) -> None:
        files = SecretFiles(memory)
        for number in range(200):
            files.record(f"/runner/{runner}/{number}")
            if number % 2:
                files.strike_off(f"/runner/{runner}/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, range(4)))
    found = SecretFiles(memory)
    for runner in range(4):
        for number in range(200):
            assert found.holds(f"/runner/{runner}/{number}") == (number % 2 == 0)


def test_a_line_that_a_killed_run_left_incomplete_does_not_damage_the_next_one(tmp_path: Path) -> None:
    memory = tmp_path / "secret-files"
    SecretFiles(str(memory)).record("/first")
    memory.write_text(memory.read_text() + '["secret", "/sec')
    SecretFiles(str(memory)).record("/third")
    found = SecretFiles(str(memory))
    assert found.holds("/first")
    assert found.holds("/third/below")
    assert not found.holds("/sec")


@pytest.mark.parametrize(
    ("diff", "shown"),
    [
        ("/etc/x: too large to show", "/etc/x: too large to show"),
        (
            "--- /x (actual)\n+++ /x (desired)\n@@ -1,3 +1,2 @@\n a\n-old\n-older\n+new",
            "--- /x (actual)\n+++ /x (desired)\n@@ +1,2 @@\n a\n-[redacted]\n+new",
        ),
        (
            "--- /x (actual)\n+++ /x (desired)\n@@ -1 +0,0 @@\n--- old\n\\ No newline at end of file\n+++ new",
            "--- /x (actual)\n+++ /x (desired)\n@@ +0,0 @@\n-[redacted]\n+++ new",
        ),
        ("--- secret\n+++ kept", "--- secret\n+++ kept"),
        ("first\n--- secret\n+++ kept", "first\n-[redacted]\n+++ kept"),
    ],
)
def test_removed_lines_are_found_also_if_they_look_like_a_header(diff: str, shown: str) -> None:
    assert without_removed_lines(diff) == shown

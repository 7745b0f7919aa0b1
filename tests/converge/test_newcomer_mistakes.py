"""Mistakes of newcomers: each leads to a helpful message and loses nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from applying import Applied
from fork_server import PROGRAM
from required_parts import need_root

Program = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_tree_with_backup_is_not_removed(apply: Callable[..., Applied], root: Path) -> None:
    (root / "tree").mkdir()
    (root / "tree" / "f").write_text("precious")
    done = apply("- file: [ROOT/tree: {ensure: absent, force: true, backup: true}]")
    assert done.outcomes == ["failed"]
    assert "`backup` keeps files, not trees" in done.errors[0]
    assert (root / "tree" / "f").read_text() == "precious"


def test_a_file_that_was_not_replaced_leaves_no_backup(
    apply: Callable[..., Applied], mainstay: Program, root: Path
) -> None:
    (root / "f").write_text("old")
    manifest = """
    - file:
        - ROOT/f: {ensure: present, content: new, owner: USER, group: GROUP, mode: "0644", backup: true, validate: grep nothing %}
    """
    assert apply(manifest).outcomes == ["failed"]
    assert mainstay("restore", "--list", "f").stdout.startswith("There is no backup of ")
    assert apply(manifest.replace("nothing", "new")).outcomes == ["changed"]
    assert mainstay("restore", "--list", "f").stdout.count("3 bytes") == 1


def test_an_unknown_tag_is_refused_with_a_suggestion(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_text("- exec: [touch f: {tags: [config]}]")
    done = mainstay("apply", "m.yaml", "--tag", "confg")
    assert (done.returncode, "no resource has the tag 'confg' (did you mean 'config'?)" in done.stderr) == (
        2,
        True,
    )
    assert not (root / "f").exists()


def test_resources_skipped_by_tags_are_only_counted(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_text('- exec: ["true": {tags: [a]}, "false": {tags: [b]}]')
    output = mainstay("apply", "m.yaml", "--tag", "a").stdout
    assert "1 skipped" in output
    assert "exec#false" not in output
    assert "exec#false" in mainstay("apply", "m.yaml", "--tag", "a", "-v").stdout


def test_a_flag_does_not_swallow_the_name(mainstay: Program) -> None:
    done = mainstay("ensure", "exec", "--logoutput", "echo hello")
    assert done.returncode == 0, done.stderr
    assert "| hello" in done.stdout


def test_keys_of_other_tools_are_refused_with_advice(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_text("- exec: [x: {command: 'true', notify: exec#y}]")
    assert (
        "unknown key 'notify'; let the other resource `subscribe` to this one" in mainstay("apply", "m.yaml").stderr
    )


def test_version_and_state_are_refused_with_a_hint_to_ensure(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_text("- package: [nginx: {version: 1.2}]\n- service: [nginx: {state: started}]\n")
    output = mainstay("validate", "m.yaml").stderr
    assert "package#nginx: unknown key 'version'; write the version of a package as its `ensure`" in output
    assert "service#nginx: unknown key 'state'; write the desired state as `ensure`" in output


def test_a_shell_builtin_is_refused_with_advice(apply: Callable[..., Applied]) -> None:
    assert "cd is part of a shell; use `provider: shell`" in apply("- exec: [cd /tmp]").errors[0]


def test_a_missing_directory_of_the_report_is_refused_before_the_run(mainstay: Program, root: Path) -> None:
    (root / "m.yaml").write_text("- exec: [touch f]")
    done = mainstay("apply", "m.yaml", "--report", "nowhere/r.json")
    assert (done.returncode, (root / "f").exists()) == (2, False)
    assert "its directory does not exist" in done.stderr


def test_an_empty_list_of_backups_explains_when_files_are_kept(mainstay: Program, root: Path) -> None:
    done = mainstay("restore", "--list", f"{root}/none")
    assert (done.returncode, done.stdout) == (
        0,
        f"There is no backup of {root}/none; files are backed up if their resource has `backup: true`.\n",
    )


def test_a_limit_of_zero_is_refused(mainstay: Program) -> None:
    done = mainstay("history", "--limit", "0")
    assert done.returncode == 2
    assert "must be a whole number of at least 1, not '0'" in done.stderr


def test_other_archives_are_refused_with_the_formats_of_bundles(mainstay: Program, root: Path) -> None:
    (root / "b.tar").write_bytes(b"")
    assert "a bundle is packed as .tar.gz, .tgz or .zip" in mainstay("apply", "b.tar").stderr


def test_help_of_a_command_is_shown_in_both_ways(mainstay: Program) -> None:
    assert mainstay("help", "apply").stdout == mainstay("apply", "--help").stdout


def test_the_status_of_an_invalid_name_is_refused(mainstay: Program, root: Path) -> None:
    (root / "f").write_text("here")
    for words, message in (
        (("file", "f"), "mainstay: file#f: file path must be absolute\n"),
        (("file", f"{root}/./f"), f"mainstay: file#{root}/./f: file path must be canonical\n"),
        (("fil", f"{root}/f"), "mainstay: unknown resource type 'fil' (did you mean 'file'?); known types: "),
    ):
        done = mainstay("status", *words)
        assert (done.returncode, done.stderr[: len(message)]) == (1, message)
    assert mainstay("status", "file", f"{root}/f").returncode == 0


def test_the_status_of_several_names_is_shown_although_one_of_them_fails(mainstay: Program, root: Path) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    both = mainstay("status", "file", f"{root}/a", f"{root}/b")
    first, second = both.stdout.split("\n\n")
    assert (both.returncode, both.stderr) == (0, "")
    assert first.splitlines()[0].split() == ["resource", f"file#{root}/a"]
    assert second.splitlines()[0].split() == ["resource", f"file#{root}/b"]
    words = ("status", "file", f"{root}/a", "relative", f"{root}/b")
    failed = mainstay(*words)
    assert (failed.returncode, failed.stdout) == (1, both.stdout)
    assert failed.stderr == "mainstay: file#relative: file path must be absolute\n"
    as_json = mainstay(*words, "--json")
    alone = mainstay("status", "file", f"{root}/a", "--json")
    assert (as_json.returncode, as_json.stderr) == (1, "")
    one, error, _ = json.loads(as_json.stdout)
    assert one == json.loads(alone.stdout)
    assert error == {"resource": "file#relative", "error": "file#relative: file path must be absolute"}


def test_template_statements_in_content_are_a_warning(apply: Callable[..., Applied], root: Path) -> None:
    manifest = "- file: [ROOT/f: {ensure: present, content: CONTENT, owner: USER, group: GROUP, mode: '0644'}]"
    meant = manifest.replace("CONTENT", "'{% if data.tls %}ssl{% endif %}'")
    for noop in (True, False):
        (remark,) = apply(meant, noop=noop).report.events[0].warnings
        assert remark.startswith("{% … %} is written as text")
        assert "{{ template('path') }}" in remark
    assert (root / "f").read_text() == "{% if data.tls %}ssl{% endif %}"
    assert apply(meant).report.events[0].warnings == ()
    assert apply(manifest.replace("CONTENT", "'100 {% of it'")).report.events[0].warnings == ()


FULL_AND_READ_ONLY = """
mount -t tmpfs -o size=64k tmpfs "$1" && cd "$1" && echo a >lines && head -c 49152 /dev/zero >fill
"$2" apply "$3" || true
mount -o remount,ro "$1"
"$2" apply "$3" --noop || true
"$2" apply "$3"
"""


def test_a_full_and_a_read_only_file_system_are_named_with_the_path(root: Path, tmp_path: Path) -> None:
    need_root()
    manifest = tmp_path / "m.yaml"
    place = root / "small"
    place.mkdir()
    large = "x" * 60_000
    manifest.write_text(
        f"- line: [l: {{path: {place}/lines, block: {large}}}]\n"
        f"- file: [{place}/f: {{ensure: present, content: {large}, owner: root, group: root, mode: '0644'}}]\n"
    )
    words = ["unshare", "-m", "sh", "-c", FULL_AND_READ_ONLY, "sh", str(place), str(PROGRAM), str(manifest)]
    done = subprocess.run(words, capture_output=True, text=True)
    errors = [line.strip() for line in done.stdout.splitlines() if line.startswith("  error: ")]
    assert errors == [
        f"error: No space left on device: {place}/lines",
        f"error: No space left on device: {place}/f",
        f"error: {place} is on a read-only file system",
        f"error: {place} is on a read-only file system",
        f"error: Read-only file system: {place}/lines",
        f"error: Read-only file system: {place}/f",
    ], done
    assert list(place.iterdir()) == []

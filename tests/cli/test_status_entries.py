"""`mainstay status TYPE NAME --yaml` prints entries of a manifest; applied, they find the host in its desired state."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from applying import Applied
from own_accounts import own_accounts
from required_parts import need_program

Run = Callable[..., subprocess.CompletedProcess[str]]
Apply = Callable[..., Applied]
HASH = "$6$salt$" + "x" * 86


@pytest.fixture
def entries(mainstay: Run, apply: Apply) -> Callable[..., str]:
    """Prints entries, applies them as a manifest, and returns them."""

    def check(*words: str | Path) -> str:
        done = mainstay("status", *words, "--yaml")
        assert (done.returncode, done.stderr) == (0, "")
        for noop in (True, False):
            applied = apply(done.stdout, noop=noop)
            assert set(applied.outcomes) == {"stable"}, (done.stdout, applied.errors, applied.report.events[0].reason)
        return done.stdout

    return check


CONTENTS = {
    "empty": "",
    "line": "one line\n",
    "unfinished": "no newline",
    "several": "one\n\n  two \n\tthree\n\n",
    "template": "{{ name }} {% if x %} ${x} {{ '{{' }}\n",
    "number": "0644",
    "word": "yes\n",
    "unicode": "Grüße\n",
    "quotes": "\"'`#: - [\n",
    "leading": "\n  indented\nnot\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_text_file_is_written_with_its_content(name: str, entries: Callable[..., str], root: Path) -> None:
    (root / name).write_text(CONTENTS[name])
    assert "content:" in entries("file", root / name)
    assert (root / name).read_text() == CONTENTS[name]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b", b"x" * (64 * 1024 + 1), b"a\r\nb", b"\x1b[0m"])
def test_other_files_are_written_with_their_attributes(
    content: bytes, entries: Callable[..., str], root: Path
) -> None:
    (root / "x").write_bytes(content)
    (root / "x").chmod(0o640)
    shown = entries("file", root / "x")
    assert "content" not in shown
    assert "mode: '0640'" in shown


def test_directories_links_and_missing_files_are_written(entries: Callable[..., str], root: Path) -> None:
    (root / "directory").mkdir()
    (root / "link {{ x }}").symlink_to("elsewhere")
    (root / "shared").mkdir()
    (root / "shared").chmod(0o3775)
    shown = entries("file", root / "directory", root / "shared", root / "link {{ x }}", root / "none")
    for line in ("ensure: directory", "ensure: link", "target: elsewhere", "ensure: absent"):
        assert line in shown


def test_a_file_that_no_manifest_describes_is_refused(mainstay: Run, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "set").touch()
    (root / "set").chmod(0o4755)
    done = mainstay("status", "file", root / "fifo", root / "set", "--yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{root}/fifo is a fifo, which no manifest describes" in done.stderr
    assert f"{root}/set has mode 4755, which no manifest can give" in done.stderr


def test_a_secret_file_is_written_without_its_content(mainstay: Run, apply: Apply, root: Path) -> None:
    text = "- file:\n    - ROOT/x: {sensitive: true, ensure: present, content: canary, owner: USER, group: GROUP, mode: '0600'}\n"
    apply(text)
    shown = mainstay("status", "file", root / "x", "--yaml").stdout
    assert f"# file#{root}/x: content is left out: a run wrote a secret to it\n" in shown
    assert "canary" not in shown


def test_packages_are_written_with_their_version(entries: Callable[..., str]) -> None:
    need_program("dpkg-query")
    assert "ensure: " in entries("package", "bash", "coreutils", "mainstay-no-such-package")


def test_an_exec_has_no_entry(mainstay: Run) -> None:
    done = mainstay("status", "exec", "true", "--yaml")
    assert (done.returncode, done.stderr) == (
        1,
        "mainstay: exec: a manifest cannot be written from a state of this type\n",
    )


def test_a_command_is_neither_present_nor_absent(mainstay: Run) -> None:
    assert "ensure" not in mainstay("status", "exec", "true").stdout


# ---- accounts ----
@pytest.fixture
def _accounts() -> Iterator[None]:
    with own_accounts():
        yield


@pytest.mark.usefixtures("_accounts")
def test_users_and_groups_are_written_without_the_hash(entries: Callable[..., str], apply: Apply) -> None:
    apply(
        f"- user:\n    - app: {{groups: [sudo], comment: 'Shop, 1', password_hash: '{HASH}', locked: true}}\n    - b: {{}}\n"
    )
    shown = entries("user", "app", "b", "root", "daemon", "none")
    assert "# user#app: password_hash is left out: it is a secret\n" in shown
    assert HASH not in shown
    assert "locked: true" in shown
    assert "gid: 27" in entries("group", "sudo", "none")


@pytest.mark.usefixtures("_accounts")
def test_what_a_manifest_may_not_give_is_left_out_with_the_reason(entries: Callable[..., str]) -> None:
    passwd = Path("/etc/passwd")
    passwd.write_text(passwd.read_text() + "odd:*:700:100::relative:\n")
    shown = entries("user", "odd")
    assert "# user#odd: home is left out: home must be an absolute path\n" in shown
    assert "# user#odd: shell is left out: shell must be an absolute path\n" in shown

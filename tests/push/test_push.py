"""`mainstay push` over real ssh connections to hosts with a real systemd."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from command_line import on_terminal
from fork_server import PROGRAM
from interpreters import need_python
from mainstay.cli.views.tables import width_of
from push_hosts import OPERATOR, PASSWORD, Fleet
from torture import count_of

pytestmark = pytest.mark.test_all

Push = Callable[..., subprocess.CompletedProcess[str]]
# Reversed: a host sees the files of this machine, and so this one.
CANARY = "tsoh-eht-fo-yranac"[::-1]
SITE = """
data:
  motd: from the manifest
  port: 1
resources:
  - file:
      - /srv/motd:
          ensure: present
          content: "{{ lookup('data.motd') }} {{ lookup('data.port') }} on {{ lookup('facts.hostname') }}\\n"
          owner: root
          group: root
          mode: "0644"
      - /srv/page:
          ensure: present
          source: files/page.html
          owner: root
          group: root
          mode: "0644"
      - /srv/rendered:
          ensure: present
          content: "{{ template('files/rendered.j2') }}"
          owner: root
          group: root
          mode: "0600"
  - apply:
      - child/manifest.yaml:
  - exec:
      - look for secrets:
          provider: shell
          command: "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | grep -ao 'c[a]nary-of-the-host' >/srv/arguments || true"
          creates: /srv/arguments
"""
CHILD = """
resources:
  - file:
      - /srv/child:
          ensure: present
          source: child.txt
          owner: root
          group: root
          mode: "0644"
"""


def write_site(folder: Path) -> Path:
    for name, text in {
        "site.yaml": SITE,
        "files/page.html": "<p>page</p>\n",
        "files/rendered.j2": "{% include 'files/part.j2' %} {{ lookup('data.port') }}\n",
        "files/part.j2": "part",
        "child/manifest.yaml": CHILD,
        "child/child.txt": "child\n",
        "secret-of-others.yaml": "not for hosts\n",
    }.items():
        place = folder / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return folder / "site.yaml"


def test_a_push_applies_the_manifest_with_its_files_and_each_host_gets_its_own_data(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    write_site(tmp_path)
    first, second = fleet.names[:2]
    inventory = {
        "hosts": {
            first: {"data": {"motd": "from the host", "secret": CANARY}},
            second: {"python": need_python("3.9")},
            **dict.fromkeys(fleet.names[2:]),
        },
        "groups": {
            "all": {"hosts": fleet.names, "data": {"motd": "from all", "port": 2}},
            "late": {"hosts": fleet.names, "data": {"motd": "from a later group"}},
        },
    }
    (tmp_path / "hosts.yaml").write_text(json.dumps(inventory))
    done = push("site.yaml", "--inventory", "hosts.yaml", "--set", "port=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.shell(first, "cat /srv/motd") == f"from the host 3 on {first}\n"
    assert fleet.shell(second, "cat /srv/motd /srv/page /srv/rendered /srv/child") == (
        f"from a later group 3 on {second}\n<p>page</p>\npart 3\nchild\n"
    )
    assert f"Push: {len(fleet.names)} hosts: {len(fleet.names)} changed" in done.stdout
    # Unpacked manifests are removed after the run, and hosts never see other files of the directory.
    assert (
        fleet.shell(
            first, "ls -A /var/lib/mainstay/unpacked; grep -rl 'not for hosts' /var/cache /var/lib/mainstay || true"
        )
        == ""
    )

    sent = re.search(r", ([\d,.]+) kB sent", push("site.yaml", "-i", "hosts.yaml", "--set", "port=3").stdout)
    assert sent is not None
    assert float(sent[1]) < 10 * len(fleet.names)
    sockets = fleet.folder / "mainstay-ssh"
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert len(list(sockets.iterdir())) == len(fleet.names)
    # Data reaches a host in memory only: no file, argument or environment of any process contains it.
    assert (
        fleet.shell(first, "grep -rl 'c[a]nary-of-the-host' /var/cache /var/lib /tmp /run /home /root/.cache || true")
        == ""
    )
    assert fleet.shell(first, "cat /srv/arguments") == ""
    assert list((tmp_path / "state" / "unpacked").iterdir()) == []

    again = push(
        "site.yaml", "--inventory", "hosts.yaml", "--set", "port=3", "--limit", f"{first},{second}", "--json"
    )
    reports = json.loads(again.stdout)["hosts"]
    assert again.returncode == 0
    assert list(reports) == [first, second]
    assert [event["outcome"] for event in reports[first]["events"]] == ["stable"] * 6
    assert reports[first]["summary"]["total"] == 6


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def one_command(command: str, name: str = "step") -> str:
    return f"resources:\n- exec:\n  - {name}:\n      provider: shell\n      command: {json.dumps(command)}\n"


def test_every_fault_is_a_clear_line_and_the_other_hosts_go_on(fleet: Fleet, push: Push, tmp_path: Path) -> None:
    """Unreachable, unknown, changed and refused keys, no or an old Python, no space, death in the middle, a lock."""
    good, other = fleet.names[:2]
    fleet.alias("closed", good, port=9)
    # Other accounts, because an open connection of the same account to the same address is reused.
    fleet.alias("unknown", good, user="bin", options=["HostKeyAlias never-seen"])
    fleet.alias("changed", good, user="games", options=[f"HostKeyAlias {other}"])
    fleet.alias("refused", good, user="daemon")
    fleet.alias("full", good, user=OPERATOR)
    fleet.alias("dying", other)
    fleet.alias("pythonless", other)
    fleet.alias("old", other)
    fleet.shell(
        good,
        f"cd /home/{OPERATOR}; mkdir -p .cache; chown {OPERATOR}: .cache; user=$(id -u {OPERATOR});"
        " mount -t tmpfs -o size=100k,mode=0700,uid=$user tmpfs .cache",
    )
    fleet.shell(
        other,
        'printf \'#!/bin/sh\\n[ "$1" = -V ] || exec /usr/bin/python3 -c "import sys; sys.version_info = (3, 6, 9, 0, 0); import os; r = sys.stdin.buffer; import zlib; exec(zlib.decompress(r.read(int(r.readline()))))"\\n\' >/usr/local/bin/old-python; chmod +x /usr/local/bin/old-python',
    )
    names = ["closed", "unknown", "changed", "refused", "full", "dying", "pythonless", "old", good]
    hosts: dict[str, Any] = dict.fromkeys(names)
    hosts["pythonless"] = {"python": "/opt/none"}
    hosts["old"] = {"python": "/usr/local/bin/old-python"}
    hosts["dying"] = {"data": {"command": "kill -9 $PPID"}}
    (tmp_path / "hosts.json").write_text(json.dumps({"hosts": hosts}))
    (tmp_path / "site.yaml").write_text("data: {command: 'true'}\n" + one_command("{{ lookup('data.command') }}"))
    try:
        done = push("site.yaml", "-i", "hosts.json", "--json")
        shown = push("site.yaml", "-i", "hosts.json", "--limit", "closed,unknown,changed")
    finally:
        fleet.shell(good, f"umount /home/{OPERATOR}/.cache")
    assert done.returncode == 1
    reports = json.loads(done.stdout)["hosts"]
    assert list(reports) == names
    assert reports[good]["summary"]["changed"] == 1
    faults = {
        name: report.get("error", {"kind": "", "message": ""}) for name, report in reports.items() if name != good
    }
    expected = {
        "closed": ("unreachable", "the connection is refused"),
        "unknown": ("host_key", "its host key is unknown; `ssh unknown` shows it"),
        "changed": ("host_key", "has changed"),
        "refused": ("refused_key", "it refuses your keys (publickey"),
        "full": ("disk_full", "No space left on device"),
        "dying": ("lost", "the connection ended in the middle of the run"),
        "pythonless": ("no_python", "it has no /opt/none; install Python 3.9 or newer"),
        "old": ("old_python", "Python 3.6.9 is too old"),
    }
    assert {name: fault["kind"] for name, fault in faults.items()} == {
        name: kind for name, (kind, _) in expected.items()
    }
    for name, (_, message) in expected.items():
        assert message in faults[name]["message"]
    assert shown.returncode == 1
    assert "Push: 3 hosts: 1 unreachable, 2 host key" in shown.stdout


def test_a_second_push_of_the_same_name_is_locked_and_ctrl_c_ends_remote_runs_in_order(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    first, second = fleet.names[:2]

    def is_running(host: str) -> bool:
        return fleet.shell(host, "cat /run/push-pid 2>/dev/null || true") != ""

    (tmp_path / "site.yaml").write_text(one_command("echo $$ >/run/push-pid; sleep 300"))
    (tmp_path / "quick.yaml").write_text(one_command("true"))
    running = subprocess.Popen(
        [str(PROGRAM), "push", "site.yaml", first, second, "--name", "slow"],
        cwd=tmp_path,
        env=fleet.environment(tmp_path / "state"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for host in (first, second):
            wait_until(partial(is_running, host), "the command did not start")
        pids = {host: fleet.shell(host, "cat /run/push-pid").strip() for host in (first, second)}
        locked = push("quick.yaml", first, fleet.names[2], "--name", "slow", "--json")
        assert locked.returncode == 3, locked.stdout
        assert json.loads(locked.stdout)["hosts"][first]["error"]["kind"] == "locked"
        assert push("quick.yaml", first, "--name", "slow", "--noop").returncode == 0
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, output
    assert "2 stopped" in output
    for host, pid in pids.items():
        assert fleet.shell(host, f"rm /run/push-pid; test ! -e /proc/{pid} && ls -A /var/lib/mainstay/unpacked") == ""
    # The host kept the report of the stopped run under the id that this machine shows.
    listed = subprocess.run(
        [str(PROGRAM), "history", "--json"], env=fleet.environment(tmp_path / "state"), capture_output=True, text=True
    )
    kept = [run for run in json.loads(listed.stdout) if run["host"] == first and not run["noop"]]
    assert kept[0]["manifest"] == "site.yaml"
    assert fleet.shell(first, f"grep -c SIGINT /var/lib/mainstay/history/{kept[0]['run_id']}.json").strip() == "1"


def screen_of(text: str) -> list[str]:
    """The lines that a terminal shows after a program wrote a text. Fails at a sequence that a push does not use."""
    lines, row = [""], 0
    for piece in re.findall(r"\033\[[\d;?]*[A-Za-z]|\r?\n|[^\033\r\n]+|.", text, re.DOTALL):
        if piece.endswith("\n"):
            row += 1
            lines += [""] * (row == len(lines))
        elif piece == "\033[J":
            del lines[row:]
            lines.append("")
        elif re.fullmatch(r"\033\[\d+A", piece):
            row -= int(piece[2:-1])
            assert row >= 0
            # A line that wraps would not be cleared as a whole.
            assert all(width_of(line) < 80 and line.isprintable() for line in lines[row:]), lines[row:]
        elif not re.fullmatch(r"\033\[[\d;]*m", piece):
            assert piece.replace("\t", "").isprintable(), repr(piece)
            lines[row] += piece
    return lines


def test_a_terminal_shows_running_hosts_and_is_left_in_order_after_ctrl_c(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    first, second = fleet.names[:2]
    fleet.alias("nowhere", first, port=9)
    name = "wait \033[2J for\t" + "宽" * 50
    command = {"provider": "shell", "command": "sleep 300"}
    (tmp_path / "site.yaml").write_text(json.dumps({"resources": [{"exec": [{name: command}]}]}))
    words = [str(PROGRAM), "push", "site.yaml", first, second, "nowhere"]
    with on_terminal(words, fleet.environment(tmp_path / "state"), tmp_path) as terminal:
        before = termios.tcgetattr(terminal.end)
        terminal.wait_for("1/3 done, 2 running")
        for host in (first, second):
            terminal.wait_for(f"{host:<7}  running      ")
        terminal.wait_for("[1/1] exec#wait \\x1b[2J for 宽")
        live = screen_of(terminal.seen)
        assert [line.split()[:2] for line in live if line.startswith("nowhere ")] == [["nowhere", "unreachable"]]
        terminal.type("\003")
        assert terminal.finish() == 128 + signal.SIGINT, terminal.seen
        assert termios.tcgetattr(terminal.end) == before
    # No colour, hidden cursor or live line is left.
    assert terminal.seen.count("\033[0m") * 2 == len(re.findall(r"\033\[[\d;]*m", terminal.seen))
    assert "\033[?" not in terminal.seen
    shown = screen_of(terminal.seen)
    assert {line.split()[0]: line.split()[1] for line in shown[:4]} == {
        "HOST": "RESULT",
        "nowhere": "unreachable",
        first: "stopped",
        second: "stopped",
    }
    assert not [line for line in shown if " done, " in line or "[1/1]" in line]
    assert shown[-2].startswith("Push: 3 hosts: ")

    (tmp_path / "quick.yaml").write_text(one_command("true", json.dumps("\033[2Jquick")))
    piped = push("quick.yaml", first, "nowhere")
    assert "\033" not in piped.stdout + piped.stderr
    assert "exec#\\x1b[2Jquick" in piped.stdout
    evil = "web\033[2J\x9b1"
    (tmp_path / "evil.json").write_text(json.dumps({"hosts": {evil: {}}, "groups": {evil: {"hosts": [evil]}}}))
    for chosen in ((evil,), ("-i", "evil.json"), (first, "--limit", evil), (first, "--name", f"{evil}/")):
        refused = push("quick.yaml", *chosen)
        assert refused.returncode == 2
        assert "\033" not in refused.stderr
        assert "\x9b" not in refused.stderr
        assert "web\\x1b[2J\\x9b1" in refused.stderr, refused.stderr


def test_batches_stop_after_a_failure_and_equal_faults_are_shown_once(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    hosts = fleet.names[:4]
    (tmp_path / "site.yaml").write_text(one_command(f"test $(hostname) != {hosts[1]}; date >>/run/pushed; false"))
    done = push("site.yaml", *hosts, "--batch", "50%", "--json")
    assert done.returncode == 1
    reports = json.loads(done.stdout)["hosts"]
    assert [reports[name].get("error", {}).get("kind") for name in hosts] == [None, None, "stopped", "stopped"]
    assert fleet.shell(hosts[2], "cat /run/pushed 2>/dev/null || true") == ""
    shown = push("site.yaml", *hosts, "--batch", "2", "--stop-after", "9", "--parallel", "1")
    assert shown.returncode == 1
    assert shown.stdout.count("failed    exec#step") == 1
    assert f"\n{', '.join(hosts)}\nfailed    exec#step" in shown.stdout
    assert "Push: 4 hosts: 4 failed" in shown.stdout


def test_a_dry_run_shows_the_same_diff_of_many_hosts_once_and_changes_nothing(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    hosts = fleet.names[:2]
    (tmp_path / "site.yaml").write_text(
        'resources:\n- file:\n  - /srv/dry: {ensure: present, content: "new\\n", owner: root, group: root, mode: "0644"}\n'
    )
    done = push("site.yaml", *hosts, "--noop", "--diff")
    assert done.returncode == 0
    assert done.stdout.count("+new") == 1
    assert "Dry run, nothing was touched: 2 hosts: 2 changed" in done.stdout
    assert fleet.shell(hosts[0], "ls /srv/dry 2>&1 || true").startswith("ls: cannot access")


def test_a_bundle_is_pushed_as_it_is(fleet: Fleet, push: Push, tmp_path: Path) -> None:
    manifest = tmp_path / "bundle" / "manifest.yaml"
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "page").write_text("from the bundle")
    manifest.write_text(
        'resources:\n- file:\n  - /srv/bundled: {ensure: present, source: page, owner: root, group: root, mode: "0644"}\n'
    )
    host = fleet.names[0]
    for kind, name in (("gztar", "site.tar.gz"), ("zip", "site.zip")):
        shutil.make_archive(str(tmp_path / "site"), kind, tmp_path / "bundle")
        done = push(name, host, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["hosts"][host]["events"][0]["name"] == "/srv/bundled"
        assert fleet.shell(host, "cat /srv/bundled; rm /srv/bundled") == "from the bundle"


def test_what_does_not_load_exits_2_before_a_host_is_contacted(push: Push, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("resources:\n- file:\n  - /srv/x: {ensur: present}\n")
    (tmp_path / "facts.yaml").write_text("resources:\n- exec:\n  - 'echo {{ lookup(\"facts.nowhere\") }}':\n")
    (tmp_path / "hosts.yaml").write_text("hosts: {-x: }\n")
    (tmp_path / "source.yaml").write_text(
        "- exec:\n  - echo:\n      environment: [\"A={{ lookup('facts.os.id') }}\"]\n"
        "- file:\n  - defaults: {owner: root, group: root, mode: '0644'}\n"
        "  - /srv/x:\n      ensure: present\n      source: files/none\n"
    )
    for words, message in (
        (("bad.yaml", "web1"), "did you mean 'ensure'"),
        (("bad.yaml", "web1", "-i", "hosts.yaml"), "not both"),
        (("bad.yaml", "-i", "hosts.yaml"), "'-x' is no name of a host"),
        (("source.yaml", "web1"), "source.yaml:8:15: file#/srv/x: source: 'files/none' does not exist"),
        (("bad.yaml",), "name at least one HOST"),
        (("none.yaml", "web1"), "cannot be read"),
        (("bad.yaml", "web1", "--parallel", "0"), "--parallel: must be a whole number from 1 to 1000, not '0'"),
        (("bad.yaml", "web1", "--batch", "0"), "--batch is a number"),
        (("-", "web1"), "needs the file"),
    ):
        done = push(*words)
        assert done.returncode == 2, words
        assert message in done.stderr, words
    # Facts are known only there: both hosts refuse the manifest, which is shown once.
    refused = push("facts.yaml", *fleet.names[:2])
    assert refused.returncode == 2
    assert refused.stdout.count("is not defined") == 1


def test_sudo_runs_as_root_and_its_password_travels_only_on_request(fleet: Fleet, push: Push, tmp_path: Path) -> None:
    free, asking = fleet.names[:2]
    fleet.alias("free", free, user=OPERATOR)
    fleet.alias("asking", asking, user=OPERATOR)
    fleet.shell(asking, f"echo '{OPERATOR} ALL=(ALL) ALL' >/etc/sudoers.d/{OPERATOR}")
    (tmp_path / "site.yaml").write_text(one_command("id -u; echo $PATH"))
    plain = json.loads(push("site.yaml", "free", "--json").stdout)["hosts"]["free"]
    assert plain["events"][0]["output"].splitlines()[0] != "0"
    done = push("site.yaml", "free", "asking", "--become", "--json")
    assert done.returncode == 1
    reports = json.loads(done.stdout)["hosts"]
    assert reports["free"]["events"][0]["output"].splitlines()[0] == "0"
    assert reports["asking"]["error"]["kind"] == "become"
    assert "use --ask-become-pass" in reports["asking"]["error"]["message"]
    for password, code, shown in ((PASSWORD, 0, "2 changed"), ("wrong", 1, "sudo refuses the password")):
        words = [str(PROGRAM), "push", "site.yaml", "free", "asking", "--ask-become-pass"]
        with on_terminal(
            words, {**fleet.environment(tmp_path / "state"), "PWD": str(tmp_path)}, tmp_path
        ) as terminal:
            terminal.wait_for("Password of sudo")
            terminal.type(password + "\n")
            assert terminal.finish() == code, terminal.seen
            assert shown in terminal.seen
            assert PASSWORD not in terminal.seen


def test_root_runs_no_code_that_the_account_of_the_connection_can_write(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    host = fleet.names[0]
    fleet.alias("planted", host, user=OPERATOR)
    home = f"/home/{OPERATOR}"
    evil = "open('/run/evil', 'a').write('x')"
    (tmp_path / "site.yaml").write_text(one_command("true"))
    assert push("site.yaml", "planted").returncode == 0
    fleet.shell(
        host,
        f"rm -f /run/evil; cd {home}; digest=$(ls .cache/mainstay | grep -v contents);"
        f" find .cache/mainstay/$digest -name '*.py' | while read -r file; do echo \"{evil}\" >$file; done;"
        f' mkdir -p bin; for name in json os yaml site sitecustomize zipfile; do echo "{evil}" >$name.py; done;'
        f" printf '#!/bin/sh\\ntouch /run/evil; exec /usr/bin/python3 \"$@\"\\n' | tee bin/python3 bin/python3.13 bin/id >bin/sudo;"
        f" chmod +x bin/*; echo 'export PATH={home}/bin:$PATH PYTHONPATH={home} PYTHONSTARTUP={home}/json.py' >.bashrc;"
        f" rm bin/sudo bin/id; chown -R {OPERATOR}: {home}",
    )
    try:
        done = push("site.yaml", "planted", "--become")
        assert done.returncode == 0, done.stdout
        assert fleet.shell(host, "cat /run/evil 2>/dev/null || true") == ""
        # What another user planted in root's own cache is refused.
        fleet.shell(
            host,
            f"rm -rf /var/cache/mainstay; mkdir -m 0755 /var/cache/mainstay; chown {OPERATOR} /var/cache/mainstay",
        )
        refused = push("site.yaml", "planted", "--become")
        assert refused.returncode == 1
        assert "/var/cache/mainstay belongs to uid" in refused.stdout
    finally:
        fleet.shell(host, f"rm -rf /var/cache/mainstay {home}/.bashrc {home}/*.py {home}/bin {home}/.cache")


def sent_kilobytes(done: subprocess.CompletedProcess[str]) -> float:
    assert done.returncode == 0, done.stdout + done.stderr
    sent = re.search(r", ([\d,.]+) kB sent", done.stdout)
    assert sent is not None
    return float(sent[1].replace(",", ""))


CONTENTS = "/var/cache/mainstay/contents"
COPIES = """
resources:
  - file:
      - /srv/copies: {ensure: directory, owner: root, group: root, mode: "0755"}
      - /srv/copies/large: {ensure: present, source: files/large, owner: root, group: root, mode: "0644"}
      - /srv/copies/again: {ensure: present, source: files/again, owner: root, group: root, mode: "0644"}
      - /srv/copies/key: {ensure: present, source: files/key, sensitive: true, owner: root, group: root, mode: "0600"}
"""


def test_only_what_changed_travels_again_and_spoiled_contents_are_sent_anew(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    host, large = fleet.names[0], Random(5).randbytes(5_000_000)
    (tmp_path / "files").mkdir()
    for name, content in {"large": large, "again": large, "key": CANARY.encode()}.items():
        (tmp_path / "files" / name).write_bytes(content)
    manifest = tmp_path / "site.yaml"
    manifest.write_text(COPIES)
    fleet.shell(host, f"rm -rf {CONTENTS}")
    # The same content of two files travels once.
    assert 5_000 < sent_kilobytes(push("site.yaml", host)) < 9_000
    for line in ("# A new line.\n", "# Another one.\n"):
        manifest.write_text(COPIES + line)
        assert sent_kilobytes(push("site.yaml", host)) < 20
    assert fleet.shell(host, "cat /srv/copies/key") == CANARY
    # A secret is used for one run, and neither it nor the list with its digest stays in the cache.
    assert fleet.shell(host, f"grep -rl 'c[a]nary-of-the-host' {CONTENTS} || true; ls {CONTENTS} | wc -l") == "1\n"
    assert fleet.shell(host, f"find {CONTENTS} -perm /077 -o ! -user root") == ""

    kept = fleet.shell(host, f"ls -d {CONTENTS}/*").strip()
    other = "/run/other-content"
    fleet.shell(host, f"head -c 5000000 /dev/zero >{other}")
    for spoil in (
        f"truncate -s 4999999 {kept}",
        f"cp {other} {kept}",
        f"rm {kept}; ln -s {other} {kept}",
        f"rm {kept}; mkfifo {kept}",
    ):
        fleet.shell(host, f"{spoil}; rm /srv/copies/large")
        assert sent_kilobytes(push("site.yaml", host)) > 5_000, spoil
        assert fleet.shell(
            host, f"cmp /srv/copies/large {kept}; test ! -L {kept}; sha256sum <{kept} | cut -c1-64"
        ) == (f"{Path(kept).name}\n"), spoil
        assert sent_kilobytes(push("site.yaml", host)) < 20
    fleet.shell(host, f"rm {other}; rm -r /srv/copies {CONTENTS}")


HOSTILE = {
    "terminal": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\n'; printf 'mainstay-push {"need": []}\nmainstay-push {"start": 1}\nmainstay-push {"event": {"type": "exec", "name": "\\u001b[2Jx\\u009b", "outcome": "failed", "errors": ["\\u001b]0;owned\\u0007"]}, "index": 0}\nmainstay-push {"end": {"summary": {"total": 1, "stable": 0, "changed": 0, "refreshed": 0, "skipped": 0, "unmet": 0, "failed": 1, "duration_seconds": 1}}}\n'""",
    "endless": "printf 'mainstay-push '; head -c 1000000000 /dev/zero",
    "noise": "head -c 1000000000 /dev/zero | tr '\\0' '\\n'",
    "errors": "head -c 60000000 /dev/zero >&2; exit 3",
    "nonsense": r"printf 'mainstay-push {\033[2J\n'",
    "early": r"""printf 'mainstay-push {"event": {"type": "file", "name": "x", "outcome": "stable"}}\n'""",
    "greedy": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2], "has_program": true, "has_index": true}}\nmainstay-push {"need": [0, 0]}\n'""",
    "beyond": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\nmainstay-push {"need": [1]}\n'""",
    "again": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\nmainstay-push {"need": []}\nmainstay-push {"need": []}\n'""",
    "unasked": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\nmainstay-push {"start": 1}\n'""",
    "flood": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\nmainstay-push {"need": []}\nmainstay-push {"start": 1}\nmainstay-push {"stable": ['; yes '"a",' | tr -d '\n' | head -c 6000000; printf '"a"]}\n'""",
    "another": r"""printf 'mainstay-push {"hello": {"python": [3, 11, 2]}}\nmainstay-push {"locked": "x", "host": "web2", "hosts": {"web2": {}}}\n'""",
    "silent": "exit 0",
}


def test_hostile_responses_do_no_harm(fleet: Fleet, push: Push, tmp_path: Path) -> None:
    host = fleet.names[0]
    good = fleet.names[1]
    hosts: dict[str, Any] = {good: None}
    for name, script in HOSTILE.items():
        fleet.alias(name, host)
        fleet.machines[host].write(f"/opt/{name}", f'#!/bin/sh\n[ "$1" != -V ] || exit 0\n{script}\n', mode=0o755)
        hosts[name] = {"python": f"/opt/{name}"}
    (tmp_path / "hosts.json").write_text(json.dumps({"hosts": hosts}))
    (tmp_path / "site.yaml").write_text(one_command("true"))
    done = push(
        "site.yaml", "-i", "hosts.json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    )
    assert done.returncode == 1
    assert "\033" not in done.stdout
    assert "\x9b" not in done.stdout
    assert "exec#\\x1b[2Jx\\x9b" in done.stdout
    rows = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1 : len(hosts) + 1]}
    assert rows == {
        good: "changed",
        "terminal": "failed",
        "endless": "protocol",
        "noise": "protocol",
        "errors": "protocol",
        "nonsense": "protocol",
        "early": "protocol",
        "greedy": "protocol",
        "beyond": "protocol",
        "again": "protocol",
        "unasked": "protocol",
        "flood": "protocol",
        "another": "locked",
        "silent": "protocol",
    }
    document = push("site.yaml", "-i", "hosts.json", "--limit", "terminal", "--json").stdout
    assert document.isascii()
    assert "\033" not in document


FILES = 30
RUNNING = "grep -ls 'r=[s]ys.stdin.buffer' /proc/[0-9]*/cmdline | cut -d/ -f3"


def versioned(version: int) -> str:
    files = "".join(
        f"  - /srv/kill/{number}: {{ensure: present, content: 'version {version}', owner: root, group: root, mode: '0640'}}\n"
        for number in range(FILES)
    )
    return (
        "resources:\n- file:\n  - /srv/kill: {ensure: directory, owner: root, group: root, mode: '0755'}\n"
        "  - /srv/large: {ensure: present, source: large, owner: root, group: root, mode: '0640'}\n"
        f"{files}- exec:\n  - refresh:\n      provider: shell\n      command: cp /srv/kill/0 /srv/refreshed\n"
        "      refresh_only: true\n      subscribe: [file#/srv/kill/0]\n"
        "  - wait: {command: sleep 0.3}\n"
    )


def test_kills_at_random_instants_leave_nothing_that_the_next_push_does_not_mend(
    fleet: Fleet, push: Push, tmp_path: Path
) -> None:
    chance = Random(16)
    manifest, large = tmp_path / "site.yaml", tmp_path / "large"
    digests = []

    def write(version: int) -> None:
        manifest.write_text(versioned(version))
        # Long enough to be killed while it travels.
        large.write_bytes(chance.randbytes(2_000_000))
        digests.append(sha256(large.read_bytes()).hexdigest())

    write(0)
    assert push("site.yaml", *fleet.names).returncode == 0
    for version in range(1, count_of(40) + 1):
        write(version)
        pushing = subprocess.Popen(
            [str(PROGRAM), "push", "site.yaml", *fleet.names],
            cwd=tmp_path,
            env=fleet.environment(tmp_path / "state"),
            stdout=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(0.2, 3.0))
        for host in fleet.names[:: 1 if version % 2 else 4]:
            # Of a killed run, at every instant, a file is old or new as a whole.
            fleet.shell(host, f"kill -9 $({RUNNING}) 2>/dev/null || true")
            texts = fleet.shell(host, "cd /srv/kill; for file in *; do cat $file; echo; done").split("\n")
            assert set(texts) <= {f"version {version - 1}", f"version {version}", ""}
            assert fleet.shell(host, "sha256sum </srv/large").split()[0] in digests[-2:]
        if version % 2:
            pushing.kill()
        pushing.wait(120)
        again = push("site.yaml", *fleet.names, "--lock-wait", "60s")
        assert again.returncode == 0, again.stdout
        assert list((tmp_path / "state" / "unpacked").iterdir()) == []
        for host in fleet.names:
            left = fleet.shell(
                host,
                f"echo '{digests[-1]}  /srv/large' | sha256sum --check --status || echo large;"
                " cd /srv/kill; cat * /srv/refreshed | sed 's/version/\\nversion/g' | sort -u; find /srv -name '.mainstay-*';"
                " ls -A /var/lib/mainstay/unpacked /var/lib/mainstay/scratch 2>/dev/null | grep -v ':$' || true;"
                " ls /var/cache/mainstay/contents /var/cache/mainstay | grep -E '^(new|tmp)-' || true;"
                f" {RUNNING} || true; ls /var/lib/mainstay/manifests/*/owed 2>/dev/null || true",
            )
            assert left.split("\n") == ["", f"version {version}", ""], (version, host, left)

"""`mainstay schedule` on a real host: timers that systemd runs, and what it refuses to run as root."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from interpreters import need_python
from isolation import WITHOUT_RIGHTS
from mainstay.packaging.program_file import build_program_file
from system.conftest import PROGRAM, ManagedHost
from test_docs import BLOCK, ROOT, commands, pattern

pytestmark = pytest.mark.test_all

UNITS = "/etc/systemd/system/mainstay-apply-*"
MANIFEST = (
    "- file:\n    - /srv/PLACE:\n        {ensure: present, content: x, owner: root, group: root, mode: '0600'}\n"
)
SECRET = "hunter2-correct-horse"
ODD = "/srv/a b%n$HOME'\"{{ 7 }};\\"


def schedule(host: ManagedHost, *words: str, program: str = str(PROGRAM)) -> subprocess.CompletedProcess[str]:
    return host.machine.run(program, "schedule", *words)


def listed(host: ManagedHost) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(schedule(host, "--json").stdout)}


def refused(host: ManagedHost, *words: str, program: str = str(PROGRAM)) -> str:
    done = schedule(host, *words, program=program)
    assert done.returncode == 2, done
    assert not done.stdout
    return done.stderr


def test_a_scheduled_manifest_runs_at_its_times_until_it_is_removed(shared_host: ManagedHost) -> None:
    host = shared_host
    host.machine.write(f"{ODD}/site.yaml", MANIFEST.replace("PLACE", "scheduled"))
    assert "Would have" in schedule(host, f"{ODD}/site.yaml", "--every", "30m", "--noop").stdout
    assert host.shell(f"ls {UNITS} 2>&1 || true").count("No such file") == 1

    done = schedule(host, f"{ODD}/site.yaml", "--every", "30m", "--splay", "5m")
    assert done.returncode == 0, done
    timer = host.shell("systemctl cat mainstay-apply-site.timer")
    assert "OnCalendar=*-*-* *:00/30:00\nPersistent=true\nRandomizedDelaySec=300s\n" in timer
    assert host.shell("systemctl is-enabled mainstay-apply-site.timer") == "enabled\n"
    row = listed(host)["site"]
    assert (row["manifest"], row["every"], row["splay"]) == (f"{ODD}/site.yaml", "30m", "5m")
    assert row["active"]
    assert row["next_run"].endswith("Z")
    assert (row["last_run"], row["last_result"]) == (None, None)

    # A time missed while the host was off: the stamp of the last run is old.
    host.shell(
        "systemctl stop mainstay-apply-site.timer; touch -d '2 days ago'"
        " /var/lib/systemd/timers/stamp-mainstay-apply-site.timer; sed -i s/=300s/=0/"
        " /etc/systemd/system/mainstay-apply-site.timer; systemctl daemon-reload;"
        " systemctl start mainstay-apply-site.timer;"
        " for n in $(seq 100); do test -s /srv/scheduled && break; sleep 0.2; done; systemctl start mainstay-apply-site"
    )
    assert host.shell("cat /srv/scheduled") == "x"
    row = listed(host)["site"]
    assert row["last_result"] == "success"
    assert row["last_run"].endswith("Z")

    # The same again repairs the units; another interval replaces them.
    assert "RandomizedDelaySec=300s" in schedule(host, f"{ODD}/site.yaml", "--every", "30m", "--splay", "5m").stdout
    assert "Run: 3 stable" in schedule(host, f"{ODD}/site.yaml", "--every", "30m", "--splay", "5m").stdout
    assert schedule(host, f"{ODD}/site.yaml", "--every", "90m").returncode == 0
    assert host.shell("systemctl show -p TimersCalendar --value mainstay-apply-site.timer").count("OnCalendar") == 2

    # A default name does not replace the schedule of another manifest; a name that was typed does.
    host.machine.write("/srv/other/site.yaml", MANIFEST.replace("PLACE", "other"))
    assert f"schedule site applies {ODD}/site.yaml" in refused(host, "/srv/other/site.yaml", "--every", "1h")
    assert schedule(host, "/srv/other/site.yaml", "--every", "1h", "--name", "site").returncode == 0
    assert listed(host)["site"]["manifest"] == "/srv/other/site.yaml"

    # A run by hand in progress is no failure of the schedule; a failed resource is one.
    host.machine.write("/srv/other/slow.yaml", "- exec:\n    - /bin/sleep 30:\n        unless: test -e /srv/broken\n")
    assert schedule(host, "/srv/other/slow.yaml", "--every", "1d").returncode == 0
    host.shell(
        f"{PROGRAM} apply /srv/other/slow.yaml >/dev/null 2>&1 & pid=$!;"
        " for n in $(seq 100); do pgrep -x sleep -P $pid >/dev/null && break; sleep 0.1; done;"
        " systemctl start mainstay-apply-slow; kill $pid; wait $pid || true"
    )
    assert listed(host)["slow"]["last_result"] == "another run was in progress"
    host.shell("sed -i s,/bin/sleep,/bin/false, /srv/other/slow.yaml; ! systemctl start mainstay-apply-slow")
    assert listed(host)["slow"]["last_result"] == "a resource failed"
    text = schedule(host).stdout
    assert "a resource failed" in text
    assert "1d" in text

    assert "did you mean 'slow'?" in refused(host, "--remove", "slw")
    assert schedule(host, "--remove", "slow").returncode == 0
    assert schedule(host, "--remove", "site").returncode == 0
    assert host.shell("systemctl --failed --no-legend --plain | grep mainstay-apply || echo none") == "none\n"
    assert host.shell(f"ls {UNITS} /var/lib/systemd/timers/*mainstay-apply* 2>/dev/null | wc -l") == "0\n"
    assert host.shell("systemctl list-unit-files 'mainstay-apply-*' --no-legend | wc -l") == "0\n"
    assert "There is no schedule." in schedule(host).stdout


def test_the_options_of_runs_reach_them_and_values_come_from_files_only(shared_host: ManagedHost) -> None:
    host = shared_host
    resource = "{ensure: present, content: \"CONTENT\", owner: root, group: root, mode: '0600', tags: [TAG]}"
    text = "{{ lookup('data.word') }} {{ lookup('more.word') }} {{ lookup('facts.word') }}"
    tagged = resource.replace("CONTENT", text).replace("TAG", "one")
    other = resource.replace("CONTENT", "x").replace("TAG", "two")
    host.machine.write(
        "/srv/run options/run.yaml",
        f"data: {{word: none}}\nresources:\n- file:\n    - /srv/tagged: {tagged}\n    - /srv/other-tag: {other}\n",
    )
    files = {"data": f"word: {SECRET}\n", "values": "more: {word: b}\n", "facts": "word: c\n"}
    for name, content in files.items():
        host.machine.write(f"/srv/run options/{name}.yaml", content, mode=0o600)
    # Relative paths, as typed: the unit runs in another directory.
    done = host.machine.run(
        "sh",
        "-c",
        f"cd '/srv/run options' && {PROGRAM} schedule run.yaml --every 1h --data data.yaml --values values.yaml"
        " --facts facts.yaml --tag one --lock-wait 5m -v",
    )
    assert done.returncode == 0, done
    shown = host.shell("systemctl cat mainstay-apply-run.service mainstay-apply-run.timer")
    assert SECRET not in done.stdout + done.stderr + shown
    host.shell("systemctl start mainstay-apply-run")
    assert host.shell("cat /srv/tagged") == f"{SECRET} b c"
    assert host.shell("test -e /srv/other-tag || echo absent") == "absent\n"
    assert listed(host)["run"]["options"] == [
        *("--data", "/srv/run options/data.yaml", "--values", "/srv/run options/values.yaml"),
        *("--facts", "/srv/run options/facts.yaml", "--tag=one", "--lock-wait", "5m", "--verbose"),
    ]
    # Files are read in every run.
    host.shell("echo 'word: later' >'/srv/run options/data.yaml'; systemctl start mainstay-apply-run")
    assert host.shell("cat /srv/tagged") == "later b c"

    manifest = "/srv/run options/run.yaml"
    given = [f"--{name}=/srv/run options/{name}.yaml" for name in files]
    for option, message in [
        (
            f"--set=word={SECRET}",
            "--set cannot be scheduled: every user can read the value in the unit; write it into",
        ),
        (
            f"--fact=word={SECRET}",
            "a file that only root can read, such as /etc/mainstay/NAME.yaml, and give that with",
        ),
        ("--diff", "the journal, which users other than root may read"),
        ("--tag=tow", "no resource has the tag 'tow' (did you mean 'two'?)"),
        ("--lock-wait=soon", "--lock-wait: "),
        ("--data=/srv/missing.yaml", "/srv/missing.yaml"),
    ]:
        found = refused(host, manifest, "--every", "1h", *given, option)
        assert message in found
        assert SECRET not in found
    host.shell("chown daemon '/srv/run options/values.yaml'")
    assert "/srv/run options/values.yaml would decide what root does, but" in refused(
        host, manifest, "--every", "1h", *given
    )
    assert schedule(host, "--remove", "run").returncode == 0


def test_a_program_that_the_sandbox_of_the_unit_hides_is_refused_at_once(shared_host: ManagedHost) -> None:
    """Units of agents and schedules have no sandbox of ours, but operators add one with `systemctl edit`."""
    host = shared_host
    host.machine.write("/srv/hidden/hidden.yaml", MANIFEST.replace("PLACE", "x"))
    enrolment = {"url": "http://127.0.0.1:1", "agentId": "x", "token": "x", "insecure": True}
    host.machine.write("/srv/hidden/agent.json", json.dumps(enrolment), mode=0o600)
    host.shell(
        f"mkdir -p /tmp/place /home/place; for n in /tmp/place /home/place; do ln -s {PROGRAM} $n/mainstay; done"
    )
    commands = {
        "mainstay-apply-hidden.service": ("schedule", "/srv/hidden/hidden.yaml", "--every", "1h", "--noop"),
        "mainstay-agent.service": ("agent", "install", "--config", "/srv/hidden/agent.json", "--noop"),
    }
    for unit, words in commands.items():
        found = host.machine.run("/tmp/place/mainstay", *words)
        assert found.returncode == 0, found
        assert f"warning: {unit} fails once /tmp/place/mainstay is removed" in found.stderr
        drop_in = f"/etc/systemd/system/{unit}.d/override.conf"
        for place, setting, directory in [
            ("/tmp", "PrivateTmp=yes", "/tmp"),
            ("/home", "ProtectHome=tmpfs", "/home"),
        ]:
            host.machine.write(drop_in, f"[Service]\n{setting}\n")
            done = host.machine.run(f"{place}/place/mainstay", *words)
            assert (done.returncode, done.stdout) == (2, ""), done
            assert done.stderr == (
                f"mainstay: {unit} could not run {place}/place/mainstay: {setting} in {drop_in} hides {directory} from it;"
                " install mainstay where every unit can read it, such as /opt, and run this command from there\n"
            )
        host.machine.write(drop_in, "[Service]\nPrivateTmp=yes\nPrivateTmp=no\nProtectHome=read-only\n")
        assert host.machine.run("/tmp/place/mainstay", *words).returncode == 0
        host.shell(f"rm -r /etc/systemd/system/{unit}.d")
    host.shell("rm -r /tmp/place /home/place")


def test_the_commands_of_the_guide_print_the_documented_output(shared_host: ManagedHost) -> None:
    """They are in blocks of their own language, because they need a host that runs systemd."""
    guide = (ROOT / "docs/guide/hosts/trials-and-schedules.md").read_text()
    (manifest,) = (text for _, text in BLOCK.findall(guide) if text.startswith("# file: site.yaml"))
    shared_host.machine.write("/etc/mainstay/site.yaml", manifest)
    (block,) = (text for language, text in BLOCK.findall(guide) if language == "shell")
    found = commands(block)
    assert len(found) == 4
    for command, expected in found:
        script = command.replace("mainstay ", f"{PROGRAM} ", 1) if command.startswith("mainstay ") else command
        output = shared_host.shell(f"{script} 2>&1").rstrip("\n")
        assert pattern(expected).fullmatch(output), f"$ {command}\n{output}\n--- expected ---\n{expected}"


def test_the_program_file_is_scheduled_by_its_own_path(shared_host: ManagedHost) -> None:
    """With Python 3.9, in which all of this command must run."""
    python = need_python("3.9")
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        (folder / "mainstay.pyz").write_bytes(build_program_file())
        shared_host.machine.write("/srv/file/by-file.yaml", MANIFEST.replace("PLACE", "by-file"))
        program = f"{python} -I {folder}/mainstay.pyz schedule"
        shared_host.shell(f"{program} /srv/file/by-file.yaml --every 1h; systemctl start mainstay-apply-by-file")
        assert shared_host.shell("cat /srv/by-file") == "x"
        assert "success" in shared_host.shell(program)
        assert "Run:" in shared_host.shell(f"{program} --remove by-file")
    finally:
        shutil.rmtree(folder)


def test_what_another_user_can_change_is_not_scheduled(shared_host: ManagedHost) -> None:
    host = shared_host
    host.machine.write("/srv/safe/site.yaml", MANIFEST.replace("PLACE", "x"))
    host.machine.write("/srv/safe/parent.yaml", "- apply:\n    - parts/child.yaml:\n")
    host.machine.write("/srv/safe/parts/child.yaml", MANIFEST.replace("PLACE", "y"))
    host.shell(f"mkdir -p /srv/safe/bin; install {PROGRAM} /srv/safe/bin/mainstay; mkdir -p /srv/library")
    cases = [
        # (what opens it, what closes it, manifest, what the message names)
        ("chown daemon F", "chown root F", "site.yaml", "/srv/safe/site.yaml"),
        ("chmod 666 F", "chmod 644 F", "site.yaml", "/srv/safe/site.yaml"),
        ("chmod 664 F; chgrp users F", "chmod 644 F; chgrp root F", "site.yaml", "/srv/safe/site.yaml"),
        ("chown daemon /srv/safe", "chown root /srv/safe", "site.yaml", "/srv/safe"),
        ("chmod 1777 /srv/safe", "chmod 755 /srv/safe", "site.yaml", "/srv/safe"),
        ("chmod 777 /srv", "chmod 755 /srv", "site.yaml", "/srv"),
        ("ln -s safe /srv/link; chown -h daemon /srv/link", "rm /srv/link", "../link/site.yaml", "/srv/link"),
        ("chown daemon /srv/safe/parts", "chown root /srv/safe/parts", "parent.yaml", "/srv/safe/parts"),
        ("chmod o+w /srv/safe/parts/*", "chmod o-w /srv/safe/parts/*", "parent.yaml", "/srv/safe/parts/child.yaml"),
        ("chown daemon /srv/safe/bin/mainstay", "chown root /srv/safe/bin/mainstay", "site.yaml", "bin/mainstay"),
    ]
    for opens, closes, manifest, named in cases:
        file = f"/srv/safe/{manifest}" if not manifest.startswith("..") else "/srv/link/site.yaml"
        host.shell(opens.replace("F", file))
        message = refused(host, file, "--every", "1h", program="/srv/safe/bin/mainstay")
        assert named in message, (opens, message)
        assert "would run as root, but" in message
        host.shell(closes.replace("F", file))
    host.shell("chown daemon /srv/library")
    found = host.machine.run(
        str(PROGRAM), "schedule", "/srv/safe/site.yaml", "--every", "1h", environment={"PYTHONPATH": "/srv/library"}
    )
    assert "this program would run as root, but a user other than root may change /srv/library" in found.stderr
    assert host.shell(f"ls {UNITS} 2>/dev/null | wc -l") == "0\n"
    as_user = host.machine.run(*WITHOUT_RIGHTS, str(PROGRAM), "schedule", "x", "--every", "1h")
    assert "run it as root" in as_user.stderr


def test_a_name_or_path_cannot_add_to_a_unit(shared_host: ManagedHost) -> None:
    host = shared_host
    host.machine.write("/srv/names/site.yaml", MANIFEST.replace("PLACE", "x"))
    host.machine.write("/srv/names/50%x.yaml", MANIFEST.replace("PLACE", "x"))
    host.machine.write("/srv/names/a\nExecStartPre=x.yaml", MANIFEST.replace("PLACE", "x"))
    host.machine.write("/etc/systemd/system/mainstay-apply-mine.timer", "[Timer]\nOnCalendar=daily\n")
    names = [
        "../x",
        "a/b",
        "a b",
        "%n",
        "a\nExecStart=/bin/sh",
        "",
        "@",
        "a@b",
        "-x",
        ".",
        "é",
        "$x",
        "'",
        "x" * 101,
        "mine",
    ]
    for name in names:
        refused(host, "/srv/names/site.yaml", "--every", "1h", f"--name={name}")
    for path, message in [
        ("/srv/names/50%x.yaml", "give one with --name"),
        ("/srv/names/a\nExecStartPre=x.yaml", "control characters"),
        ("-", "standard input"),
        ("https://example.org/site.tgz", "a URL cannot be scheduled"),
        ("/srv/names/missing.yaml", "No such file"),
    ]:
        assert message in refused(host, path, "--every", "1h")
    for words, message in [
        (("--every", "7m"), "use 6m or 8m"),
        (("--every", "often"), "is not a duration"),
        ((), "--every is missing"),
        (("--every", "1h", "--splay", "1h"), "must be shorter"),
    ]:
        assert message in refused(host, "/srv/names/site.yaml", *words)
    assert "needs a MANIFEST" in refused(host, "--every", "1h")
    assert host.shell("ls /etc/systemd/system | grep mainstay-apply") == "mainstay-apply-mine.timer\n"
    host.shell("rm /etc/systemd/system/mainstay-apply-mine.timer")

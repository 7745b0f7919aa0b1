"""Pushes to throw-away hosts with a real sshd, compared with pyinfra and Ansible: python -m benchmarks.push [--quick].

Needs root. Peers are used if `--peers DIR` names a virtual environment that contains them; each is capped at ten minutes.
Wall seconds of whole commands; figures of one run on one machine are comparable, rates of different machines are not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from push_hosts import PROGRAM, Fleet, booted_fleet

HOSTS, QUICK_HOSTS = 20, 2
PEER_FILES = 50
OUR_FILES = 1000
WAIT_SECONDS = 5
CAP_SECONDS = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HOSTS} hosts and few files; takes seconds")
    parser.add_argument("--peers", metavar="DIR", type=Path, help="virtual environment with pyinfra and ansible-core")
    options = parser.parse_args()
    hosts = QUICK_HOSTS if options.quick else HOSTS
    with (
        booted_fleet([f"h{number}" for number in range(1, hosts + 1)]) as fleet,
        tempfile.TemporaryDirectory() as name,
    ):
        bench = Bench(fleet, Path(name))
        bench.first_and_second(1, 1)
        bench.first_and_second(hosts, PEER_FILES)
        if not options.quick:
            bench.first_and_second(hosts, OUR_FILES)
        bench.waiting(hosts)
        if options.peers is not None:
            bench.peers(hosts, 5 if options.quick else PEER_FILES, options.peers)
    return 0


class Bench:
    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.environ = fleet.environment(folder / "state")

    def timed(self, title: str, words: list[str]) -> str:
        started = time.perf_counter()
        try:
            done = subprocess.run(
                words, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=CAP_SECONDS
            )
        except subprocess.TimeoutExpired:
            print(f"{title:<58} more than {CAP_SECONDS} s")
            return ""
        seconds = time.perf_counter() - started
        if done.returncode:
            print(f"{title:<58} failed: {(done.stdout + done.stderr)[-300:]!r}")
            return ""
        sent = re.search(r"([\d,.]+) kB sent", done.stdout)
        print(f"{title:<58} {seconds:8.2f} s" + (f"  {sent[1]:>9} kB sent" if sent else ""), flush=True)
        return done.stdout

    def push(self, title: str, manifest: Path, hosts: int) -> None:
        self.timed(f"mainstay  {title}", [str(PROGRAM), "push", manifest.name, *self.fleet.names[:hosts]])

    def first_and_second(self, hosts: int, files: int) -> None:
        manifest = self.folder / f"files-{files}.yaml"
        place = f"/srv/ours-{hosts}-{files}"
        manifest.write_text(
            f"resources:\n- file:\n  - {place}: {{ensure: directory, owner: root, group: root, mode: '0755'}}\n"
            + "".join(
                f"  - {place}/{n}: {{ensure: present, content: 'file {n}', owner: root, group: root, mode: '0644'}}\n"
                for n in range(files)
            )
        )
        for what in ("create", "again, nothing to do", "once more"):
            self.push(f"{hosts} host(s) × {files} file(s): {what}", manifest, hosts)

    def waiting(self, hosts: int) -> None:
        manifest = self.folder / "waiting.yaml"
        manifest.write_text(f"resources:\n- exec:\n  - /bin/sleep {WAIT_SECONDS}:\n")
        self.push(f"{hosts} hosts that each wait {WAIT_SECONDS} s", manifest, hosts)

    def peers(self, hosts: int, files: int, environment: Path) -> None:
        names = self.fleet.names[:hosts]
        title = f"{hosts} host(s) × {files} file(s)"
        if (environment / "bin" / "pyinfra").exists():
            self._write_pyinfra(files)
            command = [str(environment / "bin" / "pyinfra"), "-y", ",".join(names), "deploy.py"]
            command[1:1] = ["--data", f"ssh_config_file={self.fleet.folder}/config", "--data", "ssh_user=root"]
            for what in ("create", "again"):
                self.timed(f"pyinfra   {title}: {what}", command)
        if (environment / "bin" / "ansible-playbook").exists():
            self._write_ansible(names, files)
            self.environ |= {"ANSIBLE_HOST_KEY_CHECKING": "True", "LC_ALL": "C.UTF-8", "HOME": str(self.folder)}
            words = [str(environment / "bin" / "ansible-playbook"), "-i", "ansible.json", "-f", "50", "play.json"]
            words += ["--ssh-common-args", f"-F {self.fleet.folder}/config"]
            for what in ("create", "again"):
                self.timed(f"ansible   {title}: {what}", words)

    def _write_pyinfra(self, files: int) -> None:
        (self.folder / "deploy.py").write_text(
            "import io\nfrom pyinfra.operations import files\n"
            "files.directory(path='/srv/pyinfra', mode='755')\n"
            f"for number in range({files}):\n"
            "    files.put(src=io.StringIO(f'file {number}'), dest=f'/srv/pyinfra/{number}', user='root', mode='644')\n"
        )

    def _write_ansible(self, names: list[str], files: int) -> None:
        variables = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
        inventory = {"all": {"hosts": {name: {} for name in names}, "vars": variables}}
        (self.folder / "ansible.json").write_text(json.dumps(inventory))
        tasks = [{"file": {"path": "/srv/ansible", "state": "directory", "mode": "0755"}}]
        tasks += [
            {"copy": {"dest": f"/srv/ansible/{n}", "content": f"file {n}", "owner": "root", "mode": "0644"}}
            for n in range(files)
        ]
        (self.folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("benchmarks.push needs root for its throw-away hosts")
    sys.exit(main())

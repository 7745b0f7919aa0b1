"""Pushes to throw-away hosts with a real sshd, compared with pyinfra and Ansible: python -m benchmarks.push [--quick].

Needs root. The peers are installed with pip into a temporary virtual environment, from the index that pip is configured for;
`--peers DIR` names one that contains them, `--no-peers` leaves them out. Each command is capped at ten minutes. Wall seconds
of whole commands; figures of one run on one machine are comparable, those of different machines are not. Last come the
ratios, beside the goals of this project.
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

from fork_server import PROGRAM
from push_hosts import Fleet, booted_fleet

HOSTS, QUICK_HOSTS = 20, 2
PEER_FILES, QUICK_FILES = 50, 5
PEERS = ("pyinfra", "ansible-core")
CREATE, AGAIN = "create", "again, nothing to do"
OUR_FILES = 1000
WAIT_SECONDS = 5
CAP_SECONDS = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HOSTS} hosts and few files; takes a minute")
    parser.add_argument("--peers", metavar="DIR", type=Path, help="virtual environment with pyinfra and ansible-core")
    parser.add_argument("--no-peers", action="store_true", help="measure mainstay only")
    options = parser.parse_args()
    hosts, files = (QUICK_HOSTS, QUICK_FILES) if options.quick else (HOSTS, PEER_FILES)
    with tempfile.TemporaryDirectory() as name:
        peers = None if options.no_peers else options.peers or _install_peers(Path(name) / "peers")
        with booted_fleet([f"h{number}" for number in range(1, hosts + 1)]) as fleet:
            bench = Bench(fleet, Path(name))
            bench.first_and_second(1, 1)
            bench.first_and_second(hosts, files)
            if not options.quick:
                bench.first_and_second(hosts, OUR_FILES)
            bench.waiting(hosts)
            if peers is not None:
                bench.peers(hosts, files, peers)
            bench.print_ratios(hosts, files)
    return 1 if bench.failed else 0


def _install_peers(environment: Path) -> Path | None:
    """Creates a virtual environment with the peers. None: pip has no index or no connection."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, *PEERS], capture_output=True, text=True, timeout=CAP_SECONDS)
    if done.returncode:
        print(f"the peers cannot be installed, so only mainstay is measured: {done.stderr.strip()[-300:]}")
        return None
    return environment


class Bench:
    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.environ = fleet.environment(folder / "state")
        # Title → wall seconds.
        self.seconds: dict[str, float] = {}
        self.failed = False

    def timed(self, title: str, words: list[str]) -> None:
        started = time.perf_counter()
        try:
            done = subprocess.run(
                words, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=CAP_SECONDS
            )
        except subprocess.TimeoutExpired:
            print(f"{title:<58} more than {CAP_SECONDS} s", flush=True)
            self.seconds[title] = CAP_SECONDS
            return
        seconds = time.perf_counter() - started
        if done.returncode:
            print(f"{title:<58} failed: {(done.stdout + done.stderr)[-300:]!r}", flush=True)
            self.failed = True
            return
        self.seconds[title] = seconds
        sent = re.search(r"([\d,.]+) kB sent", done.stdout)
        print(f"{title:<58} {seconds:8.2f} s" + (f"  {sent[1]:>9} kB sent" if sent else ""), flush=True)

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
        for what in (CREATE, AGAIN, "once more"):
            self.push(f"{_size(hosts, files)}: {what}", manifest, hosts)

    def waiting(self, hosts: int) -> None:
        manifest = self.folder / "waiting.yaml"
        manifest.write_text(f"resources:\n- exec:\n  - /bin/sleep {WAIT_SECONDS}:\n")
        self.push(f"{hosts} hosts that each wait {WAIT_SECONDS} s", manifest, hosts)

    def peers(self, hosts: int, files: int, environment: Path) -> None:
        """The work of `first_and_second` by the peers, and one file on one host."""
        for some_hosts, some_files in ((1, 1), (hosts, files)):
            names = self.fleet.names[:some_hosts]
            title = _size(some_hosts, some_files)
            place = f"{some_hosts}-{some_files}"
            self._write_pyinfra(f"/srv/pyinfra-{place}", some_files)
            # paramiko reads the hosts from the configuration of ssh.
            words = [str(environment / "bin" / "pyinfra"), "-y", ",".join(names), "deploy.py"]
            words[1:1] = ["--data", f"ssh_config_file={self.fleet.folder}/config", "--data", "ssh_user=root"]
            words[1:1] = ["--data", f"ssh_known_hosts_file={self.fleet.folder}/known", "--parallel", "50"]
            for what in (CREATE, AGAIN):
                self.timed(f"pyinfra   {title}: {what}", words)
            self._write_ansible(names, f"/srv/ansible-{place}", some_files)
            self.environ |= {"ANSIBLE_HOST_KEY_CHECKING": "True", "LC_ALL": "C.UTF-8", "HOME": str(self.folder)}
            words = [str(environment / "bin" / "ansible-playbook"), "-i", "ansible.json", "-f", "50", "play.json"]
            words += ["--ssh-common-args", f"-F {self.fleet.folder}/config"]
            for what in (CREATE, AGAIN):
                self.timed(f"ansible   {title}: {what}", words)

    def print_ratios(self, hosts: int, files: int) -> None:
        """Per file, at the size that all have done, and at ours; the goals are in docs/guide/hosts/many-hosts.md."""
        print()
        for peer in ("pyinfra", "ansible"):
            for what in (CREATE, AGAIN):
                for ours in (files, OUR_FILES):
                    own = self.seconds.get(f"mainstay  {_size(hosts, ours)}: {what}")
                    other = self.seconds.get(f"{peer:<9} {_size(hosts, files)}: {what}")
                    if own and other:
                        ratio = (other / files) / (own / ours)
                        print(
                            f"{peer} / mainstay per file, {what}: {ratio:6.1f}  ({files} and {ours} files; goal 10)"
                        )
        waited = self.seconds.get(f"mainstay  {hosts} hosts that each wait {WAIT_SECONDS} s")
        if waited:
            print(f"{hosts} hosts that each wait {WAIT_SECONDS} s: {waited:.1f} s  (goal: within 10 s)")

    def _write_pyinfra(self, place: str, files: int) -> None:
        (self.folder / "deploy.py").write_text(
            "import io\nfrom pyinfra.operations import files\n"
            f"files.directory(path='{place}', mode='755')\n"
            f"for number in range({files}):\n"
            f"    files.put(src=io.StringIO(f'file {{number}}'), dest=f'{place}/{{number}}', user='root', mode='644')\n"
        )

    def _write_ansible(self, names: list[str], place: str, files: int) -> None:
        variables = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
        inventory = {"all": {"hosts": {name: {} for name in names}, "vars": variables}}
        (self.folder / "ansible.json").write_text(json.dumps(inventory))
        tasks = [{"file": {"path": place, "state": "directory", "mode": "0755"}}]
        tasks += [
            {"copy": {"dest": f"{place}/{n}", "content": f"file {n}", "owner": "root", "mode": "0644"}}
            for n in range(files)
        ]
        (self.folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))


def _size(hosts: int, files: int) -> str:
    return f"{hosts} host(s) × {files} file(s)"


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("benchmarks.push needs root for its throw-away hosts")
    sys.exit(main())

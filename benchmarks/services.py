"""Counts the systemctl processes of a no-op run over a hundred stable units on a real systemd.

Compares mainstay with two calls per unit (the first design of its provider) and with the installed peers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mainstay.converge.host.throw_away_host import SEARCH_PATH, SystemdHost, why_unavailable

ROOT = Path(__file__).resolve().parent.parent

UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
RECORD = "/run/systemctl.log"
RECORDER = f'#!/bin/sh\necho "$*" >>{RECORD}\nexec /usr/bin/systemctl "$@"\n'
TWO_CALLS = """
import subprocess, sys
for number in range(int(sys.argv[1])):
    for verb in ("is-active", "is-enabled"):
        subprocess.run(["systemctl", verb, "--system", f"bench{number}"], check=True, stdout=subprocess.DEVNULL)
"""
ROUNDS = 3
MOST_PROCESSES = 5


class Contestant(NamedTuple):
    name: str
    program: str
    path: str
    content: str
    words: tuple[str, ...]


class Cost(NamedTuple):
    processes: int
    seconds: float


def contestants(count: int) -> list[Contestant]:
    names = [f"bench{number}" for number in range(count)]
    manifest = [{"service": [{name: {"ensure": "running", "enable": True}} for name in names]}]
    tasks = [{"ansible.builtin.systemd": {"name": name, "state": "started", "enabled": True}} for name in names]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    puppet = "\n".join(f"service {{ '{name}': ensure => running, enable => true }}" for name in names)
    program = str(Path(sys.executable).with_name("mainstay"))
    return [
        Contestant("mainstay", program, "/srv/bench.yaml", json.dumps(manifest), ("apply", "/srv/bench.yaml")),
        Contestant("two calls per unit", sys.executable, "/srv/two.py", TWO_CALLS, ("/srv/two.py", str(count))),
        Contestant("puppet", "puppet", "/srv/bench.pp", puppet, ("apply", "/srv/bench.pp")),
        Contestant("ansible", "ansible-playbook", "/srv/play.yml", json.dumps(play), ("/srv/play.yml",)),
    ]


def measure(host: SystemdHost, contestant: Contestant, program: str) -> Cost:
    """The lowest of several rounds, because noise on a shared machine only adds."""
    host.write(contestant.path, contestant.content)
    environment = {"MAINSTAY_STATE_DIR": "/srv/state", "PATH": f"{SEARCH_PATH}:{Path(program).parent}"}
    costs = []
    for _ in range(ROUNDS):
        host.shell(f": >{RECORD}")
        started = time.perf_counter()
        host.run(program, *contestant.words, environment=environment, check=True, timeout=600)
        seconds = time.perf_counter() - started
        costs.append(Cost(len(host.read(RECORD).splitlines()), seconds))
    return min(costs, key=lambda cost: cost.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100, help="number of units")
    parser.add_argument("--peer-path", default="", help="additional directories to search for peers")
    options = parser.parse_args()
    reason = why_unavailable()
    if reason is not None:
        print(f"cannot run a host with a real systemd here: {reason}", file=sys.stderr)
        return 77
    shared = sorted({ROOT, Path(sys.prefix), Path(sys.base_prefix)})
    with SystemdHost("bench", read_only_binds=shared) as host:
        prepare(host, options.count)
        costs = {}
        for contestant in contestants(options.count):
            program = shutil.which(contestant.program, path=f"{options.peer_path}:{SEARCH_PATH}")
            if program is None:
                print(f"{contestant.name:<20} not installed")
                continue
            costs[contestant.name] = measure(host, contestant, program)
    return print_ratios(costs, options.count)


def prepare(host: SystemdHost, count: int) -> None:
    host.write("/usr/local/sbin/systemctl", RECORDER, mode=0o755)
    for number in range(count):
        host.write(f"/etc/systemd/system/bench{number}.service", UNIT)
    names = " ".join(f"bench{number}" for number in range(count))
    host.shell(f"systemctl daemon-reload; systemctl enable --now {names} 2>/dev/null")


def print_ratios(costs: dict[str, Cost], count: int) -> int:
    ours = costs["mainstay"]
    print(f"{count} stable units    {'processes':>10} {'seconds':>10} {'times ours':>11}")
    for name, cost in costs.items():
        print(f"{name:<20} {cost.processes:>10} {cost.seconds:>10.2f} {cost.seconds / ours.seconds:>11.1f}")
    is_reached = ours.processes <= MOST_PROCESSES and all(ours.seconds <= cost.seconds for cost in costs.values())
    print(
        f"at most {MOST_PROCESSES} systemctl processes, and not slower than any peer: {'yes' if is_reached else 'NO'}"
    )
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())

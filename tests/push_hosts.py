"""Throw-away hosts that are reached over a real sshd: each has its own keys and accounts. One `ssh` knows them all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mainstay.converge.host.throw_away_host import SystemdHost, is_visible_in_host, why_unavailable
from required_parts import need, need_part

OPERATOR = "pusher"
PASSWORD = "correct horse"
SSHD = """
Port 22
HostKey /etc/ssh/push_host_key
PidFile none
AuthorizedKeysFile /etc/ssh/push_authorized_%u
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""
# The account may use sudo without a password; tests change that.
PREPARE = f"""
mkdir -p /run/sshd
useradd --create-home --shell /bin/bash {OPERATOR}
echo '{OPERATOR}:{PASSWORD}' | chpasswd
echo '{OPERATOR} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{OPERATOR}
chmod 0440 /etc/sudoers.d/{OPERATOR}
for account in root {OPERATOR}; do printf '%s\\n' "$1" >/etc/ssh/push_authorized_$account; done
# What the machine's own root has: caches, and a shell profile that may put other Pythons first.
rm -rf /var/cache/mainstay /var/lib/mainstay /root/.bashrc /root/.profile /root/.bash_profile
# Hidden, not removed: programs of the machine change it meanwhile, and then rm fails.
mkdir -p /root/.cache
mount -t tmpfs tmpfs /root/.cache
systemd-run --quiet --unit=push-sshd --property=KillMode=process /usr/sbin/sshd -D -f /etc/ssh/push_sshd_config
"""
# Twenty hosts share the 128 inotify instances of this machine's root; these units hold some of each host.
UNUSED_UNITS = ("systemd-ask-password-console.path", "systemd-ask-password-wall.path", "systemd-logind.service")


class Fleet:
    """Booted hosts by name, and the `ssh` of their operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: dict[str, SystemdHost] = {}
        self.config: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self.machines)

    def environment(self, state: Path) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(self.folder),
            "MAINSTAY_STATE_DIR": str(state),
        }

    def alias(self, name: str, of: str, *, user: str = "root", port: int = 22, options: Sequence[str] = ()) -> str:
        """Another name for a host, with other options of ssh."""
        address = self.machines[of].address
        lines = [
            f"Host {name}",
            # For ssh, the first value of an option counts.
            *options,
            f"HostName {address}",
            f"HostKeyAlias {of}",
            f"User {user}",
            f"Port {port}",
        ]
        self.config[:0] = lines
        self.write_config()
        return name

    def write_config(self) -> None:
        (self.folder / "config").write_text("\n".join(self.config) + "\n")

    def shell(self, name: str, script: str) -> str:
        return self.machines[name].shell(script)

    def close_connections(self) -> None:
        for socket in (self.folder / "mainstay-ssh").glob("*"):
            subprocess.run(["/usr/bin/ssh", "-o", f"ControlPath={socket}", "-O", "exit", "any"], capture_output=True)


@contextmanager
def booted_fleet(names: Sequence[str]) -> Iterator[Fleet]:
    reason = why_unavailable()
    need(present=reason is None, what=f"a host with a real systemd ({reason})")
    for program in ("/usr/sbin/sshd", "/usr/bin/sudo", "/usr/bin/ssh", "/usr/bin/python3"):
        need_part(present=os.path.exists(program), what=program)
    folder = Path(tempfile.mkdtemp(prefix="push-", dir="/tmp"))
    fleet = Fleet(folder)
    try:
        key = _make_key(folder / "client")
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
        wrapper.chmod(0o755)
        with ExitStack() as stack:
            with ThreadPoolExecutor(2) as pool:
                machines = list(pool.map(lambda name: _booted(stack, name), names))
            known = []
            for name, machine in zip(names, machines, strict=True):
                known.append(f"{name} {_start_sshd(machine, folder, name, key)}")
                fleet.machines[name] = machine
                fleet.config += [f"Host {name}", f"HostName {machine.address}", f"HostKeyAlias {name}"]
            (folder / "known").write_text("\n".join(known) + "\n")
            fleet.config += [
                "Host *",
                "User root",
                f"IdentityFile {folder}/client",
                "IdentitiesOnly yes",
                f"UserKnownHostsFile {folder}/known",
                "GlobalKnownHostsFile /dev/null",
            ]
            fleet.write_config()
            try:
                yield fleet
            finally:
                fleet.close_connections()
    finally:
        shutil.rmtree(folder)


def _booted(stack: ExitStack, name: str) -> SystemdHost:
    machine = stack.enter_context(_machine(name))
    machine.run("systemctl", "--quiet", "stop", *UNUSED_UNITS, check=True)
    return machine


def _machine(name: str) -> SystemdHost:
    needed = {Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix)}
    binds = [path for path in sorted(needed) if not is_visible_in_host(path)]
    return SystemdHost(name, read_only_binds=binds, network=True, size="256m")


def _make_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


def _start_sshd(machine: SystemdHost, folder: Path, name: str, client: str) -> str:
    public = _make_key(folder / f"host-{name}")
    machine.write("/etc/ssh/push_host_key", (folder / f"host-{name}").read_text(), mode=0o600)
    machine.write("/etc/ssh/push_sshd_config", SSHD)
    machine.run("/bin/sh", "-ec", PREPARE, "sh", client, check=True)
    return public

"""The ssh command of one host, its private control sockets, and what the failures of ssh and sudo mean."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from mainstay.push.outcome import HostFault

PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.10", "python3.9", "python3")
# Reads the first stage from standard input: its size on a line, then its packed text. -I and -S: only the standard
# library.
RUN_FIRST_STAGE = (
    'exec $p -I -S -c "import sys,zlib;r=sys.stdin.buffer;exec(zlib.decompress(r.read(int(r.readline()))))"'
)
NO_PYTHON = "mainstay-no-python"
READY = b"mainstay-ready\n"
PASSWORD_PROMPT = "mainstay-sudo-password:"  # noqa: S105  # what sudo prints, not a password
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONNECT_SECONDS = 10
# Seconds between two checks of a silent connection, and how many may stay without a response.
ALIVE_SECONDS, ALIVE_TRIES = 10, 3
CONTROL_PERSIST_SECONDS = 60
# A socket path has at most 107 characters; ssh adds a digest of 40 and a temporary ending of 17.
LONGEST_CONTROL_DIRECTORY = 107 - 1 - 40 - 17
SSH_FAILED = 255


def remote_script(python: str | None, *, become: bool, with_password: bool) -> str:
    """What the host's shell runs. It contains no secret: arguments are visible to other users."""
    candidates = " ".join(PYTHONS) if python is None else shlex.quote(python)
    find = f"for p in {candidates}; do $p -V >/dev/null 2>&1 && {RUN_FIRST_STAGE}; done; echo {NO_PYTHON}; exit 127"
    if not become:
        return f"exec /bin/sh -c {shlex.quote(find)}"
    # Root takes programs only from the system's directories, whatever sudo keeps of the user's PATH.
    as_root = f"PATH={ROOT_PATH}; echo {READY.decode().strip()}; {find}"
    asking = f"-S -p {PASSWORD_PROMPT}" if with_password else "-n"
    sudo = f"exec sudo -H {asking} -- /bin/sh -c {shlex.quote(as_root)}"
    return f"exec /bin/sh -c {shlex.quote(f'[ $(id -u) != 0 ] || {{ {as_root}; }}; {sudo}')}"


def ssh_command(host: str, script: str, control_directory: str | None) -> list[str]:
    options = {
        "BatchMode": "yes",
        # An unknown key is never accepted for the user, whatever the configuration of ssh says.
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(CONNECT_SECONDS),
        "ServerAliveInterval": str(ALIVE_SECONDS),
        "ServerAliveCountMax": str(ALIVE_TRIES),
        "ClearAllForwardings": "yes",
        "RemoteCommand": "none",
        "RequestTTY": "no",
        "LogLevel": "ERROR",
    }
    if control_directory is not None:
        options |= {
            "ControlMaster": "auto",
            "ControlPath": f"{control_directory}/%C",
            "ControlPersist": str(CONTROL_PERSIST_SECONDS),
        }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return ["ssh", *words, "--", host, script]


def control_directory(environ: Mapping[str, str]) -> str | None:
    """Creates the private directory of control sockets. None: there is none, so connections are not reused."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_out_of_reach(runtime):
        path = os.path.join(runtime, "mainstay-ssh")
    elif os.geteuid() == 0:
        path = "/run/mainstay-ssh"
    else:
        path = os.path.join(os.path.expanduser("~"), ".ssh", "mainstay")
    if len(os.fsencode(path)) > LONGEST_CONTROL_DIRECTORY or "%" in path or '"' in path:
        return None
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError:
        return None
    is_private = found.st_mode & 0o170777 == 0o040700 and found.st_uid == os.geteuid()
    return path if is_private else None


def _is_out_of_reach(directory: str) -> bool:
    """Whether only this user and root can replace what is below the directory.

    `su` may leave root with the directory of another user, who could put a connection to his own host there."""
    path = os.path.realpath(directory)
    while True:
        try:
            found = os.lstat(path)
        except OSError:
            return False
        is_shared = found.st_mode & 0o022 and not found.st_mode & 0o1000
        if found.st_uid not in (0, os.geteuid()) or is_shared:
            return False
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)


# What ssh prints, in order of preference: text, kind of the fault, explanation.
SSH_MESSAGES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host_key",
        "its host key has changed: the connection may be intercepted, or the host was installed anew; `ssh {host}` shows both keys",
    ),
    ("host key is known", "host_key", "its host key is unknown; `ssh {host}` shows it and asks whether you trust it"),
    ("Host key verification failed", "host_key", "its host key is not trusted; `ssh {host}` shows it"),
    (
        "Permission denied (",
        "refused_key",
        "it refuses your keys ({detail}); `ssh -v {host}` shows which were offered",
    ),
    (
        "Too many authentication failures",
        "refused_key",
        "it refuses your keys (too many were offered); name one in ~/.ssh/config",
    ),
    ("Could not resolve hostname", "unreachable", "its name cannot be resolved"),
    ("Connection refused", "unreachable", "the connection is refused; is sshd running?"),
    ("Connection timed out", "unreachable", f"no response within {CONNECT_SECONDS} s"),
    ("Operation timed out", "unreachable", f"no response within {CONNECT_SECONDS} s"),
    ("No route to host", "unreachable", "there is no route to it"),
    ("Network is unreachable", "unreachable", "its network is unreachable"),
)
SUDO_MESSAGES = (
    ("a password is required", "sudo asks for a password; use --ask-become-pass, or allow NOPASSWD for this account"),
    ("a terminal is required", "sudo asks for a password; use --ask-become-pass, or allow NOPASSWD for this account"),
    ("is not in the sudoers file", "this account may not use sudo"),
    ("is not allowed to", "this account may not use sudo for /bin/sh"),
    ("sudo: not found", "sudo is not installed; connect as root, or install it"),
    ("sudo: command not found", "sudo is not installed; connect as root, or install it"),
)


def explain_ssh(host: str, exit_code: int, errors: str) -> HostFault | None:
    """The fault behind the output of ssh that ended before the first stage. None: the reason is unknown."""
    for text, message in SUDO_MESSAGES:
        if text in errors:
            return HostFault("become", message)
    if exit_code != SSH_FAILED:
        return None
    for text, kind, message in SSH_MESSAGES:
        if text in errors:
            _, _, detail = errors.partition("Permission denied (")
            return HostFault(kind, message.format(host=host, detail=detail.partition(")")[0]))
    return HostFault("unreachable", f"ssh failed: {last_line(errors)}")


def last_line(text: str) -> str:
    written = [line.strip() for line in text.splitlines() if line.strip()]
    return written[-1] if written else "it printed no reason"

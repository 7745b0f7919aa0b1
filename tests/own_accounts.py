"""Account databases, homes and a skeleton of their own for one test, in a mount namespace of this thread.

Programs that the test starts see them too. The accounts of the machine are never changed.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from required_parts import need, need_program, need_root

MS_BIND = 0x1000
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
PLAIN_USER = "nobody"  # language: the name of an account
PASSWD = f"""root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
{PLAIN_USER}:x:65534:65534:plain:/nonexistent:/usr/sbin/nologin
"""
SHADOW = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in ("root", "daemon", PLAIN_USER))
GROUPS = {"root": 0, "daemon": 1, "sudo": 27, "www-data": 33, "users": 100, "nogroup": 65534}
# Numbers that no account of a machine or of a throw-away host has: usermod and userdel refuse a user with processes.
FIRST_ID, LAST_SYSTEM_ID = 51_000, 489
LOGIN_DEFS = f"""UID_MIN {FIRST_ID}
UID_MAX 60000
GID_MIN {FIRST_ID}
GID_MAX 60000
SYS_UID_MIN 400
SYS_UID_MAX {LAST_SYSTEM_ID}
SYS_GID_MIN 400
SYS_GID_MAX {LAST_SYSTEM_ID}
UMASK 022
USERGROUPS_ENAB yes
ENCRYPT_METHOD SHA512
"""
libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, options)]
    _check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def unshare_mounts() -> None:
    """From here on, mounts of this process are seen by itself and its children only."""
    _check(libc.unshare(CLONE_NEWNS))
    mount("none", "/", None, MS_REC | MS_PRIVATE, None)


@contextmanager
def own_accounts() -> Iterator[None]:
    """Within it /etc is a copy with few accounts, and /home and /var/mail are empty; changes disappear at the end."""
    need_root()
    need_program("useradd")
    overlay = "overlay" in Path("/proc/filesystems").read_text().split()
    need(present=overlay, what="the overlay file system")
    outside = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    before = os.getcwd()
    device = os.stat("/etc").st_dev
    scratch = tempfile.mkdtemp(prefix="mainstay-accounts-")
    try:
        unshare_mounts()
        try:
            mount("tmpfs", scratch, "tmpfs", 0, "mode=755")
            for name in ("upper", "work"):
                os.mkdir(f"{scratch}/{name}")
            mount("overlay", "/etc", "overlay", 0, f"lowerdir=/etc,upperdir={scratch}/upper,workdir={scratch}/work")
            mount("tmpfs", "/home", "tmpfs", 0, "mode=755")
            mount("tmpfs", "/var/mail", "tmpfs", 0, "mode=775")
            # Everything below would change the machine if a mount had failed.
            assert os.stat("/etc").st_dev != device
            _write_databases()
            yield
        finally:
            _check(libc.setns(outside, CLONE_NEWNS))
            os.chdir(before)
    finally:
        os.close(outside)
        os.rmdir(scratch)
    assert os.stat("/etc").st_dev == device


def _write_databases() -> None:
    etc = Path("/etc")
    for name, text, mode in (
        ("passwd", PASSWD, 0o644),
        ("shadow", SHADOW, 0o640),
        ("group", "".join(f"{name}:x:{gid}:\n" for name, gid in GROUPS.items()), 0o644),
        ("gshadow", "".join(f"{name}:*::\n" for name in GROUPS), 0o640),
        ("login.defs", LOGIN_DEFS, 0o644),
        ("subuid", "", 0o644),
        ("subgid", "", 0o644),
    ):
        (etc / name).write_text(text)
        (etc / name).chmod(mode)
    (etc / "default").mkdir(exist_ok=True)
    (etc / "default" / "useradd").write_text("SHELL=/bin/sh\n")
    skeleton = etc / "skel"
    skeleton.mkdir(exist_ok=True)
    for path in skeleton.iterdir():
        if path.is_file() or path.is_symlink():
            path.unlink()
    (skeleton / ".profile").write_text("# profile\n")
    (skeleton / ".config").mkdir(exist_ok=True)
    (skeleton / ".config" / "tool").write_text("setting\n")
    (skeleton / ".config" / "tool").chmod(0o600)
    (skeleton / "link").symlink_to(".profile")


def userdb_group(name: str, gid: int) -> None:
    """A group that only the source `systemd` of /etc/nsswitch.conf knows."""
    _write_userdb(f"{name}.group", f"{gid}.group", {"groupName": name, "gid": gid})
    need(present=_getent("group", name), what="libnss-systemd")


def userdb_user(name: str, uid: int) -> None:
    """A user that only the source `systemd` of /etc/nsswitch.conf knows."""
    record = {"userName": name, "uid": uid, "gid": 100, "homeDirectory": f"/home/{name}"}
    _write_userdb(f"{name}.user", f"{uid}.user", {**record, "disposition": "regular"})
    need(present=_getent("passwd", name), what="libnss-systemd")


def _write_userdb(name: str, number: str, record: dict[str, object]) -> None:
    Path("/etc/userdb").mkdir(exist_ok=True)
    Path("/etc/userdb", name).write_text(json.dumps(record))
    Path("/etc/userdb", number).symlink_to(name)
    switch = Path("/etc/nsswitch.conf")
    lines = [line for line in switch.read_text().splitlines() if not line.startswith(("passwd:", "group:"))]
    switch.write_text("\n".join([*lines, "passwd: files systemd", "group: files systemd", ""]))


def _getent(database: str, name: str) -> bool:
    return subprocess.run(["getent", database, name], stdout=subprocess.DEVNULL, timeout=60).returncode == 0


def entry(database: str, name: str) -> str | None:
    """The line of a user or group in a database of /etc."""
    lines = Path("/etc", database).read_text().splitlines()
    return next((line for line in lines if line.startswith(f"{name}:")), None)


def databases() -> dict[str, str]:
    """Everything that a dry run must not change."""
    found = {name: Path("/etc", name).read_text() for name in ("passwd", "shadow", "group", "gshadow", "subuid")}
    for path in sorted(Path("/home").rglob("*")):
        status = path.lstat()
        found[str(path)] = f"{status.st_mode:o} {status.st_uid} {status.st_gid} {status.st_size}"
    return found

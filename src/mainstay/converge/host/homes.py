"""Homes of users: created whole from the skeleton, removed only where nothing else can be lost; and their processes."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterable
from contextlib import suppress

from mainstay.converge.failures import Failure
from mainstay.converge.host.facts import read_small
from mainstay.converge.host.files import Files, FileWrite

SKELETON = "/etc/skel"
DEEPEST = 20
MOST_ENTRIES = 10_000
MOST_PROCESSES = 10


def home_is_missing(files: Files, path: str) -> bool:
    """Raises `Failure` if something else than a directory is at the path."""
    found = files.lstat_or_none(path)
    if found is None:
        return True
    if modes.S_ISLNK(found.st_mode):
        real = files.follow(path)
        found = files.lstat_or_none(real)
        if found is None:
            raise Failure(f"home {path} is a link to {real}, which does not exist")
    if not modes.S_ISDIR(found.st_mode):
        raise Failure(f"home {path} is not a directory")
    return False


def make_home(files: Files, path: str, *, uid: int, gid: int, mode: int) -> None:
    """Creates a home with the skeleton in it. It gets its path when it is complete, so a killed run leaves no half home."""
    hidden = files.hidden_path(path)
    try:
        files.make_directory(hidden, uid=files.effective_uid, gid=0, mode=0o700)
        if files.exists(SKELETON):
            _copy(files, SKELETON, hidden, uid, gid, 0, [0])
        files.set_attributes(hidden, files.lstat(hidden), uid=uid, gid=gid, mode=mode)
        files.put_in_place(hidden, path)
    except BaseException as error:
        # Another user may have moved it away; the error that led here says more.
        with suppress(OSError, Failure):
            files.remove_tree(hidden)
        if isinstance(error, OSError) and isinstance(error.filename, str):
            error.filename = error.filename.replace(hidden, path)
        raise


def _copy(files: Files, source: str, target: str, uid: int, gid: int, depth: int, count: list[int]) -> None:
    if depth > DEEPEST:
        raise Failure(f"{SKELETON} is deeper than {DEEPEST} directories")
    for name in files.names_in(source):
        count[0] += 1
        if count[0] > MOST_ENTRIES:
            raise Failure(f"{SKELETON} has more than {MOST_ENTRIES} entries")
        old, new = f"{source}/{name}", f"{target}/{name}"
        found = files.lstat(old)
        mode = modes.S_IMODE(found.st_mode) & 0o777
        if modes.S_ISDIR(found.st_mode):
            files.make_directory(new, uid=uid, gid=gid, mode=mode)
            _copy(files, old, new, uid, gid, depth + 1, count)
        elif modes.S_ISLNK(found.st_mode):
            files.make_link(new, files.readlink(old))
            files.set_link_owner(new, uid=uid, gid=gid)
        elif modes.S_ISREG(found.st_mode):
            files.replace(FileWrite(new, uid, gid, mode, source=old))
        else:
            raise Failure(f"{old} is neither a file, a directory nor a link")


def why_home_is_kept(files: Files, path: str, uid: int, other_homes: Iterable[tuple[str, str]]) -> str | None:
    """Returns why the home of a user must not be removed, or None. `other_homes`: (user, home) of all other users."""
    found = files.lstat_or_none(path)
    if found is None:
        return None
    if modes.S_ISLNK(found.st_mode):
        return "it is a link"
    if not modes.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != uid:
        return f"it belongs to user {found.st_uid}"
    real = files.real_path(path)
    for user, home in other_homes:
        if home.startswith("/") and f"{files.real_path(home)}/".startswith(f"{real.rstrip('/')}/"):
            return f"it is or contains the home of {user}"
    try:
        files.check_removable(path)
    except Failure as failure:
        return str(failure)
    return None


def remove_home(files: Files, path: str) -> None:
    """`why_home_is_kept` was called before."""
    if files.lstat_or_none(path) is not None:
        files.check_removable(path)
        files.remove_tree(path)


# ---- processes ----
def processes_of(uid: int) -> tuple[str, ...]:
    """Returns processes of a user as `number (name)`; those of other user namespaces have other users."""
    found: list[str] = []
    own_space = _user_space("self")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and str(uid) in _uids_of(entry) and _user_space(entry) in (own_space, None):
            name = read_small(f"/proc/{entry}/comm")
            found.append(f"{entry} ({'ended' if name is None else name.strip()})")
            if len(found) == MOST_PROCESSES:
                break
    return tuple(found)


def _uids_of(process: str) -> list[str]:
    """Empty if the process has ended."""
    lines = (read_small(f"/proc/{process}/status") or "").split("\n")
    return next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])


def _user_space(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/user")
    except OSError:
        return None

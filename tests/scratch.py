"""Scratch trees: created from a short description, and compared as exactly as the file system allows."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

Tree = dict[str, Any]


def make_tree(root: Path, tree: Tree) -> None:
    """Creates entries such as `{file: text, mode: "0644"}`, `{directory: "0755"}`, `{link: target}`, `{fifo: "0600"}`."""
    for name, entry in tree.items():
        make_entry(root / name, {key: str(value).replace("ROOT", str(root)) for key, value in entry.items()})


def make_entry(path: Path, entry: dict[str, str]) -> None:
    if "file" in entry:
        path.write_text(entry["file"])
        path.chmod(int(entry.get("mode", "0644"), 8))
    elif "directory" in entry:
        path.mkdir()
        path.chmod(int(entry["directory"], 8))
    elif "link" in entry:
        path.symlink_to(entry["link"])
    elif "fifo" in entry:
        os.mkfifo(path, int(entry["fifo"], 8))
    elif "socket" in entry:
        bind_socket(path)
    else:
        raise AssertionError(f"unknown kind of entry: {entry}")


def bind_socket(path: Path) -> None:
    """Binds from the socket's own directory, because the address of a socket must be short."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(before)


def describe_tree(root: Path) -> Tree:
    """Describes the tree in the form that `make_tree` takes."""
    return {name: describe_entry(root / name, root) for name in sorted(names_below(root))}


def describe_entry(path: Path, root: Path) -> dict[str, str]:
    found = path.lstat()
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    if stat.S_ISREG(found.st_mode):
        return {"file": path.read_bytes().decode("utf-8", "backslashreplace"), "mode": mode}
    if stat.S_ISDIR(found.st_mode):
        return {"directory": mode}
    if stat.S_ISLNK(found.st_mode):
        return {"link": os.readlink(path).replace(str(root), "ROOT")}
    if stat.S_ISFIFO(found.st_mode):
        return {"fifo": mode}
    return {"socket": mode}


def names_below(root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in (*folders, *files)]
    return found


def fingerprint(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything that a change could alter, also inode, times and extended attributes, of the root and all entries."""
    return {name: fingerprint_entry(root / name) for name in (".", *names_below(root))}


def fingerprint_entry(path: Path) -> tuple[Any, ...]:
    found = path.lstat()
    content: bytes | str | None = None
    if stat.S_ISREG(found.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in list_attributes(path)}
    return (
        found.st_mode,
        found.st_uid,
        found.st_gid,
        found.st_ino,
        found.st_nlink,
        found.st_mtime_ns,
        found.st_ctime_ns,
        content,
        attributes,
    )


def list_attributes(path: Path) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


def temps_below(root: Path) -> list[str]:
    """Temporary files of mainstay that were left behind."""
    return [name for name in names_below(root) if "/.mainstay-" in f"/{name}"]

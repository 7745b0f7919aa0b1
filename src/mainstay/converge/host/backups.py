"""Backups of replaced files for `mainstay restore`: content-addressed and bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256

from mainstay.converge.host.state import StateDirectory, file_name, run_ids, statuses
from mainstay.foundation import Any, Struct
from mainstay.foundation.private_files import Closing, remove, write_all

MOST_PER_PATH = 10
LARGEST_TOTAL_BYTES = 1024 * 1024 * 1024


class Backup:
    """One version of a file."""

    def __init__(self, run_id: str, content_path: str, attributes: dict[str, Any]) -> None:
        self.run_id = run_id
        self.content_path = content_path
        self.uid: int = attributes["uid"]
        self.gid: int = attributes["gid"]
        self.mode: int = attributes["mode"]
        self.size: int = attributes["size"]


class Backups(Struct):
    """A folder per path; per run the content, a hard link to an object that equal contents share, and attributes."""

    state: StateDirectory

    def keep(self, path: str, run_id: str, found: Any, chunks: Iterable[bytes]) -> None:
        objects = self.state.directory("backups", "objects")
        folder = self.state.directory("backups", "paths", file_name(path))
        content = os.path.join(folder, f"{run_id}.content")
        remove(content)
        digest = sha256()
        size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with Closing(os.open(content, flags, 0o600)) as descriptor:
            for chunk in chunks:
                digest.update(chunk)
                write_all(descriptor, chunk)
                size += len(chunk)
            os.fsync(descriptor)
        self._share(content, os.path.join(objects, digest.hexdigest()))
        attributes = {
            "path": path,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mode": found.st_mode & 0o7777,
            # As copied, because another process may be writing to the file.
            "size": size,
        }
        self.state.write(os.path.join(folder, f"{run_id}.json"), json.dumps(attributes).encode(), durable=True)
        self._prune(folder, objects)

    def _share(self, content: str, kept: str) -> None:
        """Links equal contents to one object; runs of other manifests may do so, or clean up, at the same time."""
        shared = f"{content}.new"
        try:
            os.link(content, kept)
        except FileExistsError:
            remove(shared)
            try:
                os.link(kept, shared)
            except FileNotFoundError:
                return
            os.replace(shared, content)

    def list(self, path: str) -> list[Backup]:
        """Returns the backups of a path, newest first."""
        folder = os.path.join(self.state.path, "backups", "paths", file_name(path))
        found = []
        for run_id in reversed(run_ids(folder)):
            with open(os.path.join(folder, f"{run_id}.json"), encoding="utf-8") as file:
                found.append(Backup(run_id, os.path.join(folder, f"{run_id}.content"), json.load(file)))
        return found

    def _prune(self, folder: str, objects: str) -> None:
        for run_id in run_ids(folder)[:-MOST_PER_PATH]:
            self._drop(folder, run_id)
        self._prune_total(os.path.dirname(folder), objects)
        for path, found in statuses(objects):
            if found.st_nlink == 1:
                remove(path)

    def _prune_total(self, paths: str, objects: str) -> None:
        total = sum(found.st_size for _, found in statuses(objects))
        if total <= LARGEST_TOTAL_BYTES:
            return
        folders = [os.path.join(paths, name) for name in os.listdir(paths)]
        kept = sorted((run_id, folder) for folder in folders for run_id in run_ids(folder))
        # The newest backup stays, however large: it is the most likely to be needed.
        for run_id, folder in kept[:-1]:
            content = os.path.join(folder, f"{run_id}.content")
            found = os.lstat(content)
            self._drop(folder, run_id)
            if found.st_nlink == 2:
                total -= found.st_size
            if total <= LARGEST_TOTAL_BYTES:
                return

    def _drop(self, folder: str, run_id: str) -> None:
        remove(os.path.join(folder, f"{run_id}.json"))
        remove(os.path.join(folder, f"{run_id}.content"))

"""The work: the same files, commands or copy for each contestant, prepared and verified here."""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES_PER_DIRECTORY = 1000
COPY_BYTES = 100 * 1024 * 1024
COPY_PIECE = bytes(range(256)) * 4096
OWNER, GROUP = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
CREATE, NO_OP, DRIFT, SKIPPED, RUN = "create", "no-op", "1 % drift", "skipped", "run"
FILES, COMMANDS, COPY = "files", "commands", "copy"
ACTIONS = {FILES: (CREATE, NO_OP, DRIFT), COMMANDS: (SKIPPED, RUN), COPY: (CREATE, NO_OP)}


class WrongResult(Exception):
    """A contestant reported success, but the tree is wrong."""


class Work:
    """One kind of work of one size, in its own folder."""

    def __init__(self, kind: str, count: int, folder: str) -> None:
        self.kind = kind
        self.count = count
        self.folder = folder
        self.root = f"{folder}/tree"
        self.source = f"{folder}/source"
        self.target = f"{self.root}/copy"
        self._aside = 0
        os.makedirs(self.root)
        if kind == COPY:
            self._write_source()

    def files(self) -> Iterator[tuple[str, str]]:
        for number in range(self.count):
            yield self.path(number), content(number)

    def path(self, number: int) -> str:
        return f"{self.root}/{number // FILES_PER_DIRECTORY:03d}/instance-{number:06d}.conf"

    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command, and the file whose existence skips it."""
        for number in range(self.count):
            yield f"/bin/true {number}", f"{self.root}/done-{number}"

    # ---- before a run ----
    def prepare(self, action: str) -> None:
        if action == CREATE or self.kind == COMMANDS:
            self._put_aside()
        if self.kind == FILES and action == CREATE:
            for first in range(0, self.count, FILES_PER_DIRECTORY):
                os.makedirs(os.path.dirname(self.path(first)))
        if self.kind == FILES and action == DRIFT:
            for number in self._drifting():
                with open(self.path(number), "a", encoding="utf-8") as file:
                    file.write("# edited by hand\n")
        if action == SKIPPED:
            for _, marker in self.commands():
                with open(marker, "wb"):
                    pass
        # Otherwise the contestant's own sync would also flush these writes.
        os.sync()

    def _put_aside(self) -> None:
        """Starts with an empty tree. Old trees are renamed, not removed: ext4 does not reuse freed inodes at once, and
        searching past them would dominate the measured creation."""
        self._aside += 1
        os.rename(self.root, f"{self.folder}/aside-{self._aside}")
        os.mkdir(self.root)

    def _drifting(self) -> range:
        return range(0, self.count, 100)

    def _write_source(self) -> None:
        with open(self.source, "wb") as file:
            for _ in range(COPY_BYTES // len(COPY_PIECE)):
                file.write(COPY_PIECE)

    # ---- after a run ----
    def check(self, action: str) -> None:
        if self.kind == COPY:
            expect(os.path.getsize(self.target) == COPY_BYTES, self.target)
        if self.kind != FILES:
            return
        sample = self._drifting() if action == DRIFT else range(0, self.count, max(1, self.count // 50))
        for number in sample:
            path = self.path(number)
            with open(path, encoding="utf-8") as file:
                expect(file.read() == content(number), path)
            expect(os.lstat(path).st_mode == 0o100644, path)


def title(kind: str, count: int) -> str:
    if kind == COPY:
        return "one file of 100 MB from a source"
    noun = {FILES: "small file", COMMANDS: "command"}[kind]
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def content(number: int) -> str:
    return (
        f"# Settings of instance {number}; kept as they are by a tool.\n"
        f"name = instance-{number}\n"
        f"listen = 127.0.0.1:{1024 + number % 60000}\n"
        "workers = 4\n"
    )


def expect(is_so: bool, path: str) -> None:
    if not is_so:
        raise WrongResult(f"{path} is not in its desired state")

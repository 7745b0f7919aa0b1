"""A directory of a hostile local user, a directory of root next to it, and manifests that root applies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from applying import Applied, apply_text
from isolation import as_plain_user
from required_parts import need_root

USER_ID = 65534


class Scene:
    """`home` belongs to the hostile user; `outside` belongs to root; manifests are in `work`."""

    def __init__(self, folder: Path) -> None:
        self.home, self.outside, self.work = folder / "home", folder / "outside", folder / "work"
        folder.chmod(0o755)
        for path in (self.home, self.outside, self.outside / "tree", self.work, self.work / "files"):
            path.mkdir(mode=0o755)
        os.chown(self.home, USER_ID, USER_ID)
        (self.outside / "victim").write_text("secret")
        (self.outside / "victim").chmod(0o600)
        (self.outside / "tree" / "kept").write_text("kept")
        (self.work / "files" / "new").write_text("new")

    def apply(self, text: str, **options: Any) -> Applied:
        """Entries of files, or a whole list of resources."""
        if not text.startswith("- "):
            text = f'- file:\n    - defaults: {{owner: root, group: root, mode: "0644"}}\n{text}'
        return apply_text(self.fill_in(text), self.work / "unused", **options)

    def fill_in(self, text: str) -> str:
        for name in ("home", "outside", "work"):
            text = text.replace(name.upper(), str(getattr(self, name)))
        return text

    def plant(self, act: Callable[[], object]) -> None:
        """Runs `act` as the hostile user."""
        as_plain_user(lambda: act() and None)

    def plant_file(self, name: str) -> None:
        """Creates a file of the hostile user, unless a link is in the way."""
        with suppress(OSError):
            directory = os.open(self.home / os.path.dirname(name), os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW
                file = os.open(os.path.basename(name), flags, 0o600, dir_fd=directory)
                os.fchown(file, USER_ID, USER_ID)
                os.close(file)
            finally:
                os.close(directory)


@contextmanager
def hostile_scene() -> Iterator[Scene]:
    need_root()
    # Reachable for other users, unlike the temporary folders of pytest.
    folder = Path(tempfile.mkdtemp(prefix="mainstay-test-", dir="/tmp"))
    try:
        yield Scene(folder)
    finally:
        shutil.rmtree(folder)

"""Removes directories with their content, never through links and never across mount points. Loaded when one is removed."""

from __future__ import annotations

import os
import stat as modes
from contextlib import suppress

from mainstay.converge.failures import Failure
from mainstay.converge.host.file_reading import DIRECTORY_FLAGS
from mainstay.converge.host.state import TEMP_PREFIX
from mainstay.foundation import Struct
from mainstay.foundation.private_files import Closing

# The number of directories that are open at once while a tree is removed.
DEEPEST_OPEN = 200
# Another process may create entries in it as fast as they are removed.
MOST_PASSES = 1000


class TreeRemoval(Struct):
    """Removes the content of open directories."""

    run_id: str
    # The number of entries that were removed or moved.
    altered: int = 0

    def empty(self, top: int) -> None:
        mount = _mount_of(top)
        # Directories that are too deep are moved up to here, so more than one pass may be needed.
        for _ in range(MOST_PASSES):
            for entry in os.listdir(top):
                self._remove_below(top, entry, mount, top, 0)
            if not os.listdir(top):
                break

    def _remove_below(self, parent: int, name: str, mount: tuple[int, bytes], top: int, depth: int) -> None:
        found = os.lstat(name, dir_fd=parent)
        if not modes.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
        elif depth > DEEPEST_OPEN:
            os.rename(name, f"{TEMP_PREFIX}{self.run_id}-{found.st_ino}", src_dir_fd=parent, dst_dir_fd=top)
        else:
            with Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=parent)) as directory:
                # The mount of the open directory: another user may have moved a mounted one here since
                # `check_removable`.
                if _mount_of(directory) != mount:
                    raise Failure(f"{name} is on another file system; nothing is removed across a mount point")
                for child in os.listdir(directory):
                    self._remove_below(directory, child, mount, top, depth + 1)
            os.rmdir(name, dir_fd=parent)
        self.altered += 1


def mount_points() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as table:
        escaped = [line.split(b" ")[4] for line in table]
    return [os.fsdecode(point.decode("unicode_escape").encode("latin-1")) for point in escaped]


def _mount_of(descriptor: int) -> tuple[int, bytes]:
    """Identifies the mount of an open directory: the device, and a number that differs for bind mounts."""
    number = b""
    with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", "rb") as lines:
        number = next((line for line in lines if line.startswith(b"mnt_id:")), b"")
    return os.fstat(descriptor).st_dev, number

"""Whether only root can change a file: what root runs later must not be the work of another user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from mainstay.converge.host.parents import ROOT, LinkRefused, Parents, has_access_list, is_shared


def why_untrusted(path: str, *, with_neighbours: bool = False) -> str | None:
    """Returns what lets a user other than root change the file or directory at an absolute path, or None.

    Looks at every directory on the way and follows links. `with_neighbours`: the directory of the file must not take new
    files of other users either, as a sticky one does, because the file names others by relative paths."""
    try:
        place, name = Parents(ROOT).find(path)
        if place.unsafe is not None:
            return f"a user other than root may change {place.unsafe}"
        if with_neighbours and place.is_shared:
            return f"a user other than root may create files in {place.path or '/'}"
        if name == ".":
            return None
        found = os.lstat(name, dir_fd=place.handle)
        real = place.below(name)
        if is_shared(found, ROOT, has_access_list=has_access_list(found, real)):
            return f"a user other than root may change {real}"
    except LinkRefused as refusal:
        return str(refusal).rpartition(";")[0]
    except OSError as error:
        return f"{path} cannot be checked: {error.strerror}"
    return None


def why_program_untrusted(program: Iterable[str], packages: Iterable[str]) -> str | None:
    """Returns what lets a user other than root change the files of this program.

    These are its own files, its interpreter, the directories it searches for modules, and its packages."""
    import sys

    places = [*program, sys.executable, f"{sys.prefix}/pyvenv.cfg"]
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder)]
    for folder in folders:
        places += [folder, *(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pth"))]
    places += [folder for folder in sys.path if os.path.isfile(folder)]
    for package in packages:
        places += _files_below(package)
    for place in places:
        reason = why_untrusted(place) if os.path.lexists(place) else None
        if reason is not None:
            return reason
    return None


def _files_below(folder: str) -> Iterator[str]:
    for top, _, names in os.walk(folder):
        yield top
        yield from (os.path.join(top, name) for name in names)

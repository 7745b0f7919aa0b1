"""Packs a blueprint directory into its bundle. The agent unpacks bundles in `agent/blueprint.py`."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator

from mainstay.agent.blueprint import LEFT_OUT
from mainstay.converge.host.sources import read_bytes
from mainstay.foundation.faults import refused

LARGEST_BUNDLE_BYTES = 3 * 1024 * 1024


def pack(directory: str) -> bytes:
    """The blueprint as a .tar.gz. The same files always give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_files_in(directory)):
            name = os.path.relpath(path, directory)
            content = read_bytes(path)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if os.stat(path).st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    bundle = gzip.compress(packed.getvalue(), compresslevel=9, mtime=0)
    if len(bundle) > LARGEST_BUNDLE_BYTES:
        size = f"{len(bundle) / 1024 / 1024:.1f} MB packed; the limit is {LARGEST_BUNDLE_BYTES // 1024 // 1024} MB"
        raise refused(directory, f"the blueprint is too large: {size}")
    return bundle


def _files_in(directory: str) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            path = os.path.join(folder, name)
            if name in LEFT_OUT:
                continue
            if os.path.islink(path) or not os.path.isfile(path):
                raise refused(path, "a blueprint may contain only files and directories, no links")
            yield path

"""An archive for tests: `app/run` and `app/doc/readme`."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path


def make_app(path: Path) -> str:
    """Writes an archive and returns its checksum."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content, mode in (("app/doc/readme", b"read", 0o644), ("app/run", b"run", 0o4755)):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.uid = len(content), mode, 4711
            archive.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Loads manifest texts in this process without running them, and returns their faults in short form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from applying import fill_in
from mainstay.converge.contract import Resource
from mainstay.converge.manifest import Manifest
from mainstay.converge.run import RunRequest, load
from mainstay.foundation.faults import DoesNotLoad

CASES = Path(__file__).with_name("cases")


def load_text(text: str, root: Path, *, name: str = "manifest.yaml", **request: Any) -> Manifest:
    """Writes the manifest beside `root` and loads it."""
    path = root.parent / name
    path.write_bytes(fill_in(text, root).encode())
    return load(RunRequest(str(path), **request))[1]


def faults_of(text: str, root: Path, **request: Any) -> list[str]:
    """Returns `line:column message` of each fault; empty if the manifest loads."""
    try:
        load_text(text, root, **request)
    except DoesNotLoad as refusal:
        return [f"{fault.line}:{fault.column} {fault.message}" for fault in refusal.faults]
    return []


def resource_of(manifest: Manifest, identity: str) -> Resource:
    return next(resource for resource in manifest.resources if resource.id == identity)


def cases(name: str) -> list[dict[str, Any]]:
    """Reads the test cases in `cases/<name>.yaml`."""
    found: list[dict[str, Any]] = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found

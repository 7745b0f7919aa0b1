"""Prepares a push: checks the manifest, lists its files, and builds the order of each host."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.converge.host.bundles import MANIFEST_NAME, unpack
from mainstay.converge.host.state import StateDirectory, new_run_id
from mainstay.converge.manifest.hierarchy import DataLayer
from mainstay.converge.run import RunRequest, missing_files
from mainstay.foundation.faults import DoesNotLoad
from mainstay.packaging.program_file import build_program_file, program_cache_source
from mainstay.push.contents import ContentIndex, Shipment
from mainstay.push.inventory import InventoryHost
from mainstay.push.manifest_files import find_files, is_bundle

# Look-up roots that only the host can resolve.
HOST_ROOTS = ("facts", "environ", "host.info")


class PushPlan:
    """What all hosts of a push receive."""

    def __init__(self, index: ContentIndex) -> None:
        self.program = Shipment(build_program_file(), is_packed=True)
        self.index = Shipment(index.document(), is_packed=False)
        self.contents = index.contents
        # The path of the manifest among the files.
        self.manifest = index.manifest
        # Values of paths that are known only on the host: their files do not travel.
        self.computed: Sequence[str] = ()

    def first_stage(self) -> bytes:
        """What a host's Python receives first: the size of the packed stage, the stage, and the digests that it wants."""
        with open(os.path.join(os.path.dirname(__file__), "first_stage.py"), encoding="utf-8") as file:
            text = file.read()
        # `r` is standard input; see `RUN_FIRST_STAGE`.
        call = f"\nmain(r, {program_cache_source().encode()!r})\n"
        stage = zlib.compress((text + call).encode(), 9)
        digests = json.dumps({"program": self.program.digest, "index": self.index.digest}).encode()
        return b"%d\n%s%s\n" % (len(stage), stage, digests)


def prepare(manifest: str, folder: str) -> PushPlan:
    """Lists what travels. The private directory `folder` is for what has to be written; raises `DoesNotLoad`."""
    packed = os.path.join(folder, "packed")
    os.mkdir(packed, 0o700)
    if is_bundle(manifest):
        return PushPlan(_index_of_bundle(manifest, folder, packed))
    files = find_files(manifest)
    index = ContentIndex(files.name, packed)
    index.add(files.root, files.paths, files.private)
    plan = PushPlan(index)
    plan.computed = files.computed
    return plan


def _index_of_bundle(bundle: str, folder: str, packed: str) -> ContentIndex:
    """A bundle travels as its files, so that only those which changed travel again."""
    state = StateDirectory(os.path.join(folder, "bundle"))
    root, _ = unpack(os.path.realpath(bundle), bundle, state, new_run_id(), is_zip=bundle.endswith(".zip"))
    index = ContentIndex(MANIFEST_NAME, packed)
    paths = []
    for above, folders, names in os.walk(root):
        paths += [os.path.join(above, name) for name in names]
        if not folders and not names and above != root:
            index.add_directory(os.path.relpath(above, root))
    try:
        private = find_files(os.path.join(root, MANIFEST_NAME)).private
    except DoesNotLoad:
        # Loading reports the faults.
        private = set(paths)
    index.add(root, paths, private)
    return index


def check_manifest(manifest: str, host: InventoryHost, values: Mapping[str, Any]) -> None:
    """Loads the manifest here with the data of one host; raises `DoesNotLoad` for what fails on every host, such as a
    file that it names and that does not exist.

    A manifest that reads facts may load on the hosts only: then each host decides.
    """
    layers = {**values, "data_layers": [*_host_layers(host), *values["data_layers"]]}
    try:
        missing = missing_files(RunRequest(manifest, **layers))
    except DoesNotLoad:
        if not _depends_on_host(manifest):
            raise
        return
    if missing:
        raise DoesNotLoad(missing)


def _host_layers(host: InventoryHost) -> list[DataLayer]:
    return [DataLayer(values, origin) for origin, values in host.layers]


def _depends_on_host(manifest: str) -> bool:
    if is_bundle(manifest):
        return True
    for path in find_files(manifest).paths:
        with open(path, "rb") as file:
            text = file.read().lower()
        if any(root.encode() in text for root in HOST_ROOTS):
            return True
    return False


def order_for(
    host: InventoryHost, plan: PushPlan, shared: Mapping[str, Any], layers: Sequence[DataLayer]
) -> dict[str, Any]:
    """What one host receives beside the files: its own data and nothing of other hosts."""
    return {
        **shared,
        "run_id": new_run_id(),
        "manifest": plan.manifest,
        "data_layers": [[layer.origin, dict(layer)] for layer in (*_host_layers(host), *layers)],
    }

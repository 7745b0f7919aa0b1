"""Prepares a push: checks the manifest, packs its files, and builds the order of each host."""

from __future__ import annotations

import os

from mainstay.converge.host.bundles import MANIFEST_NAME
from mainstay.converge.host.state import new_run_id
from mainstay.converge.manifest.hierarchy import DataLayer
from mainstay.converge.run import RunRequest, load
from mainstay.foundation.faults import DoesNotLoad
from mainstay.packaging.program_file import build_program_file
from mainstay.push.manifest_files import find_files, is_bundle, write_archive
from mainstay.push.shipment import Shipment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mainstay.push.inventory import InventoryHost

# What a manifest may only find on the host.
HOST_ROOTS = ("facts", "environ", "host.info")


class PushPlan:
    """What all hosts of a push receive."""

    def __init__(self, program: Shipment, archive: Shipment, manifest: str, *, is_zip: bool) -> None:
        self.shipments = {"program": program, "archive": archive}
        # The path of the manifest inside the archive.
        self.manifest = manifest
        self.is_zip = is_zip
        # Values of paths that are known only on the host: their files do not travel.
        self.computed: Sequence[str] = ()


def prepare(manifest: str, folder: str) -> PushPlan:
    """Writes what travels into the private directory `folder`; raises `DoesNotLoad`."""
    program = os.path.join(folder, "program")
    with open(os.open(program, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(build_program_file())
    if is_bundle(manifest):
        return PushPlan(Shipment(program), Shipment(manifest), MANIFEST_NAME, is_zip=manifest.endswith(".zip"))
    files = find_files(manifest)
    archive = os.path.join(folder, "archive")
    write_archive(files, archive)
    plan = PushPlan(Shipment(program), Shipment(archive), files.name, is_zip=False)
    plan.computed = files.computed
    return plan


def check_manifest(manifest: str, host: InventoryHost, values: Mapping[str, Any]) -> None:
    """Loads the manifest here with the data of one host; raises `DoesNotLoad` for what fails on every host.

    A manifest that reads facts may load on the hosts only: then each host decides.
    """
    layers = {**values, "data_layers": [*_host_layers(host), *values["data_layers"]]}
    try:
        load(RunRequest(manifest, **layers))
    except DoesNotLoad:
        if not _depends_on_host(manifest):
            raise


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
    """What one host receives beside the archive: its own data and nothing of other hosts."""
    return {
        **shared,
        "run_id": new_run_id(),
        "manifest": plan.manifest,
        "is_zip": plan.is_zip,
        "data_layers": [[layer.origin, dict(layer)] for layer in (*_host_layers(host), *layers)],
    }

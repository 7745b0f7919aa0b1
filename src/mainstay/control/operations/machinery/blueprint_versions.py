"""Finds the bundle of a requested blueprint version: `latest`, or a version that was pushed for the service type."""

from __future__ import annotations

from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.blueprints import find_of_type
from mainstay.control.store.service_types import bundle_versions, find_version

LATEST = "latest"
# Versions that a refusal names.
MAX_LISTED = 20


async def find_bundle(work: UnitOfWork, service_type_id: str, version: str) -> str:
    """The digest. Raises `BadInput` if the type has no such version."""
    # Held, so that the version is not deleted before the service has it.
    service_type = await find_version(work.tx, service_type_id, hold=True)
    if service_type is None:
        raise RuntimeError(f"there is no service type {service_type_id}")
    if service_type.blueprint_digest is None:
        raise BadInput(
            f"service type {service_type.name} has no blueprint, so its services have no version;"
            " push one with `mainstay blueprint push`",
            code="no_blueprint",
        )
    if version == LATEST:
        return service_type.blueprint_digest
    found = await find_of_type(work.tx, service_type_id, version)
    if found is None:
        known = [each.version for each in await bundle_versions(work.tx, service_type_id, MAX_LISTED) if each.version]
        raise BadInput(
            f"service type {service_type.name} has no blueprint version {version}; it has: {', '.join(known)}",
            code="unknown_version",
        )
    return found

"""Blueprints: a push checks a bundle, stores it, and creates or changes its service type, in one transaction."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

import msgspec

from mainstay.control.domain.blueprints import BlueprintDefinition, manifests_of, parse_blueprint
from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Rulebook
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.operations import service_types
from mainstay.control.operations.machinery.bounds import exceeds
from mainstay.control.operations.machinery.bundles import NotABundle, open_bundle
from mainstay.control.operations.machinery.refusals import Conflict, InUse, NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.operations.service_types import ExaminedChange, Misfit
from mainstay.control.store import blueprints as store
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.yaml.document import decode

DEFINITION = "blueprint.yaml"
SERVICE_TYPE = "service-type.yaml"
MAX_DOCUMENT_BYTES = 512 * 1024
# Only aliases exceed this: without them JSON takes at most five times the bytes of YAML.
MAX_EXPANDED_BYTES = 4 * 1024 * 1024


class PushedBlueprint(msgspec.Struct, frozen=True, rename="camel"):
    digest: str
    size: int
    name: str
    version: str
    service_type: Named
    # Whether the server did not have this bundle yet.
    created: bool
    # Living services that do not fit the new type: overridden by force, or reported by a dry run.
    misfits: list[Misfit] = []
    # Plain values of living services that became secret and were sealed, and secrets that were deleted.
    sealed_secrets: int = 0
    deleted_secrets: int = 0


@dataclass(frozen=True, slots=True)
class Bundle:
    content: bytes
    digest: str
    definition: BlueprintDefinition


def read_bundle(content: bytes, rulebook: Rulebook) -> Bundle:
    """Pure, so that it can run in a thread."""
    files = open_bundle(content)
    blueprint = _document(files, DEFINITION)
    definition = parse_blueprint(blueprint, _document(files, SERVICE_TYPE), files.keys(), rulebook)
    for name in manifests_of(blueprint):
        # The server does not know resources; `blueprint push` and the agent check what a manifest contains.
        if not isinstance(_document(files, name), (dict, list)):
            raise InvalidDefinition([PathFault(name, "must be a map with `resources`, or a list of resources")])
    return Bundle(content, f"sha256:{hashlib.sha256(content).hexdigest()}", definition)


def _document(files: dict[str, bytes], name: str) -> object:
    content = files.get(name)
    if content is None:
        raise NotABundle(f"the blueprint has no {name}")
    if len(content) > MAX_DOCUMENT_BYTES:
        raise NotABundle(f"{name} is larger than {MAX_DOCUMENT_BYTES} bytes")
    try:
        document: object = read_yaml(decode(content, name), name)
    except DoesNotLoad as refusal:
        faults = [PathFault(fault.place, fault.message) for fault in refusal.faults]
        raise InvalidDefinition(faults) from None
    if exceeds(document, MAX_EXPANDED_BYTES):
        raise NotABundle(f"{name} is larger than {MAX_EXPANDED_BYTES} characters once its aliases are expanded")
    return document


async def push(work: UnitOfWork, bundle: Bundle, *, force: bool, dry_run: bool) -> PushedBlueprint:
    """A dry run returns misfits instead of refusing them; the caller rolls it back."""
    wanted = bundle.definition
    # Concurrent pushes must not create a service type twice, or two bundles with one version.
    await work.tx.lock(f"blueprint {wanted.name}")
    known = await store.find_version(work.tx, wanted.name, wanted.version)
    if known not in (None, bundle.digest) and not force:
        raise Conflict(
            f"{wanted.name} {wanted.version} exists with other content ({known}); give it another version,"
            " or replace it with ?force=true",
            code="version_exists",
            details={"digest": known},
        )
    created = await store.keep(work.tx, bundle.digest, bundle.content, work.now)
    service_type, examined = await _write_type(work, bundle, force=force, dry_run=dry_run)
    await store.assign_version(work.tx, bundle.digest, wanted, service_type.id)
    return PushedBlueprint(
        bundle.digest,
        len(bundle.content),
        wanted.name,
        wanted.version,
        Named(service_type.id, service_type.name),
        created,
        examined.misfits,
        examined.sealed,
        examined.deleted,
    )


async def _write_type(
    work: UnitOfWork, bundle: Bundle, *, force: bool, dry_run: bool
) -> tuple[ServiceTypeRow, ExaminedChange]:
    wanted = bundle.definition
    before = await SERVICE_TYPES.find_by(work.tx, "name", wanted.type_name, lock=True)
    if before is None:
        new = ServiceTypeRow(
            **work.new_record(),
            name=wanted.type_name,
            property_schema=wanted.property_schema,
            lifecycle_schema=wanted.lifecycle_schema,
            blueprint_digest=bundle.digest,
        )
        return await work.insert(SERVICE_TYPES, new), ExaminedChange([], 0, 0)
    after = msgspec.structs.replace(
        before,
        property_schema=wanted.property_schema,
        lifecycle_schema=wanted.lifecycle_schema,
        blueprint_digest=bundle.digest,
    )
    examined = await service_types.examine_change(work, before, after)
    if dry_run:
        return after, examined
    service_types.refuse_misfits(examined.misfits, force=force)
    return await service_types.apply_change(work, before, after, examined), examined


async def fetch(work: UnitOfWork, digest: str) -> bytes:
    """A bundle that the caller does not need is reported as not found."""
    relation = work.relation("blueprint", "read")
    agent_id = work.required_caller.agent_id
    if relation.everything:
        content = await store.find(work.tx, digest)
    else:
        content = await store.find_served(work.tx, digest, str(agent_id))
    if content is None:
        raise NotFound("blueprint", digest)
    return content


async def delete(work: UnitOfWork, digest: str) -> None:
    """Deletes a bundle that nothing uses. The current version of a service type counts as used: new orders need it."""
    work.relation("blueprint", "write")
    found = await store.find_version_row(work.tx, digest)
    if found is None:
        raise NotFound("blueprint", digest)
    # Before any row, as in a push: a push of the same name waits.
    await work.tx.lock(f"blueprint {found.name}")
    if found.service_type_id is not None:
        # Orders read the type; none may choose this bundle meanwhile.
        await SERVICE_TYPES.find(work.tx, found.service_type_id, lock=True)
    users = await store.users_of(work.tx, digest)
    if any(users.values()):
        name = f"blueprint {found.name} {found.version}".rstrip()
        raise InUse(f"{name} ({digest})", users)
    await store.delete(work.tx, digest)
    # Entities of events are uuids; the diff has the whole digest.
    entity_id = str(uuid.UUID(digest.removeprefix("sha256:")[:32]))
    await work.record_event("blueprint.deleted", msgspec.structs.replace(found, id=entity_id), None)

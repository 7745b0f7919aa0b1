"""Service groups: how a consumer groups its services."""

from __future__ import annotations

from mainstay.control.operations.machinery.bodies import Body, Id, Name, with_given
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.named_rows import find_named, refuse_for_others
from mainstay.control.operations.machinery.refusals import InUse
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.orphans import open_ids
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.services import delete_terminal, living_ids


class NewServiceGroup(Body, frozen=True, kw_only=True):
    name: Name
    consumer_id: Id


class ServiceGroupChange(Body, frozen=True, kw_only=True):
    name: Name | None = None


class ServiceGroupView(ServiceGroup, frozen=True, kw_only=True):
    consumer: Named | None


GROUP_NAMES = EmbeddedNames(SERVICE_GROUPS, ServiceGroupView, {"consumer": RelatedRow("consumer_id", PARTICIPANTS)})


async def create(work: UnitOfWork, wanted: NewServiceGroup) -> ServiceGroup:
    consumer_id = wanted.consumer_id.lower()
    refuse_for_others(work, consumer_id, "groups")
    await find_named(work, PARTICIPANTS, consumer_id)
    group = ServiceGroup(**work.new_record(), name=wanted.name, consumer_id=consumer_id)
    return await work.insert(SERVICE_GROUPS, group)


async def change(work: UnitOfWork, before: ServiceGroup, wanted: ServiceGroupChange) -> ServiceGroup:
    return await work.update(SERVICE_GROUPS, before, with_given(before, wanted))


async def delete(work: UnitOfWork, group: ServiceGroup) -> None:
    living = await living_ids(work.tx, "group_id", group.id)
    owed = await open_ids(work.tx, "services.group_id", group.id)
    if living or owed:
        raise InUse(f"service group {group.id}", {"services": living, "orphans": owed})
    await delete_terminal(work.tx, "group_id", group.id)
    await work.delete(SERVICE_GROUPS, group)

"""Service groups: how a customer groups its services."""

from __future__ import annotations

from mainstay.control.operations.machinery.bodies import Body, new_of
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.plain_nouns import PlainNoun
from mainstay.control.operations.machinery.refusals import InUse
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.orphans import open_ids
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.services import delete_terminal, living_ids
from mainstay.nouns.service_groups import NOUN


@new_of(NOUN)
class NewServiceGroup(Body, frozen=True, kw_only=True):
    name: str
    consumer_id: str


class ServiceGroupView(ServiceGroup, frozen=True, kw_only=True):
    consumer: Named | None


GROUP_NAMES = EmbeddedNames(SERVICE_GROUPS, ServiceGroupView, {"consumer": RelatedRow("consumer_id", PARTICIPANTS)})
GROUPS = PlainNoun(NOUN, SERVICE_GROUPS)
create = GROUPS.create


async def delete(work: UnitOfWork, group: ServiceGroup) -> None:
    living = await living_ids(work.tx, "group_id", group.id)
    owed = await open_ids(work.tx, "services.group_id", group.id)
    if living or owed:
        raise InUse(f"service group {group.id}", {"services": living, "orphans": owed})
    await delete_terminal(work.tx, "group_id", group.id)
    await work.delete(SERVICE_GROUPS, group)

"""The catalogue: service types that can be ordered, their providers, and the enabled options of each provider."""

from __future__ import annotations

import msgspec

from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, SERVICE_OPTIONS
from mainstay.control.store.serving import catalogue_rows

LIMIT = 10_000


class OfferedOption(msgspec.Struct, frozen=True, rename="camel"):
    option_type: str
    name: str
    value: object


class OfferingAgent(msgspec.Struct, frozen=True):
    id: str
    name: str
    status: str
    tags: list[str]


class Offer(msgspec.Struct, frozen=True):
    provider: Named
    agents: list[OfferingAgent]
    options: list[OfferedOption]


class CatalogueItem(msgspec.Struct, frozen=True, rename="camel"):
    service_type: Named
    offers: list[Offer]


class Catalogue(msgspec.Struct, frozen=True):
    items: list[CatalogueItem]


async def read_catalogue(work: UnitOfWork, consumer_id: str | None) -> Catalogue:
    """What the consumer may order. None: the caller's participant, and for an admin what any consumer may order."""
    own_id = work.required_caller.participant_id
    if consumer_id is not None and own_id not in (None, consumer_id.lower()):
        raise NotPermitted("consumerId must be your own participant")
    consumer_id = own_id if consumer_id is None else consumer_id.lower()
    items: dict[str, CatalogueItem] = {}
    offers: dict[tuple[str, str], Offer] = {}
    options: dict[str, list[OfferedOption]] = {}
    for row in await catalogue_rows(work.tx, consumer_id, LIMIT):
        type_id, provider_id = str(row["type_id"]), str(row["provider_id"])
        if type_id not in items:
            items[type_id] = CatalogueItem(Named(type_id, str(row["type_name"])), [])
        if provider_id not in options:
            options[provider_id] = await _options(work, provider_id)
        if (type_id, provider_id) not in offers:
            offer = Offer(Named(provider_id, str(row["provider_name"])), [], options[provider_id])
            offers[type_id, provider_id] = offer
            items[type_id].offers.append(offer)
        tags = msgspec.json.decode(str(row["tags"]), type=list[str])
        agent = OfferingAgent(str(row["agent_id"]), str(row["agent_name"]), str(row["agent_status"]), tags)
        offers[type_id, provider_id].agents.append(agent)
    return Catalogue(list(items.values()))


async def _options(work: UnitOfWork, provider_id: str) -> list[OfferedOption]:
    found = [each for each in await SERVICE_OPTIONS.all_by(work.tx, "provider_id", provider_id) if each.enabled]
    types = await SERVICE_OPTION_TYPES.many(work.tx, (each.service_option_type_id for each in found))
    ordered = sorted(found, key=lambda each: (types[each.service_option_type_id].type, each.display_order))
    return [OfferedOption(types[each.service_option_type_id].type, each.name, each.value) for each in ordered]

"""The catalogue: service types that can be ordered, their providers, and the enabled options of each provider."""

from __future__ import annotations

import msgspec

from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.placement import catalogue_rows, offered_types
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, enabled_options

LIMIT = 10_000
MAX_TYPES = 1_000


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


class OfferedType(msgspec.Struct, frozen=True):
    id: str
    name: str
    # How many agents may serve it.
    agents: int


class Catalogue(msgspec.Struct, frozen=True):
    items: list[CatalogueItem]


async def read_catalogue(work: UnitOfWork, consumer_id: str | None, *, type_id: str | None = None) -> Catalogue:
    """What the consumer may order. None: the caller's participant, and for an admin what any consumer may order.

    `type_id`: only offers of this service type."""
    rows = await catalogue_rows(work.tx, _consumer(work, consumer_id), LIMIT, type_id=type_id)
    options = await _options(work, {row["provider_id"] for row in rows})
    items: dict[str, CatalogueItem] = {}
    offers: dict[tuple[str, str], Offer] = {}
    for row in rows:
        found_type_id, provider_id = row["type_id"], row["provider_id"]
        if found_type_id not in items:
            items[found_type_id] = CatalogueItem(Named(found_type_id, row["type_name"]), [])
        if (found_type_id, provider_id) not in offers:
            offer = Offer(Named(provider_id, row["provider_name"]), [], options.get(provider_id, []))
            offers[found_type_id, provider_id] = offer
            items[found_type_id].offers.append(offer)
        tags = msgspec.json.decode(row["tags"], type=list[str])
        agent = OfferingAgent(row["agent_id"], row["agent_name"], row["agent_status"], tags)
        offers[found_type_id, provider_id].agents.append(agent)
    return Catalogue(list(items.values()))


async def read_offered_types(work: UnitOfWork, consumer_id: str | None) -> list[OfferedType]:
    """`consumer_id` None: as in `read_catalogue`."""
    rows = await offered_types(work.tx, _consumer(work, consumer_id), MAX_TYPES)
    return [OfferedType(row["id"], row["name"], row["agents"]) for row in rows]


def _consumer(work: UnitOfWork, consumer_id: str | None) -> str | None:
    own_id = work.required_caller.participant_id
    if consumer_id is not None and own_id not in (None, consumer_id.lower()):
        raise NotPermitted("consumerId must be your own participant")
    return own_id if consumer_id is None else consumer_id.lower()


async def _options(work: UnitOfWork, provider_ids: set[str]) -> dict[str, list[OfferedOption]]:
    """The enabled options of each provider, by option type and in the order of the provider."""
    found = await enabled_options(work.tx, provider_ids)
    types = await SERVICE_OPTION_TYPES.many(work.tx, (each.service_option_type_id for each in found))
    offered: dict[str, list[OfferedOption]] = {}
    for each in sorted(found, key=lambda each: (types[each.service_option_type_id].type, each.display_order)):
        option = OfferedOption(types[each.service_option_type_id].type, each.name, each.value)
        offered.setdefault(each.provider_id, []).append(option)
    return offered

"""What a form offers to choose from: options of providers, services to refer to, customers, groups and agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import references_in
from mainstay.control.domain.values import Properties, is_uuid
from mainstay.control.operations.catalogue import Offer, read_catalogue
from mainstay.control.store.service_types import SERVICE_TYPES
from mainstay.control.web.contract import PageCall
from mainstay.control.web.forms.choices import (
    MAX_LISTED_REFERENCES,
    FormChoices,
    OfferedValue,
    ReferenceChoice,
    ReferenceChoices,
    reference_types,
)
from mainstay.control.web.forms.form_state import FormScope
from mainstay.control.web.forms.posted import PostedForm, read_posted

MAX_LOOKUPS = 10
MAX_NAMED = 100


@dataclass(frozen=True, slots=True)
class OrderOffers:
    """The offers of one service type for one consumer."""

    offers: Sequence[Offer]

    def of_provider(self, provider_id: str) -> Sequence[Offer]:
        return [each for each in self.offers if provider_id in ("", each.provider.id)]

    def options(self, provider_id: str) -> dict[str, tuple[OfferedValue, ...]]:
        """The options of all providers that may get the order, each value once."""
        found: dict[str, list[OfferedValue]] = {}
        for offer in self.of_provider(provider_id):
            for option in offer.options:
                listed = found.setdefault(option.option_type, [])
                if all(each.value != option.value for each in listed):
                    listed.append(OfferedValue(option.value, option.name))
        return {name: tuple(values) for name, values in found.items()}


async def read_offers(call: PageCall, type_id: str, consumer_id: str | None) -> OrderOffers:
    async with call.reading() as work:
        found = await read_catalogue(work, consumer_id, type_id=type_id)
    return OrderOffers([offer for item in found.items for offer in item.offers])


async def read_references(
    call: PageCall, schema: PropertySchema, consumer_id: str | None, stored: Properties | None
) -> dict[str, ReferenceChoices]:
    """The living services that each reference of the schema may name, by schema path."""
    if not schema.has_references:
        return {}
    shown = [each.service_id for each in references_in(schema, stored or {})]
    listed: dict[frozenset[str] | None, ReferenceChoices] = {}
    for declared in _references(schema):
        types = reference_types(declared)
        if types not in listed:
            listed[types] = await _list_services(call, types, consumer_id)
    found = {each.schema_path: listed[reference_types(each)] for each in _references(schema)}
    return await _with_shown(call, found, shown)


def _references(schema: PropertySchema) -> Iterable[PropertyDeclaration]:
    return (each for each in schema.every() if each.refers)


async def _list_services(call: PageCall, types: frozenset[str] | None, consumer_id: str | None) -> ReferenceChoices:
    query = [("living", "true"), ("after", ""), ("sort", "-createdAt"), ("consumerId", consumer_id or "")]
    if types is not None:
        ids = await _type_ids(call, types)
        if not ids:
            return ReferenceChoices()
        query += [("serviceTypeId", each) for each in ids]
    page = await call.api("GET", "/api/v1/services", query=[*query, ("pageSize", str(MAX_LISTED_REFERENCES + 1))])
    listed = tuple(_choice(each) for each in page["items"])
    return ReferenceChoices(listed[:MAX_LISTED_REFERENCES], complete=len(listed) <= MAX_LISTED_REFERENCES)


async def _type_ids(call: PageCall, names: frozenset[str]) -> list[str]:
    async with call.reading() as work:
        found = [await SERVICE_TYPES.find_by(work.tx, "name", name) for name in sorted(names)[:MAX_LOOKUPS]]
    return [each.id for each in found if each is not None]


def _choice(service: Mapping[str, Any]) -> ReferenceChoice:
    return ReferenceChoice(service["id"], service["name"], f"{service['status']}, on {service['agent']['name']}")


async def _with_shown(
    call: PageCall, found: dict[str, ReferenceChoices], ids: Sequence[str]
) -> dict[str, ReferenceChoices]:
    """Adds the services that the form already names, so that it shows their names."""
    listed = {each.service_id for choices in found.values() for each in choices.listed}
    missing = [("id", each) for each in dict.fromkeys(ids) if each not in listed and is_uuid(each)][:MAX_NAMED]
    if not missing:
        return found
    page = await call.api("GET", "/api/v1/services", query=[*missing, ("after", ""), ("pageSize", "100")])
    more = tuple(_choice(each) for each in page["items"])
    return {path: replace(choices, listed=(*choices.listed, *more)) for path, choices in found.items()}


async def read_form(call: PageCall, scope: FormScope) -> tuple[FormScope, PostedForm]:
    """The posted form. Names in references that are not listed are looked up."""
    posted = read_posted(scope, call.form)
    if not posted.unknown_references:
        return scope, posted
    references = dict(scope.choices.references)
    for path, name in posted.unknown_references[:MAX_LOOKUPS]:
        known = references.get(path, ReferenceChoices())
        query = [("living", "true"), ("after", ""), ("name", name), ("pageSize", "100")]
        page = await call.api("GET", "/api/v1/services", query=query)
        named = tuple(_choice(each) for each in page["items"] if each["name"] == name)
        references[path] = replace(known, listed=(*known.listed, *named))
    scope = replace(scope, choices=FormChoices(scope.choices.options, references))
    return scope, read_posted(scope, call.form)

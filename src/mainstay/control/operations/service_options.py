"""Service options and their types: an admin defines the types, each provider its options."""

from __future__ import annotations

from mainstay.control.operations.machinery.bodies import Body, Word, new_of
from mainstay.control.operations.machinery.named_rows import find_named
from mainstay.control.operations.machinery.plain_nouns import PlainNoun, create_row
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.service_options import (
    SERVICE_OPTION_TYPES,
    SERVICE_OPTIONS,
    ServiceOption,
    ServiceOptionType,
)
from mainstay.nouns import service_option_types, service_options

TYPES = PlainNoun(
    service_option_types.NOUN, SERVICE_OPTION_TYPES, {"serviceOptions": ("service_options", "service_option_type_id")}
)
OPTIONS = PlainNoun(service_options.NOUN, SERVICE_OPTIONS)


@new_of(service_options.NOUN)
class NewServiceOption(Body, frozen=True, kw_only=True):
    service_option_type_id: str | None = None
    # The type by its name, instead of its id.
    service_option_type: Word | None = None


async def create(work: UnitOfWork, wanted: NewServiceOption) -> ServiceOption:
    type_id = (await _find_type(work, wanted)).id
    return await create_row(work, service_options.NOUN, SERVICE_OPTIONS, wanted, service_option_type_id=type_id)


async def _find_type(work: UnitOfWork, wanted: NewServiceOption) -> ServiceOptionType:
    if wanted.service_option_type_id is not None:
        return await find_named(work, SERVICE_OPTION_TYPES, wanted.service_option_type_id)
    if wanted.service_option_type is None:
        raise BadInput("serviceOptionTypeId or serviceOptionType is required")
    found = await SERVICE_OPTION_TYPES.find_by(work.tx, "type", wanted.service_option_type)
    if found is None:
        raise BadInput(f"there is no service option type {wanted.service_option_type}")
    return found

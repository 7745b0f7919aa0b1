"""Service options and their types: an admin defines the types, each provider its options."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mainstay.control.operations.machinery.bodies import WORD, Body, Id, Name, Text, with_given
from mainstay.control.operations.machinery.bounds import MAX_VALUE_BYTES, refuse_unusable
from mainstay.control.operations.machinery.named_rows import find_named, refuse_for_others
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.removal import refuse_if_needed
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_options import (
    SERVICE_OPTION_TYPES,
    SERVICE_OPTIONS,
    ServiceOption,
    ServiceOptionType,
)

TypeName = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=WORD)]
Order = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]


class NewServiceOptionType(Body, frozen=True, kw_only=True):
    name: Name
    type: TypeName
    description: Text = ""


class ServiceOptionTypeChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    type: TypeName | None = None
    description: Text | None = None


class NewServiceOption(Body, frozen=True, kw_only=True):
    provider_id: Id
    name: Name
    value: object
    service_option_type_id: Id | None = None
    # The type by its name, instead of its id.
    service_option_type: TypeName | None = None
    enabled: bool = True
    display_order: Order = 0


class ServiceOptionChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    value: object = None
    enabled: bool | None = None
    display_order: Order | None = None


async def create_type(work: UnitOfWork, wanted: NewServiceOptionType) -> ServiceOptionType:
    option_type = ServiceOptionType(
        **work.new_record(),
        name=wanted.name,
        type=wanted.type,
        description=wanted.description,
    )
    return await work.insert(SERVICE_OPTION_TYPES, option_type)


async def change_type(
    work: UnitOfWork, before: ServiceOptionType, wanted: ServiceOptionTypeChange
) -> ServiceOptionType:
    return await work.update(SERVICE_OPTION_TYPES, before, with_given(before, wanted))


async def delete_type(work: UnitOfWork, option_type: ServiceOptionType) -> None:
    needed = {"serviceOptions": ("service_options", "service_option_type_id")}
    await refuse_if_needed(work, SERVICE_OPTION_TYPES, option_type, needed)
    await work.delete(SERVICE_OPTION_TYPES, option_type)


async def create(work: UnitOfWork, wanted: NewServiceOption) -> ServiceOption:
    provider_id = wanted.provider_id.lower()
    refuse_for_others(work, provider_id, "options")
    refuse_unusable("value", wanted.value, MAX_VALUE_BYTES)
    await find_named(work, PARTICIPANTS, provider_id)
    option = ServiceOption(
        **work.new_record(),
        provider_id=provider_id,
        service_option_type_id=(await _find_type(work, wanted)).id,
        name=wanted.name,
        value=wanted.value,
        enabled=wanted.enabled,
        display_order=wanted.display_order,
    )
    return await work.insert(SERVICE_OPTIONS, option)


async def _find_type(work: UnitOfWork, wanted: NewServiceOption) -> ServiceOptionType:
    if wanted.service_option_type_id is not None:
        return await find_named(work, SERVICE_OPTION_TYPES, wanted.service_option_type_id)
    if wanted.service_option_type is None:
        raise BadInput("serviceOptionTypeId or serviceOptionType is required")
    found = await SERVICE_OPTION_TYPES.find_by(work.tx, "type", wanted.service_option_type)
    if found is None:
        raise BadInput(f"there is no service option type {wanted.service_option_type}")
    return found


async def change(work: UnitOfWork, before: ServiceOption, wanted: ServiceOptionChange) -> ServiceOption:
    refuse_unusable("value", wanted.value, MAX_VALUE_BYTES)
    return await work.update(SERVICE_OPTIONS, before, with_given(before, wanted))


async def delete(work: UnitOfWork, option: ServiceOption) -> None:
    await work.delete(SERVICE_OPTIONS, option)

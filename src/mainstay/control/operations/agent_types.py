"""Agent types: which service types an agent can serve, and the schema of its configuration."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from mainstay.control.domain.faults import below
from mainstay.control.domain.install_templates import template_faults
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.operations.machinery.bodies import Body, change_of, new_of
from mainstay.control.operations.machinery.bounds import MAX_DEFINITION_BYTES, refuse_large
from mainstay.control.operations.machinery.named_rows import refuse_if_needed
from mainstay.control.operations.machinery.refusals import BadInput, Conflict
from mainstay.control.operations.machinery.secrecy_changes import SecrecyChange, seal_configurations
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_types import AGENT_TYPES, AgentType, link_providers, link_service_types
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_types import SERVICE_TYPES
from mainstay.control.store.services import living_served_by
from mainstay.nouns.agent_types import NOUN

R = TypeVar("R", bound=Record)
TEMPLATES = {"config_template", "cmd_template", "config_content_type"}
CHECKED_TOGETHER = {"config_template", "cmd_template", "configuration_schema"}


@new_of(NOUN)
class NewAgentType(Body, frozen=True, kw_only=True):
    name: str
    service_type_ids: list[str] = []
    # Only an admin writes agent types, so only an admin grants.
    provider_ids: list[str] = []
    configuration_schema: dict[str, object] | None = None


@change_of(NOUN)
class AgentTypeChange(Body, frozen=True, kw_only=True):
    name: str | None = None
    service_type_ids: list[str] | None = None
    provider_ids: list[str] | None = None
    configuration_schema: dict[str, object] | None = None


async def create(work: UnitOfWork, wanted: NewAgentType) -> AgentType:
    _check_schema(work, wanted.configuration_schema)
    given = msgspec.structs.asdict(wanted) | {
        "service_type_ids": await _existing(work, SERVICE_TYPES, wanted.service_type_ids),
        "provider_ids": await _existing(work, PARTICIPANTS, wanted.provider_ids),
    }
    # An empty text is no template.
    given |= {name: given[name] or None for name in TEMPLATES}
    agent_type = AgentType(**work.new_record(), **given)
    _check_templates(work, agent_type)
    await work.insert(AGENT_TYPES, agent_type)
    await link_service_types(work.tx, agent_type)
    await link_providers(work.tx, agent_type)
    return agent_type


def _check_schema(work: UnitOfWork, schema: dict[str, object] | None) -> None:
    refuse_large("configurationSchema", schema, MAX_DEFINITION_BYTES)
    try:
        work.tools.definitions.parse_configuration_schema(schema)
    except InvalidDefinition as refusal:
        raise InvalidDefinition(below("configurationSchema", refusal.faults)) from None


def _check_templates(work: UnitOfWork, agent_type: AgentType) -> None:
    schema = work.tools.definitions.parse_configuration_schema(agent_type.configuration_schema)
    faults = list(template_faults(agent_type.config_template, agent_type.cmd_template, schema))
    if faults:
        raise InvalidDefinition(faults)


async def _existing(work: UnitOfWork, table: Table[R], ids: list[str]) -> list[str]:
    found = list(dict.fromkeys(each.lower() for each in ids))
    known = await table.many(work.tx, found)
    for record_id in found:
        if record_id not in known:
            raise BadInput(f"there is no {table.noun.replace('_', ' ')} {record_id}")
    return found


async def change(work: UnitOfWork, before: AgentType, wanted: AgentTypeChange) -> AgentType:
    _check_schema(work, wanted.configuration_schema)
    given = {
        name: value
        for name in AgentTypeChange.__struct_fields__
        if (value := getattr(wanted, name)) is not None and name not in ("service_type_ids", "provider_ids")
    }
    # An empty text removes a template.
    given |= {name: given[name] or None for name in TEMPLATES & given.keys()}
    after = msgspec.structs.replace(before, **given)
    if CHECKED_TOGETHER & given.keys():
        _check_templates(work, after)
    await _seal_configurations(work, before, after)
    if wanted.service_type_ids is not None:
        after = msgspec.structs.replace(
            after, service_type_ids=await _existing(work, SERVICE_TYPES, wanted.service_type_ids)
        )
        await _refuse_orphans(work, before, after)
        await link_service_types(work.tx, after)
    if wanted.provider_ids is not None:
        after = msgspec.structs.replace(after, provider_ids=await _existing(work, PARTICIPANTS, wanted.provider_ids))
        await link_providers(work.tx, after)
    return await work.update(AGENT_TYPES, before, after)


async def _seal_configurations(work: UnitOfWork, before: AgentType, after: AgentType) -> None:
    if after.configuration_schema != before.configuration_schema:
        parse = work.tools.definitions.parse_configuration_schema
        change = SecrecyChange(parse(before.configuration_schema), parse(after.configuration_schema))
        await seal_configurations(work, after.id, change)


async def _refuse_orphans(work: UnitOfWork, before: AgentType, after: AgentType) -> None:
    """A service type cannot be removed while agents of this type serve living services of it."""
    for service_type_id in set(before.service_type_ids) - set(after.service_type_ids):
        living = await living_served_by(work.tx, before.id, service_type_id)
        if living:
            raise Conflict(
                f"agents of this type still serve services of type {service_type_id}",
                code="in_use",
                details={"dependants": {"services": living}},
            )


async def delete(work: UnitOfWork, agent_type: AgentType) -> None:
    await refuse_if_needed(work, AGENT_TYPES, agent_type, {"agents": ("agents", "agent_type_id")})
    await work.delete(AGENT_TYPES, agent_type)

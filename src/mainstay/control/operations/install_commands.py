"""Install commands, for agents of others: a command with a token for five minutes, and the configuration it fetches."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from mainstay.control.domain import install_templates
from mainstay.control.domain.install_templates import AUTH_TOKEN, CONFIG_URL, RenderedTooLarge
from mainstay.control.domain.media_types import is_media_type
from mainstay.control.domain.properties.traversal import rewrite_secrets, secrets_in
from mainstay.control.domain.values import Properties
from mainstay.control.operations import tokens
from mainstay.control.operations.machinery.refusals import (
    BadInput,
    Conflict,
    InvalidProperties,
    NotFound,
    NotPermitted,
    SecretUnreadable,
)
from mainstay.control.operations.machinery.secret_sealing import read_secret
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_types import AGENT_TYPES, AgentType
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.install_commands import INSTALL_COMMANDS, InstallCommandRow, find_by_hash
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.secrets import SecretOwner
from mainstay.control.store.tokens import TOKENS, hash_token

LIFETIME = timedelta(minutes=5)
DEFAULT_MEDIA_TYPE = "text/plain"


class InstallCommand(msgspec.Struct, frozen=True, rename="camel"):
    """The only response that contains the command."""

    install_command: str
    url: str
    expires_at: datetime


class InstallCommandState(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    expires_at: datetime
    created_at: datetime


class NoInstallCommand(NotFound):
    def __init__(self, message: str) -> None:
        super().__init__("install_command", "")
        self.args = (message,)


@dataclass(frozen=True, slots=True)
class AgentConfiguration:
    content: str
    media_type: str


async def create(work: UnitOfWork, agent: AgentRow, base_url: str) -> InstallCommand:
    if await INSTALL_COMMANDS.find_by(work.tx, "agent_id", agent.id) is not None:
        raise Conflict(
            f"agent {agent.name} has an install command; regenerate or delete it", code="install_command_exists"
        )
    answer, token_hash, token_id = await _issue(work, agent, base_url)
    row = InstallCommandRow(
        **work.new_record(),
        agent_id=agent.id,
        provider_id=agent.provider_id,
        token_id=token_id,
        expires_at=answer.expires_at,
    )
    await work.insert(INSTALL_COMMANDS, row, hash=token_hash)
    return answer


async def regenerate(work: UnitOfWork, agent: AgentRow, base_url: str) -> InstallCommand:
    """A new command; the old one and its tokens are invalid from the commit on."""
    before = await _find(work, agent)
    answer, token_hash, token_id = await _issue(work, agent, base_url)
    after = msgspec.structs.replace(before, updated_at=work.now, token_id=token_id, expires_at=answer.expires_at)
    await INSTALL_COMMANDS.update(work.tx, after, hash=token_hash)
    await work.record_event("install_command.updated", before, after)
    await _end_token(work, before)
    return answer


async def show(work: UnitOfWork, agent: AgentRow) -> InstallCommandState:
    found = await _find(work, agent)
    return InstallCommandState(found.id, found.expires_at, found.created_at)


async def delete(work: UnitOfWork, agent: AgentRow) -> None:
    found = await _find(work, agent)
    await work.delete(INSTALL_COMMANDS, found)
    await _end_token(work, found)


async def _find(work: UnitOfWork, agent: AgentRow) -> InstallCommandRow:
    found = await INSTALL_COMMANDS.find_by(work.tx, "agent_id", agent.id)
    if found is None:
        raise NoInstallCommand(f"agent {agent.name} has no install command; create one")
    return found


async def _end_token(work: UnitOfWork, command: InstallCommandRow) -> None:
    token = None if command.token_id is None else await TOKENS.find(work.tx, command.token_id)
    if token is not None:
        await work.delete(TOKENS, token)


async def _issue(work: UnitOfWork, agent: AgentRow, base_url: str) -> tuple[InstallCommand, str, str]:
    """The command, the hash of its own token, and the id of the agent's token in it."""
    await _refuse_disabled(work, agent)
    agent_type = await AGENT_TYPES.require(work.tx, agent.agent_type_id)
    if agent_type.cmd_template is None or agent_type.config_template is None:
        raise BadInput(
            f"agent type {agent_type.name} has no configTemplate and cmdTemplate; an admin can add them",
            code="no_install_templates",
        )
    # Types of an earlier release were stored unchecked.
    schema = work.tools.definitions.of_agent_type(agent_type)
    faults = list(install_templates.template_faults(agent_type.config_template, agent_type.cmd_template, schema))
    if faults:
        raise InvalidProperties(faults, code="invalid_definition")
    expires_at = tokens.expiry_after(work, LIFETIME)
    value = secrets.token_hex(32)
    # Hexadecimal, because a leading minus would make it an option on a command line.
    token = await tokens.save_for_agent(work, agent, "install", expires_at, secrets.token_hex(32))
    url = f"{base_url}/api/v1/agents/install/{value}/config"
    values = {**(agent.configuration or {}), CONFIG_URL: url, AUTH_TOKEN: token.value}
    answer = InstallCommand(_render_command(agent_type.cmd_template, values), url, expires_at)
    return answer, hash_token(value), token.id


def _render_command(template: str, values: Properties) -> str:
    try:
        command, faults = install_templates.render_command(template, values)
    except RenderedTooLarge:
        raise _too_large("command") from None
    if faults:
        raise InvalidProperties(faults)
    return command


def _too_large(what: str) -> BadInput:
    return BadInput(
        f"the rendered {what} would exceed {install_templates.MAX_CHARACTERS} characters", code="too_large"
    )


async def _refuse_disabled(work: UnitOfWork, agent: AgentRow) -> None:
    provider = await PARTICIPANTS.find(work.tx, agent.provider_id)
    if "Disabled" in (agent.status, None if provider is None else provider.status):
        raise NotPermitted(f"agent {agent.name} or its provider is disabled", code="disabled")


async def read_configuration(work: UnitOfWork, token: str) -> AgentConfiguration:
    """The configuration with its secrets opened. The caller needs the token of the command and a relation to the agent."""
    relation = work.relation("agent", "install")
    command = await find_by_hash(work.tx, hash_token(token))
    agent = None if command is None else await AGENTS.find(work.tx, command.agent_id)
    if (
        command is None
        or agent is None
        or command.expires_at <= work.now
        or not relation.holds(work.required_caller, agent)
    ):
        raise NoInstallCommand("this install command is unknown, revoked or expired; create a new one")
    await _refuse_disabled(work, agent)
    agent_type = await AGENT_TYPES.require(work.tx, agent.agent_type_id)
    if agent_type.config_template is None:
        raise NoInstallCommand(f"agent type {agent_type.name} has no configTemplate any more")
    values = await _open_secrets(work, command, agent, agent_type)
    try:
        content = install_templates.render(agent_type.config_template, values)
    except RenderedTooLarge:
        raise _too_large("configuration") from None
    declared = agent_type.config_content_type
    # A type of an earlier release was stored unchecked.
    return AgentConfiguration(content, declared if declared and is_media_type(declared) else DEFAULT_MEDIA_TYPE)


async def _open_secrets(
    work: UnitOfWork, command: InstallCommandRow, agent: AgentRow, agent_type: AgentType
) -> Properties:
    """The configuration with the secrets that the template shows, each recorded as an event, and without others."""
    schema = work.tools.definitions.of_agent_type(agent_type)
    configuration = agent.configuration or {}
    opened: dict[object, object] = {}
    for place in secrets_in(schema, configuration):
        if not install_templates.uses_secret(str(agent_type.config_template), place):
            continue
        found = await read_secret(work, SecretOwner("agent", agent.id), place)
        if found is None:
            raise SecretUnreadable(place.schema_path, f"agent {agent.id}")
        opened[place.reference] = found.reveal()
        await work.record_event(
            "vault.read",
            agent,
            agent,
            reference=place.reference,
            schemaPath=place.schema_path,
            jobId=None,
            installCommandId=command.id,
        )
    return rewrite_secrets(schema, configuration, lambda _declared, _path, value: opened.get(value))

"""Install commands of agents, and the configuration that such a command fetches."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import detail_endpoint
from mainstay.control.domain.media_types import without_charset
from mainstay.control.operations import install_commands
from mainstay.control.operations.install_commands import InstallCommand, InstallCommandState
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agents import AGENTS, AgentRow

AGENT = "/api/v1/agents/{id}/install-command"
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})(?::[0-9]{1,5})?")


def base_url(call: Call) -> str:
    public_url = call.dependencies.settings.public_url
    if public_url:
        return public_url.rstrip("/")
    host = call.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise BadInput("the Host header is not a name with a port; set public_url of the server", code="bad_host")
    return f"{call.scheme}://{host}"


async def _create(call: Call, create: Callable[[UnitOfWork, AgentRow, str], Awaitable[InstallCommand]]) -> Answer:
    async with call.transaction() as work:
        agent = await work.find(AGENTS, call.path["id"], "write", lock=True)
        call.refuse_body()
        return Answer(await create(work, agent, base_url(call)))


async def _delete(call: Call) -> Answer:
    async with call.transaction() as work:
        await install_commands.delete(work, await work.find(AGENTS, call.path["id"], "write", lock=True))
    return Answer()


async def _read_configuration(call: Call) -> Answer:
    async with call.transaction() as work:
        found = await install_commands.read_configuration(work, call.path["token"])
    # The framework adds the charset to types of text.
    is_text = found.media_type.lower().startswith("text/")
    media_type = without_charset(found.media_type) if is_text else found.media_type
    return Answer(found.content.encode(), media_type=media_type)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path=AGENT,
        act=lambda call: _create(call, install_commands.create),
        access=("agent", "write"),
        summary="Create the install command of an agent, with tokens for five minutes",
        status=201,
        answer=InstallCommand,
        refusals=(400, 404, 409),
    ),
    detail_endpoint(
        AGENT,
        AGENTS,
        install_commands.show,
        summary="Show whether an agent has an install command",
        answer=InstallCommandState,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/regenerate",
        act=lambda call: _create(call, install_commands.regenerate),
        access=("agent", "write"),
        summary="Replace the install command of an agent; the old one becomes invalid",
        answer=InstallCommand,
        refusals=(400, 404, 409),
    ),
    Endpoint(
        method="DELETE",
        path=AGENT,
        act=_delete,
        access=("agent", "write"),
        summary="Revoke the install command of an agent",
        status=204,
        refusals=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/agents/install/{token}/config",
        act=_read_configuration,
        access=("agent", "install"),
        summary="Fetch the configuration of an agent with its secrets, with the token of its install command",
        answer=bytes,
        media_type="application/octet-stream",
        refusals=(400, 404, 409),
        only_reads=False,
    ),
)

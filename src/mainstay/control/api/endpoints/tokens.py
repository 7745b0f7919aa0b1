"""Tokens: the standard endpoints, the caller's own token, and regeneration."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import (
    change_endpoint,
    command_endpoint,
    create_endpoint,
    delete_endpoint,
    list_endpoint,
    show_endpoint,
)
from mainstay.control.operations import tokens
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.tokens import (
    NEW_TOKEN_NAMES,
    TOKEN_NAMES,
    EndedWithToken,
    TokenView,
    TokenWithValueView,
)
from mainstay.control.store.tokens import TOKENS, Token

PATH = "/api/v1/tokens"


async def _regenerate(work: UnitOfWork, before: Token) -> TokenWithValueView:
    return await NEW_TOKEN_NAMES.show(work, await tokens.regenerate(work, before))


async def _show_me(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await TOKEN_NAMES.show(work, await tokens.find_own(work)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=f"{PATH}/me",
        act=_show_me,
        access=("token", "be"),
        summary="Show the token of this request: owner, role and expiry",
        answer=TokenView,
    ),
    list_endpoint(PATH, TOKENS, names=TOKEN_NAMES),
    show_endpoint(PATH, TOKENS, names=TOKEN_NAMES),
    create_endpoint(PATH, TOKENS, tokens.NewToken, tokens.create, names=NEW_TOKEN_NAMES),
    change_endpoint(PATH, TOKENS, tokens.TokenChange, tokens.change, names=TOKEN_NAMES),
    delete_endpoint(PATH, TOKENS, tokens.delete, ended=EndedWithToken),
    command_endpoint(
        f"{PATH}/{{id}}/regenerate",
        TOKENS,
        "write",
        _regenerate,
        summary="Give a token a new value; the old value becomes invalid",
        answer=TokenWithValueView,
        refusals=(400, 404),
    ),
)

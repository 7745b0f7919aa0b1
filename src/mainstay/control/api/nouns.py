"""Builds the five endpoints that most nouns have: list, show, create, change and delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainstay.control.access import with_article
from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations.machinery.bodies import Body
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.paging import NAME_ONLY, Page, parse_listing
from mainstay.control.store.engine.records import Record, Table

R = TypeVar("R", bound=Record)
N = TypeVar("N", bound=Body)
C = TypeVar("C", bound=Body)


def noun_endpoints(
    path: str,
    table: Table[R],
    new: tuple[type[N], Callable[[UnitOfWork, N], Awaitable[object]]],
    change: tuple[type[C], Callable[[UnitOfWork, R, C], Awaitable[R]]],
    delete: Callable[[UnitOfWork, R], Awaitable[None]],
) -> tuple[Endpoint, ...]:
    return (
        list_endpoint(path, table),
        show_endpoint(path, table),
        create_endpoint(path, table, *new),
        change_endpoint(path, table, *change),
        delete_endpoint(path, table, delete),
    )


def list_endpoint(
    path: str, table: Table[R], *, plural: str | None = None, substrings: frozenset[str] = NAME_ONLY
) -> Endpoint:
    async def act(call: Call) -> Answer:
        listing = parse_listing(table, call.query, substrings=substrings)
        async with call.reading() as work:
            return Answer(await work.page(table, listing))

    return Endpoint(
        method="GET",
        path=path,
        act=act,
        access=(table.noun, "read"),
        summary=f"List {plural or _spaced(table) + 's'}",
        answer=Page[table.record],  # type: ignore[name-defined]
        lists=table,
        refusals=(400,),
    )


def show_endpoint(path: str, table: Table[R]) -> Endpoint:
    async def act(call: Call) -> Answer:
        async with call.reading() as work:
            return Answer(await work.find(table, call.path["id"]))

    return Endpoint(
        method="GET",
        path=f"{path}/{{id}}",
        act=act,
        access=(table.noun, "read"),
        summary=f"Show one {_spaced(table)}",
        answer=table.record,
        refusals=(404,),
    )


def create_endpoint(
    path: str,
    table: Table[R],
    body: type[N],
    create: Callable[[UnitOfWork, N], Awaitable[object]],
    answer: object = None,
) -> Endpoint:
    async def act(call: Call) -> Answer:
        wanted = call.read(body)
        async with call.transaction() as work:
            return Answer(await create(work, wanted))

    return Endpoint(
        method="POST",
        path=path,
        act=act,
        access=(table.noun, "write"),
        summary=f"Create {with_article(table.noun)}",
        status=201,
        body=body,
        answer=answer or table.record,
        refusals=(400, 409),
    )


def change_endpoint(
    path: str,
    table: Table[R],
    body: type[C],
    change: Callable[[UnitOfWork, R, C], Awaitable[R]],
    *,
    action: str = "write",
) -> Endpoint:
    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            before = await work.find(table, call.path["id"], action, lock=True)
            return Answer(await change(work, before, call.read_change(body, before)))

    return Endpoint(
        method="PATCH",
        path=f"{path}/{{id}}",
        act=act,
        access=(table.noun, action),
        summary=f"Change {with_article(table.noun)}",
        body=body,
        answer=table.record,
        refusals=(400, 404, 409),
    )


def delete_endpoint(path: str, table: Table[R], delete: Callable[[UnitOfWork, R], Awaitable[None]]) -> Endpoint:
    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            record = await work.find(table, call.path["id"], "write", lock=True)
            await delete(work, record)
        return Answer()

    return Endpoint(
        method="DELETE",
        path=f"{path}/{{id}}",
        act=act,
        access=(table.noun, "write"),
        summary=f"Delete {with_article(table.noun)}",
        status=204,
        refusals=(404, 409),
    )


def _spaced(table: Table[R]) -> str:
    return table.noun.replace("_", " ")

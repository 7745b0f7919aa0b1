"""Builds endpoints that nouns have in common: list, show, create, change and delete, and those that act on one row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mainstay.control.access import with_article
from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.operations.machinery.bodies import Body
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames
from mainstay.control.operations.machinery.plain_nouns import PlainNoun
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.paging import NAME_ONLY, Page, parse_listing
from mainstay.control.store.engine.records import Record, Table

R = TypeVar("R", bound=Record)
N = TypeVar("N", bound=Body)
C = TypeVar("C", bound=Body)


def noun_endpoints(
    path: str,
    table: Table[R],
    new: tuple[type[N], Callable[[UnitOfWork, N], Awaitable[Record]]],
    change: tuple[type[C], Callable[[UnitOfWork, R, C], Awaitable[R]]],
    delete: Callable[[UnitOfWork, R], Awaitable[None]],
    *,
    names: EmbeddedNames[Any] | None = None,
) -> tuple[Endpoint, ...]:
    """`names` adds the names of related rows to every answer."""
    return (
        list_endpoint(path, table, names=names),
        show_endpoint(path, table, names=names),
        create_endpoint(path, table, *new, names=names),
        change_endpoint(path, table, *change, names=names),
        delete_endpoint(path, table, delete),
    )


def plain_endpoints(plain: PlainNoun[R], *, names: EmbeddedNames[Any] | None = None) -> tuple[Endpoint, ...]:
    new, change = (plain.new_body, plain.create), (plain.change_body, plain.change)
    return noun_endpoints(f"/api/v1{plain.noun.path}", plain.table, new, change, plain.delete, names=names)


def list_endpoint(
    path: str,
    table: Table[R],
    *,
    plural: str | None = None,
    substrings: frozenset[str] = NAME_ONLY,
    names: EmbeddedNames[Any] | None = None,
) -> Endpoint:
    async def act(call: Call) -> Answer:
        listing = parse_listing(table, call.query, substrings=substrings)
        async with call.reading() as work:
            return Answer(await (work.page(table, listing) if names is None else names.page(work, listing)))

    return page_endpoint(path, table, act, _shown_type(table, names), f"List {plural or _spaced(table) + 's'}")


def page_endpoint(
    path: str,
    table: Table[R],
    act: Callable[[Call], Awaitable[Answer]],
    view: type[Record],
    summary: str,
    query: tuple[QueryParameter, ...] = (),
) -> Endpoint:
    """A list that `act` reads. `view` is the type of its items, `table` the one whose columns filter it."""
    return Endpoint(
        method="GET",
        path=path,
        act=act,
        access=(table.noun, "read"),
        summary=summary,
        answer=Page[view],  # type: ignore[valid-type]
        lists=table,
        query=query,
        refusals=(400,),
    )


def _shown_type(table: Table[R], names: EmbeddedNames[Any] | None) -> type[Record]:
    return table.record if names is None else names.view


async def _show(work: UnitOfWork, names: EmbeddedNames[Any] | None, row: Record) -> Record:
    return row if names is None else await names.show(work, row)


def show_endpoint(path: str, table: Table[R], *, names: EmbeddedNames[Any] | None = None) -> Endpoint:
    return detail_endpoint(
        f"{path}/{{id}}",
        table,
        lambda work, row: _show(work, names, row),
        summary=f"Show one {_spaced(table)}",
        answer=_shown_type(table, names),
    )


def detail_endpoint(
    path: str,
    table: Table[R],
    read: Callable[[UnitOfWork, R], Awaitable[object]],
    *,
    summary: str,
    answer: object,
) -> Endpoint:
    """Reads one row, or something about it."""

    async def act(call: Call) -> Answer:
        async with call.reading() as work:
            return Answer(await read(work, await work.find(table, call.path["id"])))

    return Endpoint(
        method="GET",
        path=path,
        act=act,
        access=(table.noun, "read"),
        summary=summary,
        answer=answer,
        refusals=(404,),
    )


def create_endpoint(
    path: str,
    table: Table[R],
    body: type[N],
    create: Callable[[UnitOfWork, N], Awaitable[Record]],
    *,
    names: EmbeddedNames[Any] | None = None,
) -> Endpoint:
    async def act(call: Call) -> Answer:
        wanted = call.read(body)
        async with call.transaction() as work:
            return Answer(await _show(work, names, await create(work, wanted)))

    return Endpoint(
        method="POST",
        path=path,
        act=act,
        access=(table.noun, "write"),
        summary=f"Create {with_article(table.noun)}",
        status=201,
        body=body,
        answer=_shown_type(table, names),
        refusals=(400, 409),
    )


def change_endpoint(
    path: str,
    table: Table[R],
    body: type[C],
    change: Callable[[UnitOfWork, R, C], Awaitable[R]],
    *,
    action: str = "write",
    names: EmbeddedNames[Any] | None = None,
) -> Endpoint:
    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            before = await work.find(table, call.path["id"], action, lock=True)
            wanted = call.read_change(body, await _show(work, names, before))
            return Answer(await _show(work, names, await change(work, before, wanted)))

    return Endpoint(
        method="PATCH",
        path=f"{path}/{{id}}",
        act=act,
        access=(table.noun, action),
        summary=f"Change {with_article(table.noun)}",
        body=body,
        answer=_shown_type(table, names),
        refusals=(400, 404, 409),
    )


def delete_endpoint(
    path: str, table: Table[R], delete: Callable[[UnitOfWork, R], Awaitable[object]], *, ended: object = None
) -> Endpoint:
    """`ended`: the type of the answer if more than the row has ended (200); None: nothing else does."""

    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            record = await work.find(table, call.path["id"], "write", lock=True)
            found = await delete(work, record)
        return Answer() if found is None else Answer(found, status=200)

    return Endpoint(
        method="DELETE",
        path=f"{path}/{{id}}",
        act=act,
        access=(table.noun, "write"),
        summary=f"Delete {with_article(table.noun)}",
        status=204,
        dry=ended,
        refusals=(404, 409),
    )


def report_endpoint(
    path: str,
    table: Table[R],
    body: type[N],
    report: Callable[[UnitOfWork, R, N], Awaitable[object]],
    *,
    summary: str,
    refusals: tuple[int, ...],
    answer: object = None,
) -> Endpoint:
    """What an agent reports about a row. Without `answer`, the response has no body."""

    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            row = await work.find(table, call.path["id"], "work")
            return Answer(await report(work, row, call.read(body)))

    return Endpoint(
        method="POST",
        path=path,
        act=act,
        access=(table.noun, "work"),
        summary=summary,
        status=204 if answer is None else 200,
        body=body,
        answer=answer,
        refusals=refusals,
    )


def command_endpoint(
    path: str,
    table: Table[R],
    action: str,
    command: Callable[[UnitOfWork, R], Awaitable[object]],
    *,
    summary: str,
    refusals: tuple[int, ...],
    status: int = 200,
    answer: object = None,
    lock: bool = True,
) -> Endpoint:
    """Does something with a row that needs no fields. `lock` False: the command locks the row itself."""

    async def act(call: Call) -> Answer:
        async with call.transaction() as work:
            row = await work.find(table, call.path["id"], action, lock=lock)
            call.refuse_body()
            return Answer(await command(work, row))

    return Endpoint(
        method="POST",
        path=path,
        act=act,
        access=(table.noun, action),
        summary=summary,
        status=status,
        answer=answer,
        refusals=refusals,
    )


def _spaced(table: Table[R]) -> str:
    return table.noun.replace("_", " ")

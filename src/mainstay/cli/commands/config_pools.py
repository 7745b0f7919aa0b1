"""Lists config pools: values for the configuration of agents, taken when an agent is created. With a name, lists the values
of a pool and the agents that use them.

`config-pools add POOL --type POOL-TYPE --value VALUE` adds values and creates the pool if it is missing: for your
participant, for another one with --for, or for all providers with --global (admins only). A VALUE may be a range or a
network, as in `mainstay pools add`. `config-pools remove` removes a pool, or with --value only these values."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import add_argument, print_json
from mainstay.cli.remote.connection import find_named, find_owner, list_items, short_id
from mainstay.cli.remote.pool_values import PoolKind, configure_addition, configure_removal, read_values
from mainstay.cli.remote.removal import print_list
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.tables import Cell, age, print_table

SUMMARY = "list, show, fill or remove pools for the configuration of agents"
GROUP = "operate"
PATH = "/config-pools"
POOLS = PoolKind(PATH, "/config-pool-values", "configPoolId", "agentId")
GLOBAL = "all providers"


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        _list_pools,
        Verb("show", "show the values of a pool and the agents that use them", _show, of="CONFIG-POOL"),
        Verb("add", "add values to a pool; creates it if it is missing", _add, _configure_add),
        Verb("remove", "remove a pool, or values of it", _remove, configure_removal, of="CONFIG-POOL"),
        shown="show",
    )


run = run_verb


def _configure_add(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "pool", "CONFIG-POOL", "name of the pool")
    add_argument(parser, "--type", "POOL-TYPE", "poolType that generators use", required=True)
    owner = parser.add_mutually_exclusive_group()
    add_argument(owner, "--for", "PARTICIPANT", "owner of the pool (default: you)", dest="owner")
    owner.add_argument("--global", dest="is_global", action="store_true", help="as an admin: a pool of all providers")
    configure_addition(parser)


def _list_pools(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "name"})
    headers = ("POOL", "TYPE", "VALUES", "OWNER", "AGE", "ID")
    empty = "There is no config pool yet; `mainstay config-pools add POOL` creates one."
    return print_list(arguments, found, headers, _rows(client, found), empty)


def _rows(client: Client, found: Sequence[Any]) -> Iterator[list[Cell]]:
    owners = _owner_names(client)
    for each in found:
        owner = owners.get(each["participantId"], each["participantId"] or GLOBAL)
        named = [each["name"], each["type"], each["propertyType"], owner]
        yield [*named, age(each["createdAt"]), short_id(each["id"])]


def _owner_names(client: Client) -> dict[str | None, str]:
    return {None: GLOBAL, **{each["id"]: each["name"] for each in list_items(client, "/participants")}}


def _show(client: Client, arguments: argparse.Namespace) -> int:
    return _show_pool(client, arguments, find_named(client, PATH, arguments.name))


def _show_pool(client: Client, arguments: argparse.Namespace, pool: Mapping[str, Any]) -> int:
    values = POOLS.stored_values(client, pool)
    if arguments.json:
        print_json({**pool, "values": values})
        return 0
    used = sum(each["agentId"] is not None for each in values)
    owner = _owner_names(client).get(pool["participantId"], pool["participantId"])
    print_table(
        ("POOL", "TYPE", "OWNER", "TOTAL", "ALLOCATED", "FREE"),
        [[pool["name"], pool["type"], owner, str(len(values)), str(used), str(len(values) - used)]],
    )
    agents = {each["id"]: each["name"] for each in list_items(client, "/agents")} if used else {}
    POOLS.print_values(values, agents)
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> int:
    values = read_values(arguments.value)
    owner_id = None if arguments.is_global else find_owner(client, arguments.owner, "owner", "--global or --for")
    pool = _find_or_create(client, arguments, owner_id, "integer" if isinstance(values[0], int) else "string")
    POOLS.add_values(client, pool, values)
    return _show_pool(client, arguments, pool)


def _find_or_create(client: Client, arguments: argparse.Namespace, owner_id: str | None, kind: str) -> Any:
    for pool in list_items(client, PATH, {"type": arguments.type}):
        if pool["participantId"] == owner_id and pool["name"] == arguments.pool:
            return pool
    body = {"name": arguments.pool, "type": arguments.type, "propertyType": kind, "generatorType": "list"}
    return client.post(PATH, {**body, "participantId": owner_id})


def _remove(client: Client, arguments: argparse.Namespace) -> int:
    return POOLS.remove(client, arguments, "Its values are removed too.")

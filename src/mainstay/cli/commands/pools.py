"""Lists pools and their usage; with a name, lists the values of a pool and the services that use them.

`pools add POOL --type POOL-TYPE --agent AGENT --value VALUE` adds values for the services of an agent; each value is used
by one service at a time: `mainstay pools add ports --type appPort --agent host1 --value 8100-8199`. A VALUE may be a range
of whole numbers (8100-8199) or addresses (10.0.0.10-10.0.0.12), or a network (10.0.0.0/28: its host addresses). It creates
the pool set of the agent and the pool if they are missing. Agents may share a pool set.

`pools create POOL --type POOL-TYPE --agent AGENT --subnet NETWORK` creates a pool that gives out the addresses of a network
of any size. `pools remove POOL` removes a pool, with --value only these values; values in use are refused."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, print_json, whole_number
from mainstay.cli.remote.connection import find_named, list_items, name_of, short_id
from mainstay.cli.remote.pool_values import PoolKind, configure_addition, configure_removal, read_values
from mainstay.cli.remote.removal import print_list, removal_verb
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, GOOD, Cell, print_table, progress_bar

SUMMARY = "list pools and their usage; show one, add values, create or remove one"
GROUP = "operate"
PATH = "/service-pools"
VALUES = "/service-pool-values"
SETS = "/service-pool-sets"
POOLS = PoolKind(PATH, VALUES, "servicePoolId", "serviceId")
HEADERS = ("POOL", "TYPE", "SET", "VALUES", "USED", "TOTAL", "ALLOCATED", "FREE")
MAX_SHOWN = 500
BATCH_SIZE = 50
NEARLY_FULL = 0.8
MAX_EXCLUDED = 2**64


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        _list_pools,
        Verb("show", "show the values of a pool and the services that use them", _show_named, of="POOL"),
        Verb("add", "add values to a pool; creates it if it is missing", _add_and_show, _configure_add),
        Verb("create", "create a pool of the addresses of a network", _create_subnet, _configure_create),
        Verb("remove", "remove a pool, or values of it", _remove, configure_removal, of="POOL"),
        Verb("sets", "list the pool sets", _list_sets),
        removal_verb(SETS, "SET", "remove a pool set without pools and agents", name="remove-set"),
        shown="show",
    )


run = run_verb


def _configure_add(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "pool", "POOL", "name of the pool")
    add_argument(parser, "--type", "POOL-TYPE", "poolType that generators use", required=True)
    add_argument(parser, "--agent", "AGENT", "agent whose services use the values", required=True)
    configure_addition(parser)


def _configure_create(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "pool", "POOL", "name of the pool")
    add_argument(parser, "--type", "POOL-TYPE", "poolType that generators use", required=True)
    owner = parser.add_mutually_exclusive_group(required=True)
    add_argument(owner, "--agent", "AGENT", "agent whose services use the addresses")
    add_argument(owner, "--set", "SET", "pool set of the pool, instead of that of an agent")
    add_argument(parser, "--subnet", "NETWORK", "network: ADDRESS/LENGTH, IPv4 or IPv6", required=True)
    for edge in ("first", "last"):
        add_argument(
            parser,
            f"--exclude-{edge}",
            "N",
            f"do not give out the {edge} N addresses",
            type=whole_number(0, MAX_EXCLUDED, "of at least 0"),
            default=0,
        )


def _list_pools(client: Client, arguments: argparse.Namespace) -> int:
    pools = [
        {**each, "usage": client.get(f"{PATH}/{each['id']}/usage")}
        for each in list_items(client, PATH, {"sort": "name"}, MAX_SHOWN)
    ]
    empty = "There is no pool yet. Only its provider and admins see a pool; `mainstay pools add POOL` creates one."
    return print_list(arguments, pools, HEADERS, _rows(client, pools), empty)


def _rows(client: Client, pools: Sequence[Any]) -> Iterator[list[Cell]]:
    sets = {each["id"]: each["name"] for each in list_items(client, SETS)}
    for each in pools:
        yield _row(each, sets.get(each["servicePoolSetId"], ""))


def _show_named(client: Client, arguments: argparse.Namespace) -> int:
    return _show_pool(client, arguments, find_named(client, PATH, arguments.name))


def _show_pool(
    client: Client, arguments: argparse.Namespace, pool: Mapping[str, Any], *, with_values: bool = True
) -> int:
    values = list_items(client, VALUES, {"servicePoolId": pool["id"]}, MAX_SHOWN) if with_values else []
    usage = client.get(f"{PATH}/{pool['id']}/usage")
    set_name = client.get(f"{SETS}/{pool['servicePoolSetId']}")["name"]
    owners = _owner_names(client, values)
    return _show(arguments, {**pool, "usage": usage, "values": values}, set_name, owners)


def _add_and_show(client: Client, arguments: argparse.Namespace) -> int:
    # Not the rows of all values: the caller has just written them.
    return _show_pool(client, arguments, _add(client, arguments, arguments.pool), with_values=arguments.json)


def _create_subnet(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.set:
        set_id = find_named(client, SETS, arguments.set)["id"]
    else:
        agent = find_named(client, "/agents", arguments.agent)
        set_id = agent["servicePoolSetId"] or _create_set(client, arguments, agent)
    config: dict[str, object] = {"cidr": arguments.subnet}
    config |= {"excludeFirst": arguments.exclude_first} if arguments.exclude_first else {}
    config |= {"excludeLast": arguments.exclude_last} if arguments.exclude_last else {}
    body = {
        "name": arguments.pool,
        "type": arguments.type,
        "propertyType": "string",
        "generatorType": "subnet",
        "generatorConfig": config,
        "servicePoolSetId": set_id,
    }
    return _show_pool(client, arguments, client.post(PATH, body))


def _remove(client: Client, arguments: argparse.Namespace) -> int:
    return POOLS.remove(client, arguments, "Its free values are removed too.")


def _list_sets(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, SETS, {"sort": "name"})
    if arguments.json:
        print_json(found)
        return 0
    agents: dict[str, list[str]] = {}
    for agent in list_items(client, "/agents", {"sort": "name"}):
        agents.setdefault(agent["servicePoolSetId"], []).append(agent["name"])
    rows: list[list[Cell]] = [
        [each["name"], name_of(each, "provider"), ", ".join(agents.get(each["id"], [])), short_id(each["id"])]
        for each in found
    ]
    print_table(("SET", "PROVIDER", "AGENTS", "ID"), rows)
    return 0


def _add(client: Client, arguments: argparse.Namespace, name: str) -> Any:
    """Adds the missing values to the pool and returns it."""
    values = read_values(arguments.value)
    agent = find_named(client, "/agents", arguments.agent)
    set_id = agent["servicePoolSetId"] or _create_set(client, arguments, agent)
    pool = _find_pool(client, arguments, set_id, name, values)
    POOLS.add_values(client, pool, values)
    return pool


def _create_set(client: Client, arguments: argparse.Namespace, agent: Mapping[str, Any]) -> str:
    created = client.post("/service-pool-sets", {"name": agent["name"], "providerId": agent["providerId"]})
    client.call("PATCH", f"/agents/{agent['id']}", {"servicePoolSetId": created["id"]})
    _print_note(arguments, f"Created pool set {created['name']} for agent {agent['name']}.")
    return str(created["id"])


def _find_pool(client: Client, arguments: argparse.Namespace, set_id: str, name: str, values: list[int | str]) -> Any:
    """Finds or creates the pool of this type in the set. Generators select by type, so a set has one pool per type."""
    for pool in list_items(client, "/service-pools", {"servicePoolSetId": set_id}):
        if pool["type"] == arguments.type:
            if pool["name"] != name:
                raise CommandRefused(
                    f"the agent already has pool {pool['name']!r} of type {arguments.type}; add the values to that pool"
                )
            return pool
    kind = "integer" if isinstance(values[0], int) else "string"
    body = {"name": name, "type": arguments.type, "propertyType": kind, "generatorType": "list"}
    created = client.post("/service-pools", {**body, "servicePoolSetId": set_id})
    _print_note(arguments, f"Created pool {name} of type {arguments.type}.")
    return created


def _print_note(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json:
        print(printable(text))


def _row(pool: Mapping[str, Any], set_name: str) -> list[Cell]:
    usage = pool["usage"]
    kind = f"{pool['propertyType']}, {(pool.get('generatorConfig') or {}).get('cidr') or pool['generatorType']}"
    return [
        pool["name"],
        pool["type"],
        set_name,
        kind,
        _usage_cell(usage),
        *(str(usage[key]) for key in ("total", "allocated", "free")),
    ]


def _usage_cell(usage: Mapping[str, Any]) -> Cell:
    share = usage["allocated"] / usage["total"] if usage["total"] else 1.0
    colour = BAD if not usage["free"] else BUSY if share >= NEARLY_FULL else GOOD
    return (progress_bar(share), colour)


def _owner_names(client: Client, values: list[Any]) -> dict[str, str]:
    ids = sorted({each["serviceId"] for each in values if each.get("serviceId")})
    names: dict[str, str] = {}
    for start in range(0, len(ids), BATCH_SIZE):
        found = list_items(client, "/services", {"id": ids[start : start + BATCH_SIZE]})
        names |= {each["id"]: each["name"] for each in found}
    return names


def _show(arguments: argparse.Namespace, pool: Mapping[str, Any], set_name: str, owners: Mapping[str, str]) -> int:
    if arguments.json:
        print_json(pool)
        return 0
    print_table(HEADERS, [_row(pool, set_name)])
    POOLS.print_values(pool["values"], owners)
    if len(pool["values"]) == MAX_SHOWN:
        print(f"Only the first {MAX_SHOWN} values are shown.")
    return 0

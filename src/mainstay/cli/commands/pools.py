"""Lists pools and their usage; with a name, lists the values of a pool and the services that use them.

`pools add POOL --type POOL-TYPE --agent AGENT --value VALUE` adds values for the services of an agent; each value is used
by one service at a time: `mainstay pools add ports --type appPort --agent host1 --value 8100-8199`. A VALUE may be a range
of whole numbers (8100-8199) or addresses (10.0.0.10-10.0.0.12), or a network (10.0.0.0/28: its host addresses). It creates
the pool set of the agent and the pool if they are missing. Agents may share a pool set."""

from __future__ import annotations

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import connected, find_named, list_items, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, GOOD, age, format_value, print_table, progress_bar
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.views.tables import Cell

SUMMARY = "list pools and their usage, show or fill one"
MAX_SHOWN = 500
BATCH_SIZE = 50
NEARLY_FULL = 0.8
MAX_VALUES = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="POOL", nargs="*", help="show the values of this pool; `add POOL` adds values"
    )
    parser.add_argument("--type", metavar="POOL-TYPE", help="add: poolType that generators use")
    parser.add_argument("--agent", metavar="AGENT", help="add: agent whose services use the values")
    parser.add_argument(
        "--value",
        metavar="VALUE",
        action="append",
        default=[],
        help="add: a value, a range FIRST-LAST of whole numbers or addresses, or a network ADDRESS/LENGTH",
    )
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    name = _pool_name(arguments)
    with connected(arguments) as client:
        if name is not None:
            pool = (
                _add(client, arguments, name)
                if len(arguments.words) == 2
                else find_named(client, "/service-pools", "pool", name)
            )
            values = list_items(client, "/service-pool-values", {"servicePoolId": pool["id"]}, MAX_SHOWN)
            usage = client.get(f"/service-pools/{pool['id']}/usage")
            set_name = client.get(f"/service-pool-sets/{pool['servicePoolSetId']}")["name"]
            owners = _owner_names(client, values)
            return _show(arguments, {**pool, "usage": usage, "values": values}, set_name, owners)
        sets = {each["id"]: each["name"] for each in list_items(client, "/service-pool-sets")}
        pools = [
            {**each, "usage": client.get(f"/service-pools/{each['id']}/usage")}
            for each in list_items(client, "/service-pools", {"sort": "name"}, MAX_SHOWN)
        ]
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(pools)
    elif pools:
        print_table(
            ("POOL", "TYPE", "SET", "VALUES", "USED", "TOTAL", "ALLOCATED", "FREE"),
            [_row(each, sets.get(each["servicePoolSetId"], "")) for each in pools],
        )
    else:
        print("There is no pool yet. Only its provider and admins see a pool; `mainstay pools add POOL` creates one.")
    return 0


def _pool_name(arguments: argparse.Namespace) -> str | None:
    """The name of the pool; None lists all pools."""
    if arguments.words == ["add"]:
        raise CommandRefused("name the pool: mainstay pools add POOL")
    is_add = len(arguments.words) == 2 and arguments.words[0] == "add"
    if len(arguments.words) > 1 and not is_add:
        raise CommandRefused("use `mainstay pools`, `mainstay pools POOL` or `mainstay pools add POOL`")
    if not is_add and (arguments.type or arguments.agent or arguments.value):
        raise CommandRefused("--type, --agent and --value are options of `mainstay pools add POOL`")
    if is_add and not (arguments.type and arguments.agent and arguments.value):
        raise CommandRefused("`pools add` needs --value VALUE, --type POOL-TYPE and --agent AGENT")
    return arguments.words[-1] if arguments.words else None


def _add(client: Client, arguments: argparse.Namespace, name: str) -> Any:
    """Adds the missing values to the pool and returns it."""
    values = _read_values(arguments.value)
    agent = find_named(client, "/agents", "agent", arguments.agent)
    set_id = agent["servicePoolSetId"] or _create_set(client, arguments, agent)
    pool = _find_pool(client, arguments, set_id, name, values)
    if pool["propertyType"] == "string":
        values = [str(value) for value in values]
    known = {
        format_value(each["value"])
        for each in list_items(client, "/service-pool-values", {"servicePoolId": pool["id"]})
    }
    for value in values:
        if format_value(value) not in known:
            body = {"name": format_value(value), "value": value, "servicePoolId": pool["id"]}
            client.post("/service-pool-values", body)
    return pool


def _read_values(words: list[str]) -> list[int | str]:
    """Expands ranges and networks. Returns strings if any value is not a whole number."""
    found: list[int | str] = []
    for word in words:
        found += _expand(word)
        if len(found) > MAX_VALUES:
            raise CommandRefused(f"too many values: at most {MAX_VALUES} per command")
    return found if all(isinstance(value, int) for value in found) else [str(value) for value in found]


def _expand(word: str) -> list[int | str]:
    first, dash, last = word.partition("-")
    low, high = (parse_count(part, 0, LARGEST_NUMBER) for part in (first, last))
    if low is not None and high is not None:
        return list(_bounded_range(word, low, high))
    if dash and _is_address(first) and _is_address(last):
        from ipaddress import ip_address

        start, end = ip_address(first), ip_address(last)
        if start.version != end.version:
            raise CommandRefused(f"--value {word} mixes IPv4 and IPv6")
        return [str(start + offset) for offset in _bounded_range(word, 0, int(end) - int(start))]
    if "/" in word and _is_address(word.partition("/")[0]):
        return _hosts_of(word)
    return [word if low is None or dash else low]


def _bounded_range(word: str, low: int, high: int) -> range:
    if not 0 <= high - low < MAX_VALUES:
        raise CommandRefused(f"--value {word} is not a range of 1 to {MAX_VALUES} values")
    return range(low, high + 1)


def _hosts_of(word: str) -> list[int | str]:
    from ipaddress import ip_network
    from itertools import islice

    try:
        network = ip_network(word)
    except ValueError as error:
        raise CommandRefused(f"--value {word} is not a network: {error}") from None
    hosts: list[int | str] = [str(address) for address in islice(network.hosts(), MAX_VALUES + 1)]
    if len(hosts) > MAX_VALUES:
        raise CommandRefused(f"--value {word} has more than {MAX_VALUES} addresses; use a pool of type subnet")
    return hosts


def _is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
        from mainstay.cli.local_run import print_json

        print_json(pool)
        return 0
    print_table(
        ("POOL", "TYPE", "SET", "VALUES", "USED", "TOTAL", "ALLOCATED", "FREE"),
        [_row(pool, set_name)],
    )
    if pool["values"]:
        print()
        print_table(
            ("VALUE", "NAME", "SERVICE", "PROPERTY", "SINCE"), [_value_row(each, owners) for each in pool["values"]]
        )
    if len(pool["values"]) == MAX_SHOWN:
        print(f"Only the first {MAX_SHOWN} values are shown.")
    return 0


def _value_row(value: Mapping[str, Any], owners: Mapping[str, str]) -> list[Cell]:
    owner = value.get("serviceId")
    if not owner:
        return [format_value(value["value"]), value["name"], ("free", GOOD), "", ""]
    since = age(value.get("allocatedAt"))
    return [
        format_value(value["value"]),
        value["name"],
        owners.get(owner, short_id(owner)),
        value.get("propertyName") or "",
        since,
    ]

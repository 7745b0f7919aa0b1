"""Lists pools and how full they are; with a name, the values of one and whose they are.

`pools add POOL --type POOL-TYPE --agent AGENT --value VALUE` gives an agent values, each for one service at a time:
`mainstay pools add ports --type appPort --agent host1 --value 8100-8199`. It makes what is missing (the pool set of the
agent, the pool) and adds the values that are not there yet; agents may share a pool set."""

from __future__ import annotations

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import connected, find_named, short, some
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, GOOD, age, bar, plain, print_table
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.views.tables import Cell

SUMMARY = "list pools and how full they are, show or fill one"
SHOWN = 500
AT_ONCE = 50
NEARLY_FULL = 0.8
MOST_VALUES = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="POOL", nargs="*", help="show the values of this one; `add POOL` adds some")
    parser.add_argument("--type", metavar="POOL-TYPE", help="add: what generators call it, their poolType")
    parser.add_argument("--agent", metavar="AGENT", help="add: the agent whose services take the values")
    parser.add_argument(
        "--value", metavar="VALUE", action="append", default=[], help="add: a value, or whole numbers as FIRST-LAST"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    name = _read_words(arguments)
    with connected(arguments) as client:
        if name is not None:
            pool = (
                _add(client, arguments, name)
                if len(arguments.words) == 2
                else find_named(client, "/service-pools", "pool", name)
            )
            values = some(client, "/service-pool-values", {"servicePoolId": pool["id"]}, SHOWN)
            usage = client.get(f"/service-pools/{pool['id']}/usage")
            set_name = client.get(f"/service-pool-sets/{pool['servicePoolSetId']}")["name"]
            owners = _owner_names(client, values)
            return _show(arguments, {**pool, "usage": usage, "values": values}, set_name, owners)
        sets = {each["id"]: each["name"] for each in some(client, "/service-pool-sets")}
        pools = [
            {**each, "usage": client.get(f"/service-pools/{each['id']}/usage")}
            for each in some(client, "/service-pools", {"sort": "name"}, SHOWN)
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
        print(
            "There is no pool here; those of a provider are seen by the provider and by admins. "
            "`mainstay pools add POOL` makes one."
        )
    return 0


def _read_words(arguments: argparse.Namespace) -> str | None:
    """The name of the pool, None for all of them."""
    if arguments.words == ["add"]:
        raise CommandRefused("say which: mainstay pools add POOL")
    adds = len(arguments.words) == 2 and arguments.words[0] == "add"
    if len(arguments.words) > 1 and not adds:
        raise CommandRefused("use `mainstay pools`, `mainstay pools POOL` or `mainstay pools add POOL`")
    if not adds and (arguments.type or arguments.agent or arguments.value):
        raise CommandRefused("--type, --agent and --value go with `mainstay pools add POOL`")
    if adds and not (arguments.type and arguments.agent and arguments.value):
        raise CommandRefused(
            "say which values, for what and for whom: --value VALUE, --type POOL-TYPE and --agent AGENT"
        )
    return arguments.words[-1] if arguments.words else None


def _add(client: Client, arguments: argparse.Namespace, name: str) -> Any:
    """The pool, with the values that it had and those that are given."""
    values = _read_values(arguments.value)
    agent = find_named(client, "/agents", "agent", arguments.agent)
    set_id = agent["servicePoolSetId"] or _make_set(client, arguments, agent)
    pool = _find_pool(client, arguments, set_id, name, values)
    if pool["propertyType"] == "string":
        values = [str(value) for value in values]
    known = {plain(each["value"]) for each in some(client, "/service-pool-values", {"servicePoolId": pool["id"]})}
    for value in values:
        if plain(value) not in known:
            body = {"name": plain(value), "value": value, "servicePoolId": pool["id"]}
            client.post("/service-pool-values", body)
    return pool


def _read_values(words: list[str]) -> list[int | str]:
    """Whole numbers where all are; otherwise texts as they are."""
    found: list[int | str] = []
    for word in words:
        first, last = (parse_count(part, 0, LARGEST_NUMBER) for part in word.partition("-")[::2])
        if first is not None and last is not None:
            if not 0 <= last - first < MOST_VALUES:
                raise CommandRefused(f"--value {word} is no range of 1 to {MOST_VALUES} numbers")
            found += range(first, last + 1)
        else:
            number = parse_count(word, 0, LARGEST_NUMBER)
            found.append(word if number is None else number)
    if len(found) > MOST_VALUES:
        raise CommandRefused(f"at most {MOST_VALUES} values at a time")
    return found if all(isinstance(value, int) for value in found) else [str(value) for value in found]


def _make_set(client: Client, arguments: argparse.Namespace, agent: Mapping[str, Any]) -> str:
    made = client.post("/service-pool-sets", {"name": agent["name"], "providerId": agent["providerId"]})
    client.call("PATCH", f"/agents/{agent['id']}", {"servicePoolSetId": made["id"]})
    _say(arguments, f"Made pool set {made['name']}, and gave it to agent {agent['name']}.")
    return str(made["id"])


def _find_pool(client: Client, arguments: argparse.Namespace, set_id: str, name: str, values: list[int | str]) -> Any:
    """The pool of this type in the set; a generator knows only the type, so a second one would not be found."""
    for pool in some(client, "/service-pools", {"servicePoolSetId": set_id}):
        if pool["type"] == arguments.type:
            if pool["name"] != name:
                raise CommandRefused(
                    f"the agent's pool of type {arguments.type} is called {pool['name']!r}; add to that one"
                )
            return pool
    kind = "integer" if isinstance(values[0], int) else "string"
    body = {"name": name, "type": arguments.type, "propertyType": kind, "generatorType": "list"}
    made = client.post("/service-pools", {**body, "servicePoolSetId": set_id})
    _say(arguments, f"Made pool {name} of type {arguments.type}.")
    return made


def _say(arguments: argparse.Namespace, text: str) -> None:
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
    return (bar(share), colour)


def _owner_names(client: Client, values: list[Any]) -> dict[str, str]:
    ids = sorted({each["serviceId"] for each in values if each.get("serviceId")})
    names: dict[str, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        found = some(client, "/services", {"id": ids[start : start + AT_ONCE]})
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
    if len(pool["values"]) == SHOWN:
        print(f"Only the first {SHOWN} are shown.")
    return 0


def _value_row(value: Mapping[str, Any], owners: Mapping[str, str]) -> list[Cell]:
    owner = value.get("serviceId")
    if not owner:
        return [plain(value["value"]), value["name"], ("free", GOOD), "", ""]
    since = age(value.get("allocatedAt"))
    return [
        plain(value["value"]),
        value["name"],
        owners.get(owner, short(owner)),
        value.get("propertyName") or "",
        since,
    ]

"""Lists pools and how full they are; with a name, the values of one and whose they are."""

from __future__ import annotations

from mainstay.cli.remote import connected, find_named, short, some
from mainstay.cli.tables import BAD, BUSY, GOOD, age, bar, plain, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.tables import Cell

SUMMARY = "list pools and how full they are, or show one"
SHOWN = 500
AT_ONCE = 50
NEARLY_FULL = 0.8


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="POOL", nargs="?", help="show the values of this one")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        if arguments.name:
            pool = find_named(client, "/service-pools", "pool", arguments.name)
            values = some(client, "/service-pool-values", {"servicePoolId": pool["id"]}, SHOWN)
            usage = client.get(f"/service-pools/{pool['id']}/usage")
            set_name = client.get(f"/service-pool-sets/{pool['servicePoolSetId']}")["name"]
            owners = owner_names(client, values)
            return show(arguments, {**pool, "usage": usage, "values": values}, set_name, owners)
        sets = {each["id"]: each["name"] for each in some(client, "/service-pool-sets")}
        pools = [
            {**each, "usage": client.get(f"/service-pools/{each['id']}/usage")}
            for each in some(client, "/service-pools", {"sort": "name"}, SHOWN)
        ]
    if arguments.json:
        from mainstay.cli.runs import print_json

        print_json(pools)
    elif pools:
        print_table(
            ("POOL", "TYPE", "SET", "VALUES", "USED", "TOTAL", "ALLOCATED", "FREE"),
            [row(each, sets.get(each["servicePoolSetId"], "")) for each in pools],
        )
    else:
        print("There is no pool here; those of a provider are seen by the provider and by admins.")
    return 0


def row(pool: Mapping[str, Any], set_name: str) -> list[Cell]:
    usage = pool["usage"]
    kind = f"{pool['propertyType']}, {(pool.get('generatorConfig') or {}).get('cidr') or pool['generatorType']}"
    return [
        pool["name"],
        pool["type"],
        set_name,
        kind,
        usage_cell(usage),
        *(str(usage[key]) for key in ("total", "allocated", "free")),
    ]


def usage_cell(usage: Mapping[str, Any]) -> Cell:
    share = usage["allocated"] / usage["total"] if usage["total"] else 1.0
    colour = BAD if not usage["free"] else BUSY if share >= NEARLY_FULL else GOOD
    return (bar(share), colour)


def owner_names(client: Client, values: list[Any]) -> dict[str, str]:
    ids = sorted({each["serviceId"] for each in values if each.get("serviceId")})
    names: dict[str, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        found = some(client, "/services", {"id": ids[start : start + AT_ONCE]})
        names |= {each["id"]: each["name"] for each in found}
    return names


def show(
    arguments: argparse.Namespace, pool: Mapping[str, Any], set_name: str, owners: Mapping[str, str]
) -> int:
    if arguments.json:
        from mainstay.cli.runs import print_json

        print_json(pool)
        return 0
    print_table(
        ("POOL", "TYPE", "SET", "VALUES", "USED", "TOTAL", "ALLOCATED", "FREE"),
        [row(pool, set_name)],
    )
    if pool["values"]:
        print()
        print_table(
            ("VALUE", "NAME", "SERVICE", "PROPERTY", "SINCE"), [value_row(each, owners) for each in pool["values"]]
        )
    if len(pool["values"]) == SHOWN:
        print(f"Only the first {SHOWN} are shown.")
    return 0


def value_row(value: Mapping[str, Any], owners: Mapping[str, str]) -> list[Cell]:
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

"""Lists service groups: how a consumer groups its services. An agent works on one service of a group at a time.

`groups add NAME` creates a group, `groups rename` renames it, `groups remove` removes a group without living services.
An order without a group goes to the group `default` of its consumer, which the first such order creates."""

from __future__ import annotations

from mainstay.cli.main import CommandRefused, print_json
from mainstay.cli.remote.connection import find_named, find_owner, list_items, name_of, short_id
from mainstay.cli.remote.removal import print_outcome, removal_verb
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.tables import age, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from mainstay.agent.client import Client

SUMMARY = "list, add, rename or remove service groups"
GROUP = "order"
PATH = "/service-groups"


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        (
            Verb("add", "add a group", _add, _configure_add),
            Verb("rename", "rename a group", _rename, _configure_rename, of="GROUP"),
            removal_verb(
                PATH,
                "GROUP",
                "remove a group without living services",
                "Its deleted services are removed from the lists too.",
            ),
        ),
    )


def _configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the group")
    parser.add_argument(
        "--for", dest="consumer", metavar="PARTICIPANT", help="consumer of the group; required for an admin"
    )


def _configure_rename(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("new_name", metavar="NAME", help="new name")


def run(arguments: argparse.Namespace) -> int:
    return run_verb(arguments, _list_groups)


def _list_groups(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "name"})
    if arguments.json:
        print_json(found)
    elif found:
        rows = [
            [each["name"], name_of(each, "consumer"), age(each["createdAt"]), short_id(each["id"])] for each in found
        ]
        print_table(("GROUP", "CONSUMER", "AGE", "ID"), rows)
    else:
        print("There is no group yet; the first order creates the group `default`.")
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> int:
    consumer_id = find_owner(client, arguments.consumer, "consumer", "--for")
    known = list_items(client, PATH, {"name": arguments.name, "consumerId": consumer_id})
    if any(each["name"] == arguments.name for each in known):
        raise CommandRefused(f"group {arguments.name!r} already exists")
    created = client.post(PATH, {"name": arguments.name, "consumerId": consumer_id})
    return print_outcome(arguments, created, f"Created group {created['name']} ({created['id']}).")


def _rename(client: Client, arguments: argparse.Namespace) -> int:
    group = find_named(client, PATH, arguments.name)
    changed = client.call("PATCH", f"{PATH}/{group['id']}", {"name": arguments.new_name})
    return print_outcome(arguments, changed, f"Renamed group {group['name']} to {changed['name']}.")

"""Lists service options: the values that a provider offers for a property, such as its images or sizes.

`options add OPTION-TYPE NAME VALUE` adds an option, VALUE as JSON or text; `options change` changes it, `options remove`
removes it. A disabled option is not offered; services that use it stay. An admin names the provider with --provider.
Option types are shared by all providers and written by admins: `options types`, `add-type`, `change-type`, `remove-type`."""

from __future__ import annotations

from mainstay.cli.main import CommandRefused, print_json
from mainstay.cli.remote.connection import find_named, find_owner, list_items, short_id
from mainstay.cli.remote.property_options import parse_untyped
from mainstay.cli.remote.removal import add_yes_option, print_outcome, removal_verb, remove
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.tables import DIM, GOOD, age, format_value, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from mainstay.agent.client import Client

SUMMARY = "list, add, change or remove service options and their types"
GROUP = "operate"
PATH = "/service-options"
TYPES = "/service-option-types"


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        (
            Verb("add", "add an option", _add, _configure_add),
            Verb("change", "change an option", _change, _configure_change, of="OPTION"),
            removal_verb(PATH, "OPTION", "remove an option", "Services that use it stay."),
            Verb("types", "list the option types", _list_types),
            Verb("add-type", "add an option type", _add_type, _configure_add_type),
            Verb("change-type", "change an option type", _change_type, _configure_change_type),
            Verb("remove-type", "remove an option type without options", _remove_type, _configure_type_removal),
        ),
    )


def _configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="OPTION-TYPE", help="type that `serviceOption` validators name")
    parser.add_argument("name", metavar="NAME", help="name that customers see")
    parser.add_argument("value", metavar="VALUE", help="value of the property: JSON, or text")
    parser.add_argument("--provider", metavar="PARTICIPANT", help="provider of the option; required for an admin")
    parser.add_argument("--order", metavar="N", type=int, help="position in lists (default 0)")
    parser.add_argument("--disabled", action="store_true", help="do not offer it yet")


def _configure_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", dest="new_name", metavar="NAME", help="new name")
    parser.add_argument("--value", metavar="VALUE", help="new value: JSON, or text")
    parser.add_argument("--order", metavar="N", type=int, help="position in lists")
    offered = parser.add_mutually_exclusive_group()
    offered.add_argument("--enable", dest="enabled", action="store_true", default=None, help="offer it")
    offered.add_argument("--disable", dest="enabled", action="store_false", default=None, help="do not offer it")


def _configure_add_type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="OPTION-TYPE", help="letters, digits and underscores")
    parser.add_argument("--name", metavar="NAME", help="name that customers see (default: the type)")
    parser.add_argument("--description", metavar="TEXT", default="", help="what the options are for")


def _configure_change_type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="OPTION-TYPE", help="type, name or id")
    parser.add_argument("--type", dest="new_type", metavar="OPTION-TYPE", help="new type")
    parser.add_argument("--name", metavar="NAME", help="new name")
    parser.add_argument("--description", metavar="TEXT", help="new description")


def _configure_type_removal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="OPTION-TYPE", help="type, name or id")
    add_yes_option(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_verb(arguments, _list_options)


def _list_options(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "displayOrder"})
    if arguments.json:
        print_json(found)
        return 0
    if not found:
        print("There is no option yet; `mainstay options add OPTION-TYPE NAME VALUE` adds one.")
        return 0
    types = {each["id"]: each["type"] for each in list_items(client, TYPES)}
    providers = {each["id"]: each["name"] for each in list_items(client, "/participants")}
    rows = [
        [
            each["name"],
            types.get(each["serviceOptionTypeId"], ""),
            format_value(each["value"]),
            ("enabled", GOOD) if each["enabled"] else ("disabled", DIM),
            providers.get(each["providerId"], short_id(each["providerId"])),
            short_id(each["id"]),
        ]
        for each in sorted(found, key=lambda each: str(types.get(each["serviceOptionTypeId"])))
    ]
    print_table(("OPTION", "TYPE", "VALUE", "OFFERED", "PROVIDER", "ID"), rows)
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> int:
    body = {
        "providerId": find_owner(client, arguments.provider, "provider", "--provider"),
        "serviceOptionTypeId": _find_type(client, arguments.type)["id"],
        "name": arguments.name,
        "value": parse_untyped(arguments.value, "VALUE"),
        "enabled": not arguments.disabled,
        "displayOrder": arguments.order or 0,
    }
    created = client.post(PATH, body)
    return print_outcome(arguments, created, f"Added option {created['name']} ({created['id']}).")


def _change(client: Client, arguments: argparse.Namespace) -> int:
    given = {"name": arguments.new_name, "displayOrder": arguments.order, "enabled": arguments.enabled}
    body = {name: value for name, value in given.items() if value is not None}
    if arguments.value is not None:
        body["value"] = parse_untyped(arguments.value, "--value")
    if not body:
        raise CommandRefused("nothing to change: use --name, --value, --order, --enable or --disable")
    option = find_named(client, PATH, arguments.name)
    changed = client.call("PATCH", f"{PATH}/{option['id']}", body)
    return print_outcome(arguments, changed, f"Changed option {changed['name']}.")


def _find_type(client: Client, word: str) -> Any:
    """By its type, which is unique, else by its name or id."""
    found = list_items(client, TYPES, {"type": word})
    return found[0] if len(found) == 1 else find_named(client, TYPES, word)


def _list_types(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, TYPES, {"sort": "type"})
    if arguments.json:
        print_json(found)
    elif found:
        print_table(
            ("OPTION TYPE", "NAME", "DESCRIPTION", "AGE", "ID"),
            [
                [each["type"], each["name"], each["description"], age(each["createdAt"]), short_id(each["id"])]
                for each in found
            ],
        )
    else:
        print("There is no option type yet; `mainstay options add-type OPTION-TYPE` adds one.")
    return 0


def _add_type(client: Client, arguments: argparse.Namespace) -> int:
    body = {"type": arguments.type, "name": arguments.name or arguments.type, "description": arguments.description}
    created = client.post(TYPES, body)
    return print_outcome(arguments, created, f"Added option type {created['type']} ({created['id']}).")


def _change_type(client: Client, arguments: argparse.Namespace) -> int:
    given = {"type": arguments.new_type, "name": arguments.name, "description": arguments.description}
    body = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise CommandRefused("nothing to change: use --type, --name or --description")
    found = _find_type(client, arguments.type)
    changed = client.call("PATCH", f"{TYPES}/{found['id']}", body)
    return print_outcome(arguments, changed, f"Changed option type {changed['type']}.")


def _remove_type(client: Client, arguments: argparse.Namespace) -> int:
    return remove(client, arguments, TYPES, _find_type(client, arguments.type))

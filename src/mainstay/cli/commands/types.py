"""Lists the service types; with a name, shows the properties, lifecycle and agents of one."""

from __future__ import annotations

import sys

from mainstay.cli.remote.connection import connected, find_type, list_items
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.service_types import (
    allowed_text,
    default_text,
    is_secret,
    lifecycle_of,
    members_of,
    set_by,
    state_names,
    type_of,
    updatable_text,
    walk_properties,
)
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BAD, BOLD, DIM, GOOD, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.cli.views.tables import Cell

SUMMARY = "list service types, or show one"
DIGEST_SHOWN = 19


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TYPE", nargs="?", help="show this service type")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        catalogue = client.get("/catalogue")
        found = (
            [find_type(client, arguments.name)]
            if arguments.name
            else list_items(client, "/service-types", {"sort": "name"})
        )
    offers = {item["serviceType"]["id"]: item["offers"] for item in catalogue["items"]}
    if arguments.json:
        from mainstay.cli.local_run import print_json

        documents = [{**each, "offers": offers.get(each["id"], [])} for each in found]
        print_json(documents[0] if arguments.name else documents)
    elif arguments.name:
        _show(found[0], offers.get(found[0]["id"], []))
    elif found:
        _list_types(found, offers)
    else:
        print("There is no service type yet; an admin adds one with `mainstay blueprint push`.")
    return 0


def _list_types(found: list[Any], offers: Mapping[str, list[Any]]) -> None:
    """Shows the providers only where an order may have to name one."""
    headings = ["TYPE", "PROPERTIES", "STATES", "AGENTS", "BLUEPRINT"]
    rows = [_row(each, offers.get(each["id"], [])) for each in found]
    if any(len(offers.get(each["id"], [])) > 1 for each in found):
        headings.append("PROVIDERS")
        for row, each in zip(rows, found, strict=True):
            row.append(", ".join(offer["provider"]["name"] for offer in offers.get(each["id"], [])))
    print_table(tuple(headings), rows)


def _row(service_type: Mapping[str, Any], offers: list[Any]) -> list[Cell]:
    members = members_of(service_type)
    names = "any" if members is None else ", ".join(members) or "none"
    states = ", ".join(state_names(lifecycle_of(service_type)))
    digest = service_type.get("blueprintDigest")
    return [service_type["name"], names, states, _agents_cell(offers), str(digest)[:DIGEST_SHOWN] if digest else ""]


def _agents_cell(offers: list[Any]) -> Cell:
    """Connected agents of all agents that serve the type."""
    agents = [agent for offer in offers for agent in offer["agents"]]
    connected_count = sum(agent["status"] == "Connected" for agent in agents)
    return (f"{connected_count}/{len(agents)}", GOOD if connected_count else BAD)


def _show(service_type: Mapping[str, Any], offers: list[Any]) -> None:
    paint = Palette(sys.stdout).paint
    print(f"{paint(printable(service_type['name']), BOLD)}  {paint(service_type['id'], DIM)}")
    if service_type.get("blueprintDigest"):
        print(f"blueprint {printable(str(service_type['blueprintDigest']))}")
    members = members_of(service_type)
    print()
    if members is None:
        print("Accepts any properties.")
    elif not members:
        print("Has no properties.")
    else:
        print_table(
            ("PROPERTY", "TYPE", "REQUIRED", "SET BY", "DEFAULT", "ALLOWED", "UPDATABLE"),
            [_property_row(path, definition) for path, definition in walk_properties(members)],
        )
    lifecycle = lifecycle_of(service_type)
    print(f"\n{paint('states', BOLD)}   {', '.join(_state_labels(lifecycle))}")
    print(paint("actions", BOLD))
    for line in _action_lines(lifecycle):
        print(f"  {line}")
    print(paint("offered by", BOLD) if offers else "No agent serves this type yet.")
    for offer in offers:
        names = ", ".join(f"{agent['name']} ({agent['status']})" for agent in offer["agents"])
        print(f"  {printable(offer['provider']['name'])}: {printable(names)}")


def _property_row(path: str, definition: Mapping[str, Any]) -> list[Cell]:
    kind = type_of(definition) + (", secret" if is_secret(definition) else "")
    required = "yes" if definition.get("required") else "no"
    return [
        path,
        kind,
        required,
        set_by(definition),
        default_text(definition),
        allowed_text(definition),
        updatable_text(definition),
    ]


def _state_labels(lifecycle: Mapping[str, Any]) -> list[str]:
    roles = {"terminalStates": "terminal", "runningStates": "running"}
    labels = []
    for name in state_names(lifecycle):
        notes = ["initial"] if name == lifecycle.get("initialState") else []
        notes += [word for key, word in roles.items() if name in (lifecycle.get(key) or ())]
        labels.append(printable(name) + (f" ({', '.join(notes)})" if notes else ""))
    return labels


def _action_lines(lifecycle: Mapping[str, Any]) -> list[str]:
    actions = lifecycle.get("actions") or ()
    width = max((len(printable(each["name"])) for each in actions), default=0)
    lines = []
    for action in actions:
        head = printable(action["name"]).ljust(width)
        for transition in action.get("transitions") or ():
            line = f"{head}  {printable(transition['from'])} → {printable(transition['to'])}"
            if transition.get("onError"):
                pattern = transition.get("onErrorRegexp")
                line += f"  on failure{f' matching {printable(pattern)}' if pattern else ''}"
            lines.append(line)
            head = " " * width
    return lines

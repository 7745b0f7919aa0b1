"""Lists the service types; with a name, shows the properties, lifecycle and agents of one.

Admins write types without a blueprint from a file, as `mainstay type check` reads it: `types add FILE`, `types change FILE`.
A change is refused if living services would not fit it: --dry-run names them, --force changes the type even so. The type
of a blueprint changes with `mainstay blueprint push`. `types remove TYPE` removes a type without living services."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.documents import read_type_document
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import find_named, find_type, list_items, short_id
from mainstay.cli.remote.removal import add_yes_option, confirm, print_outcome, removal_verb
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
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.run_display import Palette, printable
from mainstay.cli.views.tables import BAD, BOLD, DIM, GOOD, Cell, print_table

SUMMARY = "list service types; show, add, change or remove one"
GROUP = "order"
PATH = "/service-types"
DIGEST_SHOWN = 19
EFFECTS = {"sealedSecrets": "plain values were sealed", "deletedSecrets": "secrets were deleted"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        _list_all,
        Verb("show", "show the properties, lifecycle and agents of a type", _show_named, of="TYPE"),
        Verb("add", "add a type from a file", _add, _configure_file),
        Verb("change", "change a type to the definition in a file", _change, _configure_change),
        removal_verb(
            PATH,
            "TYPE",
            "remove a type without living services",
            "Its deleted services are removed from the lists too.",
        ),
        shown="show",
    )


run = run_verb


def _configure_file(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "file", "FILE", "service type (YAML or JSON; - for standard input)")
    add_argument(parser, "--name", "NAME", "name of the type (default: `name` in the file)")


def _configure_change(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "file", "FILE", "service type (YAML or JSON; - for standard input)")
    add_argument(parser, "--type", "TYPE", "type to change (default: `name` in the file)")
    add_switch(parser, "--dry-run", "change nothing; show which services would not fit")
    add_switch(
        parser,
        "--force",
        "change it even if services do not fit: values that become secret are sealed, secrets that become plain"
        " are deleted",
    )
    add_yes_option(parser)


def _list_all(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "name"})
    offers = _offers(client)
    if arguments.json:
        print_json([{**each, "offers": offers.get(each["id"], [])} for each in found])
    elif found:
        _list_types(found, offers)
    else:
        print("There is no service type yet; an admin adds one with `mainstay blueprint push`.")
    return 0


def _offers(client: Client) -> dict[str, list[Any]]:
    return {item["serviceType"]["id"]: item["offers"] for item in client.get("/catalogue")["items"]}


def _show_named(client: Client, arguments: argparse.Namespace) -> int:
    found = find_type(client, arguments.name)
    offers = _offers(client).get(found["id"], [])
    if arguments.json:
        print_json({**found, "offers": offers})
    else:
        _show(found, offers)
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> int:
    document = read_type_document(arguments.file)
    name = arguments.name or document.get("name")
    if not name:
        raise CommandRefused(f"{arguments.file} has no `name`; name the type with --name")
    created = client.post(PATH, {**document, "name": name})
    return print_outcome(arguments, created, f"Added service type {created['name']} ({created['id']}).")


def _change(client: Client, arguments: argparse.Namespace) -> int:
    document = read_type_document(arguments.file)
    wanted = arguments.type or document.get("name")
    if not wanted:
        raise CommandRefused(f"{arguments.file} has no `name`; name the type with --type")
    found = find_named(client, PATH, str(wanted))
    path = f"{PATH}/{found['id']}"
    forecast = client.call("PATCH", path, document, query={"dryRun": "true"})
    misfits = forecast["misfits"]
    if arguments.dry_run:
        return _print_forecast(client, arguments, forecast)
    if arguments.force and misfits:
        confirm(arguments, f"{_misfit_text(client, misfits)}\nChange service type {found['name']} even so?")
    changed = client.call("PATCH", path, document, query={"force": str(arguments.force).lower()})
    effects = [f"{changed[key]} {words}." for key, words in EFFECTS.items() if changed.get(key)]
    return print_outcome(arguments, changed, " ".join([f"Changed service type {changed['name']}.", *effects]))


def _print_forecast(client: Client, arguments: argparse.Namespace, forecast: Mapping[str, Any]) -> int:
    misfits = forecast["misfits"]
    lines = [_misfit_text(client, misfits)] if misfits else ["All living services fit the new definition."]
    lines += [
        f"With --force {forecast[key]} {words.replace('were', 'would be')}."
        for key, words in EFFECTS.items()
        if forecast.get(key)
    ]
    print_outcome(arguments, forecast, "\n".join([*lines, "Dry run, nothing was changed."]))
    return 1 if misfits else 0


def _misfit_text(client: Client, misfits: list[Any]) -> str:
    ids = [each["serviceId"] for each in misfits]
    names = {each["id"]: each["name"] for each in list_items(client, "/services", {"id": ids})}
    head = "1 service does not fit" if len(misfits) == 1 else f"{len(misfits)} services do not fit"
    lines = [
        f"  {printable(names.get(each['serviceId'], ''))} ({short_id(each['serviceId'])}): {each['message']}"
        f"{'' if each['forceable'] else '; --force does not override this'}"
        for each in misfits
    ]
    return "\n".join([f"{head} the new definition:", *lines])


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

"""Lists agents. `agents add NAME --serves TYPE` adds an agent: it creates the missing objects (provider participant,
agent type, agent) and prints the enrollment code for the host. `agents code NAME` creates another code.
A code works once and expires after 15 minutes."""

from __future__ import annotations

from mainstay.agent.client import is_loopback, is_unencrypted
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import connected, find_named, find_type, list_items, print_warning
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, DIM, GOOD, age, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.views.tables import Cell

SUMMARY = "list agents, or add one"
PROVIDER = "operator"
MAX_NAME_LENGTH = 100
COLOURS = {"Connected": GOOD, "New": BUSY, "Disconnected": BUSY, "Error": BAD, "Disabled": DIM}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb", metavar="add|code", nargs="?", choices=("add", "code"), help="add an agent, or create a code"
    )
    parser.add_argument("name", metavar="AGENT", nargs="?", help="name of the agent")
    parser.add_argument(
        "--serves",
        metavar="TYPE",
        action="append",
        default=[],
        help="add: service types that the agent serves, separated by commas",
    )
    parser.add_argument(
        "--provider",
        metavar="PARTICIPANT",
        help=f"add: provider of the agent (default: you; for an admin {PROVIDER})",
    )
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="add: tag that orders can select")
    parser.add_argument("-q", "--quiet", action="store_true", help="add, code: print only the code")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb and not arguments.name:
        raise CommandRefused(f"name the agent: mainstay agents {arguments.verb} NAME")
    if arguments.verb == "add" and not arguments.serves:
        raise CommandRefused("name the service types of the agent: --serves TYPE; `mainstay types` lists them")
    if arguments.verb != "add" and (arguments.serves or arguments.provider or arguments.tag):
        raise CommandRefused("--serves, --provider and --tag are options of `mainstay agents add NAME`")
    with connected(arguments) as client:
        if arguments.verb is None:
            return _list_agents(client, arguments)
        agent = (
            _add(client, arguments)
            if arguments.verb == "add"
            else find_named(client, "/agents", "agent", arguments.name)
        )
        code = client.post(f"/agents/{agent['id']}/enrolment-codes")
        if arguments.json:
            from mainstay.cli.local_run import print_json

            print_json({**agent, "enrolment": {**code, "url": client.url}})
            return 0
        if arguments.quiet:
            print(code["code"])
            return 0
        print("Run this on the host within 15 minutes, as the user of the agent:\n")
        insecure = " --insecure" if is_unencrypted(client.url) else ""
        print(f"  mainstay agent enroll {client.url} {code['code']}{insecure}\n")
        if is_loopback(client.url):
            print_warning(
                f"{client.url} is a loopback address; on another host use an address that reaches this server"
            )
    return 0


def _list_agents(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, "/agents", {"sort": "name"})
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(found)
        return 0
    if not found:
        print(
            "There is no agent yet. Only its provider and admins see an agent; "
            "`mainstay agents add NAME --serves TYPE` adds one."
        )
        return 0
    providers = {each["id"]: each["name"] for each in list_items(client, "/participants")}
    types = {each["id"]: each for each in list_items(client, "/agent-types")}
    serves = {each["id"]: each["name"] for each in list_items(client, "/service-types")}
    rows = []
    for agent in found:
        served = types.get(agent["agentTypeId"], {}).get("serviceTypeIds", [])
        rows.append(_row(agent, providers, ", ".join(serves.get(each, each) for each in served)))
    print_table(("AGENT", "STATUS", "LAST SEEN", "SERVES", "TAGS", "PROVIDER"), rows)
    return 0


def _row(agent: Mapping[str, Any], providers: Mapping[str, str], serves: str) -> list[Cell]:
    last_seen = agent["lastStatusUpdate"]
    return [
        agent["name"],
        (agent["status"], COLOURS.get(agent["status"], "")),
        "never" if last_seen == agent["createdAt"] else f"{age(last_seen)} ago",
        serves,
        ", ".join(agent["tags"]),
        providers.get(agent["providerId"], agent["providerId"]),
    ]


def _add(client: Client, arguments: argparse.Namespace) -> Any:
    """Returns the new agent, or the existing agent of this name if it serves all requested types."""
    names = [name for text in arguments.serves for name in text.split(",") if name]
    wanted = {find_type(client, name)["id"] for name in names}
    provider_id = _find_provider(client, arguments)
    for agent in list_items(client, "/agents", {"name": arguments.name, "providerId": provider_id}):
        if agent["name"] == arguments.name:
            served = client.get(f"/agent-types/{agent['agentTypeId']}")["serviceTypeIds"]
            if not wanted <= set(served):
                raise CommandRefused(
                    f"agent {arguments.name!r} already exists and does not serve all of {', '.join(names)}; "
                    "as an admin, add them to its agent type: PATCH "
                    f"{client.url}/api/v1/agent-types/{agent['agentTypeId']} with serviceTypeIds"
                )
            _print_note(arguments, f"Agent {arguments.name} already exists.")
            return agent
    body = {
        "name": arguments.name,
        "providerId": provider_id,
        "agentTypeId": _find_agent_type(client, arguments, wanted, names),
        "tags": arguments.tag,
    }
    created = client.post("/agents", body)
    _print_note(arguments, f"Created agent {created['name']}, which serves {', '.join(names)}.")
    return created


def _print_note(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json and not arguments.quiet:
        print(printable(text))


def _find_provider(client: Client, arguments: argparse.Namespace) -> str:
    me = client.get("/tokens/me")
    if me["participantId"] and not arguments.provider:
        return str(me["participantId"])
    name = arguments.provider or PROVIDER
    for each in list_items(client, "/participants", {"name": name}):
        if each["name"] == name:
            return str(each["id"])
    created = client.post("/participants", {"name": name})
    _print_note(arguments, f"Created participant {name}.")
    return str(created["id"])


def _find_agent_type(client: Client, arguments: argparse.Namespace, wanted: set[str], names: list[str]) -> str:
    """Finds or creates an agent type with exactly these service types, so that the host gets no other orders.

    Only admins create agent types; a provider gets the closest existing type and a warning."""
    fitting = [each for each in list_items(client, "/agent-types") if wanted <= set(each["serviceTypeIds"])]
    closest = min(fitting, key=lambda each: len(each["serviceTypeIds"]), default=None)
    if closest is not None and set(closest["serviceTypeIds"]) == wanted:
        return str(closest["id"])
    if closest is not None and client.get("/tokens/me")["role"] != "admin":
        print_warning(
            f"agent type {closest['name']} serves more than {', '.join(names)}; only an admin can create another"
        )
        return str(closest["id"])
    name = "+".join(names)[:MAX_NAME_LENGTH]
    taken = {each["name"] for each in list_items(client, "/agent-types", {"name": name})}
    body = {"name": f"{name} of {arguments.name}"[:MAX_NAME_LENGTH] if name in taken else name}
    created = client.post("/agent-types", {**body, "serviceTypeIds": sorted(wanted)})
    _print_note(arguments, f"Created agent type {created['name']}.")
    return str(created["id"])

"""Lists agents. `agents add NAME --serves TYPE` lets a new one in: it makes what is missing (the provider participant,
an agent type that lists the service types, the agent) and prints the code to enrol the host with.
`agents code NAME` makes another code; a code is good for 15 minutes and for one host."""

from __future__ import annotations

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.addresses import is_loopback
from mainstay.cli.remote.connection import connected, find_named, find_type, print_warning, some
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, BUSY, DIM, GOOD, age, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.cli.views.tables import Cell

SUMMARY = "list agents, or let a new one in"
PROVIDER = "operator"
LONGEST_NAME = 100
COLOURS = {"Connected": GOOD, "New": BUSY, "Disconnected": BUSY, "Error": BAD, "Disabled": DIM}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="add|code", nargs="?", choices=("add", "code"), help="what to do")
    parser.add_argument("name", metavar="AGENT", nargs="?", help="the agent's name")
    parser.add_argument(
        "--serves", metavar="TYPE", action="append", default=[], help="add: service types it can serve, with commas"
    )
    parser.add_argument(
        "--provider", metavar="PARTICIPANT", help=f"add: whose agent it is; yourself, or for an admin {PROVIDER}"
    )
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="add: orders may ask for it")
    parser.add_argument("-q", "--quiet", action="store_true", help="add, code: print the code and nothing else")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb and not arguments.name:
        raise CommandRefused(f"say which: mainstay agents {arguments.verb} NAME")
    if arguments.verb == "add" and not arguments.serves:
        raise CommandRefused("say what it serves: --serves TYPE; `mainstay types` lists them")
    if arguments.verb != "add" and (arguments.serves or arguments.provider or arguments.tag):
        raise CommandRefused("--serves, --provider and --tag go with `mainstay agents add NAME`")
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
        print("Type this on the host within 15 minutes, as the user that the agent is to run as:\n")
        print(f"  mainstay agent enroll {client.url} {code['code']}\n")
        if is_loopback(client.url):
            print_warning(f"{client.url} is this machine; on another host use an address that it reaches")
    return 0


def _list_agents(client: Client, arguments: argparse.Namespace) -> int:
    found = some(client, "/agents", {"sort": "name"})
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(found)
        return 0
    if not found:
        print(
            "There is no agent here; its provider and admins see one. `mainstay agents add NAME --serves TYPE` lets one in."
        )
        return 0
    providers = {each["id"]: each["name"] for each in some(client, "/participants")}
    types = {each["id"]: each for each in some(client, "/agent-types")}
    serves = {each["id"]: each["name"] for each in some(client, "/service-types")}
    rows = []
    for agent in found:
        served = types.get(agent["agentTypeId"], {}).get("serviceTypeIds", [])
        rows.append(_row(agent, providers, ", ".join(serves.get(each, each) for each in served)))
    print_table(("AGENT", "STATUS", "LAST SEEN", "SERVES", "TAGS", "PROVIDER"), rows)
    return 0


def _row(agent: Mapping[str, Any], providers: Mapping[str, str], serves: str) -> list[Cell]:
    seen = agent["lastStatusUpdate"]
    return [
        agent["name"],
        (agent["status"], COLOURS.get(agent["status"], "")),
        "never" if seen == agent["createdAt"] else f"{age(seen)} ago",
        serves,
        ", ".join(agent["tags"]),
        providers.get(agent["providerId"], agent["providerId"]),
    ]


def _add(client: Client, arguments: argparse.Namespace) -> Any:
    """The agent; one that is there already, and serves what is asked, is taken as it is."""
    names = [name for text in arguments.serves for name in text.split(",") if name]
    wanted = {find_type(client, name)["id"] for name in names}
    provider_id = _find_provider(client, arguments)
    for agent in some(client, "/agents", {"name": arguments.name, "providerId": provider_id}):
        if agent["name"] == arguments.name:
            served = client.get(f"/agent-types/{agent['agentTypeId']}")["serviceTypeIds"]
            if not wanted <= set(served):
                raise CommandRefused(
                    f"there is already an agent {arguments.name!r}, and it does not serve all of {', '.join(names)}; "
                    "an admin adds them to its agent type: PATCH "
                    f"{client.url}/api/v1/agent-types/{agent['agentTypeId']} with serviceTypeIds"
                )
            _say(arguments, f"Agent {arguments.name} is there already.")
            return agent
    body = {
        "name": arguments.name,
        "providerId": provider_id,
        "agentTypeId": _find_agent_type(client, arguments, wanted, names),
        "tags": arguments.tag,
    }
    made = client.post("/agents", body)
    _say(arguments, f"Made agent {made['name']}, which serves {', '.join(names)}.")
    return made


def _say(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json and not arguments.quiet:
        print(printable(text))


def _find_provider(client: Client, arguments: argparse.Namespace) -> str:
    me = client.get("/tokens/me")
    if me["participantId"] and not arguments.provider:
        return str(me["participantId"])
    name = arguments.provider or PROVIDER
    for each in some(client, "/participants", {"name": name}):
        if each["name"] == name:
            return str(each["id"])
    made = client.post("/participants", {"name": name})
    _say(arguments, f"Made participant {name}.")
    return str(made["id"])


def _find_agent_type(client: Client, arguments: argparse.Namespace, wanted: set[str], names: list[str]) -> str:
    """One that lists just these service types: orders of any other must not come to the host.

    Only admins make agent types, so a provider may have to take one that lists more, and is told so."""
    fitting = [each for each in some(client, "/agent-types") if wanted <= set(each["serviceTypeIds"])]
    closest = min(fitting, key=lambda each: len(each["serviceTypeIds"]), default=None)
    if closest is not None and set(closest["serviceTypeIds"]) == wanted:
        return str(closest["id"])
    if closest is not None and client.get("/tokens/me")["role"] != "admin":
        print_warning(
            f"agent type {closest['name']} serves more than {', '.join(names)}; only an admin makes another"
        )
        return str(closest["id"])
    name = "+".join(names)[:LONGEST_NAME]
    taken = {each["name"] for each in some(client, "/agent-types", {"name": name})}
    body = {"name": f"{name} of {arguments.name}"[:LONGEST_NAME] if name in taken else name}
    made = client.post("/agent-types", {**body, "serviceTypeIds": sorted(wanted)})
    _say(arguments, f"Made agent type {made['name']}.")
    return str(made["id"])

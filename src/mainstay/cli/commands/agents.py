"""Lists agents. `agents add NAME --serves TYPE` adds an agent: it creates the missing objects (provider participant,
agent type, agent) and prints the enrollment code for the host. `agents code NAME` creates another code.
A code works once and expires after 15 minutes.

An agent serves its own participant. `agents grant AGENT-TYPE PARTICIPANT` lets the agents of a participant serve others
too, `agents withdraw` ends that for new orders; both are for admins. `agents add` grants when an admin adds the agent,
unless --no-grant is given."""

from __future__ import annotations

from mainstay.agent.client import is_loopback, is_unencrypted
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import connected, find_named, find_type, is_id, list_items, print_warning
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

SUMMARY = "list agents, add one, or decide whom agents serve"
DECISIONS = ("grant", "withdraw")
PROVIDER = "operator"
MAX_NAME_LENGTH = 100
COLOURS = {"Connected": GOOD, "New": BUSY, "Disconnected": BUSY, "Error": BAD, "Disabled": DIM}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb",
        metavar="add|code|grant|withdraw",
        nargs="?",
        choices=("add", "code", "grant", "withdraw"),
        help="add an agent, create a code, or decide whose agents serve other participants",
    )
    parser.add_argument("name", metavar="AGENT", nargs="?", help="name of the agent; grant, withdraw: agent type")
    parser.add_argument("participant", metavar="PARTICIPANT", nargs="?", help="grant, withdraw: provider")
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
    parser.add_argument(
        "--no-grant",
        action="store_true",
        help="add, as an admin: do not let the provider's agents serve other participants",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="add, code: print only the code")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    _refuse_odd(arguments)
    with connected(arguments) as client:
        if arguments.verb is None:
            return _list_agents(client, arguments)
        if arguments.verb in DECISIONS:
            return _decide(client, arguments)
        return _show_code(client, arguments)


def _refuse_odd(arguments: argparse.Namespace) -> None:
    if arguments.verb in DECISIONS and not arguments.participant:
        raise CommandRefused(f"name both: mainstay agents {arguments.verb} AGENT-TYPE PARTICIPANT")
    if arguments.verb not in DECISIONS and arguments.participant:
        raise CommandRefused(f"unexpected argument {arguments.participant!r}")
    if arguments.verb and not arguments.name:
        raise CommandRefused(f"name the agent: mainstay agents {arguments.verb} NAME")
    if arguments.verb == "add" and not arguments.serves:
        raise CommandRefused("name the service types of the agent: --serves TYPE; `mainstay types` lists them")
    if arguments.verb != "add" and (arguments.serves or arguments.provider or arguments.tag or arguments.no_grant):
        raise CommandRefused("--serves, --provider, --tag and --no-grant are options of `mainstay agents add NAME`")


def _show_code(client: Client, arguments: argparse.Namespace) -> int:
    agent = (
        _add(client, arguments) if arguments.verb == "add" else find_named(client, "/agents", "agent", arguments.name)
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
        print_warning(f"{client.url} is a loopback address; on another host use an address that reaches this server")
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
        agent_type = types.get(agent["agentTypeId"], {})
        served = ", ".join(serves.get(each, each) for each in agent_type.get("serviceTypeIds", []))
        is_granted = agent["providerId"] in agent_type.get("providerIds", [])
        rows.append([*_row(agent, providers, served), "all" if is_granted else "own"])
    print_table(("AGENT", "STATUS", "LAST SEEN", "SERVES", "TAGS", "PROVIDER", "ORDERS"), rows)
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
    agent_type = _find_agent_type(client, arguments, wanted, names)
    body = {
        "name": arguments.name,
        "providerId": provider_id,
        "agentTypeId": agent_type["id"],
        "tags": arguments.tag,
        **_announce_grant(client, arguments, agent_type, provider_id),
    }
    created = client.post("/agents", body)
    _print_note(arguments, f"Created agent {created['name']}, which serves {', '.join(names)}.")
    return created


def _announce_grant(
    client: Client, arguments: argparse.Namespace, agent_type: Mapping[str, Any], provider_id: str
) -> dict[str, Any]:
    """Reports whom the agent will serve, before it is created."""
    if provider_id in agent_type["providerIds"]:
        return {}
    is_admin = client.get("/tokens/me")["role"] == "admin"
    if is_admin and not arguments.no_grant:
        name = client.get(f"/participants/{provider_id}")["name"]
        _print_note(
            arguments,
            f"Agents of {name} with agent type {agent_type['name']} may now serve all participants;"
            " --no-grant keeps them to their own.",
        )
        return {}
    _print_note(
        arguments,
        "The agent serves its own participant only; an admin changes that with"
        f" `mainstay agents grant '{agent_type['name']}' PARTICIPANT`.",
    )
    return {"grant": False} if is_admin else {}


def _decide(client: Client, arguments: argparse.Namespace) -> int:
    agent_type = find_named(client, "/agent-types", "agent type", arguments.name)
    provider = find_named(client, "/participants", "participant", arguments.participant)
    others = [each for each in agent_type["providerIds"] if each != provider["id"]]
    granted = arguments.verb == "grant"
    written = client.call(
        "PATCH", f"/agent-types/{agent_type['id']}", {"providerIds": [*others, provider["id"]] if granted else others}
    )
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(written)
        return 0
    whom = "all participants" if granted else "their own participant only; living services stay"
    print(printable(f"Agents of {provider['name']} with agent type {agent_type['name']} serve {whom}."))
    return 0


def _print_note(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json and not arguments.quiet:
        print(printable(text))


def _find_provider(client: Client, arguments: argparse.Namespace) -> str:
    me = client.get("/tokens/me")
    if me["participantId"] and not arguments.provider:
        return str(me["participantId"])
    name = arguments.provider or PROVIDER
    if is_id(name):
        return str(find_named(client, "/participants", "participant", name)["id"])
    if any(each["name"] == name for each in list_items(client, "/participants", {"name": name})):
        found = find_named(client, "/participants", "participant", name)
        if not arguments.provider:
            _refuse_renamed(client, found)
        return str(found["id"])
    created = client.post("/participants", {"name": name})
    _print_note(arguments, f"Created participant {name}.")
    return str(created["id"])


def _refuse_renamed(client: Client, found: Mapping[str, Any]) -> None:
    """A participant can take the default name to get the agents of an admin; that needs a token of its own."""
    if list_items(client, "/tokens", {"participantId": found["id"], "role": "participant"}, limit=1):
        raise CommandRefused(
            f"participant {found['name']} ({found['id']}) has a token of its own; if it is the provider,"
            f" repeat the command with --provider {found['id']}"
        )


def _find_agent_type(client: Client, arguments: argparse.Namespace, wanted: set[str], names: list[str]) -> Any:
    """Finds or creates an agent type with exactly these service types, so that the host gets no other orders.

    Only admins create agent types; a provider gets the closest existing type and a warning."""
    fitting = [each for each in list_items(client, "/agent-types") if wanted <= set(each["serviceTypeIds"])]
    closest = min(fitting, key=lambda each: len(each["serviceTypeIds"]), default=None)
    if closest is not None and set(closest["serviceTypeIds"]) == wanted:
        return closest
    if closest is not None and client.get("/tokens/me")["role"] != "admin":
        print_warning(
            f"agent type {closest['name']} serves more than {', '.join(names)}; only an admin can create another"
        )
        return closest
    name = "+".join(names)[:MAX_NAME_LENGTH]
    taken = {each["name"] for each in list_items(client, "/agent-types", {"name": name})}
    body = {"name": f"{name} of {arguments.name}"[:MAX_NAME_LENGTH] if name in taken else name}
    created = client.post("/agent-types", {**body, "serviceTypeIds": sorted(wanted)})
    _print_note(arguments, f"Created agent type {created['name']}.")
    return created

"""Lists agents. `agents add NAME --serves TYPE` adds an agent: it creates the missing objects (provider participant,
agent type, agent) and prints the enrollment code for the host. `agents code NAME` creates another code.
A code works once and expires after 15 minutes.

`agents code --type AGENT-TYPE --count 50 --for 1h --tag zone=a` creates a code for many hosts: each host that uses it
becomes a new agent with the name of the host, after --prefix. `agents add` creates agent types, too. `agents codes`
lists these codes, `agents revoke-code` revokes one.

An agent serves its own participant. `agents grant AGENT-TYPE PARTICIPANT` lets the agents of a participant serve others
too, `agents withdraw` ends that for new orders; both are for admins. `agents add` grants when an admin adds the agent,
unless --no-grant is given.

`agents drain AGENT` gives an agent no new services; with --move its services go to other agents of its provider, one
after another. A disabled agent gets no orders and its requests are refused; its services stay. `agents remove` removes an agent without
living services. `agents install-command` is for agents of other programs, whose agent type has templates."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, print_json, whole_number
from mainstay.cli.remote.agent_providers import DEFAULT_PROVIDER, announce_grant, find_provider, print_note
from mainstay.cli.remote.connection import find_named, find_type, list_items, print_warning
from mainstay.cli.remote.drains import configure_drain, drain, undrain
from mainstay.cli.remote.enrolment_codes import (
    configure_code,
    configure_revocation,
    create_code,
    list_codes,
    revoke_code,
    show_agent_code,
)
from mainstay.cli.remote.install_commands import configure_install_command, install_command
from mainstay.cli.remote.removal import print_list, print_outcome, removal_verb
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.tables import BAD, BUSY, DIM, GOOD, Cell, age, print_fields
from mainstay.foundation.numbers import parse_count

SUMMARY = "list, add, change, disable or remove agents, or decide whom they serve"
GROUP = "many hosts"
PATH = "/agents"
MAX_NAME_LENGTH = 100
LARGEST_CAPACITY = 1_000_000
COLOURS = {"Connected": GOOD, "New": BUSY, "Disconnected": BUSY, "Error": BAD, "Disabled": DIM}
# Verb: the new status, and what the verb reports. A request of the agent makes it Connected.
STATUS_OF_VERB = {
    "disable": ("Disabled", "is disabled: it gets no orders and no jobs; its services stay"),
    "enable": ("Disconnected", "is enabled, and Connected once it sends a request"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        _list_agents,
        Verb("add", "add an agent and print its enrollment code", _add_and_show_code, _configure_add),
        Verb("code", "create an enrollment code, for an agent or for many new hosts", create_code, configure_code),
        Verb("codes", "list the enrollment codes for many hosts", list_codes),
        Verb("revoke-code", "revoke an enrollment code for many hosts", revoke_code, configure_revocation),
        Verb(
            "change",
            "rename an agent, or change its tags, pool set or capacity",
            _change,
            _configure_change,
            of="AGENT",
        ),
        Verb("show", "show an agent and its host", _show, of="AGENT"),
        Verb("disable", "give an agent no orders and refuse its requests", _set_status, of="AGENT"),
        Verb("enable", "admit a disabled agent again", _set_status, of="AGENT"),
        Verb("drain", "give an agent no new services, and move its services", drain, configure_drain, of="AGENT"),
        Verb("undrain", "end the drain of an agent", undrain, of="AGENT"),
        removal_verb(
            PATH,
            "AGENT",
            "remove an agent without living services",
            "Its tokens end at once; its host is not changed.",
        ),
        Verb("grant", "let the agents of a participant serve all participants", _decide, _configure_decision),
        Verb("withdraw", "let the agents of a participant serve only itself", _decide, _configure_decision),
        Verb(
            "install-command",
            "create the command that installs an agent of another program",
            install_command,
            configure_install_command,
        ),
    )


run = run_verb


def _configure_add(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "NAME", "name of the agent")
    add_list_option(parser, "--serves", "TYPE", "service types that the agent serves, separated by commas")
    add_argument(
        parser, "--provider", "PARTICIPANT", f"provider of the agent (default: you; for an admin {DEFAULT_PROVIDER})"
    )
    add_list_option(parser, "--tag", "TAG", "tag that orders can select")
    add_argument(
        parser,
        "--capacity",
        "N",
        "most services that orders give the agent (default: unlimited)",
        type=whole_number(0, LARGEST_CAPACITY, f"0 to {LARGEST_CAPACITY}"),
    )
    add_switch(parser, "--no-grant", "as an admin: do not let the provider's agents serve other participants")
    add_switch(parser, "-q", "--quiet", "print only the code")


def _configure_change(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "--name", "NAME", "new name", dest="new_name")
    add_list_option(parser, "--add-tag", "TAG", "add a tag")
    add_list_option(parser, "--remove-tag", "TAG", "remove a tag")
    add_argument(parser, "--pool-set", "SET", "use the pools of this set; none: of no set")
    add_argument(parser, "--capacity", "N", "most services that orders give the agent; none: unlimited")


def _configure_decision(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "AGENT-TYPE", "name or id of the agent type")
    add_argument(parser, "participant", "PARTICIPANT", "provider of the agents")


def _add_and_show_code(client: Client, arguments: argparse.Namespace) -> int:
    if not arguments.serves:
        raise CommandRefused("name the service types of the agent: --serves TYPE; `mainstay types` lists them")
    return show_agent_code(client, arguments, _add(client, arguments))


def _change(client: Client, arguments: argparse.Namespace) -> int:
    agent = find_named(client, PATH, arguments.name)
    body: dict[str, Any] = {"name": arguments.new_name} if arguments.new_name else {}
    if arguments.add_tag or arguments.remove_tag:
        unknown = [tag for tag in arguments.remove_tag if tag not in agent["tags"]]
        if unknown:
            raise CommandRefused(
                f"agent {agent['name']} has no tag {', '.join(unknown)}; it has {', '.join(agent['tags']) or 'none'}"
            )
        kept = [tag for tag in agent["tags"] if tag not in arguments.remove_tag]
        body["tags"] = list(dict.fromkeys([*kept, *arguments.add_tag]))
    if arguments.pool_set:
        body["servicePoolSetId"] = (
            None
            if arguments.pool_set == "none"
            else find_named(client, "/service-pool-sets", arguments.pool_set)["id"]
        )
    if arguments.capacity:
        body["capacity"] = _read_capacity(arguments.capacity)
    if not body:
        raise CommandRefused("nothing to change: use --name, --add-tag, --remove-tag, --pool-set or --capacity")
    changed = client.call("PATCH", f"{PATH}/{agent['id']}", body)
    tags = f" with tags {', '.join(changed['tags'])}" if changed["tags"] else ""
    return print_outcome(arguments, changed, f"Changed agent {changed['name']}{tags}.")


def _read_capacity(text: str) -> int | None:
    """None: unlimited."""
    number = parse_count(text, 0, LARGEST_CAPACITY)
    if number is None and text != "none":
        raise CommandRefused(f"--capacity is a number from 0 to {LARGEST_CAPACITY}, or none; got {text!r}")
    return number


def _set_status(client: Client, arguments: argparse.Namespace) -> int:
    agent = find_named(client, PATH, arguments.name)
    if arguments.verb == "enable" and agent["status"] != "Disabled":
        return print_outcome(arguments, agent, f"Agent {agent['name']} is not disabled: {agent['status']}.")
    status, outcome = STATUS_OF_VERB[arguments.verb]
    changed = client.call("PATCH", f"{PATH}/{agent['id']}", {"status": status})
    return print_outcome(arguments, changed, f"Agent {agent['name']} {outcome}.")


def _show(client: Client, arguments: argparse.Namespace) -> int:
    agent = client.get(f"{PATH}/{find_named(client, PATH, arguments.name)['id']}")
    if arguments.json:
        print_json(agent)
        return 0
    # Servers of older releases keep no facts.
    facts = agent.get("facts") or {}
    texts = [
        (name, ", ".join(map(str, each)) if isinstance(each, list) else str(each)) for name, each in facts.items()
    ]
    print_fields(
        [
            ("name", agent["name"]),
            ("id", agent["id"]),
            ("status", (agent["status"], COLOURS.get(agent["status"], ""))),
            ("last seen", _last_seen(agent)),
            ("tags", ", ".join(agent["tags"])),
            ("version", agent.get("version") or ""),
            *texts,
        ]
    )
    return 0


def _last_seen(agent: Mapping[str, Any]) -> str:
    return "never" if agent["status"] == "New" else f"{age(agent['lastStatusUpdate'])} ago"


def _list_agents(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, "/agents", {"sort": "name"})
    headers = ("AGENT", "STATUS", "LAST SEEN", "SERVES", "TAGS", "PROVIDER", "ORDERS")
    empty = (
        "There is no agent yet. Only its provider and admins see an agent; `mainstay agents add NAME --serves TYPE` adds"
        " one."
    )
    return print_list(arguments, found, headers, _rows(client, found), empty)


def _rows(client: Client, agents: Sequence[Any]) -> Iterator[list[Cell]]:
    providers = {each["id"]: each["name"] for each in list_items(client, "/participants")}
    types = {each["id"]: each for each in list_items(client, "/agent-types")}
    serves = {each["id"]: each["name"] for each in list_items(client, "/service-types")}
    for agent in agents:
        agent_type = types.get(agent["agentTypeId"], {})
        served = ", ".join(serves.get(each, each) for each in agent_type.get("serviceTypeIds", []))
        is_granted = agent["providerId"] in agent_type.get("providerIds", [])
        yield [*_row(agent, providers, served), "all" if is_granted else "own"]


def _row(agent: Mapping[str, Any], providers: Mapping[str, str], serves: str) -> list[Cell]:
    return [
        agent["name"],
        (f"{agent['status']}{', draining' if agent.get('draining') else ''}", COLOURS.get(agent["status"], "")),
        _last_seen(agent),
        serves,
        ", ".join(agent["tags"]),
        providers.get(agent["providerId"], agent["providerId"]),
    ]


def _add(client: Client, arguments: argparse.Namespace) -> Any:
    """Returns the new agent, or the existing agent of this name if it serves all requested types."""
    names = [name for text in arguments.serves for name in text.split(",") if name]
    wanted = {find_type(client, name)["id"] for name in names}
    provider_id = find_provider(client, arguments)
    for agent in list_items(client, "/agents", {"name": arguments.name, "providerId": provider_id}):
        if agent["name"] == arguments.name:
            served = client.get(f"/agent-types/{agent['agentTypeId']}")["serviceTypeIds"]
            if not wanted <= set(served):
                raise CommandRefused(
                    f"agent {arguments.name!r} already exists and does not serve all of {', '.join(names)}; "
                    "as an admin, add them to its agent type: PATCH "
                    f"{client.url}/api/v1/agent-types/{agent['agentTypeId']} with serviceTypeIds"
                )
            print_note(arguments, f"Agent {arguments.name} already exists.")
            return agent
    agent_type = _find_agent_type(client, arguments, wanted, names)
    own_only = (
        "The agent serves its own participant only; an admin changes that with"
        f" `mainstay agents grant '{agent_type['name']}' PARTICIPANT`."
    )
    body = {
        "name": arguments.name,
        "providerId": provider_id,
        "agentTypeId": agent_type["id"],
        "tags": arguments.tag,
        "capacity": arguments.capacity,
        **announce_grant(client, arguments, agent_type, provider_id, own_only),
    }
    created = client.post("/agents", body)
    print_note(arguments, f"Created agent {created['name']}, which serves {', '.join(names)}.")
    return created


def _decide(client: Client, arguments: argparse.Namespace) -> int:
    is_granted = arguments.verb == "grant"
    agent_type = find_named(client, "/agent-types", arguments.name)
    provider = find_named(client, "/participants", arguments.participant)
    others = [each for each in agent_type["providerIds"] if each != provider["id"]]
    written = client.call(
        "PATCH",
        f"/agent-types/{agent_type['id']}",
        {"providerIds": [*others, provider["id"]] if is_granted else others},
    )
    whom = "all participants" if is_granted else "their own participant only; living services stay"
    return print_outcome(
        arguments, written, f"Agents of {provider['name']} with agent type {agent_type['name']} serve {whom}."
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
    print_note(arguments, f"Created agent type {created['name']}.")
    return created

"""Every member that a request can set is an option of the command line, an attribute of plane files and a field of a form,
or its declaration says why not. Reports all offences at once."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from mainstay.cli.main import command_names, load_command, make_parser
from mainstay.cli.plane.kinds import KINDS
from mainstay.cli.remote.noun_verbs import NounVerbs
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints, batches
from mainstay.control.operations.machinery.bodies import AgentProtocolBody
from mainstay.nouns import CLI, FORM, PLANE, Member, Noun
from test_missing_pieces import SOURCE, report

API = "/api/v1"
# Nouns whose front ends are written by hand: the command of each list.
COMMANDS = {
    "/agents": "agents",
    "/config-pool-values": "config-pools",
    "/config-pools": "config-pools",
    "/enrolment-codes": "agents",
    "/service-pool-values": "pools",
    "/service-pools": "pools",
    "/services": "order",
    "/tokens": "tokens",
}
# Of these nouns: member, or `*` for all, → front end → why it does not have it, or what sets it there.
_NO_TOKENS = "tokens are secrets, and files of a plane are shared"
_NO_HOSTS = "agents enroll; plane files change them only"
_PLAN = {PLANE: "a plane is applied as a whole, with its own revision", FORM: "`web/planned_requests.py` adds it"}
LEFT_OUT: dict[str, dict[str, dict[str, str]]] = {
    "/agents": {
        "providerId": {CLI: "`agents add --provider`", PLANE: _NO_HOSTS},
        "agentTypeId": {CLI: "`agents add --serves` finds or makes the type", PLANE: _NO_HOSTS},
        "tags": {CLI: "`agents add --tag`, `agents change --add-tag` and `--remove-tag`"},
        "configuration": {CLI: "a document: plane files and the page set it"},
        "servicePoolSetId": {CLI: "`agents change --pool-set`"},
        "grant": {CLI: "`agents add --no-grant`, `agents grant` and `withdraw`", PLANE: "`providers` of agentTypes"},
    },
    "/config-pool-values": {
        "*": {PLANE: "`values` of the pool", FORM: "`web/pool_pages.py` adds many values at once"},
        "name": {CLI: "the value as text"},
        "configPoolId": {CLI: "the argument of `config-pools add`"},
    },
    "/enrolment-codes": {
        "*": {PLANE: "codes are secrets that expire", CLI: "`agents code`, with options in words of their own"},
    },
    "/service-pool-values": {
        "*": {PLANE: "`values` of the pool"},
        "name": {CLI: "the value as text"},
        "servicePoolId": {CLI: "the argument of `pools add`"},
    },
    "/service-types": {"*": {CLI: "plane files, blueprints and the page write service types"}},
    "/services": {
        "serviceTypeId": {CLI: "the argument TYPE of `order`"},
        "groupId": {CLI: "`order --group`"},
        "consumerId": {CLI: "`order --for`", PLANE: "the consumer of the group"},
        "agentId": {CLI: "`order --agent`"},
        "providerId": {CLI: "`order --provider`"},
        "agentTags": {CLI: "`order --tag`"},
        "blueprintVersion": {
            CLI: "`do update --to` and `rollout`",
            PLANE: "`version` of blueprints; a roll-out moves services to it",
            FORM: "the action that upgrades, on the page of the service",
        },
        "planDigest": _PLAN,
    },
    "/tokens": {
        "*": {PLANE: _NO_TOKENS},
        "role": {CLI: "`tokens create --admin`, `--for` and `--agent`"},
        "scopeId": {CLI: "`tokens create --for` and `--agent`"},
        "expireAt": {CLI: "`tokens create --days`; a page changes it"},
    },
}


def collections() -> dict[str, list[Endpoint]]:
    """Lists whose rows are created and changed or deleted one by one → the endpoints with a body."""
    found: dict[str, list[Endpoint]] = {}
    endpoints = [each for each in all_endpoints() if each.path.startswith(f"{API}/")]
    rows = {each.path for each in endpoints if each.method in ("PATCH", "DELETE")}
    for each in endpoints:
        path = each.path.removesuffix("/{id}")
        is_agents_own = each.body is not None and issubclass(each.body, AgentProtocolBody)
        if (
            each.body is not None
            and each.method in ("POST", "PATCH")
            and f"{path}/{{id}}" in rows
            and not is_agents_own
        ):
            found.setdefault(path.removeprefix(API), []).append(each)
    return found


@cache
def commands() -> tuple[dict[str, tuple[Noun, str]], dict[str, frozenset[str]]]:
    """List of the API → noun and its command; command → what its arguments and options set."""
    declared: dict[str, tuple[Noun, str]] = {}
    settings: dict[str, frozenset[str]] = {}
    for name in command_names():
        command = load_command(name)
        assert command is not None
        for each in vars(command).values():
            if isinstance(each, NounVerbs):
                declared[each.noun.path] = (each.noun, name)
        settings[name] = frozenset(destinations(make_parser(name, command)))
    return declared, settings


def destinations(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not (action.help or "").endswith("name or id"):
            # Otherwise it says which row is meant.
            yield action.dest
        if isinstance(action, argparse._SubParsersAction):
            for child in action._name_parser_map.values():
                yield from destinations(child)


@cache
def declared_nouns() -> dict[str, Noun]:
    from importlib import import_module

    from mainstay import nouns
    from mainstay.foundation.module_names import module_names

    found = [import_module(f"mainstay.nouns.{name}").NOUN for name in module_names(nouns.__path__)]
    return {each.path: each for each in found}


@cache
def page_texts() -> Mapping[Path, frozenset[str]]:
    """The texts of each page, to find members that a form written by hand sets."""
    found = {}
    for path in (SOURCE / "control/web/pages").glob("*.py"):
        tree = ast.parse(path.read_text())
        found[path] = frozenset(
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
    return found


def field_of(member: str) -> str:
    return Member(member, "", "").field


def in_command(path: str, member: str, noun: Noun | None, *, is_new: bool) -> bool:
    declared, settings = commands()
    command = declared[path][1] if path in declared else COMMANDS.get(path)
    if command is None:
        return False
    short = [each.attribute for each in (noun.all_members if noun else ()) if each.name == member]
    names = {field_of(each) for each in (member, *short)}
    if noun is not None and noun.owner is not None and noun.owner.name == member:
        names.add("owner")
    changed = {f"new_{each}" for each in names}
    return bool(settings[command] & (names | changed if path not in declared else names if is_new else changed))


def in_plane(path: str, member: str) -> bool:
    return any(
        member in (kind.key, *kind.owner_members, *(each.member for each in kind.attributes.values()))
        for kind in KINDS.values()
        if kind.collection == path
    )


def in_form(path: str, member: str, noun: Noun | None, *, is_new: bool) -> bool:
    if noun is not None:
        return member in [each.name for each in noun.form_members(is_new=is_new)]
    return any(member in texts for texts in page_texts().values() if f"{API}{path}" in texts)


def offences() -> Iterator[str]:
    for path, endpoints in collections().items():
        noun = declared_nouns().get(path)
        for endpoint in endpoints:
            assert endpoint.body is not None
            is_new = endpoint.method == "POST"
            for member in endpoint.body.__struct_encode_fields__:
                for front_end, is_set in (
                    (CLI, in_command(path, member, noun, is_new=is_new)),
                    (PLANE, in_plane(path, member)),
                    (FORM, in_form(path, member, noun, is_new=is_new)),
                ):
                    yield from offence(path, endpoint.body.__name__, member, front_end, noun, is_set=is_set)


def offence(path: str, body: str, member: str, front_end: str, noun: Noun | None, *, is_set: bool) -> Iterator[str]:
    reason = reason_of(path, member, front_end, noun)
    place = f"{body}.{member}"
    if is_set and reason and not reason[1]:
        yield f"{place}: the {front_end} sets it; remove the reason {reason[0]!r}"
    elif not is_set and not reason:
        where = "left_out of its Member in nouns/" if noun else "LEFT_OUT of this test"
        yield f"{place}: the {front_end} does not set it; derive it, or write the reason into {where}"


def reason_of(path: str, member: str, front_end: str, noun: Noun | None) -> tuple[str, bool] | None:
    """The reason, and whether it is one for the whole noun."""
    if noun is None:
        table = LEFT_OUT.get(path, {})
        own, whole = table.get(member, {}).get(front_end), table.get("*", {}).get(front_end)
    else:
        members = [each for each in noun.all_members if each.name == member]
        own = next((each.left_out[front_end] for each in members if front_end in each.left_out), None)
        whole = noun.left_out.get(front_end) if members else noun.api_only.get(member)
    return (own, False) if own else (whole, True) if whole else None


def test_every_settable_member_is_in_every_front_end_or_named_as_left_out() -> None:
    report(list(offences()))


def test_every_declared_noun_is_a_kind_of_plane_files_that_a_batch_may_write() -> None:
    lacking = []
    for noun in declared_nouns().values():
        place = f"nouns/{noun.path[1:].replace('-', '_')}.py"
        if not noun.plane and PLANE not in noun.left_out:
            lacking.append(f"{place}: declare its kind of plane files, or the reason in left_out")
        if any(each.name not in KINDS for each in noun.plane):
            lacking.append(f"{place}: add its NOUN to KINDS of cli/plane/kinds.py, after what it refers to")
        if noun.plane and noun.name not in batches.NOUNS:
            lacking.append(f"{place}: add {noun.name} to NOUNS of control/api/endpoints/batches.py")
    report(lacking)


def test_the_rule_names_each_front_end_that_lacks_a_member() -> None:
    groups = declared_nouns()["/service-groups"]
    motto = Member("motto", "line", "a short motto", left_out={FORM: "a joke", CLI: "a joke"})
    changed = Noun(**{**vars(groups), "members": (*groups.members, motto)})
    lacking = [
        text
        for front_end, is_set in ((CLI, False), (PLANE, False), (FORM, True))
        for text in offence("/service-groups", "NewServiceGroup", "motto", front_end, changed, is_set=is_set)
    ]
    assert lacking == [
        "NewServiceGroup.motto: the plane does not set it; derive it, or write the reason into left_out of its Member in nouns/",
        "NewServiceGroup.motto: the form sets it; remove the reason 'a joke'",
    ]
    assert not in_command("/service-groups", "motto", changed, is_new=True)
    assert not in_plane("/service-groups", "motto")
    assert not in_form("/service-groups", "motto", changed, is_new=True)

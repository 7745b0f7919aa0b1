"""Prints a shell script that completes commands, options and names of types, services and actions.

bash: source <(mainstay completion bash)     zsh: source <(mainstay completion zsh)
fish: mainstay completion fish | source
The script calls `mainstay completion --words …`, which prints nothing if the server does not respond."""

from __future__ import annotations

import argparse

from mainstay.cli.main import CommandRefused, add_argument, commands_by_group, load_command, make_parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mainstay.agent.client import Client

    # Lists the values of an argument: client, arguments before it, what is typed of it.
    Source = Callable[[Client, list[str], str], list[str]]

SUMMARY = "print a completion script for your shell"
GROUP = "this host"
SHELLS = ("bash", "zsh", "fish")
# Short: the user waits at a prompt.
TIMEOUT_SECONDS = 2.0
SAFE = "-_.,:=@%+/"

BASH = """\
_mainstay() {
  local IFS=$'\\n' line
  COMPREPLY=()
  while read -r line; do COMPREPLY+=("${line%%$'\\t'*}"); done < <(
    mainstay completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o bashdefault -o default -F _mainstay mainstay
"""
ZSH = """\
#compdef mainstay
_mainstay() {
  local line word
  local -a plain open
  while IFS= read -r line; do
    word=${line%%$'\\t'*}
    if [[ $word == *= ]]; then open+=("$word"); else plain+=("$word"); fi
  done < <(mainstay completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( ! ${#plain} && ! ${#open} )); then _files; return; fi
  (( ${#open} )) && compadd -S '' -- "${open[@]}"
  (( ${#plain} )) && compadd -- "${plain[@]}"
}
compdef _mainstay mainstay
"""
FISH = """\
function __mainstay_words
  set -l words (commandline -opc) (commandline -ct)
  mainstay completion --words $words[2..-1] 2>/dev/null
end
complete -c mainstay -a '(__mainstay_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    from argparse import REMAINDER

    modes = parser.add_mutually_exclusive_group(required=True)
    add_argument(modes, "shell", "bash|zsh|fish", "your shell", nargs="?", choices=SHELLS)
    add_argument(
        modes, "--words", "WORD …", "the words typed so far; prints the candidates for the last word", nargs=REMAINDER
    )


def parse(words: Sequence[str]) -> argparse.Namespace | None:
    """The words of a command line that is being typed, unchanged."""
    from argparse import Namespace

    return Namespace(shell=None, words=list(words[1:])) if words[:1] == ["--words"] else None


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell is not None:
        print(SCRIPTS[arguments.shell], end="")
        return 0
    try:
        print("".join(f"{line}\n" for line in _candidates(arguments.words)), end="")
    except (Exception, SystemExit):  # noqa: BLE001 (an error message would appear in the command line being typed)
        return 1
    return 0


def _candidates(words: list[str]) -> list[str]:
    """Candidates for the last word. A tab separates a candidate from its description."""
    typed, is_split_value = _join_words(words or [""])
    *before, current = typed
    matching = [line for line in _candidates_for(before, current) if _is_safe(line) and line.startswith(current)]
    if is_split_value:
        return [line.partition("=")[2] for line in matching]
    return matching


def _is_safe(line: str) -> bool:
    """Refuses characters with a meaning in a shell: other users choose the names."""
    return all(character.isalnum() or character in SAFE for character in line.partition("\t")[0])


def _join_words(words: list[str]) -> tuple[list[str], bool]:
    """Joins `cpu=4`, which bash passes as three words. Returns whether the last word was joined."""
    joined: list[str] = []
    open_sign = False
    for index, word in enumerate(words):
        sign = word == "=" and index > 0
        if joined and (sign or open_sign):
            joined[-1] += word
        else:
            joined.append(word)
        open_sign = sign
    return joined, len(joined) < len(words) and (words[-1] == "=" or words[-2] == "=")


def _candidates_for(before: list[str], current: str) -> list[str]:
    if not before:
        commands = [each for group in commands_by_group().values() for each in group.items()]
        return [f"{name}\t{summary}" for name, summary in commands]
    command = load_command(before[0])
    if command is None:
        return []
    parser = make_parser(before[0], command)
    rest = before[1:]
    children = _sub_parsers(parser)
    if children:
        chosen = next((word for word in rest if word in children), None)
        if chosen is None:
            return [*children, *_option_lines(parser, current), *_names_in_place_of_a_verb(children, current)]
        parser, rest = children[chosen], rest[rest.index(chosen) + 1 :]
    pending_option, positionals, values = _parse_words(parser, rest)
    if pending_option is not None:
        return _values_of(pending_option, values, current)
    if current.startswith("-"):
        return _option_lines(parser, current)
    if len(values) < len(positionals):
        return _values_of(positionals[len(values)], values, current)
    repeats = bool(positionals) and positionals[-1].nargs in ("+", "*")
    return _values_of(positionals[-1], values, current) if repeats else []


def _names_in_place_of_a_verb(children: dict[str, argparse.ArgumentParser], current: str) -> list[str]:
    """`mainstay pools ports` is `mainstay pools show ports`."""
    shown = children.get("show")
    positionals = [] if shown is None else [each for each in shown._actions if not each.option_strings]
    return _values_of(positionals[0], [], current) if positionals and not current.startswith("-") else []


def _sub_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    import argparse

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _parse_words(
    parser: argparse.ArgumentParser, words: list[str]
) -> tuple[argparse.Action | None, list[argparse.Action], list[str]]:
    """Returns the option that expects a value (or None), the positional arguments, and the positional values so far."""
    options = {name: action for action in parser._actions for name in action.option_strings}
    positionals = [action for action in parser._actions if not action.option_strings]
    values: list[str] = []
    pending_option: argparse.Action | None = None
    for word in words:
        if pending_option is not None:
            pending_option = None
        elif word in options:
            pending_option = options[word] if options[word].nargs != 0 else None
        elif not word.startswith("-") or word == "-":
            values.append(word)
    return pending_option, positionals, values


def _option_lines(parser: argparse.ArgumentParser, current: str) -> list[str]:
    from argparse import SUPPRESS

    if not current.startswith("-"):
        return []
    return [
        f"{name}\t{action.help or ''}"
        for action in parser._actions
        for name in action.option_strings
        if len(name) > 2 and action.help != SUPPRESS
    ]


def _values_of(action: argparse.Action, values: list[str], current: str) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.metavar == "RESOURCE_TYPE":
        from mainstay.converge import resources

        known = [(name, resources.find(name)) for name in resources.names()]
        return [name for name, found in known if found is not None and found.from_command_line]
    list_names = SOURCES.get(str(action.metavar))
    if list_names is None:
        return []
    from mainstay.cli.remote.connection import read_login

    return list_names(read_login().client(), values, current)


def _items(client: Client, path: str, **query: object) -> list[Any]:
    found: list[Any] = client.get(path, query=query, timeout_seconds=TIMEOUT_SECONDS)["items"]
    return found


def _named_items(client: Client, path: str, name: str) -> list[Any]:
    """Records whose name contains the text."""
    return _items(client, path, sort="name", pageSize=100, **({"name": name} if name else {}))


def _ids(path: str, describe: Callable[[Any], str], sort: str = "-createdAt") -> Source:
    def list_ids(client: Client, _values: list[str], _current: str) -> list[str]:
        from mainstay.cli.remote.connection import short_id

        found = _items(client, path, sort=sort, pageSize=50)
        return [f"{short_id(each['id'])}\t{describe(each)}" for each in found]

    return list_ids


def _named(path: str) -> Source:
    return lambda client, _values, current: [each["name"] for each in _named_items(client, path, current)]


def _service_names(client: Client, _values: list[str], current: str) -> list[str]:
    from mainstay.cli.remote.connection import not_terminal

    found = not_terminal(client, _named_items(client, "/services", current))
    return [f"{each['name']}\t{each['serviceType']['name']}, {each['status']}" for each in found]


def _available_actions(client: Client, values: list[str], _current: str) -> list[str]:
    """The first argument is a service (`do`) or a service type (`rollout`)."""
    from mainstay.cli.remote.connection import find_service, find_type
    from mainstay.cli.remote.service_types import lifecycle_of

    try:
        return list(find_service(client, values[0])["availableActions"])
    except CommandRefused:
        actions = lifecycle_of(find_type(client, values[0])).get("actions") or ()
        return [str(each["name"]) for each in actions]


def _property_names(client: Client, values: list[str], current: str) -> list[str]:
    """The first argument is a service type (`order`) or a service (`do`)."""
    from mainstay.agent.client import ServerRefusal
    from mainstay.cli.remote.connection import find_service, find_type
    from mainstay.cli.remote.service_types import allowed_values, members_of, set_by, type_of, walk_properties

    try:
        kind = find_type(client, values[0])
    except (CommandRefused, ServerRefusal):
        kind = client.get(f"/service-types/{find_service(client, values[0])['serviceTypeId']}")
    lines = []
    for path, definition in walk_properties(members_of(kind) or {}):
        if "[]" in path or "user" not in set_by(definition):
            continue
        if current.startswith(f"{path}="):
            lines += [f"{path}={value}" for value in allowed_values(definition)]
        else:
            lines.append(f"{path}=\t{type_of(definition)}")
    return lines


def _option_types(client: Client, _values: list[str], _current: str) -> list[str]:
    found = _items(client, "/service-option-types", sort="type", pageSize=100)
    return [f"{each['type']}\t{each['name']}" for each in found]


def _blueprint_names(client: Client, _values: list[str], current: str) -> list[str]:
    """Names, and versions once a name is typed: NAME@VERSION."""
    found = _named_items(client, "/blueprints", current.partition("@")[0])
    if "@" in current:
        return [f"{each['name']}@{each['version']}" for each in found]
    return list(dict.fromkeys(each["name"] for each in found))


def _rollout_words(client: Client, _values: list[str], current: str) -> list[str]:
    """The first word of `rollout`: a verb or a service type."""
    from mainstay.cli.commands.rollout import VERBS

    return [*VERBS, *_named("/service-types")(client, [], current)]


def _rollouts(client: Client, values: list[str], current: str) -> list[str]:
    if values and values[0] == "versions":
        return _named("/service-types")(client, [], current)
    return ROLLOUT_IDS(client, values, current)


def _describe_run(record: Any) -> str:
    """A job or a roll-out."""
    return f"{record['action']} of {(record.get('service') or record['serviceType'])['name']}, {record['status']}"


ROLLOUT_IDS = _ids("/rollouts", _describe_run)
SOURCES: dict[str, Source] = {
    "TYPE": _named("/service-types"),
    "SERVICE": _service_names,
    "ACTION": _available_actions,
    "NAME=VALUE": _property_names,
    "AGENT": _named("/agents"),
    "PARTICIPANT": _named("/participants"),
    "GROUP": _named("/service-groups"),
    "POOL": _named("/service-pools"),
    "SET": _named("/service-pool-sets"),
    "CONFIG-POOL": _named("/config-pools"),
    "AGENT-TYPE": _named("/agent-types"),
    "TOKEN": _named("/tokens"),
    "OPTION": _named("/service-options"),
    "OPTION-TYPE": _option_types,
    "BLUEPRINT": _blueprint_names,
    "DIGEST|NAME@VERSION": _blueprint_names,
    "DIGEST|NAME[@VERSION]": _blueprint_names,
    "JOB": _ids("/jobs", _describe_run),
    "CODE-ID": _ids("/enrolment-codes", lambda code: f"{code['usesLeft']} of {code['count']} places left"),
    "CLEAN-UP": _ids(
        "/orphans", lambda each: f"{each['serviceName']}, failed attempts: {each['attempts']}", "createdAt"
    ),
    "ROLLOUT": _rollouts,
    "TYPE|list|status|pause|resume|abort|versions": _rollout_words,
}

"""Applies one resource, described by options instead of a manifest.

mainstay ensure file /etc/motd --ensure present --content 'hello' --owner root --group root --mode 0644
mainstay ensure exec 'systemctl daemon-reload' --noop
mainstay ensure user app --password-hash-file - < hash
mainstay ensure service nginx --subscribe file#/etc/nginx/nginx.conf --health-check 'curl -fs localhost'

--require and --subscribe name resources of earlier calls: `require` stops after a failure, and `subscribe` refreshes
once after each change. A secret is read from a file, or from standard input (-), never from an argument."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from mainstay.cli.local_run import parse_lock_wait, run_and_report
from mainstay.cli.main import CommandRefused, add_argument, add_switch
from mainstay.converge import resources
from mainstay.converge.actual_state import as_text
from mainstay.converge.apply import Options
from mainstay.converge.contract import Property
from mainstay.converge.host.sources import current_directory
from mainstay.converge.manifest.resource_reading import COMMON
from mainstay.converge.run import RunRequest
from mainstay.converge.value_kinds import BOOLEAN, EXIT_CODES, TEXT_MAP, TEXTS
from mainstay.foundation.yaml.scalars import Node, PlainScalar

SUMMARY = "apply one resource without a manifest"
GROUP = "this host"
LEFT_OUT = ("alias", "tags")
LARGEST_SECRET_BYTES = 1024 * 1024
# In place of the summaries for manifests.
REFERENCES = {
    "require": "resource (`type#name`) of an earlier `mainstay ensure` that must not have failed",
    "subscribe": "resource (`type#name`) of an earlier `mainstay ensure` whose change refreshes this one",
}


def configure(parser: argparse.ArgumentParser) -> None:
    types = parser.add_subparsers(dest="type", metavar="TYPE", required=True)
    for name in resources.names():
        found = resources.find(name)
        if found is None or not found.from_command_line:
            continue
        sub_parser = types.add_parser(
            name, help=f"apply one {name} resource", description=f"Applies one {name} resource.", allow_abbrev=False
        )
        sub_parser.add_argument("name", metavar="NAME")
        own = sub_parser.add_argument_group("properties")
        for key, entry in {**COMMON, **found.properties}.items():
            if key not in LEFT_OUT and entry.alias_of is None:
                _add_property(own, key, entry, found.ensures if key == "ensure" else entry.choices)
        _add_conditions(own, found.properties)
        add_switch(sub_parser, "--noop", "dry run: show what would change, change nothing")
        add_switch(sub_parser, "--diff", "show file changes as diffs")
        add_switch(sub_parser, "--json", "print one JSON document")
        add_argument(sub_parser, "--lock-wait", "DURATION", "how long to wait for another run, such as 30s")


def _add_conditions(group: argparse._ArgumentGroup, properties: Mapping[str, Property]) -> None:
    """Adds what a manifest writes as maps. `--unless` of an exec is its guard."""
    for key, does in (("if", "only if"), ("unless", "unless")):
        add_argument(
            group,
            f"--control-{key}" if key in properties else f"--{key}",
            "EXPRESSION",
            f"apply it {does} this expression is true",
            dest=f"control_{key}",
        )
    add_argument(
        group,
        "--health-check",
        "COMMAND",
        "a command that must succeed when the resource is in its desired state; repeatable",
        dest="checks",
        action="append",
    )


def _add_secret(group: argparse._ArgumentGroup, key: str, entry: Property) -> None:
    """Adds the option for a file, and one that explains it to a user who gives the secret as an argument."""
    option = f"--{key.replace('_', '-')}"

    class RefusedSecret(argparse.Action):
        def __call__(self, *_: object) -> None:
            raise CommandRefused(
                f"{option}: every user of this host can read arguments; write the secret to a file and use"
                f" {option}-file FILE, or {option}-file - for standard input"
            )

    lines = ", one item per line" if _is_list(entry) else ""
    summary = f"file{lines} with the {entry.summary.replace('%', '%%')}; - is standard input"
    add_argument(group, f"{option}-file", "FILE", summary, dest=f"secret_{key}")
    group.add_argument(option, action=RefusedSecret, nargs="?", help=argparse.SUPPRESS)


def _is_list(entry: Property) -> bool:
    return entry.kind.name.startswith("list ")


def _read_secret(option: str, path: str) -> str:
    from mainstay.cli.documents import prompt_secret, without_last_newline

    if path == "-":
        return prompt_secret(option.removeprefix("--"))
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_SECRET_BYTES + 1)
    except OSError as error:
        raise CommandRefused(f"{option} {path}: {error.strerror}") from None
    if len(content) > LARGEST_SECRET_BYTES:
        raise CommandRefused(f"{option} {path}: the file is larger than {LARGEST_SECRET_BYTES} bytes")
    try:
        return without_last_newline(content.decode())
    except UnicodeDecodeError:
        raise CommandRefused(f"{option} {path}: the file is not UTF-8") from None


def _secrets_of(arguments: argparse.Namespace, table: dict[str, Property]) -> dict[str, Node]:
    """The secrets that options name the files of. Their text is no template."""
    found: dict[str, Node] = {}
    taken: str | None = None
    for key, entry in table.items():
        path = getattr(arguments, f"secret_{key}", None)
        if path is None:
            continue
        option = f"--{key.replace('_', '-')}-file"
        if path == "-" and taken is not None:
            raise CommandRefused(f"{taken} and {option} cannot both read standard input; use a file for one of them")
        taken = option if path == "-" else taken
        text = as_text(_read_secret(option, path))
        if entry.kind is TEXT_MAP:
            found[key] = _read_map(option, text.split("\n"))
        else:
            found[key] = [*text.split("\n")] if _is_list(entry) else text
    return found


def _read_map(option: str, lines: list[str]) -> dict[str, Node]:
    """One `name: value` in each line."""
    if not all(":" in line for line in lines):
        raise CommandRefused(f"{option}: every line must be `name: value`")
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _add_property(group: argparse._ArgumentGroup, key: str, entry: Property, choices: tuple[str, ...]) -> None:
    if entry.secret:
        _add_secret(group, key, entry)
        return
    option, destination = f"--{key.replace('_', '-')}", f"property_{key}"
    summary = REFERENCES.get(key, entry.summary)
    help_text = summary.replace("%", "%%") + (f" ({', '.join(choices)})" if choices else "")
    if entry.kind is BOOLEAN:
        group.add_argument(option, dest=destination, action=argparse.BooleanOptionalAction, help=help_text)
    elif entry.kind in (TEXTS, EXIT_CODES):
        add_argument(group, option, "VALUE", f"{help_text}; repeatable", dest=destination, action="append")
    else:
        add_argument(group, option, "VALUE", help_text, dest=destination)


def _make_document(arguments: argparse.Namespace) -> Node:
    """The options as a manifest with one resource."""
    found = resources.find(arguments.type)
    table = {**COMMON, **(found.properties if found else {})}
    properties: dict[str, Node] = {}
    for key, entry in table.items():
        value = getattr(arguments, f"property_{key}", None)
        if value is None:
            continue
        if entry.kind is BOOLEAN:
            properties[key] = PlainScalar(str(value).lower())
        elif entry.kind is EXIT_CODES:
            properties[key] = [PlainScalar(item) for item in value]
        else:
            properties[key] = value
    properties.update(_secrets_of(arguments, table))
    control: dict[str, Node] = {
        key: value for key in ("if", "unless") if (value := getattr(arguments, f"control_{key}", None)) is not None
    }
    if control:
        properties["control"] = control
    if arguments.checks:
        properties["health_checks"] = [{"command": command} for command in arguments.checks]
    return [{arguments.type: [{arguments.name: properties}]}]


def run(arguments: argparse.Namespace) -> int:
    document = _make_document(arguments)

    def make_request() -> RunRequest:
        return RunRequest(
            "mainstay ensure",
            document=document,
            identity=f"ensure:{arguments.type}#{arguments.name}",
            working_directory=current_directory(),
            options=Options(noop=arguments.noop, differences=arguments.diff),
            lock_wait_seconds=parse_lock_wait(arguments.lock_wait),
            is_single=True,
        )

    return run_and_report(make_request, as_json=arguments.json, verbose=True)

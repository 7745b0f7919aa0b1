"""Applies one resource, described by options instead of a manifest.

mainstay ensure file /etc/motd --ensure present --content 'hello' --owner root --group root --mode 0644
mainstay ensure exec 'systemctl daemon-reload' --noop"""

from __future__ import annotations

from mainstay.cli.local_run import catch_signals, parse_lock_wait, run_and_report

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from mainstay.converge.contract import Property, StopFlag
    from mainstay.converge.report import Observer
    from mainstay.converge.run import RunRequest
    from mainstay.foundation.yaml.scalars import Node

SUMMARY = "apply one resource without a manifest"
LEFT_OUT = ("require", "subscribe", "alias", "tags")


def configure(parser: argparse.ArgumentParser) -> None:
    from mainstay.converge import resources
    from mainstay.converge.manifest.entries import COMMON

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
        sub_parser.add_argument("--noop", action="store_true", help="dry run: show what would change, change nothing")
        sub_parser.add_argument("--diff", action="store_true", help="show file changes as diffs")
        sub_parser.add_argument("--json", action="store_true", help="print one JSON document")
        sub_parser.add_argument(
            "--lock-wait", metavar="DURATION", help="how long to wait for another run, such as 30s"
        )


def _add_property(group: argparse._ArgumentGroup, key: str, entry: Property, choices: tuple[str, ...]) -> None:
    import argparse

    from mainstay.converge.value_kinds import BOOLEAN, EXIT_CODES, TEXTS

    option, destination = f"--{key.replace('_', '-')}", f"property_{key}"
    help_text = entry.summary.replace("%", "%%") + (f" ({', '.join(choices)})" if choices else "")
    if entry.kind is BOOLEAN:
        group.add_argument(option, dest=destination, action=argparse.BooleanOptionalAction, help=help_text)
    elif entry.kind in (TEXTS, EXIT_CODES):
        group.add_argument(
            option, dest=destination, action="append", metavar="VALUE", help=f"{help_text}; repeatable"
        )
    else:
        group.add_argument(option, dest=destination, metavar="VALUE", help=help_text)


def _make_document(arguments: argparse.Namespace) -> Node:
    """The options as a manifest with one resource."""
    from mainstay.converge import resources
    from mainstay.converge.manifest.entries import COMMON
    from mainstay.converge.value_kinds import BOOLEAN, EXIT_CODES
    from mainstay.foundation.yaml.scalars import PlainScalar

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
    return [{arguments.type: [{arguments.name: properties}]}]


def run(arguments: argparse.Namespace) -> int:
    from mainstay.cli.views.run_display import RunDisplay
    from mainstay.converge.apply import Options
    from mainstay.converge.host.sources import current_directory
    from mainstay.converge.report import Observer
    from mainstay.converge.run import RunRequest

    observer = Observer() if arguments.json else RunDisplay(verbose=True)

    def make_request(observer: Observer, stop: StopFlag) -> RunRequest:
        return RunRequest(
            "mainstay ensure",
            document=_make_document(arguments),
            identity=f"ensure:{arguments.type}#{arguments.name}",
            working_directory=current_directory(),
            options=Options(noop=arguments.noop, differences=arguments.diff),
            observer=observer,
            stop=stop,
            starting=lambda: catch_signals(stop),
            lock_wait_seconds=parse_lock_wait(arguments.lock_wait),
        )

    return run_and_report(make_request, observer, as_json=arguments.json, report_file=None, detailed=False)
